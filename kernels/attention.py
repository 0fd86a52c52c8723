"""O = softmax(scale Q K^T) V, head by head: attention, causal or not, with fewer heads of K and V than of Q, or as many.

    S[h, i, j] = Q[h, i, :] . K[g, j, :]                        g = h // (heads / kv_heads), c = scale log2(e)
    lse[h, i] = log2(sum_j 2^(c S[h, i, j]))
    O[h, i, :] = sum_j P[h, i, j] V[g, j, :]                    P[h, i, j] = 2^(c S[h, i, j] - lse[h, i])
    dV[g, j, :] = sum_h,i P[h, i, j] dO[h, i, :]                h of the group of g
    dQ[h, i, :] = scale sum_j T[h, i, j] K[g, j, :]             T[h, i, j] = P[h, i, j] (dO[h, i, :] . V[g, j, :] - delta[h, i])
    dK[g, j, :] = scale sum_h,i T[h, i, j] Q[h, i, :]           delta[h, i] = O[h, i, :] . dO[h, i, :]

Q, O: (batch, heads, m, D) of fp16 or bf16; K, V: (batch, kv_heads, n, D) of that type; lse: (batch, heads, m) of fp32. Causal:
row i of Q meets rows j <= i + n - m of K, so the last row meets all. A row that meets none gets zeros, and -inf for its lse.

One program takes `block_m` rows of one head through K and V, `block_n` rows at a time, in ascending order. A step has S by tensor
cores, the largest score of each row so far, and powers 2^(c S - largest) by a fused multiply-add and ex2.approx. It adds the powers
in fp32, and multiplies them with V in the type of V. What was added before is faded first. All other operations round. Where
threads hold a row decides the order of its sum, and the shape of the tile decides that: so every bit is decided.

Backward is three launches: delta; dQ, a program for `block_m` rows of Q that goes through K and V; dK and dV, a program for
`block_m` rows of K that goes through the heads of its group and their rows, `block_n` at a time, all in ascending order. P and T
are rounded to the type of V before their products. Nothing is added by atomics: words do not depend on who comes first.

Preconditions, and what each costs when broken:

- The elements of a row are neighbours: otherwise other elements are read. Refused by the launcher.
- Scores of rows that do not exist, or are not met, count as -inf: with 0 instead they would enter maximum and sum.
- The exponent's base is 0 where a row has met nothing yet: -inf less -inf would be NaN.
- scale is positive: the largest score of a row is found before it is scaled. Refused by the launcher.
- A program whose rows meet nothing takes one block all the same. On sm_100 the compiler reads the scores of the first block
  ahead of the loop, also where there is none, and nobody has written them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import e, log2

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import dtype_clause, is_power_of_two, positive_clause, same_place, same_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, warp_threads

REQUIRES = frozenset({Feature.MMA_SYNC})
DTYPES = ("fp16", "bf16")
LONGEST = 256  # elements of a row
GRID = 65535  # programs along the second axis of a grid
LOG2_E = log2(e)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes; the elements that follow each row of Q and dO, and of K and V; `scale` None: 1 / sqrt(d). `backward`: the gradients
    are asked for too."""

    batch: int
    heads: int
    kv_heads: int
    m: int
    n: int
    d: int
    dtype: str = "fp16"
    causal: bool = False
    scale: float | None = None
    q_pad: int = 0
    kv_pad: int = 0
    backward: bool = False


@dataclass(frozen=True, kw_only=True)
class Config:
    """Rows of Q and of K of one step, warps, and stages of the loads."""

    block_m: int = 128
    block_n: int = 64
    num_warps: int = 8
    stages: int = 2


CLAUSES = (
    dtype_clause(DTYPES, "the products of a row's powers with V have no such instruction"),
    positive_clause("batch", "heads", "kv_heads", "m", "n", "d"),
    Clause(
        name="row",
        holds=lambda p, c: p.d <= LONGEST,
        value=lambda p, c: f"d = {p.d}",
        rule=f"a row has at most {LONGEST} elements",
        remedy="split the head",
        cost="what a program adds up does not fit its registers",
        layer="ptxas",
    ),
    Clause(
        name="groups",
        holds=lambda p, c: p.heads % p.kv_heads == 0,
        value=lambda p, c: f"{p.heads} heads of Q, {p.kv_heads} of K and V",
        rule="the heads of K and V divide those of Q",
        remedy="repeat heads of K and V",
        cost="the last heads of Q read K and V beyond their end",
    ),
    Clause(
        name="grid",
        holds=lambda p, c: p.batch * p.heads <= GRID,
        value=lambda p, c: f"{p.batch} x {p.heads} heads",
        rule=f"batch times heads is at most {GRID}",
        remedy="launch parts of the batch",
        cost="the grid cannot be launched",
        layer="driver",
    ),
    Clause(
        name="scale",
        holds=lambda p, c: p.scale is None or 0 < p.scale < float("inf"),
        value=lambda p, c: f"scale = {p.scale}",
        rule="the scale is positive and finite",
        remedy="negate Q",
        cost="the largest score of a row is the least once it is scaled, and powers overflow",
    ),
    Clause(
        name="powers of two",
        holds=lambda p, c: all(is_power_of_two(size) for size in (c.block_m, c.block_n, c.num_warps)),
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}, {c.num_warps} warps",
        rule="tile and warps are powers of two",
        remedy="take the next power of two: the matrices may stay ragged",
        cost="a tile program has no such tensor",
        layer="front end",
    ),
    Clause(
        name="rows of a warp",
        holds=lambda p, c: 16 * c.num_warps <= c.block_m <= 128,
        value=lambda p, c: f"block_m = {c.block_m}, {c.num_warps} warps",
        rule="block_m is at most 128 and at least 16 for each warp",
        remedy="take block_m=128, num_warps=8",
        cost="warps share the sum of a row, or a program's rows do not fit its registers",
    ),
    Clause(
        name="columns",
        holds=lambda p, c: 16 <= c.block_n <= 256,
        value=lambda p, c: f"block_n = {c.block_n}",
        rule="block_n is 16 to 256",
        remedy="take block_n=64",
        cost="there is no instruction to make it of",
        layer="front end",
    ),
    Clause(
        name="stages",
        holds=lambda p, c: c.stages >= 1,
        value=lambda p, c: f"stages = {c.stages}",
        rule="loads have at least one stage",
        remedy="take stages=2",
        cost="nothing is ever loaded",
        layer="front end",
    ),
)


SIZES = ("heads", "kv_heads", "group", "m", "n")  # no address is made of them that a whole number of 16 bytes would help


@triton.jit(do_not_specialize=SIZES)
def attention_kernel(
    q, k, v, o, lse, heads, group, m, n, factor,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * BLOCK_M
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    rows, depth = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)  # (BLOCK_M,), (BLOCK_D,)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    queries = _rows_of(q, rows, m, q_row, depth, D)  # (BLOCK_M, BLOCK_D)
    largest = tl.full((BLOCK_M,), -float("inf"), tl.float32)  # (BLOCK_M,)
    total = tl.zeros((BLOCK_M,), tl.float32)  # (BLOCK_M,)
    sums = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)  # (BLOCK_M, BLOCK_D)
    for first in tl.range(0, _end(start + BLOCK_M, m, n, CAUSAL), BLOCK_N, num_stages=STAGES):
        columns = first + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
        keys = _rows_of(k, columns, n, k_row, depth, D)  # (BLOCK_N, BLOCK_D)
        scores = tl.where(
            _visible_mask(rows, columns, m, n, CAUSAL), tl.dot(queries, tl.trans(keys)), -float("inf")
        )  # (BLOCK_M, BLOCK_N)
        higher = tl.maximum(largest, tl.max(scores, 1) * factor)  # (BLOCK_M,)
        base = tl.where(higher == -float("inf"), 0.0, higher)  # (BLOCK_M,)
        powers = tl.exp2(tl.fma(scores, factor, -base[:, None]))  # (BLOCK_M, BLOCK_N)
        faded = tl.exp2(largest - base)  # (BLOCK_M,)
        total = tl.fma(total, faded, tl.sum(powers, 1))
        values = _rows_of(v, columns, n, v_row, depth, D)  # (BLOCK_N, BLOCK_D)
        sums = tl.dot(powers.to(v.dtype.element_ty), values, sums * faded[:, None])
        largest = higher
    line = tl.program_id(1).to(tl.int64) * m + rows  # (BLOCK_M,)
    tl.store(lse + line, largest + _log2(total), mask=rows < m)
    share = tl.where(total == 0.0, 0.0, 1.0 / total)  # (BLOCK_M,)
    tl.store(
        o + line[:, None] * D + depth[None, :],
        (sums * share[:, None]).to(o.dtype.element_ty),
        mask=(rows < m)[:, None] & (depth < D)[None, :],
    )


@triton.jit
def _rows_of(matrix, rows, count, stride, depth, D: tl.constexpr):
    """(rows, BLOCK_D) of a matrix of `count` rows of D elements; zeros outside."""
    places = rows.to(tl.int64)[:, None] * stride + depth[None, :]  # (rows, BLOCK_D)
    return tl.load(matrix + places, mask=(rows < count)[:, None] & (depth < D)[None, :], other=0.0)


@triton.jit
def _end(behind, m, n, CAUSAL: tl.constexpr):
    """How many rows of K a program goes through, `behind` whose rows of Q the next program's begin. At least one."""
    return tl.maximum(tl.minimum(n, behind + n - m), 1) if CAUSAL else n


@triton.jit
def _visible_mask(rows, columns, m, n, CAUSAL: tl.constexpr):
    """(rows or 1, columns): which rows of K each row of Q meets."""
    met = (columns < n)[None, :]  # (1, columns)
    if CAUSAL:
        met = met & (columns[None, :] <= rows[:, None] + (n - m))  # (rows, columns)
    return met


@triton.jit
def _log2(x):
    return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@gluon.jit
def output_products_kernel(
    o, do, delta, heads, m, do_batch, do_head, do_row, D: gl.constexpr, BLOCK_D: gl.constexpr, ROWS: gl.constexpr
):  # fmt: skip
    """delta[h, i] = O[h, i, :] . dO[h, i, :], eight neighbours of a row in one thread, BLOCK_D / 8 threads a row."""
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8 * warp_threads() // BLOCK_D, BLOCK_D // 8], [gl.num_warps(), 1], [1, 0])
    line = gl.program_id(1).to(gl.int64)
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))  # (ROWS,)
    depth = gl.arange(0, BLOCK_D, gl.SliceLayout(0, layout))  # (BLOCK_D,)
    inside = (row < m)[:, None] & (depth < D)[None, :]  # (ROWS, BLOCK_D)
    made = gl.load(o + (line * m + row)[:, None] * D + depth[None, :], mask=inside, other=0.0).to(gl.float32)
    do += line // heads * do_batch + line % heads * do_head
    given = gl.load(do + row.to(gl.int64)[:, None] * do_row + depth[None, :], mask=inside, other=0.0).to(gl.float32)
    gl.store(delta + line * m + row, gl.sum(made * given, 1), mask=row < m)


@triton.jit(do_not_specialize=SIZES)
def attention_dq_kernel(
    q, k, v, do, lse, delta, dq, heads, group, m, n, factor, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """dQ of BLOCK_M rows of one head, through K and V in ascending blocks."""
    start = tl.program_id(0) * BLOCK_M
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    rows, depth = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)  # (BLOCK_M,), (BLOCK_D,)
    line = tl.program_id(1).to(tl.int64) * m + rows  # (BLOCK_M,)
    queries = _rows_of(q + batch * q_batch + head * q_head, rows, m, q_row, depth, D)  # (BLOCK_M, BLOCK_D)
    gradients = _rows_of(do + batch * do_batch + head * do_head, rows, m, do_row, depth, D)  # (BLOCK_M, BLOCK_D)
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    base = tl.load(lse + line, mask=rows < m, other=0.0)  # (BLOCK_M,)
    along = tl.load(delta + line, mask=rows < m, other=0.0)  # (BLOCK_M,)
    sums = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)  # (BLOCK_M, BLOCK_D)
    for first in tl.range(0, _end(start + BLOCK_M, m, n, CAUSAL), BLOCK_N, num_stages=STAGES):
        columns = first + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
        keys = _rows_of(k, columns, n, k_row, depth, D)  # (BLOCK_N, BLOCK_D)
        values = _rows_of(v, columns, n, v_row, depth, D)  # (BLOCK_N, BLOCK_D)
        powers = tl.exp2(tl.fma(tl.dot(queries, tl.trans(keys)), factor, -base[:, None]))  # (BLOCK_M, BLOCK_N)
        powers = tl.where(_visible_mask(rows, columns, m, n, CAUSAL), powers, 0.0)  # (BLOCK_M, BLOCK_N)
        slopes = powers * (tl.dot(gradients, tl.trans(values)) - along[:, None])  # (BLOCK_M, BLOCK_N)
        sums = tl.dot(slopes.to(k.dtype.element_ty), keys, sums)
    inside = (rows < m)[:, None] & (depth < D)[None, :]  # (BLOCK_M, BLOCK_D)
    tl.store(dq + line[:, None] * D + depth[None, :], (sums * scale).to(dq.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=SIZES)
def attention_dk_dv_kernel(
    q, k, v, do, lse, delta, dk, dv, kv_heads, group, m, n, factor, scale,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, do_batch, do_head, do_row,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    """dK and dV of BLOCK_M rows of one head of K, through the heads of Q of its group and their rows, in ascending blocks.

    Rows of Q behind the last add powers of 1 times zeros of dO and Q."""
    start = tl.program_id(0) * BLOCK_M
    batch, head = (tl.program_id(1) // kv_heads).to(tl.int64), (tl.program_id(1) % kv_heads).to(tl.int64)
    columns, depth = start + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)  # (BLOCK_M,), (BLOCK_D,)
    keys = _rows_of(k + batch * k_batch + head * k_head, columns, n, k_row, depth, D)  # (BLOCK_M, BLOCK_D)
    values = _rows_of(v + batch * v_batch + head * v_head, columns, n, v_row, depth, D)  # (BLOCK_M, BLOCK_D)
    found_k = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)  # (BLOCK_M, BLOCK_D)
    found_v = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)  # (BLOCK_M, BLOCK_D)
    begin = tl.maximum(start + m - n, 0) // BLOCK_N * BLOCK_N if CAUSAL else 0
    for member in range(group):
        of_q = head * group + member
        for first in tl.range(begin, m, BLOCK_N, num_stages=STAGES):
            rows = first + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
            line = (tl.program_id(1).to(tl.int64) * group + member) * m + rows  # (BLOCK_N,)
            queries = _rows_of(q + batch * q_batch + of_q * q_head, rows, m, q_row, depth, D)  # (BLOCK_N, BLOCK_D)
            gradients = _rows_of(do + batch * do_batch + of_q * do_head, rows, m, do_row, depth, D)  # (BLOCK_N, BLOCK_D)
            base = tl.load(lse + line, mask=rows < m, other=0.0)  # (BLOCK_N,)
            along = tl.load(delta + line, mask=rows < m, other=0.0)  # (BLOCK_N,)
            powers = tl.exp2(tl.fma(tl.dot(keys, tl.trans(queries)), factor, -base[None, :]))  # (BLOCK_M, BLOCK_N)
            if CAUSAL:
                powers = tl.where(columns[:, None] <= rows[None, :] + (n - m), powers, 0.0)
            found_v = tl.dot(powers.to(v.dtype.element_ty), gradients, found_v)
            slopes = powers * (tl.dot(values, tl.trans(gradients)) - along[None, :])  # (BLOCK_M, BLOCK_N)
            found_k = tl.dot(slopes.to(k.dtype.element_ty), queries, found_k)
    places = (tl.program_id(1).to(tl.int64) * n + columns)[:, None] * D + depth[None, :]  # (BLOCK_M, BLOCK_D)
    inside = (columns < n)[:, None] & (depth < D)[None, :]  # (BLOCK_M, BLOCK_D)
    tl.store(dk + places, (found_k * scale).to(dk.dtype.element_ty), mask=inside)
    tl.store(dv + places, found_v.to(dv.dtype.element_ty), mask=inside)


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_m: int = 128,
    block_n: int = 64,
    num_warps: int = 8,
    stages: int = 2,
) -> tuple[torch.Tensor, torch.Tensor]:
    """O (batch, heads, m, D) and lse (batch, heads, m), contiguous, on the operands' device.

    `q` (batch, heads, m, D); `k` and `v` (batch, kv_heads, n, D), the elements of a row neighbours. `scale` None: 1 / sqrt(D).
    ValueError names the broken clause with its value, rule and remedy.
    """
    config = Config(block_m=block_m, block_n=block_n, num_warps=num_warps, stages=stages)
    problem = _legal(q, k, v, causal, scale, config)
    o = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    attention_kernel[(triton.cdiv(problem.m, block_m), problem.batch * problem.heads)](
        q, k, v, o, lse, problem.heads, problem.heads // problem.kv_heads, problem.m, problem.n, factor(problem),
        *q.stride()[:3], *k.stride()[:3], *v.stride()[:3],
        causal, problem.d, block_m, block_n, block_of(problem.d), stages, num_warps=num_warps, **UNFUSED_OPTIONS,
    )  # fmt: skip
    return o, lse


def attention_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    do: torch.Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    block_m: int = 128,
    block_n: int = 32,
    num_warps: int = 8,
    stages: int = 2,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dQ, dK and dV, contiguous, from what `attention` took and gave, and `do` like O. ValueError: what is broken.

    A program has `block_m` rows of Q, or of K and V, and takes `block_n` rows of the other at a time. OutOfResources where that
    does not fit: sm_100 has tensor memory for rows of 128 elements; longer ones take block_m=32, num_warps=2 there.
    """
    config = Config(block_m=block_m, block_n=block_n, num_warps=num_warps, stages=stages)
    problem = _legal(q, k, v, causal, scale, config)
    if do.shape != q.shape or do.dtype != q.dtype or (do.stride(3) != 1 and problem.d > 1):
        raise ValueError(
            f"attention: dO is {tuple(do.shape)} of {do.dtype} with strides {do.stride()}: must be {tuple(q.shape)} of {q.dtype}, "
            "the elements of a row neighbours; call .contiguous()"
        )
    for name, made, shape, dtype in (("O", o, q.shape, q.dtype), ("lse", lse, q.shape[:3], torch.float32)):
        if made.shape != shape or made.dtype != dtype or not made.is_contiguous():
            raise ValueError(
                f"attention: {name} is {tuple(made.shape)} of {made.dtype}: must be contiguous {tuple(shape)} of {dtype}; pass "
                "what `attention` gave"
            )
    same_place(q, o, lse, do)
    m, n, d, lines, kv_lines = problem.m, problem.n, problem.d, problem.batch * problem.heads, problem.batch * problem.kv_heads
    delta = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    dq, dk, dv = (torch.empty(each.shape, dtype=each.dtype, device=each.device) for each in (q, k, v))
    rows = 4 * 256 // block_of(d)  # one for each thread's turn
    output_products_kernel[(triton.cdiv(m, rows), lines)](
        o, do, delta, problem.heads, m, *do.stride()[:3], d, block_of(d), rows, num_warps=4, **UNFUSED_OPTIONS
    )
    group = problem.heads // problem.kv_heads
    strides = *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *do.stride()[:3]
    settings = causal, d, block_m, block_n, block_of(d), stages
    attention_dq_kernel[(triton.cdiv(m, block_m), lines)](
        q, k, v, do, lse, delta, dq, problem.heads, group, m, n, factor(problem), scale_of(problem), *strides, *settings,
        num_warps=num_warps, **UNFUSED_OPTIONS,
    )  # fmt: skip
    attention_dk_dv_kernel[(triton.cdiv(n, block_m), kv_lines)](
        q, k, v, do, lse, delta, dk, dv, problem.kv_heads, group, m, n, factor(problem), scale_of(problem), *strides, *settings,
        num_warps=num_warps, **UNFUSED_OPTIONS,
    )  # fmt: skip
    return dq, dk, dv


def scale_of(problem: Problem) -> float:
    return problem.d**-0.5 if problem.scale is None else problem.scale


def factor(problem: Problem) -> float:
    """c, which the scores are multiplied by before 2 is raised to them."""
    return scale_of(problem) * LOG2_E


def block_of(d: int) -> int:
    """Elements of the tile that rows of `d` lie in: the next power of two, 16 at least, for that is one instruction."""
    return max(triton.next_power_of_2(d), 16)


def _legal(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, scale: float | None, config: Config) -> Problem:
    """What is asked; ValueError where it is not legal."""
    same_place(q, k, v)
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        raise ValueError(
            f"attention: shapes Q {tuple(q.shape)}, K {tuple(k.shape)}, V {tuple(v.shape)}: must be (batch, heads, m, D) and twice "
            "(batch, kv_heads, n, D); transpose heads and rows"
        )
    for name, operand in (("Q", q), ("K", k), ("V", v)):
        if operand.stride(3) != 1 and operand.shape[3] > 1:
            raise ValueError(
                f"attention: {name} has strides {operand.stride()}: the elements of a row must be neighbours; call .contiguous()"
            )
    batch, heads, m, d = q.shape
    problem = Problem(
        batch=batch, heads=heads, kv_heads=k.shape[1], m=m, n=k.shape[2], d=d, dtype=same_type(q, k, v), causal=causal, scale=scale,
        q_pad=max(q.stride(2) - d, 0), kv_pad=max(k.stride(2) - d, 0),
    )  # fmt: skip
    require("attention", CLAUSES, problem, config)
    return problem


# One file because the kernels of both directions share their masks, and are read with their launchers and clauses.
