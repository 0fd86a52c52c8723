"""softmax(scale q k^T) v, head by head, in blocks of keys: nothing of the size of q k^T is ever stored."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, m, n, d, scale, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    depth = tl.arange(0, BLOCK_D)
    q_mask = (rows < m)[:, None] & (depth < d)[None, :]
    q = tl.load(q_ptr + head * m * d + rows[:, None] * d + depth[None, :], mask=q_mask, other=0.0)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    last = tl.minimum(n, (tl.program_id(0) + 1) * BLOCK_M) if CAUSAL else n
    for start in range(0, last, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        kv_mask = (cols < n)[:, None] & (depth < d)[None, :]
        places = head * n * d + cols[:, None] * d + depth[None, :]
        k = tl.load(k_ptr + places, mask=kv_mask, other=0.0)
        v = tl.load(v_ptr + places, mask=kv_mask, other=0.0)
        seen = (cols < n)[None, :]
        if CAUSAL:
            seen = seen & (cols[None, :] <= rows[:, None])
        scores = tl.where(seen, tl.dot(q, k.T) * scale, -float("inf"))
        higher = tl.maximum(largest, tl.max(scores, axis=1))
        p = tl.exp(scores - higher[:, None])
        rescale = tl.exp(largest - higher)
        total = total * rescale + tl.sum(p, axis=1)
        acc = acc * rescale[:, None] + tl.dot(p.to(v.dtype), v)
        largest = higher
    o = acc / total[:, None]
    tl.store(o_ptr + head * m * d + rows[:, None] * d + depth[None, :], o.to(o_ptr.dtype.element_ty), mask=q_mask)


def attention(q, k, v, causal=False):
    """`q` (heads, m, d), `k` and `v` (heads, n, d) of fp16 or bf16, contiguous, d at most 128. Causal: row i sees keys 0 to i."""
    (heads, m, d), n = q.shape, k.shape[1]
    o = torch.empty_like(q)
    block_d = max(16, triton.next_power_of_2(d))
    grid = (triton.cdiv(m, 32), heads)
    attention_kernel[grid](q, k, v, o, m, n, d, d**-0.5, CAUSAL=causal, BLOCK_M=32, BLOCK_N=32, BLOCK_D=block_d)
    return o
