"""loss = log(sum(exp(x w^T))) - (1 - e) logit[target] - e mean(logits), in blocks of the vocabulary; 0 for targets below 0."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def linear_cross_entropy_kernel(
    x_ptr, w_ptr, target_ptr, loss_ptr, words, d, smoothing, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0)
    depth = tl.arange(0, BLOCK_D)
    x = tl.load(x_ptr + token * d + depth, mask=depth < d, other=0.0)
    target = tl.load(target_ptr + token)
    largest = tl.full((), -1e30, tl.float32)
    total = tl.zeros((), tl.float32)
    plain = tl.zeros((), tl.float32)
    due = tl.zeros((), tl.float32)
    for start in range(0, words, BLOCK):
        word = start + tl.arange(0, BLOCK)
        inside = (word < words)[:, None] & (depth < d)[None, :]
        w = tl.load(w_ptr + word[:, None] * d + depth[None, :], mask=inside, other=0.0)
        logits = tl.sum(w * x[None, :], axis=1)
        plain += tl.sum(logits, axis=0)
        due += tl.sum(tl.where(word == target, logits, 0.0), axis=0)
        logits = tl.where(word < words, logits, -float("inf"))
        higher = tl.maximum(largest, tl.max(logits, axis=0))
        total = total * tl.exp(largest - higher) + tl.sum(tl.exp(logits - higher), axis=0)
        largest = higher
    loss = largest + tl.log(total) - (1.0 - smoothing) * due - smoothing * (plain / words)
    tl.store(loss_ptr + token, tl.where(target < 0, 0.0, loss))


def linear_cross_entropy(x, w, target):
    loss = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    words, d = w.shape
    linear_cross_entropy_kernel[(x.shape[0],)](x, w, target, loss, words, d, 0.25, BLOCK=16, BLOCK_D=triton.next_power_of_2(d))
    return loss


def reference(xp, x, w, target):
    logits = xp.sum(x[:, None, :] * w, axis=2)
    largest = xp.max(logits, axis=1)
    entropy = largest + xp.log(xp.sum(xp.exp(logits - largest[:, None]), axis=1))
    due = xp.take_along_axis(logits, xp.maximum(target, xp.asarray(0, dtype=xp.int32))[:, None], axis=1)[:, 0]
    loss = entropy - 0.75 * due - 0.25 * xp.mean(logits, axis=1)
    return xp.where(target < 0, 0.0, loss)


@bv.judged(reference=reference)
def test_linear_cross_entropy(draw):
    tokens, words, d = draw.size(1, 20), draw.size(2, 70, around=32), draw.size(1, 20)
    x, w = draw.tensor("fp32", (tokens, d)), draw.tensor("fp32", (words, d))
    return linear_cross_entropy(x, w, draw.integers(tokens, -1, words - 1))
