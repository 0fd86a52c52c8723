"""Attention of one query a head; keys and values lie in pages of 8 that a table names; query heads share those of their group."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def paged_attention_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, lengths_ptr, o_ptr, most_pages, kv_heads, d, scale, SHARED: tl.constexpr, PAGE: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    sequence, head = tl.program_id(0), tl.program_id(1)
    heads = tl.num_programs(1)
    kv_head = head // SHARED
    depth = tl.arange(0, BLOCK_D)
    mask_d = depth < d
    q = tl.load(q_ptr + (sequence * heads + head) * d + depth, mask=mask_d, other=0.0).to(tl.float32)
    length = tl.load(lengths_ptr + sequence)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    acc = tl.zeros((BLOCK_D,), tl.float32)
    for place in range(tl.cdiv(length, PAGE)):
        page = tl.load(table_ptr + sequence * most_pages + place)
        slots = tl.arange(0, PAGE)
        keys = place * PAGE + slots
        seen = keys < length
        at = ((page * PAGE + slots)[:, None] * kv_heads + kv_head) * d + depth[None, :]
        k = tl.load(k_ptr + at, mask=seen[:, None] & mask_d[None, :], other=0.0).to(tl.float32)
        v = tl.load(v_ptr + at, mask=seen[:, None] & mask_d[None, :], other=0.0).to(tl.float32)
        scores = tl.where(seen, tl.sum(k * q[None, :], axis=1) * scale, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=0))
        p = tl.exp(scores - higher)
        rescale = tl.exp(largest - higher)
        total = total * rescale + tl.sum(p, axis=0)
        acc = acc * rescale + tl.sum(p[:, None] * v, axis=0)
        largest = higher
    tl.store(o_ptr + (sequence * heads + head) * d + depth, acc / total, mask=mask_d)


def paged_attention(q, k, v, table, lengths):
    sequences, heads, d = q.shape
    page, kv_heads = k.shape[1:3]
    o = torch.empty((sequences, heads, d), dtype=torch.float32, device=q.device)
    paged_attention_kernel[(sequences, heads)](
        q, k, v, table, lengths, o, table.shape[1], kv_heads, d, d**-0.5, SHARED=heads // kv_heads, PAGE=page,
        BLOCK_D=triton.next_power_of_2(d),
    )  # fmt: skip
    return o


def reference(xp, q, k, v, table, lengths):
    sequences, heads, d = q.shape
    kv_heads = k.shape[2]
    keys, values = (xp.reshape(xp.take(each, xp.reshape(table, (-1,)), axis=0), (sequences, -1, kv_heads, d)) for each in (k, v))
    keys, values = (xp.repeat(each, heads // kv_heads, axis=2) for each in (keys, values))
    seen = xp.arange(keys.shape[1]) < lengths[:, None]
    scores = xp.sum(keys * q[:, None, :, :], axis=3) * d**-0.5
    scores = xp.where(seen[:, :, None], scores, -xp.inf)
    p = xp.exp(scores - xp.max(scores, axis=1, keepdims=True))
    return xp.sum(p[:, :, :, None] * values, axis=1) / xp.sum(p, axis=1)[:, :, None]


@bv.judged(reference=reference)
def test_paged_attention(draw):
    sequences, kv_heads, shared, d = draw.size(1, 3), draw.size(1, 3), draw.size(1, 3), draw.size(1, 20)
    pages, most = draw.size(1, 9), draw.size(1, 5)
    q = draw.tensor("fp16", (sequences, kv_heads * shared, d))
    k, v = (draw.tensor("fp16", (pages, 8, kv_heads, d)) for _ in range(2))
    return paged_attention(q, k, v, draw.indices((sequences, most), pages), draw.integers(sequences, 1, 8 * most))
