"""D = S, through tensor memory.

    D[i, j] = S[i, j], bit for bit                                     S, D: (M, N), row-major, contiguous

One program moves the whole matrix: global memory, registers, tensor memory, registers, global memory. It computes nothing, so every
bit that differs is a layout or an ordering error; that is what it is for. `Config` says how it goes:

- `atom`: which piece of tensor memory a warp's instruction moves, 32 lanes of 32 bits or 16 lanes of 64, 128 or 256 bits;
- `parts`: how many slices of columns it is stored and loaded by, the loads in the other order;
- `filled_by`: "tcgen05.st" from registers, or "tcgen05.cp", an asynchronous copy from shared memory.

Preconditions, and what each costs when broken:

- M and N are powers of two, blocks are (64 or 128) x (power of two up to 256): no other tensor exists in tensor memory. Refused
  here.
- The blocks fill at most 512 columns, in allocations of powers of two: otherwise the launch is out of resources. Refused here.
- 4 or 8 warps: a warp reaches only the 32 rows of its rank modulo 4, so fewer would leave rows unreached. Refused here.
- A store to tensor memory is asynchronous: a load after it needs ``tcgen05.wait::st``. The compiler inserts the wait; no line here
  says it.
- A ``tcgen05.cp`` reads shared memory through the async proxy: a proxy fence stands after the store to it. It is over when a commit
  behind it has arrived.
- The registers that hold a row of tensor memory are not those that coalesce in global memory, hence two conversions through shared
  memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_copy,
)

from bitverdict.kernels import tensor_memory
from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import dtype_clause, is_power_of_two, same_place, same_type
from bitverdict.kernels.element_types import bits_of, element_type
from bitverdict.kernels.features import Feature

REQUIRES = frozenset({Feature.TENSOR_MEMORY})
DTYPES = ("fp32", "int32", "fp16", "bf16", "int16", "e4m3", "e5m2", "int8")

ATOMS = ("32x32b", "16x64b", "16x128b", "16x256b")
FILLS = ("tcgen05.st", "tcgen05.cp")
NARROWEST = {"32x32b": 1, "16x64b": 4, "16x128b": 8, "16x256b": 16}  # columns of 32 bits that two instructions of an atom cover


@dataclass(frozen=True, kw_only=True)
class Problem:
    """An (m, n) matrix of `dtype`, contiguous."""

    m: int
    n: int
    dtype: str = "fp32"


@dataclass(frozen=True, kw_only=True)
class Config:
    """How it passes: blocks of tensor memory, warps, and whether elements under 32 bits share a cell (`packed`)."""

    block_m: int = 64
    block_n: int = 64
    num_warps: int = 4
    packed: bool = False
    atom: str = "32x32b"
    parts: int = 1
    filled_by: str = FILLS[0]


def allocations(problem: Problem, config: Config) -> list[tensor_memory.Allocation]:
    bits = bits_of(problem.dtype)
    return [
        tensor_memory.Allocation(
            "tile", problem.m, problem.n, config.block_m, config.block_n, bits, 1 if config.packed else 32 // bits
        )
    ]


CLAUSES = (
    dtype_clause(DTYPES, "there is no load and store of that width"),
    *tensor_memory.clauses(allocations),
    Clause(
        name="atom",
        holds=lambda p, c: c.atom in ATOMS and (c.atom == ATOMS[0] or bits_of(p.dtype) == 32),
        value=lambda p, c: f"atom = {c.atom} x {p.dtype}",
        rule=f"an atom is one of {', '.join(ATOMS)}, of elements of 32 bits in all but the first",
        remedy=f"take {ATOMS[0]}",
        cost="there is no register layout to move it by",
        layer="front end",
    ),
    Clause(
        name="parts",
        holds=lambda p, c: is_power_of_two(c.parts) and p.n // c.parts >= max(c.block_n, NARROWEST[c.atom], 32 // bits_of(p.dtype)),
        value=lambda p, c: f"parts = {c.parts} of {p.n} columns, atom {c.atom}",
        rule="a power of two of slices, each of whole blocks, and at least 1, 4, 8 or 16 columns by the four atoms",
        remedy="take fewer parts",
        cost="the verifier refuses the slice",
        layer="verifier",
    ),
    Clause(
        name="filled by",
        holds=lambda p, c: (
            c.filled_by in FILLS and (c.filled_by == FILLS[0] or (bits_of(p.dtype) == 32 and c.block_m == 128 == p.m and p.n >= 8))
        ),
        value=lambda p, c: f"filled_by = {c.filled_by}, {p.m} rows in blocks of {c.block_m}, {p.dtype}",
        rule=f"one of {', '.join(FILLS)}, the last for 128 rows of at least 8 elements of 32 bits",
        remedy=f"take {FILLS[0]}",
        cost="there is no tcgen05.cp of that shape",
        layer="compiler",
    ),
)


@gluon.jit
def places_of(part, M: gl.constexpr, N: gl.constexpr, PARTS: gl.constexpr, layout: gl.constexpr):
    """(M, N / PARTS) places in global memory of slice `part` of the columns."""
    rows = gl.arange(0, M, gl.SliceLayout(1, layout))  # (M,)
    columns = part * (N // PARTS) + gl.arange(0, N // PARTS, gl.SliceLayout(0, layout))  # (N / PARTS,)
    return rows[:, None] * N + columns[None, :]


@gluon.jit
def copied_from_shared(loaded, tile, staging_tile):
    """Fills `tile` with `loaded` by tcgen05.cp from `staged` in shared memory, and waits until it is over."""
    copy_barrier = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(copy_barrier, count=1)
    staging_tile.store(loaded)
    fence_async_shared()
    tcgen05_copy(staging_tile, tile)
    tcgen05_commit(copy_barrier)
    mbarrier.wait(copy_barrier, phase=0)


@gluon.jit
def tmem_copy_kernel(
    source,
    destination,
    M: gl.constexpr,
    N: gl.constexpr,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    COLUMN_STRIDE: gl.constexpr,
    ATOM: gl.constexpr,
    PARTS: gl.constexpr,
    SHARED: gl.constexpr,
):
    coalesced_layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, gl.num_warps()], [1, 0])
    layout: gl.constexpr = TensorMemoryLayout([BLOCK_M, BLOCK_N], col_stride=COLUMN_STRIDE)
    tile = allocate_tensor_memory(source.dtype.element_ty, [M, N], layout)  # (M, N) in cells
    PART_COLUMNS: gl.constexpr = N // PARTS
    if SHARED is not None:
        staged = gl.allocate_shared_memory(source.dtype.element_ty, [M, N], SHARED)  # (M, N)
        copied_from_shared(gl.load(source + places_of(0, M, N, 1, coalesced_layout)), tile, staged)
    else:
        for part in gl.static_range(PARTS):
            loaded = gl.load(source + places_of(part, M, N, PARTS, coalesced_layout))  # (M, N / PARTS)
            held = tile.slice(part * PART_COLUMNS, PART_COLUMNS) if PARTS > 1 else tile
            held.store(gl.convert_layout(loaded, held.get_reg_layout(instr_variant=ATOM)))
    for step in gl.static_range(PARTS):
        held = tile.slice((PARTS - 1 - step) * PART_COLUMNS, PART_COLUMNS) if PARTS > 1 else tile
        stored = gl.convert_layout(held.load(held.get_reg_layout(instr_variant=ATOM)), coalesced_layout)  # (M, N / PARTS)
        gl.store(destination + places_of(PARTS - 1 - step, M, N, PARTS, coalesced_layout), stored)


def tmem_copy(
    source: torch.Tensor,
    destination: torch.Tensor | None = None,
    num_warps: int = 4,
    *,
    block_m: int = 64,
    block_n: int = 64,
    packed: bool = False,
    atom: str = ATOMS[0],
    parts: int = 1,
    filled_by: str = FILLS[0],
) -> torch.Tensor:
    """Copies (M, N) `source` into `destination` (allocated when None) on the operands' device; returns it.

    ValueError names the broken clause with its value, rule and remedy.
    """
    destination = torch.empty_like(source) if destination is None else destination
    same_place(source, destination)
    if source.dim() != 2 or not source.is_contiguous() or not destination.is_contiguous() or source.shape != destination.shape:
        raise ValueError(
            f"tmem_copy: shapes {tuple(source.shape)} and {tuple(destination.shape)}, strides {source.stride()} and "
            f"{destination.stride()}: both must be one contiguous matrix shape; call .contiguous()"
        )
    problem = Problem(m=source.shape[0], n=source.shape[1], dtype=same_type(source, destination))
    config = Config(
        block_m=block_m, block_n=block_n, num_warps=num_warps, packed=packed, atom=atom, parts=parts, filled_by=filled_by
    )
    require("tmem_copy", CLAUSES, problem, config)
    (tile,) = allocations(problem, config)
    shape, kind = [problem.m, problem.n], element_type(source.dtype).gluon
    tmem_copy_kernel[(1,)](
        source,
        destination,
        problem.m,
        problem.n,
        block_m,
        block_n,
        tile.column_stride,
        atom,
        parts,
        gl.NVMMASharedLayout.get_default_for(shape, kind) if filled_by == "tcgen05.cp" else None,
        num_warps=num_warps,
    )
    return destination
