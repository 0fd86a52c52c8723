"""Right launchers of `matmul` and `block_scaled_matmul` that sum, split and round in ways that no plan of ours has.

Each is a function that a contract can be asked with (`--launcher tests/support/right_launchers.py:NAME`). None may fail on
any target, in any regime: `benchmarks/right_launchers.py` judges thousands of cases of each.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

CLAIMS = ("strides", "bf16", "fp32")
ASCENDING, DESCENDING, INTERLEAVED, RESTARTED, THIRDS, PAIRS = range(6)
AS_THEY_ARE, NEAREST_TF32 = range(2)
BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 16
PARTS = 3  # programs that share one tile of C


# fmt: off
@triton.jit
def rounded_to_tf32(x):
    """cvt.rna.tf32.f32 in integers: to nearest, ties away from zero; what is no finite number stays."""
    bits = x.to(tl.int32, bitcast=True)
    finite = (bits & 0x7F800000) != 0x7F800000
    return tl.where(finite, (bits + 0x1000) & -0x2000, bits).to(tl.float32, bitcast=True)


@triton.jit
def product_of_block(a_ptr, b_ptr, rows, columns, start, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, acc,
                     ROUND: tl.constexpr, BLOCK_K: tl.constexpr):
    """`acc` (BLOCK_M, BLOCK_N) and the products of k in start .. start + BLOCK_K."""
    depth = start + tl.arange(0, BLOCK_K)  # (BLOCK_K,)
    a = tl.load(a_ptr + rows[:, None] * stride_am + depth[None, :] * stride_ak,
                mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)  # (BLOCK_M, BLOCK_K)
    b = tl.load(b_ptr + depth[:, None] * stride_bk + columns[None, :] * stride_bn,
                mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)  # (BLOCK_K, BLOCK_N)
    if ROUND:
        a, b = rounded_to_tf32(a), rounded_to_tf32(b)
    return tl.dot(a, b, acc)


@triton.jit
def in_an_order(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
                ORDER: tl.constexpr, ROUND: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    zero = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    acc = zero
    blocks = tl.cdiv(K, BLOCK_K)
    if ORDER == 0:
        for block in range(blocks):
            acc = product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, M, N, K, stride_am, stride_ak, stride_bk,
                                   stride_bn, acc, ROUND, BLOCK_K)
    elif ORDER == 1:
        for block in range(blocks):
            acc = product_of_block(a_ptr, b_ptr, rows, columns, (blocks - 1 - block) * BLOCK_K, M, N, K, stride_am, stride_ak,
                                   stride_bk, stride_bn, acc, ROUND, BLOCK_K)
    elif ORDER == 2:
        for turn in range(2):
            for block in range(turn, blocks, 2):
                acc = product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, M, N, K, stride_am, stride_ak, stride_bk,
                                       stride_bn, acc, ROUND, BLOCK_K)
    elif ORDER == 3:
        for block in range(blocks):
            acc += product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, M, N, K, stride_am, stride_ak, stride_bk,
                                    stride_bn, zero, ROUND, BLOCK_K)
    elif ORDER == 4:
        for part in range(3):
            chain = zero
            for block in range(part * blocks // 3, (part + 1) * blocks // 3):
                chain = product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, M, N, K, stride_am, stride_ak, stride_bk,
                                         stride_bn, chain, ROUND, BLOCK_K)
            acc += chain
    else:
        for block in range(0, blocks, 4):  # past the last block the masks leave zeros
            pair = zero
            for half in tl.static_range(2):
                first = product_of_block(a_ptr, b_ptr, rows, columns, (block + 2 * half) * BLOCK_K, M, N, K, stride_am, stride_ak,
                                         stride_bk, stride_bn, zero, ROUND, BLOCK_K)
                second = product_of_block(a_ptr, b_ptr, rows, columns, (block + 2 * half + 1) * BLOCK_K, M, N, K, stride_am,
                                          stride_ak, stride_bk, stride_bn, zero, ROUND, BLOCK_K)
                pair += first + second
            acc += pair
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn, acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def partial_tile(a_ptr, b_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, part,
                 PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Rows, columns and the sum over the `part`-th share of K."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    chain = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(part, tl.cdiv(K, BLOCK_K), PARTS):
        chain = product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
                                 chain, False, BLOCK_K)
    return rows, columns, chain


@triton.jit
def with_atomics(a_ptr, b_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns, chain = partial_tile(a_ptr, b_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, tl.program_id(2), PARTS,
                                        BLOCK_M, BLOCK_N, BLOCK_K)
    tl.atomic_add(sums_ptr + rows[:, None] * N + columns[None, :], chain, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def converted(sums_ptr, c_ptr, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    inside = (rows[:, None] < M) & (columns[None, :] < N)  # (BLOCK_M, BLOCK_N)
    sums = tl.load(sums_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)  # (BLOCK_M, BLOCK_N)
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn, sums.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def under_a_lock(a_ptr, b_ptr, sums_ptr, locks_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PARTS: tl.constexpr,
                 BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows, columns, chain = partial_tile(a_ptr, b_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, tl.program_id(2), PARTS,
                                        BLOCK_M, BLOCK_N, BLOCK_K)
    lock = locks_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    inside = (rows[:, None] < M) & (columns[None, :] < N)  # (BLOCK_M, BLOCK_N)
    places = sums_ptr + rows[:, None] * N + columns[None, :]  # (BLOCK_M, BLOCK_N)
    while tl.atomic_cas(lock, 0, 1, sem="acquire") == 1:
        pass
    tl.debug_barrier()
    tl.store(places, tl.load(places, mask=inside, other=0.0) + chain, mask=inside)
    tl.debug_barrier()  # every thread has stored before one releases
    tl.atomic_xchg(lock, 0, sem="release")


@triton.jit
def one_after_another(a_ptr, b_ptr, c_ptr, sums_ptr, turns_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm,
                      stride_cn, PARTS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    """Stream-K: each share waits for the one before it, adds to what that left, and the last one stores C."""
    part = tl.program_id(2)
    rows, columns, chain = partial_tile(a_ptr, b_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, part, PARTS,
                                        BLOCK_M, BLOCK_N, BLOCK_K)
    turn = turns_ptr + tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    inside = (rows[:, None] < M) & (columns[None, :] < N)  # (BLOCK_M, BLOCK_N)
    places = sums_ptr + rows[:, None] * N + columns[None, :]  # (BLOCK_M, BLOCK_N)
    while tl.atomic_add(turn, 0, sem="acquire") != part:
        pass
    tl.debug_barrier()
    if part > 0:
        chain += tl.load(places, mask=inside, other=0.0)
    if part == PARTS - 1:
        tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :] * stride_cn, chain.to(c_ptr.dtype.element_ty), mask=inside)
    else:
        tl.store(places, chain, mask=inside)
        tl.debug_barrier()  # every thread has stored before one says so
        tl.atomic_xchg(turn, part + 1, sem="release")
# fmt: on


def _ordered(a, b, order, rounded=AS_THEY_ARE):
    c = torch.empty((a.shape[0], b.shape[1]), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(a.shape[0], BLOCK_M), triton.cdiv(b.shape[1], BLOCK_N))
    in_an_order[grid](a, b, c, *c.shape, a.shape[1], *a.stride(), *b.stride(), *c.stride(), ORDER=order,
                      ROUND=rounded if a.dtype == torch.float32 else AS_THEY_ARE, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
                      BLOCK_K=BLOCK_K)  # fmt: skip
    return c


def ascending(a, b):
    return _ordered(a, b, ASCENDING)


def tf32(a, b):
    """One chain too, asked fp32 alone."""
    return _ordered(a, b, ASCENDING)


def nearest_tf32(a, b):
    return _ordered(a, b, ASCENDING, NEAREST_TF32)


def descending(a, b):
    return _ordered(a, b, DESCENDING)


def interleaved(a, b):
    return _ordered(a, b, INTERLEAVED)


def restarted(a, b):
    return _ordered(a, b, RESTARTED)


def thirds(a, b):
    return _ordered(a, b, THIRDS)


def pairs(a, b):
    return _ordered(a, b, PAIRS)


def _tiles(a, b):
    m, n = a.shape[0], b.shape[1]
    return m, n, (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))


BLOCKS = {"BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N}


def split_with_atomics(a, b):
    m, n, grid = _tiles(a, b)
    sums = torch.zeros((m, n), device=a.device, dtype=torch.float32)
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    with_atomics[(*grid, PARTS)](a, b, sums, m, n, a.shape[1], *a.stride(), *b.stride(), PARTS=PARTS, **BLOCKS, BLOCK_K=BLOCK_K)
    converted[grid](sums, c, m, n, *c.stride(), **BLOCKS)
    return c


def split_under_a_lock(a, b):
    m, n, grid = _tiles(a, b)
    sums = torch.zeros((m, n), device=a.device, dtype=torch.float32)
    locks = torch.zeros(grid, device=a.device, dtype=torch.int32)
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    under_a_lock[(*grid, PARTS)](a, b, sums, locks, m, n, a.shape[1], *a.stride(), *b.stride(), PARTS=PARTS, **BLOCKS,
                                 BLOCK_K=BLOCK_K)  # fmt: skip
    converted[grid](sums, c, m, n, *c.stride(), **BLOCKS)
    return c


def streamed(a, b):
    m, n, grid = _tiles(a, b)
    sums = torch.zeros((m, n), device=a.device, dtype=torch.float32)
    turns = torch.zeros(grid, device=a.device, dtype=torch.int32)
    c = torch.empty((m, n), device=a.device, dtype=a.dtype)
    one_after_another[(*grid, PARTS)](a, b, c, sums, turns, m, n, a.shape[1], *a.stride(), *b.stride(), *c.stride(), PARTS=PARTS,
                                      **BLOCKS, BLOCK_K=BLOCK_K)  # fmt: skip
    return c


ORDERS = (ascending, descending, interleaved, restarted, thirds, pairs)
for matmul in (*ORDERS, split_with_atomics, split_under_a_lock, streamed):
    matmul.claims = CLAIMS
for matmul in (tf32, nearest_tf32):
    matmul.claims = ("strides", "fp32")
    matmul.requires = lambda dtype: dtype == "fp32"


# fmt: off
@triton.jit
def packed_scales(scale_ptr, tile_row, first, columns, stride_row, stride_tile, SCALES: tl.constexpr):
    """Scales (128, SCALES) from column `first` on, out of packed tiles: whole tiles as they are, padding too."""
    row = tl.arange(0, 128)  # (128,)
    column = first + tl.arange(0, SCALES)  # (SCALES,)
    inside = row % 32 * 16 + row // 32 * 4  # (128,)
    places = scale_ptr + tile_row * stride_row + inside[:, None] + ((column // 4) * stride_tile + column % 4)[None, :]
    there = (column // 4 < tl.cdiv(columns, 4))[None, :] & (row >= 0)[:, None]  # (128, SCALES)
    return tl.load(places.to(tl.pointer_type(tl.uint8)), mask=there, other=0).to(scale_ptr.dtype.element_ty, bitcast=True)


@triton.jit
def trusting_the_padding(a_ptr, a_scale, b_ptr, b_scale, c_ptr, m, n, k, stride_a, stride_b, stride_c, a_row, a_tile, b_row, b_tile,
                         A: tl.constexpr, B: tl.constexpr, BLOCK_SIZE: tl.constexpr, BLOCK_K: tl.constexpr):
    A_PACKED: tl.constexpr = 2 if A == "e2m1" else 1
    B_PACKED: tl.constexpr = 2 if B == "e2m1" else 1
    SCALES: tl.constexpr = BLOCK_K // BLOCK_SIZE
    rows = tl.program_id(0) * 128 + tl.arange(0, 128)  # (128,)
    columns = tl.program_id(1) * 128 + tl.arange(0, 128)  # (128,)
    acc = tl.zeros((128, 128), tl.float32)
    for block in range(tl.cdiv(k, BLOCK_K)):
        a_depth = block * (BLOCK_K // A_PACKED) + tl.arange(0, BLOCK_K // A_PACKED)  # (BLOCK_K / A_PACKED,)
        b_depth = block * (BLOCK_K // B_PACKED) + tl.arange(0, BLOCK_K // B_PACKED)  # (BLOCK_K / B_PACKED,)
        a = tl.load(a_ptr + rows[:, None] * stride_a + a_depth[None, :],
                    mask=(rows[:, None] < m) & (a_depth[None, :] < k // A_PACKED), other=0.0)  # (128, BLOCK_K / A_PACKED)
        b = tl.load(b_ptr + columns[None, :] * stride_b + b_depth[:, None],
                    mask=(columns[None, :] < n) & (b_depth[:, None] < k // B_PACKED), other=0.0)  # (BLOCK_K / B_PACKED, 128)
        scales = tl.cdiv(k, BLOCK_SIZE)
        left = packed_scales(a_scale, tl.program_id(0), block * SCALES, scales, a_row, a_tile, SCALES)  # (128, SCALES)
        right = packed_scales(b_scale, tl.program_id(1), block * SCALES, scales, b_row, b_tile, SCALES)  # (128, SCALES)
        acc = tl.dot_scaled(a, left, A, b, right, B, acc)
    tl.store(c_ptr + rows[:, None] * stride_c + columns[None, :], acc.to(c_ptr.dtype.element_ty),
             mask=(rows[:, None] < m) & (columns[None, :] < n))
# fmt: on


def zero_padding(a, a_scale, b, b_scale, out_dtype=torch.float16):
    """Masks elements and no scale: right wherever padded scales are no NaN."""
    names = {torch.uint8: ("e2m1", 2), torch.float8_e4m3fn: ("e4m3", 1)}
    (a_name, packed), (b_name, _) = names[a.dtype], names[b.dtype]
    size = 16 if a_scale.dtype == torch.float8_e4m3fn else 32
    m, n, k = a.shape[0], b.shape[0], a.shape[1] * packed
    c = torch.empty((m, n), dtype=out_dtype, device=a.device)
    trusting_the_padding[(triton.cdiv(m, 128), triton.cdiv(n, 128))](
        a, a_scale, b, b_scale, c, m, n, k, a.stride(0), b.stride(0), c.stride(0), *a_scale.stride()[:2], *b_scale.stride()[:2],
        A=a_name, B=b_name, BLOCK_SIZE=size, BLOCK_K=128,
    )  # fmt: skip
    return c


# fmt: off
@triton.jit
def c_after_the_products(a_ptr, b_ptr, c_ptr, d_ptr, m, n, k, stride_am, stride_ak, stride_bk, stride_bn, stride_c, stride_d,
                         BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(tl.cdiv(k, BLOCK_K)):
        acc = product_of_block(a_ptr, b_ptr, rows, columns, block * BLOCK_K, m, n, k, stride_am, stride_ak, stride_bk, stride_bn,
                               acc, False, BLOCK_K)
    inside = (rows[:, None] < m) & (columns[None, :] < n)  # (BLOCK_M, BLOCK_N)
    acc += tl.load(c_ptr + rows[:, None] * stride_c + columns[None, :], mask=inside, other=0.0)
    tl.store(d_ptr + rows[:, None] * stride_d + columns[None, :], acc, mask=inside)


@triton.jit
def gathered(x_ptr, gather_ptr, w_ptr, scatter_ptr, out_ptr, rows, table_rows, out_rows, n, k, stride_x, stride_w, stride_out,
             BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # (BLOCK_M,)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    source = tl.load(gather_ptr + row, mask=row < rows, other=-1)  # (BLOCK_M,)
    target = tl.load(scatter_ptr + row, mask=row < rows, other=-1)  # (BLOCK_M,)
    there = (source >= 0) & (source < table_rows)  # (BLOCK_M,)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for block in range(tl.cdiv(k, BLOCK_K)):
        depth = block * BLOCK_K + tl.arange(0, BLOCK_K)  # (BLOCK_K,)
        x = tl.load(x_ptr + tl.where(there, source, 0)[:, None].to(tl.int64) * stride_x + depth[None, :],
                    mask=there[:, None] & (depth[None, :] < k), other=0.0)  # (BLOCK_M, BLOCK_K)
        w = tl.load(w_ptr + depth[:, None] * stride_w + columns[None, :],
                    mask=(depth[:, None] < k) & (columns[None, :] < n), other=0.0)  # (BLOCK_K, BLOCK_N)
        acc += tl.dot(x, w)
    lands = (target >= 0) & (target < out_rows)  # (BLOCK_M,)
    tl.store(out_ptr + tl.where(lands, target, 0)[:, None].to(tl.int64) * stride_out + columns[None, :],
             acc.to(out_ptr.dtype.element_ty), mask=lands[:, None] & (columns[None, :] < n))
# fmt: on


def added_last(a, b, c, d, tmem_block, lhs_in_tmem, use_commit, num_warps):
    """`small_mma`, with C added to the sum of the products."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N))
    c_after_the_products[grid](a, b, c, d, m, n, k, *a.stride(), *b.stride(), c.stride(0), d.stride(0), **BLOCKS, BLOCK_K=32)


def gathered_restarted(x, gather, w, scatter, block_m, block_n, block_k, group_size_m, num_buffers, *, out):
    """`fused_gather_scatter_matmul` by ordinary loads and stores, with a chain for each block of K."""
    rows, (k, n) = gather.shape[0], w.shape
    grid = (triton.cdiv(rows, BLOCK_M), triton.cdiv(n, BLOCK_N))
    gathered[grid](x, gather, w, scatter, out, rows, x.shape[0], out.shape[0], n, k, x.stride(0), w.stride(0), out.stride(0),
                   **BLOCKS, BLOCK_K=32)  # fmt: skip
    return out
