"""The trees that `tests/support/summing_kernels.py` has by construction: by its source, the layout of a tile and the instruction.

What decides a tree stands here without the code that recovers one: the loops of the launchers, the reductions of
`reference/reduction_order.py` (held to the PTX), and the block of the architecture's instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.reduction_order import blocked_layout, reduction_order, scan_order, scan_parts, uses_register_pairs
from bitverdict.reference.sums.tree import NestedLeaves, Tree, blocks, chain

FILE = "tests/support/summing_kernels.py"
BLOCKS = {
    "sm_80": {"fp16": 8, "tf32": 4},
    "sm_90": {"fp16": 16, "tf32": 8, "e4m3": 32},
    "sm_100": {"fp16": 16, "tf32": 8, "e4m3": 32},
}
"""Products of one block step by architecture."""


@dataclass(frozen=True)
class Summing:
    """A launcher, the sizes it is asked (small, and large where words count), and the tree of the output at `place`, of the sizes
    and an architecture. `why`: what must be said where no order is to be expected."""

    name: str
    small: str
    large: str
    tree: Callable[[dict[str, int], str, tuple[int, ...]], NestedLeaves] | None
    why: str = ""
    architectures: tuple[str, ...] = ("sm_80", "sm_90", "sm_100")

    @property
    def address(self) -> str:
        return f"{FILE}:{self.name}"

    def due(self, line: str, arch: str, place: tuple[int, ...]) -> Tree:
        """The tree of the output at `place` of the case that `line` tells."""
        assert self.tree is not None
        sizes = {name: int(size) for name, size in (each.split("=") for each in line.split())}
        return Tree.from_lists(self.tree(sizes, arch, place), sizes.get("k", sizes["n"]))


def reduced(leaves: list[NestedLeaves], places: list[int], warps: int, arch: str = "sm_90") -> NestedLeaves:
    """`tl.sum` in fp32 of a tile whose element places[i] is leaves[i]; the others are zeros."""
    size = 1 << (max(places)).bit_length() if max(places) else 1
    layout = blocked_layout((size,), (1,), (32,), (warps,), (0,))
    bits = reduction_order(layout, 0, pairs=uses_register_pairs(layout, 0, "fp32", sm=int(arch[3:]))).bits

    def split(some: list[int], order: tuple[int, ...]) -> NestedLeaves:
        if len(some) == 1:
            return leaves[some[0]]
        sides = [[each for each in some if places[each] >> order[0] & 1 == side] for side in (0, 1)]
        return [split(side, order[1:]) for side in sides if side]

    return split(list(range(len(leaves))), tuple(reversed(bits)))


def _tile(arch: str, count: int, warps: int = 1, start: int = 0) -> NestedLeaves:
    return reduced(list(range(start, start + count)), list(range(count)), warps, arch)


def _lanes(count: int) -> NestedLeaves:
    lanes = [chain(list(range(lane, count, 32))) for lane in range(min(32, count))]
    return reduced(lanes, list(range(len(lanes))), 1)


def _prefix(count: int, place: int) -> NestedLeaves:
    """Of a scan in one warp."""
    size = 1 << (count - 1).bit_length()
    layout = blocked_layout((size,), (1,), (32,), (1,), (0,))
    made: list[NestedLeaves] = list(range(size))

    def combine(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray]:
        start = len(made)
        made.extend([made[a], made[b]] for a, b in zip(left.reshape(-1), right.reshape(-1), strict=True))
        return (np.arange(start, len(made)).reshape(left.shape),)

    (found,) = scan_parts((np.arange(size),), 0, scan_order(layout, (size,), 0), combine)
    return made[int(found[place])]


def _streamed(sizes: dict[str, int], arch: str, place: tuple[int, ...]) -> NestedLeaves:
    """Three programs, tiles of 32 x 32, steps of 32."""
    steps, across = -(-sizes["k"] // 32), -(-sizes["n"] // 32)
    tiles = -(-sizes["m"] // 32) * across
    each = -(-tiles * steps // 3)
    tile = place[0] // 32 * across + place[1] // 32
    parts: list[NestedLeaves] = []
    for program in range(3):
        first, last = (min(max(at - tile * steps, 0), steps) * 32 for at in (program * each, program * each + each))
        if last > first:
            parts.append(blocks(range(first, min(last, sizes["k"])), BLOCKS[arch]["fp16"]))
    return chain(parts)


def _blocks(form: str) -> Callable[[dict[str, int], str, tuple[int, ...]], NestedLeaves]:
    return lambda sizes, arch, place: blocks(range(sizes["k"]), BLOCKS[arch][form])


def _backwards(sizes: dict[str, int], arch: str, place: tuple[int, ...]) -> NestedLeaves:
    steps = [range(start, min(start + 32, sizes["k"])) for start in range(0, sizes["k"], 32)]
    found: NestedLeaves = []
    for step in reversed(steps):
        for start in range(0, len(step), BLOCKS[arch]["fp16"]):
            found = [*([found] if found else []), *step[start : start + BLOCKS[arch]["fp16"]]]
    return found


def _promoted(sizes: dict[str, int], arch: str, place: tuple[int, ...]) -> NestedLeaves:
    starts = range(0, sizes["k"], 32)
    return chain([blocks(range(start, min(start + 32, sizes["k"])), BLOCKS[arch]["fp16"]) for start in starts])


ROWS, WIDE = "m=32 n=50", "m=4096 n=50"
PRODUCT, LARGE = "m=24 n=24 k=70", "m=160 n=160 k=150"
NO_ORDER = "depends on timing"
SUMMING = (
    Summing("sequential", ROWS, WIDE, lambda sizes, arch, place: chain(list(range(sizes["n"])))),
    Summing("reversed_order", ROWS, WIDE, lambda sizes, arch, place: chain(list(range(sizes["n"]))[::-1])),
    Summing("fp16_accumulator", ROWS, WIDE, lambda sizes, arch, place: chain(list(range(sizes["n"])))),
    Summing("one_warp", ROWS, WIDE, lambda sizes, arch, place: _tile(arch, sizes["n"])),
    Summing("four_warps", "m=32 n=300", "m=4096 n=300", lambda sizes, arch, place: _tile(arch, sizes["n"], 4)),
    Summing("strided", "m=32 n=100", "m=4096 n=100", lambda sizes, arch, place: _lanes(sizes["n"])),
    Summing(
        "two_stages", "m=32 n=150", "m=4096 n=150",
        lambda sizes, arch, place: chain([_tile(arch, min(32, sizes["n"] - at), 1, at) for at in range(0, sizes["n"], 32)]),
    ),
    Summing("cumulative", "m=16 n=8", "m=4096 n=30", lambda sizes, arch, place: _prefix(sizes["n"], place[1])),
    Summing("products", ROWS, WIDE, lambda sizes, arch, place: _tile(arch, sizes["n"])),
    Summing("fused_multiply_adds", ROWS, WIDE, lambda sizes, arch, place: chain(list(range(sizes["n"])))),
    Summing("dot_chain", PRODUCT, LARGE, _blocks("fp16")),
    Summing("dot_of_four_warps", "m=64 n=64 k=70", LARGE, _blocks("fp16")),
    Summing("dot_fp8", "m=64 n=64 k=100", LARGE, _blocks("e4m3"), architectures=("sm_90", "sm_100")),
    Summing("dot_backwards", PRODUCT, LARGE, _backwards),
    Summing("dot_promoted", PRODUCT, LARGE, _promoted),
    Summing("dot_tf32", PRODUCT, LARGE, _blocks("tf32")),
    Summing("dot_ieee", PRODUCT, LARGE, lambda sizes, arch, place: chain(list(range(sizes["k"])))),
    Summing("dot_fp16", PRODUCT, LARGE, _blocks("fp16")),
    Summing("stream_k", "m=40 n=40 k=70", LARGE, _streamed),
    Summing("compensated", ROWS, "", None, "another way than one rounding at a node"),
    Summing("dot_tf32x3", PRODUCT, "", None, "another way than one rounding at a node"),
    Summing("atomics", "m=8 n=300", "", None, NO_ORDER),
)  # fmt: skip
