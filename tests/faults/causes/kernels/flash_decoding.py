"""softmax(scale q k^T) v of one query a head: each program takes a part of the keys, a second kernel joins the parts."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def parts_kernel(
    q_ptr, k_ptr, v_ptr, acc_ptr, max_ptr, sum_ptr, n, d, scale, PARTS: tl.constexpr, BLOCK: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    part, head = tl.program_id(0), tl.program_id(1)
    depth = tl.arange(0, BLOCK_D)
    q = tl.load(q_ptr + head * d + depth, mask=depth < d, other=0.0).to(tl.float32)
    each = tl.cdiv(n, PARTS)
    end = tl.minimum(n, (part + 1) * each)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for start in range(part * each, end, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        mask = (keys < end)[:, None] & (depth < d)[None, :]
        places = head * n * d + keys[:, None] * d + depth[None, :]
        k = tl.load(k_ptr + places, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + places, mask=mask, other=0.0).to(tl.float32)
        scores = tl.sum(k * q[None, :], axis=1) * scale
        scores = tl.where(keys < end, scores, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=0))
        p = tl.exp(scores - higher)
        rescale = tl.exp(largest - higher)
        total = total * rescale + tl.sum(p, axis=0)
        acc = acc * rescale + tl.sum(p[:, None] * v, axis=0)
        largest = higher
    at = head * PARTS + part
    tl.store(acc_ptr + at * d + depth, acc, mask=depth < d)
    tl.store(max_ptr + at, largest)
    tl.store(sum_ptr + at, total)


@triton.jit
def join_kernel(acc_ptr, max_ptr, sum_ptr, o_ptr, d, PARTS: tl.constexpr, BLOCK_D: tl.constexpr):
    head = tl.program_id(0)
    depth = tl.arange(0, BLOCK_D)
    part = tl.arange(0, PARTS)
    largest = tl.load(max_ptr + head * PARTS + part)
    weight = tl.exp(largest - tl.max(largest, axis=0))
    total = tl.sum(tl.load(sum_ptr + head * PARTS + part) * weight, axis=0)
    places = (head * PARTS + part)[:, None] * d + depth[None, :]
    acc = tl.load(acc_ptr + places, mask=(depth < d)[None, :], other=0.0)
    o = tl.sum(acc * weight[:, None], axis=0) / total
    tl.store(o_ptr + head * d + depth, o, mask=depth < d)


def flash_decoding(q, k, v):
    heads, n, d = k.shape
    acc = torch.empty((heads, 4, d), dtype=torch.float32, device=q.device)
    largest, total = (torch.empty((heads, 4), dtype=torch.float32, device=q.device) for _ in range(2))
    o = torch.empty((heads, d), dtype=torch.float32, device=q.device)
    block_d = triton.next_power_of_2(d)
    parts_kernel[(4, heads)](q, k, v, acc, largest, total, n, d, d**-0.5, PARTS=4, BLOCK=16, BLOCK_D=block_d)
    join_kernel[(heads,)](acc, largest, total, o, d, PARTS=4, BLOCK_D=block_d)
    return o


def reference(xp, q, k, v):
    scores = xp.sum(k * q[:, None, :], axis=2) * k.shape[2] ** -0.5
    p = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return xp.sum(p[:, :, None] * v, axis=1) / xp.sum(p, axis=1, keepdims=True)


@bv.judged(reference=reference)
def test_flash_decoding(draw):
    heads, n, d, dtype = draw.size(1, 3), draw.size(4, 150, around=64), draw.size(1, 33), draw.choice(("fp16", "fp32"))
    return flash_decoding(draw.tensor(dtype, (heads, d)), *(draw.tensor(dtype, (heads, n, d)) for _ in range(2)))
