"""Tensor memory: how large, how it is cut into blocks, and who may touch what. Blackwell (sm_100) only.

An SM has 128 rows of 512 columns of 32-bit cells. A warp reaches only the 32 rows of its rank modulo 4, so that loads and
stores take four warps or eight. A tensor is cut into blocks of (block_m, block_n); a block_m of 64 leaves half of the
rows free, and the allocator lays the next block there. Allocation goes by whole columns: a power of two from 32 to 512.
Sources: PTX ISA, "Tensor Memory" (allocation, access restrictions, data path layout).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bitverdict.kernels.clauses import Clause
from bitverdict.kernels.descriptor_rules import is_power_of_two

ROWS, COLUMNS = 128, 512
SMALLEST_ALLOCATION = 32  # columns
ACCESSING_WARPS = (4, 8)
BLOCK_ROWS = (64, 128)
WIDEST_BLOCK = 256  # columns of one block: the N of one tcgen05.mma


class Allocation(NamedTuple):
    """One tensor in tensor memory. `column_stride` is in elements: 1 is packed, 32 / bits is one element a cell."""

    name: str
    rows: int
    columns: int
    block_rows: int
    block_columns: int
    bits: int
    column_stride: int = 1

    @property
    def cells(self) -> int:
        """Columns of 32-bit cells that the blocks cover, before rounding."""
        down = -(-self.rows // self.block_rows)
        across = -(-self.columns // self.block_columns)
        blocks = down * across
        if self.block_rows == 64:  # two blocks of 64 rows share columns, whether they are neighbours down or across
            blocks = -(-blocks // 2)
        return blocks * self.block_columns * self.column_stride * self.bits // 32


def allocated_columns(allocations: list[Allocation]) -> int:
    """Columns taken by all allocations of a kernel together, as the hardware hands them out."""
    total = sum(a.cells for a in allocations)
    return max(SMALLEST_ALLOCATION, 1 << (total - 1).bit_length())


def clauses(allocations: Callable[[Any, Any], list[Allocation]]) -> tuple[Clause, ...]:
    """The rules of tensor memory for a kernel that allocates `allocations(problem, config)`."""

    def text(p, c):
        return "; ".join(
            f"{a.name} {a.rows}x{a.columns} of {a.bits} bits in blocks of {a.block_rows}x{a.block_columns}"
            for a in allocations(p, c)
        )

    return (
        Clause(
            name="accessing warps",
            holds=lambda p, c: c.num_warps in ACCESSING_WARPS,
            value=lambda p, c: f"num_warps = {c.num_warps}",
            rule="tensor memory is loaded and stored by 4 or 8 warps",
            remedy="take num_warps=4 or num_warps=8",
            cost="some of the 128 rows belong to no warp: a warp reaches only the 32 rows of its rank modulo 4",
            layer="verifier",
        ),
        Clause(
            name="block rows",
            holds=lambda p, c: all(a.block_rows in BLOCK_ROWS and a.block_rows <= a.rows for a in allocations(p, c)),
            value=text,
            rule="a block has 64 or 128 rows and no more than the tensor",
            remedy="take 64 or 128 rows",
            cost="there is no data path of that height",
            layer="verifier",
        ),
        Clause(
            name="block columns",
            holds=lambda p, c: all(
                is_power_of_two(a.block_columns)
                and 32 // a.bits <= a.block_columns <= WIDEST_BLOCK
                and a.block_columns <= a.columns
                for a in allocations(p, c)
            ),
            value=text,
            rule="a block has a power of two of columns, 256 at most, at least one 32-bit cell, and no more than the tensor",
            remedy="take a power of two from 16 to 256",
            cost="the instruction's N field cannot say it",
            layer="verifier",
        ),
        Clause(
            name="whole blocks",
            holds=lambda p, c: all(is_power_of_two(a.rows) and is_power_of_two(a.columns) for a in allocations(p, c)),
            value=text,
            rule="a tensor's sizes in tensor memory are powers of two",
            remedy="pad to the next power of two",
            cost="a tile program has no tensor of that shape",
            layer="front end",
        ),
        Clause(
            name="capacity",
            holds=lambda p, c: allocated_columns(allocations(p, c)) <= COLUMNS,
            value=lambda p, c: f"{text(p, c)}: {allocated_columns(allocations(p, c))} columns",
            rule=f"all allocations together take at most {COLUMNS} columns",
            remedy="take a smaller tile",
            cost="the launch is out of resources",
            layer="capacity",
        ),
    )
