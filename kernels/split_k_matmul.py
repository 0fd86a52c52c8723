"""C = A B, with K divided among programs whose parts are added by a second kernel, by the last program, or by atomics.

    part s of C = sum over k in share s of A[i, k] * B[k, j]                C[i, j] = convert(part 0 + part 1 + ...)

A: (M, K), B: (K, N) fp16 or bf16, row-major. C: (M, N) fp16, bf16 or fp32. A share is ceil(K blocks / split) blocks of K: the last
may be short, and those behind it are empty. A part is one ascending chain of matrix instructions in fp32 that starts at zero.

How parts become a sum is the configuration's `reduction`:

- "second kernel": parts go to a workspace, and another launch adds them in ascending order of shares.
- "last program": the last program to arrive at a tile, by an atomic counter, adds them in that order. The same words.
- "atomics": each program adds its part to C, an fp32 matrix of zeros. The order is that of arrival, so nobody can promise the
  words. An fp32 atomic counts subnormals as zeros.

Preconditions, and what each costs when broken:

- Rows lie 16 bytes apart or a multiple of it, and begin on 16 bytes: tiles of A and B come by tensor descriptors, which supply
  zeros past the end of K and of a matrix. Refused by the launcher.
- Every program stores its part, an empty share too: otherwise the sum takes in what lay in the workspace.
- The last program reads the parts behind an acquiring counter: otherwise it may see old ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    Matrix,
    base_clause,
    dtype_clause,
    misalignment,
    output_clause,
    positive_clause,
    powers_of_two_clause,
    row_padding,
    same_place,
    same_type,
    stride_clause,
)
from bitverdict.kernels.element_types import ELEMENT_TYPES, element_type
from bitverdict.kernels.features import Feature

REQUIRES = frozenset({Feature.MMA_SYNC})
DTYPES = ("fp16", "bf16")
OUTPUTS = ("fp16", "bf16", "fp32")
REDUCTIONS = ("second kernel", "last program", "atomics")
MOST_SHARES = 64  # shares that a sum is unrolled over
ADD_BLOCK = 2048  # elements of C that one program of the second kernel adds


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, element types, the elements that follow each row of A, B and C, and those past 16 bytes where A and B begin."""

    m: int
    n: int
    k: int
    dtype: str = "fp16"
    out: str = "fp16"
    a_pad: int = 0
    b_pad: int = 0
    c_pad: int = 0
    a_offset: int = 0
    b_offset: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, the K elements of one step, shares of K, how parts are added, warps, and stages of the loads."""

    block_m: int = 64
    block_n: int = 64
    block_k: int = 64
    split: int = 4
    reduction: str = "second kernel"
    num_warps: int = 4
    stages: int = 3


def _matrices(p: Problem, c: Config) -> list[Matrix]:
    return [Matrix("A", p.dtype, p.m, p.k, p.k + p.a_pad, p.a_offset), Matrix("B", p.dtype, p.k, p.n, p.n + p.b_pad, p.b_offset)]


CLAUSES = (
    dtype_clause(DTYPES, "there is no such product in one instruction"),
    output_clause(OUTPUTS),
    Clause(
        name="reduction",
        holds=lambda p, c: c.reduction in REDUCTIONS,
        value=lambda p, c: f"reduction = {c.reduction!r}",
        rule=f"parts are added in one of the ways {', '.join(REDUCTIONS)}",
        remedy=f"take {REDUCTIONS[0]!r}",
        cost="parts would be stored and never added",
    ),
    Clause(
        name="output of atomics",
        holds=lambda p, c: c.reduction != "atomics" or p.out == "fp32",
        value=lambda p, c: f"out_dtype {p.out} with atomics",
        rule="atomics add to an fp32 matrix",
        remedy="ask for fp32 and convert afterwards",
        cost="every addition would be rounded to 16 bits",
    ),
    positive_clause("m", "n", "k"),
    powers_of_two_clause("the matrix"),
    Clause(
        name="tile",
        holds=lambda p, c: 16 <= min(c.block_m, c.block_n, c.block_k) and max(c.block_m, c.block_n, c.block_k) <= 256,
        value=lambda p, c: f"tile {c.block_m}x{c.block_n}x{c.block_k}",
        rule="each side of a tile has 16 to 256 elements",
        remedy="take a side inside that range",
        cost="there is no instruction to make it of, or no box of a descriptor that holds it",
        layer="front end",
    ),
    Clause(
        name="split",
        holds=lambda p, c: 1 <= c.split <= MOST_SHARES,
        value=lambda p, c: f"split = {c.split}",
        rule=f"K is divided among 1 to {MOST_SHARES} programs",
        remedy="take 4",
        cost="the sum of parts is unrolled, and without a part there is none",
    ),
    stride_clause(_matrices),
    base_clause(_matrices),
)


@triton.jit(do_not_specialize=["m", "k"])
def split_k_matmul_kernel(
    a_tiles,
    b_tiles,
    parts,
    arrival_counts,
    c,
    m,
    n,
    k,
    c_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    SPLIT: tl.constexpr,
    REDUCTION: tl.constexpr,
):
    part = tl.program_id(0) % SPLIT  # the parts of one tile run together
    tile = tl.program_id(0) // SPLIT
    tile_row = tile % tl.cdiv(m, BLOCK_M)
    tile_column = tile // tl.cdiv(m, BLOCK_M)
    blocks = tl.cdiv(k, BLOCK_K)
    share = tl.cdiv(blocks, SPLIT)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)  # (BLOCK_M, BLOCK_N)
    for block in range(part * share, min((part + 1) * share, blocks)):
        left = a_tiles.load([tile_row * BLOCK_M, block * BLOCK_K])  # (BLOCK_M, BLOCK_K)
        right = b_tiles.load([block * BLOCK_K, tile_column * BLOCK_N])  # (BLOCK_K, BLOCK_N)
        accumulator = tl.dot(left, right, accumulator)
    rows = (tile_row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)  # (BLOCK_M,)
    columns = tile_column * BLOCK_N + tl.arange(0, BLOCK_N)  # (BLOCK_N,)
    inside = (rows < m)[:, None] & (columns < n)[None, :]  # (BLOCK_M, BLOCK_N)
    results = c + rows[:, None] * c_stride + columns[None, :]  # (BLOCK_M, BLOCK_N)
    if REDUCTION == "atomics":
        tl.atomic_add(results, accumulator, mask=inside, sem="relaxed")
    else:
        matrix = m.to(tl.int64) * n  # elements of one part
        places = parts + rows[:, None] * n + columns[None, :]  # (BLOCK_M, BLOCK_N)
        tl.store(places + part * matrix, accumulator, mask=inside)
        if REDUCTION == "last program":
            tl.debug_barrier()  # every thread's part is stored before one of them says so
            before = tl.atomic_add(arrival_counts + tile, 1, sem="acq_rel")
            if before == SPLIT - 1:
                total = tl.load(places, mask=inside, cache_modifier=".cg")  # (BLOCK_M, BLOCK_N)
                for other in tl.static_range(1, SPLIT):
                    total += tl.load(places + other * matrix, mask=inside, cache_modifier=".cg")
                tl.store(results, total.to(c.dtype.element_ty), mask=inside)
                tl.store(arrival_counts + tile, 0)  # for the next launch


@triton.jit(do_not_specialize=["m"])
def add_parts_kernel(parts, c, m, n, c_stride, SPLIT: tl.constexpr, FLAT: tl.constexpr, BLOCK: tl.constexpr):
    elements = m.to(tl.int64) * n
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # (BLOCK,)
    inside = places < elements  # (BLOCK,)
    total = tl.load(parts + places, mask=inside)  # (BLOCK,)
    for part in tl.static_range(1, SPLIT):
        total += tl.load(parts + part * elements + places, mask=inside)
    results = places if FLAT else places // n * c_stride + places % n  # (BLOCK,) FLAT: the rows of C have no gaps
    tl.store(c + results, total.to(c.dtype.element_ty), mask=inside)


class Workspace(NamedTuple):
    """Room for the parts of one shape, which launches one after another may share."""

    parts: torch.Tensor  # (split, m, n) fp32
    arrival_counts: torch.Tensor  # (tiles,) int32, all 0 before and after a launch


def workspace(m: int, n: int, config: Config, device: torch.device) -> Workspace:
    """What `split_k_matmul` takes for an (m, n) result of `config`; empty for atomics."""
    stored = config.reduction != "atomics"
    parts = torch.empty((config.split, m, n) if stored else 0, dtype=torch.float32, device=device)
    counted = config.reduction == "last program"
    tiles = triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n) if counted else 0
    return Workspace(parts, torch.zeros(tiles, dtype=torch.int32, device=device))


def split_k_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    config: Config | None = None,
    room: Workspace | None = None,
) -> torch.Tensor:
    """A B on the operands' device, in `c` (M, N), allocated in `out_dtype` (None: that of A) when None.

    `a` (M, K), `b` (K, N), rows contiguous and 16 bytes apart or a multiple of it. `room`: of `workspace`, allocated when None.
    ValueError names the broken clause with its value, rule and remedy.
    """
    same_place(a, b)
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"split_k_matmul: shapes A {tuple(a.shape)}, B {tuple(b.shape)}: must be (M, K) and (K, N); transpose an operand"
        )
    (m, k), n, config = a.shape, b.shape[1], config or Config()
    c = torch.empty((m, n), dtype=out_dtype or a.dtype, device=a.device) if c is None else c
    if c.shape != (m, n) or c.device != a.device:
        raise ValueError(f"split_k_matmul: C is {tuple(c.shape)} on {c.device}: must be ({m}, {n}) on {a.device}; allocate it so")
    problem = Problem(
        m=m,
        n=n,
        k=k,
        dtype=same_type(a, b),
        out=element_type(c.dtype).name,
        a_pad=row_padding(a),
        b_pad=row_padding(b),
        c_pad=row_padding(c),
        a_offset=misalignment(a),
        b_offset=misalignment(b),
    )
    require("split_k_matmul", CLAUSES, problem, config)
    room = workspace(m, n, config, a.device) if room is None else room
    if config.reduction == "atomics":
        c.zero_()
    boxes = ((a, k + problem.a_pad, [config.block_m, config.block_k]), (b, n + problem.b_pad, [config.block_k, config.block_n]))
    held = [TensorDescriptor(operand, list(operand.shape), [stride, 1], box) for operand, stride, box in boxes]
    tiles = triton.cdiv(m, config.block_m) * triton.cdiv(n, config.block_n)
    split_k_matmul_kernel[(tiles * config.split,)](
        *held,
        room.parts,
        room.arrival_counts,
        c,
        m,
        n,
        k,
        n + problem.c_pad,
        config.block_m,
        config.block_n,
        config.block_k,
        config.split,
        config.reduction,
        num_warps=config.num_warps,
        num_stages=config.stages,
    )
    if config.reduction == "second kernel":
        flat = problem.c_pad == 0
        add_parts_kernel[(triton.cdiv(m * n, ADD_BLOCK),)](
            room.parts, c, m, n, n + problem.c_pad, config.split, flat, ADD_BLOCK, num_warps=8
        )
    return c


def torch_type(name: str) -> torch.dtype:
    return ELEMENT_TYPES[name].torch
