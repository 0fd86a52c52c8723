"""Words thread by thread: a value of which threads may hold different copies, as the array (threads, registers) of all of them.

In a shuffle each lane combines its own word with another's, so after a reduction whose combination is not the same both ways the
lanes that hold one element have different words of it. From there on which copy is used shows. Rule: how Triton 3.9 lowers
`tt.reduce` (ReduceOpToLLVM.cpp) and `ttg.convert_layout` (ConvertLayoutOpToLLVM.cpp, and getWarpLayoutConvertDecomposition of its
analysis), held to the PTX by benchmarks/reduction_order.py. Registers that copy another of their thread are left out everywhere.

Through shared memory all lanes that hold an element store it to one place. Which word stays is undefined (PTX ISA, st); taken is
what an H100 does (`precedence`). Of the 64 lanes of an AMD wave nothing is known: there it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bitverdict.reference.reduction_order import (
    LANE_BITS,
    Basis,
    Combine,
    Elements,
    Layout,
    Parts,
    ReductionOrder,
    across,
    combine_registers,
)

WARP = 1 << LANE_BITS
Forms = Callable[[], Iterable[int]]  # of the stores, asked for where they decide something
MATRIX = 0
"""The form of a store by stmatrix; that of another is its bytes a lane."""
_FIRST_LANE = 4  # the form by which the word of the lowest lane stays
_PHASE = 128  # bytes that a warp stores at once


ALL_COPIES, FIRST_COPY = "all", "first"


class UnsettledWordError(ValueError):
    """Which of several words stays in shared memory is not known."""


@lru_cache(maxsize=512)
def elements(layout: Layout, shape: tuple[int, ...]) -> np.ndarray:
    """(threads, registers) the element, row-major, that each register of each thread holds."""
    sides = []
    for bases in (_lanes(layout) + list(layout.warps), [basis for basis in layout.registers if any(basis)]):
        places = np.zeros((1, len(shape)), np.int64)
        for basis in bases:
            places = np.concatenate([places, places ^ np.array(basis, np.int64)])
        sides.append(places)
    where = sides[0][:, None, :] ^ sides[1][None, :, :]  # (threads, registers, rank)
    found: np.ndarray = np.ravel_multi_index(tuple(np.moveaxis(where, -1, 0)), shape)
    found.flags.writeable = False
    return found


def _lanes(layout: Layout) -> list[Basis]:
    """Five bases of lanes, or the six of a wave of 64."""
    rank = len((*layout.lanes, *layout.warps, *layout.registers, (0,))[0])
    return [*layout.lanes, *[(0,) * rank] * (LANE_BITS - len(layout.lanes))]


def lanes_of(layout: Layout) -> int:
    """Lanes of a warp whose registers `layout` describes: 32, or 64 on AMD's."""
    return 1 << max(LANE_BITS, len(layout.lanes))


def precedence(form: int) -> np.ndarray:
    """(32,) of the lanes of a warp that one instruction of `form` stores to one place: the word of the highest stays.

    A warp stores 128 bytes at once: 8 bytes a lane take two turns of 16 lanes, 16 bytes four of 8, a matrix one. A later turn
    overwrites an earlier one, and within a turn the lowest lane's word stays. Evidence: in four reductions on an H100, stored by
    4 and 16 bytes a lane and by matrices, as many words differ from the first lane's and from the last lane's as this rule
    says."""
    lane = np.arange(WARP)
    return lane * max(form, 4) // _PHASE * WARP + (WARP - 1 - lane)


def settle_stores(words: np.ndarray, layout: Layout, forms: Forms) -> np.ndarray:
    """As `words` (threads, registers), each the word that stays in shared memory where all threads have stored theirs by one of
    `forms`. Unsettled where that is another word by another form, or from another warp."""
    lanes = [1 << i for i, basis in enumerate(_lanes(layout)) if not any(basis)]
    warps = sum(1 << i for i, basis in enumerate(layout.warps) if not any(basis))
    threads, wide = np.arange(len(words)), lanes_of(layout)
    if _words_equal(words, words[(threads // wide & ~warps) * wide + (threads % wide & ~sum(lanes))]):
        return words
    if wide != WARP:
        raise UnsettledWordError(
            f"whose words differ from lane to lane, stored to one place by {wide} lanes, of which no GPU was asked"
        )
    group = np.zeros(1, np.int64)
    for bit in lanes:
        group = np.concatenate([group, group ^ bit])
    settled_words: np.ndarray | None = None
    for form in sorted(set(forms())):
        among = np.arange(WARP)[:, None] ^ group  # (32, copies) lanes with the same elements
        winner = np.take_along_axis(among, precedence(form)[among].argmax(1)[:, None], 1)[:, 0]
        winning_words = words[(threads & -WARP) + winner[threads % WARP]]
        if not _words_equal(winning_words, winning_words[(threads // WARP & ~warps) * WARP + threads % WARP]):
            raise UnsettledWordError("whose words differ from warp to warp where they store them to one place of shared memory")
        if settled_words is not None and not _words_equal(winning_words, settled_words):
            raise UnsettledWordError(
                "whose words differ from lane to lane, stored to shared memory by instructions of several widths"
            )
        settled_words = winning_words
    if settled_words is None:
        raise UnsettledWordError("whose words differ from lane to lane, stored by an instruction that is not known")
    return settled_words


def through_memory(words: np.ndarray, layout: Layout, target: Layout, shape: tuple[int, ...], forms: Forms) -> np.ndarray:
    """`words` of a tensor of `shape` in `layout`, brought to `target` through shared memory: all copies are then the same."""
    flat = np.empty(int(np.prod(shape)), words.dtype)
    flat[elements(layout, shape)] = settle_stores(words, layout, forms)
    result: np.ndarray = flat[elements(target, shape)]
    return result


def shuffle_words(words: np.ndarray, layout: Layout, target: Layout) -> np.ndarray:
    """`words` in `layout`, brought to `target` inside each warp: each thread takes the copy of the lane that the shuffle names."""
    lane, register = shuffle_sources(layout, target)
    threads, wide = np.arange(len(words))[:, None], lanes_of(layout)
    result: np.ndarray = words[(threads & -wide) + lane[threads[:, 0] % wide], register[threads[:, 0] % wide]]
    return result


@lru_cache(maxsize=512)
def shuffle_sources(layout: Layout, target: Layout) -> tuple[np.ndarray, np.ndarray]:
    """(lanes, registers of the target) lane and register that each register of each lane has its word from. The conversion is a
    permutation of the bits of register and lane number. Bits that hold copies in both stay where they are, the others are paired in
    their order, registers first. ValueError where an element changes its warp."""
    sides = [[[b for b in each.registers if any(b)], _lanes(each)] for each in (layout, target)]
    count = max(len(side[0]) for side in sides)
    rank = len(_lanes(layout)[0])
    source_bases, target_bases = ([*side[0], *[(0,) * rank] * (count - len(side[0])), *side[1]] for side in sides)  # bases by bit
    target_bit: dict[int, int] = {}
    for i, basis in enumerate(source_bases):
        if any(basis):
            target_bit[i] = target_bases.index(basis)
        elif not any(target_bases[i]):
            target_bit[i] = i
    spare = [j for j, basis in enumerate(target_bases) if j not in target_bit.values()]
    target_bit |= dict(zip([i for i in range(len(source_bases)) if i not in target_bit], spare, strict=True))
    registers = 1 << len(sides[1][0])
    index = np.arange(registers)[None, :] | np.arange(lanes_of(layout))[:, None] << count  # (lanes, registers) of the target
    source = np.zeros_like(index)
    for i, j in target_bit.items():
        source |= (index >> j & 1) << i
    return source >> count, (source & (1 << count) - 1) % (1 << len(sides[0][0]))


def inside_threads(words: np.ndarray, held: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """(threads, registers) of each thread the words of the elements `wanted` of it, where it has `held`. ValueError where a thread
    has not what it wants."""
    span = int(max(held.max(), wanted.max())) + 1
    start = np.arange(len(held))[:, None] * span
    flat, need = (held + start).reshape(-1), wanted + start
    order = np.argsort(flat, kind="stable")
    found = order[np.minimum(np.searchsorted(flat[order], need), flat.size - 1)]
    if not (flat[found] == need).all():
        raise ValueError("a thread has not what it needs")
    return words.reshape(-1)[found]


@dataclass(frozen=True)
class Reduction:
    """Of a tensor of `shape` in `layout` along `axis`, to `result` (None for a scalar). `copies`: where one instruction combines a
    whole warp, which of the lanes that hold copies of one element are combined; empty where each combines its own."""

    layout: Layout
    shape: tuple[int, ...]
    axis: int
    order: ReductionOrder
    result: Layout | None
    copies: str = ""


def reduced_by_threads(
    parts: Parts, plan: Reduction, combine: Combine, elements: Elements | None, forms: Forms
) -> tuple[Parts, bool]:
    """`parts`, each (threads, registers), combined as every thread does: (threads, registers of the result), and whether threads
    stored different words to one place. `elements` and the words are those of `reduction_order.copies`.

    Where registers are a chain (Triton until 3.7) the first of the lanes alone stores what goes from warp to warp, and again the
    result, which all threads then read."""
    if plan.order.chain:
        forms = lambda: (_FIRST_LANE,)
    axis, layout, differ = plan.axis, plan.layout, False
    register_bases = [basis for basis in layout.registers if any(basis)]
    thread_parts = tuple(
        part.reshape(len(part), *[2] * len(register_bases)) for part in parts
    )  # the highest bit of the register first
    bits = [basis[axis].bit_length() - 1 if basis[axis] else None for basis in reversed(register_bases)]
    if plan.order.chain and plan.order.thread:
        register_axes = [i + 1 for i, bit in enumerate(bits) if bit is not None]  # the highest bit first
        moved = [np.moveaxis(part, register_axes, range(len(register_axes))) for part in thread_parts]
        registers = [part.reshape(-1, *part.shape[len(register_axes) :]) for part in moved]
        thread_parts, elements = combine_registers(list(zip(*registers, strict=True)), combine, elements), None
    for bit in () if plan.order.chain else plan.order.thread:
        at = bits.index(bit)
        low, high = (tuple(np.take(part, side, at + 1) for part in thread_parts) for side in (0, 1))
        thread_parts, elements = (elements.add_first if elements else combine)(*low, *high), None
        del bits[at]
    thread_parts = tuple(part.reshape(len(part), -1) for part in thread_parts)
    layout = replace(layout, registers=tuple(basis for basis in register_bases if not basis[axis]))
    threads, shape = np.arange(len(thread_parts[0])), list(plan.shape)

    def over_lanes(lane_parts: Parts, layout: Layout, first: Combine | None) -> tuple[Parts, Layout]:
        for bit in reversed(range(len(layout.lanes))):
            if layout.lanes[bit][axis]:
                other_parts = (part[threads ^ 1 << bit] for part in lane_parts)
                lane_parts, first = (first or across(combine))(*lane_parts, *other_parts), None
        lanes = tuple((0,) * len(basis) if basis[axis] else basis for basis in layout.lanes)
        warps, left = [], 0
        for basis in layout.warps:
            warps.append(_set_step(basis, axis, 1 << left) if basis[axis] else basis)
            left += bool(basis[axis])
        shape[axis] = 1 << left
        return lane_parts, replace(layout, lanes=lanes, warps=tuple(warps))

    def convert(found: Parts, layout: Layout, target: Layout) -> Parts:
        nonlocal differ
        if not plan.order.chain:
            differ = differ or not all(_words_equal(settle_stores(part, layout, forms), part) for part in found)
        return tuple(through_memory(part, layout, target, tuple(shape), forms) for part in found)

    copy_bits = [1 << i for i, basis in enumerate(_lanes(layout)) if not any(basis)] if plan.copies else []
    if plan.copies == FIRST_COPY:
        thread_parts = tuple(part[threads & ~sum(copy_bits)] for part in thread_parts)
    for bit in copy_bits if plan.copies == ALL_COPIES else ():
        thread_parts = combine(*thread_parts, *(part[threads ^ bit] for part in thread_parts))
    thread_parts, layout = over_lanes(thread_parts, layout, elements.add_first if elements else None)
    while shape[axis] > 1:
        between = _between(layout, axis)
        thread_parts = convert(thread_parts, layout, between)
        thread_parts, layout = over_lanes(thread_parts, between, across(combine, loaded=True))
    if plan.order.chain and plan.order.warps:
        thread_parts = tuple(settle_stores(part, layout, forms) for part in thread_parts)
    if plan.result is not None:
        dropped = Layout(*(tuple(_drop_axis(b, axis) for b in each) for each in (layout.registers, _lanes(layout), layout.warps)))
        target = replace(plan.result, registers=tuple(b for b in plan.result.registers if any(b)), lanes=tuple(_lanes(plan.result)))
        if dropped != target:
            del shape[axis]
            thread_parts = convert(thread_parts, dropped, target)
    return thread_parts, differ


def _set_step(basis: Basis, axis: int, step: int) -> Basis:
    return tuple(step if i == axis else each for i, each in enumerate(basis))


def _drop_axis(basis: Basis, axis: int) -> Basis:
    return basis[:axis] + basis[axis + 1 :]


def _between(layout: Layout, axis: int) -> Layout:
    """`layout` with what of the axis lies in warps exchanged for lanes: for those that hold copies if they are enough, else
    for the first."""
    lanes, warps = _lanes(layout), list(layout.warps)
    moved = [i for i, basis in enumerate(warps) if basis[axis]]
    free = [i for i, basis in enumerate(lanes) if not any(basis)]
    for lane, warp in zip(free if len(free) >= len(moved) else range(LANE_BITS), moved, strict=False):
        lanes[lane], warps[warp] = warps[warp], lanes[lane]
    return replace(layout, lanes=tuple(lanes), warps=tuple(warps))


def _words_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays have the same words."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return bool((a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")).all())


__all__ = [
    "MATRIX", "WARP", "Reduction", "UnsettledWordError", "elements", "inside_threads", "precedence", "reduced_by_threads",
    "settle_stores", "shuffle_sources", "shuffle_words", "through_memory",
]  # fmt: skip
