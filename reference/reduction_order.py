"""The order in which a compiled reduction or scan combines floats: a fact of the layout, one rounding at each step.

A layout says where the elements of a tile lie: for each bit of the register, lane and warp number the step that it makes in the
tile (its basis). Rule: how Triton 3.8 and 3.9 lower `tt.reduce` and `tt.scan` (ReduceOpToLLVM.cpp, ScanOpToLLVM.cpp, Utility.cpp of
its analysis), held to the PTX by tests/emulator/numerics/test_reduction_order.py. Until 3.7 a thread adds one register after
another (`chain`). Functions take and give whole arrays: a tree has log2(n) steps, whatever its width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

LANE_BITS = 5
AMD = 1 << 12  # the `sm` of AMD's architectures
ROWS = 4  # bits of the number of a lane inside a row, of AMD's warps
Basis = tuple[int, ...]  # step along each axis
Parts = tuple[np.ndarray, ...]  # the operands, of one shape
Combine = Callable[..., Parts]  # of the operands of the left side, then of the right one


@dataclass(frozen=True)
class Layout:
    """Bases of the bits of the register, lane and warp number, the lowest bit first. Each moves one axis by a power of two; where
    copies are held, none."""

    registers: tuple[Basis, ...]
    lanes: tuple[Basis, ...]
    warps: tuple[Basis, ...]

    @classmethod
    def from_bases(
        cls, registers: Sequence[Sequence[int]], lanes: Sequence[Sequence[int]], warps: Sequence[Sequence[int]]
    ) -> Layout:
        """ValueError for a basis that moves two axes, or by no power of two: no rule is known for one."""
        found = cls(*(tuple(tuple(basis) for basis in each) for each in (registers, lanes, warps)))
        for basis in (*found.registers, *found.lanes, *found.warps):
            steps = [step for step in basis if step]
            if len(steps) > 1 or any(step & (step - 1) for step in steps):
                raise ValueError(f"basis {basis} of a layout moves more than one axis, or by no power of two")
        return found


def blocked_layout(
    shape: Sequence[int], per_thread: Sequence[int], per_warp: Sequence[int], warps: Sequence[int], order: Sequence[int]
) -> Layout:
    """The layout of a tile of `shape` that Triton calls blocked: `per_thread` elements a thread, `per_warp` threads, `warps`, all
    by axis; `order` names the axes, the one that moves fastest first. What is larger than the tile holds copies, a tile that is
    larger takes more registers."""
    reach = [1] * len(shape)

    def bits(counts: Sequence[int], axes: Sequence[int]) -> list[Basis]:
        bases: list[Basis] = []
        for axis in axes:
            for _ in range(counts[axis].bit_length() - 1):
                step = [0] * len(shape)
                if reach[axis] < shape[axis]:
                    step[axis] = reach[axis]
                    reach[axis] *= 2
                bases.append(tuple(step))
        return bases

    registers = bits(per_thread, order)
    lanes, teams = bits(per_warp, order), bits(warps, order)
    more = [max(size // reached, 1) for size, reached in zip(shape, reach, strict=True)]
    return Layout(tuple(registers + bits(more, order)), tuple(lanes), tuple(teams))


@dataclass(frozen=True)
class ReductionOrder:
    """Bits of the position along the axis, in the order in which a reduction combines over them: those that a thread holds, those
    that lie in lanes, those that lie in warps. A bit is the exponent of its step. With `chain` a thread combines its registers one
    after another, and `thread` begins with the highest bit of the register's number."""

    thread: tuple[int, ...]
    lanes: tuple[int, ...]
    warps: tuple[int, ...]
    chain: bool = False

    @property
    def bits(self) -> tuple[int, ...]:
        return self.thread + self.lanes + self.warps

    @property
    def steps_of_thread(self) -> int:
        """How often a thread combines whole arrays before lanes are combined."""
        return (1 << len(self.thread)) - 1 if self.chain else len(self.thread)


def reduction_order(layout: Layout, axis: int, *, pairs: bool = False, single: bool = True, chain: bool = False) -> ReductionOrder:
    """The order of `tt.reduce` along `axis`. `pairs`: the target combines two registers by one instruction (`uses_register_pairs`).
    `single`: one operation combines two elements. `chain`: a thread combines one register after another.

    In a thread a balanced tree over the registers in their order; with pairs over those that are not of one pair, and the two of a
    pair last. Then lanes, the highest bit first (shuffles by 16 to 1). What lies in warps is moved to lanes through shared memory,
    lowest bit to lowest lane, at most five bits at once, and combined like them.

    All 64 lanes of a warp of AMD's are combined, by a `single` operation, by moves inside rows of 16 and then by broadcasts of rows
    (DPP row_shr 8, 4, 2, 1, row_bcast 15, 31; `warpReduce` of Triton's AMD backend); fewer of them as elsewhere.
    """
    held = [basis for basis in layout.registers if any(basis)]
    thread = [_bit(basis[axis]) for basis in held if basis[axis]]
    if chain:
        thread.reverse()
    elif pairs and len(thread) >= 2 and held[0][axis]:
        thread = thread[1:] + thread[:1]
    lanes = [_bit(basis[axis]) for basis in reversed(layout.lanes) if basis[axis]]
    if single and len(lanes) == ROWS + 2:
        lanes = lanes[2:] + lanes[1::-1]
    left, warps = [_bit(basis[axis]) for basis in layout.warps if basis[axis]], list[int]()
    while left:
        warps += reversed(left[:LANE_BITS])
        left = left[LANE_BITS:]
    return ReductionOrder(tuple(thread), tuple(lanes), tuple(warps), chain)


def uses_register_pairs(layout: Layout, axis: int, form: str, *, sm: int) -> bool:
    """Whether one addition or multiplication of floats, and nothing else, is made on pairs of registers of the format `form` on
    `sm`: four elements a thread at least; fp16 and bf16 from sm_90 on, fp32 from sm_100 on, all three on AMD's (`AMD`)."""
    first = {"fp16": 90, "bf16": 90, "fp32": 100}.get(form)
    return first is not None and sm >= first and sum(1 for basis in layout.registers if basis[axis]) >= 2


class Elements(Protocol):
    """How elements that are more than words are combined: products, which a sum may take in before they are rounded."""

    @property
    def words(self) -> int:
        """How many of the parts are words; the others say what else an element is."""

    def add_first(self, *sides: np.ndarray) -> Parts:
        """Two elements: the parts of the left one, then those of the right one."""

    def behind(self, before: Parts, element: Parts, flag: int = 3, /) -> Parts:
        """The words `before` and an element; `flag` is the part of the element that says whether it is taken in."""


def reduce_parts(parts: Parts, axis: int, order: ReductionOrder, combine: Combine, elements: Elements | None = None) -> Parts:
    """`parts`, each combined to one element along `axis`, which is dropped.

    `elements` combines the elements themselves, `combine` what it gives: so a product may be taken in by the first sum. The words
    are those of the thread with the lowest number, where combine(a, b) differs from combine(b, a).
    """
    places = _places(order.bits)
    halves = tuple(np.take(part, places, axis) for part in parts)
    if order.chain and order.thread:
        halves, elements = _chain_registers(halves, axis, 1 << len(order.thread), combine, elements), None
    while (size := halves[0].shape[axis]) > 1:
        first = elements.add_first if elements else combine
        halves, elements = first(*_half(halves, axis, 0, size // 2), *_half(halves, axis, size // 2, size)), None
    return tuple(np.take(part, 0, axis) for part in halves)


def _chain_registers(parts: Parts, axis: int, count: int, combine: Combine, elements: Elements | None) -> Parts:
    """`parts`, whose `axis` has `count` registers of equal size in their order, combined one after another."""
    size = parts[0].shape[axis] // count
    registers = [_half(parts, axis, start, start + size) for start in range(0, count * size, size)]
    return combine_registers(registers, combine, elements)


def combine_registers(registers: Sequence[Parts], combine: Combine, elements: Elements | None) -> Parts:
    """What a thread has of its `registers`, one combined after another."""
    first, second, *others = registers
    words = elements.add_first(*first, *second) if elements else combine(*first, *second)
    for register in others:
        words = elements.behind(words, register) if elements else combine(*words, *register)
    return words


def across(combine: Combine, loaded: bool = False) -> Combine:
    """What combines words of two lanes, which they have `loaded` from memory or not: `combine`, by which a thread combines its own,
    unless that has another."""
    other = getattr(combine, "across", combine)
    return getattr(combine, "loaded", other) if loaded else other


def copies(parts: Parts, axis: int, order: ReductionOrder, combine: Combine, elements: Elements | None = None) -> Parts | None:
    """As `reduce_parts`, of a combination that is not the same both ways: the word of every lane that has the result, along `axis`,
    lane 0 first. In a shuffle each lane combines its own word with the other's.

    None where lanes that disagree store to one place of shared memory (`thread_words` says which word stays).
    """
    places = _places(order.bits)
    lane_parts = tuple(np.moveaxis(np.take(part, places, axis), axis, 0) for part in parts)
    if order.chain and order.thread:
        lane_parts, elements = _chain_registers(lane_parts, 0, 1 << len(order.thread), combine, elements), None
    for _ in () if order.chain else order.thread:
        size = len(lane_parts[0])
        combine_first = elements.add_first if elements else combine
        lane_parts, elements = combine_first(*_half(lane_parts, 0, 0, size // 2), *_half(lane_parts, 0, size // 2, size)), None
    for bits, rest, loaded in ((order.lanes, len(order.warps), False), (order.warps, 0, True)):
        for level in range(len(bits)):
            split = tuple(part.reshape(1 << level, 2, -1, *part.shape[1:]) for part in lane_parts)
            low, high = (tuple(part[:, side] for part in split) for side in (0, 1))
            combine_first = elements.add_first if elements else across(combine, loaded and not level)
            ways = (combine_first(*low, *high), combine_first(*high, *low))
            lane_parts, elements = (
                tuple(np.stack(pair, 1).reshape(-1, *pair[0].shape[2:]) for pair in zip(*ways, strict=True)),
                None,
            )
        if rest:
            lane_parts = tuple(part.reshape(-1, 1 << rest, *part.shape[1:]) for part in lane_parts)
            if not agree(lane_parts, 0):
                return None
            lane_parts = tuple(part[0] for part in lane_parts)
    return tuple(np.moveaxis(part, 0, axis) for part in lane_parts)


def agree(parts: Parts, axis: int) -> bool:
    """Whether all words along `axis` are the same, bit for bit."""
    for part in parts:
        words = np.moveaxis(part, axis, 0)
        words = np.ascontiguousarray(words).view(f"u{words.dtype.itemsize}") if words.dtype.kind == "f" else words
        if not (words == words[:1]).all():
            return False
    return True


@dataclass(frozen=True)
class ScanOrder:
    """`contiguous` neighbours along the axis lie in one thread, `lanes` such groups in one warp."""

    contiguous: int
    lanes: int
    warps: int


def scan_order(layout: Layout, shape: Sequence[int], axis: int) -> ScanOrder:
    """The order of `tt.scan` along `axis`. `layout` is a blocked one: Triton 3.9 converts to such a layout first."""
    held = [basis for basis in layout.registers if any(basis)]
    axes = list(dict.fromkeys(next(i for i, step in enumerate(basis) if step) for basis in held))
    axes += [i for i in reversed(range(len(shape))) if i not in axes]
    at, contiguous = 0, [1] * len(shape)
    for each in axes:
        while at < len(held) and held[at][each] == contiguous[each]:
            contiguous[each] *= 2
            at += 1
    lanes, warps = (1 << sum(1 for basis in bases if basis[axis]) for bases in (layout.lanes, layout.warps))
    return ScanOrder(contiguous[axis], lanes, warps)


AFTER_CHUNKS = 4  # the part of an element for the sum that puts what stands before its group in front of it


def scan_parts(
    parts: Parts, axis: int, order: ScanOrder, combine: Combine, *, reverse: bool = False, elements: Elements | None = None
) -> Parts:
    """Prefixes of `parts` along `axis`; from the end with `reverse`. With `elements` the first part has the words, and the others
    what else an element has.

    A thread combines its neighbours one after another. The last of each group goes on through the lanes of the warp by distances
    1, 2, 4, ... What stands before a warp's chunk is one chain over the chunks, and is combined with the last of each group. The
    others take what stands before their group. The left side of every step is the earlier one.
    """
    found = tuple(np.moveaxis(part, axis, 0) for part in parts)
    if reverse:
        found = tuple(part[::-1] for part in found)
    split = tuple(part.reshape(-1, order.lanes, order.contiguous, *part.shape[1:]) for part in found)
    words = slice(0, elements.words if elements else None)
    own = [tuple(part[:, :, 0] for part in split[words])]  # each (chunks, lanes, ...)
    for i in range(1, order.contiguous):
        element = tuple(part[:, :, i] for part in split)
        if elements is None:
            own.append(combine(*own[-1], *element))
        elif i == 1:
            own.append(elements.add_first(*(part[:, :, 0] for part in split), *element))
        else:
            own.append(elements.behind(own[-1], element))
    totals, step = own[-1], 1
    while step < order.lanes:
        if elements and order.contiguous == step == 1:
            sums = elements.behind(tuple(part[:, :-1] for part in totals), tuple(part[:, 1:, 0] for part in split))
        else:
            sums = combine(*(part[:, :-step] for part in totals), *(part[:, step:] for part in totals))
        totals, step = tuple(np.concatenate([p[:, :step], j], 1) for p, j in zip(totals, sums, strict=True)), 2 * step
    if elements and order.contiguous == order.lanes == order.warps == 1:  # each chunk is one element, and its word is carried on
        totals = (_chain(split, elements),)
    elif (chunks := len(totals[0])) > 1:
        before = [tuple(part[:1, -1] for part in totals)]  # each (1, ...): what stands before chunk 1, 2, ...
        for i in range(1, chunks - 1):
            before.append(combine(*before[-1], *(part[i : i + 1, -1] for part in totals)))
        ahead = tuple(np.concatenate(array)[:, None] for array in zip(*before, strict=True))  # (chunks - 1, 1, ...)
        wide = tuple(np.broadcast_to(array, (chunks - 1, *part.shape[1:])) for array, part in zip(ahead, totals, strict=True))
        if elements and order.contiguous == order.lanes == 1:  # each chunk is one element
            sums = elements.behind(wide, tuple(part[1:, :, 0] for part in split))
        else:
            sums = combine(*wide, *(part[1:] for part in totals))
        totals = tuple(np.concatenate([p[:1], j]) for p, j in zip(totals, sums, strict=True))
    flat = tuple(part.reshape(-1, *part.shape[2:]) for part in totals)  # (groups, ...)
    prefixes = tuple(np.empty((len(array), order.contiguous, *array.shape[1:]), array.dtype) for array in flat)
    for i in range(order.contiguous):
        mine = flat
        if i < order.contiguous - 1:
            mine = tuple(part.reshape(-1, *part.shape[2:]) for part in own[i])
            if elements and i == 0:
                first = tuple(part[:, :, 0].reshape(-1, *part.shape[3:])[1:] for part in split)
                sums = elements.behind(tuple(part[:-1] for part in flat), first, AFTER_CHUNKS)
            else:
                sums = combine(*(part[:-1] for part in flat), *(part[1:] for part in mine))
            mine = tuple(np.concatenate([p[:1], j]) for p, j in zip(mine, sums, strict=True))
        for into, part in zip(prefixes, mine, strict=True):
            into[:, i] = part
    done = tuple(part.reshape(-1, *part.shape[2:]) for part in prefixes)
    if reverse:
        done = tuple(part[::-1] for part in done)
    return tuple(np.moveaxis(part, 0, axis) for part in done)


def _chain(parts: Parts, elements: Elements) -> np.ndarray:
    """Prefixes of the elements that `parts` (n, 1, 1, ...) are, one after another: (n, 1, ...)."""
    words = [parts[0][:1, 0]]
    for i in range(1, len(parts[0])):
        element = tuple(part[i : i + 1, 0] for part in parts)
        (word,) = (
            elements.add_first(*(part[:1, 0] for part in parts), *element) if i == 1 else elements.behind((words[-1],), element)
        )
        words.append(word)
    return np.concatenate(words)


@lru_cache(maxsize=512)
def _places(bits: tuple[int, ...]) -> np.ndarray:
    """(n,) positions along the axis: bits[0] is the highest bit of the index."""
    index = np.arange(1 << len(bits))
    found = np.zeros_like(index)
    for i, bit in enumerate(bits):
        found |= (index >> (len(bits) - 1 - i) & 1) << bit
    found.flags.writeable = False
    return found


def _half(parts: Parts, axis: int, start: int, end: int) -> Parts:
    where = (slice(None),) * axis + (slice(start, end),)
    return tuple(part[where] for part in parts)


def _bit(step: int) -> int:
    return step.bit_length() - 1
