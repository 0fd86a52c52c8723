"""The layout of row offsets for gather and scatter, and the rule that it keeps.

`gather4` and `scatter4` are instructions of one warp that move four rows, whose offsets they take from four registers. So the
layout of the offsets must give every warp chunks of four consecutive rows in consecutive registers, the same for all of its lanes.
As a linear layout: the first two register bases are [1] and [2], and every lane basis is [0].

The rest of the layout decides the cost: warps whose bases are [0] hold copies, and the compiler lets only one of them work. 256
rows in 4 warps are 16 instructions a warp when the warps divide the rows, and 64 in one warp when they do not. Source: PTX ISA,
"cp.async.bulk.tensor", modes tile::gather4 and tile::scatter4.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

FEWEST_ROWS = 8


@gluon.constexpr_function
def offset_layout(num_warps, threads_per_warp=32):
    """Four consecutive rows a warp, warp after warp, the same in all lanes: legal for every number of rows, and spread."""
    return gl.SliceLayout(0, gl.BlockedLayout([1, 4], [threads_per_warp, 1], [1, num_warps], [1, 0]))
