"""Causal attention inside each of several sequences, one after another, over the last WINDOW keys, with soft-capped scores."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def varlen_attention_kernel(
    q_ptr, k_ptr, v_ptr, starts_ptr, o_ptr, d, scale, cap, WINDOW: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    first = tl.load(starts_ptr + tl.program_id(1))
    end = tl.load(starts_ptr + tl.program_id(1) + 1)
    rows = first + tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_D)
    mask_d = (depth < d)[None, :]
    q = tl.load(q_ptr + rows[:, None] * d + depth[None, :], mask=(rows < end)[:, None] & mask_d, other=0.0)
    largest = tl.full((BLOCK_M,), -1e30, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for start in range(first, tl.minimum(end, first + (tl.program_id(0) + 1) * BLOCK_M), BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        mask = (cols < end)[:, None] & mask_d
        k = tl.load(k_ptr + cols[:, None] * d + depth[None, :], mask=mask, other=0.0)
        v = tl.load(v_ptr + cols[:, None] * d + depth[None, :], mask=mask, other=0.0)
        scores = tl.dot(q, k.T, input_precision="ieee") * scale
        scores = cap * (1.0 - 2.0 / (tl.exp(2.0 * scores / cap) + 1.0))
        far = rows[:, None] - cols[None, :]
        seen = (far >= 0) & (far < WINDOW) & (cols < end)[None, :]
        scores = tl.where(seen, scores, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - higher[:, None])
        rescale = tl.exp(largest - higher)
        total = total * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None] + tl.dot(p, v, input_precision="ieee")
        largest = higher
    tl.store(o_ptr + rows[:, None] * d + depth[None, :], acc / total[:, None], mask=(rows < end)[:, None] & mask_d)


def varlen_attention(q, k, v, ends):
    total, d = q.shape
    starts = torch.tensor([0, *ends], dtype=torch.int32, device=q.device)
    o = torch.empty_like(q)
    grid = (triton.cdiv(total, 16), starts.shape[0] - 1)
    block_d = max(16, triton.next_power_of_2(d))
    varlen_attention_kernel[grid](q, k, v, starts, o, d, d**-0.5, 4.0, WINDOW=20, BLOCK_M=16, BLOCK_N=16, BLOCK_D=block_d)
    return o


def reference(xp, q, k, v, n0, n1):
    rows = xp.arange(q.shape[0])
    sequence = xp.astype(rows >= n0, xp.int32) + xp.astype(rows >= n0 + n1, xp.int32)
    far = rows[:, None] - rows
    seen = (far >= 0) & (far < 20) & (sequence[:, None] == sequence)
    scores = 4.0 * xp.tanh((q @ k.mT) * q.shape[1] ** -0.5 / 4.0)
    scores = xp.where(seen, scores, -xp.inf)
    p = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return p @ v / xp.sum(p, axis=1, keepdims=True)


@bv.judged(reference=reference)
def test_varlen_attention(draw):
    n0, n1, n2, d = draw.size(1, 40, name="n0"), draw.size(1, 40, name="n1"), draw.size(1, 20), draw.size(1, 33)
    q, k, v = (draw.tensor("fp32", (n0 + n1 + n2, d)) for _ in range(3))
    return varlen_attention(q, k, v, (n0, n0 + n1, n0 + n1 + n2))
