"""Which layouts may hold row offsets for gather and scatter, decided for any layout.

`gather4` and `scatter4` are instructions of one warp that move four rows, whose offsets they take from four registers. So the
layout of the offsets must give every warp chunks of four consecutive rows in consecutive registers, the same for all of its lanes.
As a linear layout: the first two register bases are [1] and [2], and every lane basis is [0].

The rest of the layout decides the cost: warps whose bases are [0] hold copies, and the compiler lets only one of them work. 256
rows in 4 warps are 16 instructions a warp when the warps divide the rows, and 64 in one warp when they do not. Source: PTX ISA,
"cp.async.bulk.tensor", modes tile::gather4 and tile::scatter4.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton._C.libtriton import gluon_ir, ir
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

ROWS_PER_INSTRUCTION = 4
FEWEST_ROWS = 8


@dataclass(frozen=True)
class LinearLayout:
    """Where each register, lane and warp bit sends an element: bases of a linear map over the bits of the index."""

    registers: tuple[tuple[int, ...], ...]
    lanes: tuple[tuple[int, ...], ...]
    warps: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class OffsetVerdict:
    """Whether a layout may hold row offsets; if so, how many warps issue and how many instructions each of them."""

    legal: bool
    reason: str
    linear: LinearLayout
    issuing_warps: int = 0
    instructions_per_warp: int = 0


def linear_layout(layout, shape: list[int]) -> LinearLayout:
    """The linear form of any distributed layout over `shape`, by the compiler's own conversion."""
    context = ir.context()
    ir.load_dialects(context)
    builder = gluon_ir.GluonOpBuilder(context)
    found = builder.to_linear_layout(layout._to_ir(builder), list(shape))

    def bases(of):
        return tuple(tuple(basis) for basis in of)

    return LinearLayout(bases(found.reg_bases), bases(found.lane_bases), bases(found.warp_bases), tuple(found.shape))


def offset_verdict(layout, rows: int) -> OffsetVerdict:
    """Whether `layout` may hold the offsets of `rows` rows, and what it costs."""
    linear = linear_layout(layout, [rows])
    if rows < FEWEST_ROWS:
        return OffsetVerdict(False, f"{rows} rows: at least {FEWEST_ROWS} must be moved", linear)
    if linear.registers[:2] != ((1,), (2,)):
        return OffsetVerdict(
            False,
            f"first register bases {linear.registers[:2]}: must be (1,) and (2,), four consecutive rows in consecutive registers",
            linear,
        )
    if any(basis != (0,) for basis in linear.lanes):
        return OffsetVerdict(False, f"lane bases {linear.lanes}: must all be (0,), the same rows in every lane of a warp", linear)
    issuing = 2 ** sum(basis != (0,) for basis in linear.warps)
    repeated = 2 ** sum(basis == (0,) for basis in linear.registers)
    registers = 2 ** len(linear.registers) // repeated
    spread = "spread over the warps" if issuing > 1 or not linear.warps else "all in one warp, the others hold copies"
    return OffsetVerdict(True, spread, linear, issuing, registers // ROWS_PER_INSTRUCTION)


@gluon.constexpr_function
def offset_layout(num_warps, threads_per_warp=32):
    """Four consecutive rows a warp, warp after warp, the same in all lanes: legal for every number of rows, and spread."""
    return gl.SliceLayout(0, gl.BlockedLayout([1, 4], [threads_per_warp, 1], [1, num_warps], [1, 0]))
