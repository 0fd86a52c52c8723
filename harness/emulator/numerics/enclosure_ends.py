"""The words of enclosed operands at which an operation is computed for the ends of its result (`enclosures`).

The ends of the operands where the operation is monotone in each; else the points where it turns, or each word inside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics import enclosures
from bitverdict.harness.emulator.numerics.enclosures import INTEGER_KINDS, Enclosure, array_of, in_form_of, keys, words_of
from bitverdict.harness.emulator.numerics.scalar_ops import widen
from bitverdict.reference.reduction_order import Combine, Parts, ReductionOrder, ScanOrder, reduce_parts, scan_parts

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.numerics.real_values import TileValue


MayBeProduct = bool | np.ndarray
"""Whether an operand may be a product that is taken in unrounded, of all elements or of each."""


def inexact(m: Cta, fmt: str | None, value: TileValue, left: TileValue, right: TileValue) -> MayBeProduct:
    """Where the product `value` of `left` and `right` was rounded, or may be: elsewhere it is the same, taken in or not. float64
    holds a product of two numbers of narrower formats. Of a factor that is enclosed it is exact where the other one is zero."""
    if fmt is None:
        return True
    with np.errstate(invalid="ignore", over="ignore"):
        factors = [np.asarray(widen(each, fmt), np.float64) for each in (left, right)]
        is_rounded = np.abs(np.multiply(*factors)) != np.abs(np.asarray(widen(value, fmt), np.float64))
    known = [m.launch.enclosures.enclosure_of(each) for each in (left, right)]
    for enclosure, other, of_other in ((known[0], factors[1], known[1]), (known[1], factors[0], known[0])):
        if enclosure is not None:
            is_zero = (other == 0) & (True if of_other is None else of_other.low == of_other.high)
            is_rounded = is_rounded | ((enclosure.low != enclosure.high) & ~is_zero)
    return np.asarray(is_rounded)


def side_taken(m: Cta, condition: TileValue, side: bool) -> MayBeProduct:
    """Where a select takes the `side` that may be a product: what it takes of the other is none."""
    return bool(m.launch.enclosures.enclosure_of(condition)) or np.asarray(condition, bool) == side


def _ends(m: Cta, value: TileValue, dtype: np.dtype, may_be_product: MayBeProduct) -> tuple[np.ndarray, np.ndarray] | None:
    enclosure, array = m.launch.enclosures.enclosure_of(value), array_of(value, dtype)
    if enclosure is None:
        if not np.any(may_be_product):
            return None
        enclosure = Enclosure(keys(array), keys(array))
    elif may_be_product is not False:
        may_be_product = np.logical_or(may_be_product, enclosure.low != enclosure.high)
    if may_be_product is False:
        return enclosure.low, enclosure.high
    low, high = _below(enclosure.low, array.dtype), _above(enclosure.high, array.dtype)
    return np.where(may_be_product, low, enclosure.low), np.where(may_be_product, high, enclosure.high)


def _below(low: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.where(_finite(low - 1, dtype), low - 1, low)


def _above(high: np.ndarray, dtype: np.dtype) -> np.ndarray:
    return np.where(_finite(high + 1, dtype), high + 1, high)


def _finite(found: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Whether `found` are keys of numbers or infinities in the format of its size with the widest exponent."""
    top = {8: 0x7FF << 52, 4: 0x7F800000, 2: 0x7F80, 1: 0x7F}[dtype.itemsize]
    return (found <= top) & (found >= ~top)


def ends(m: Cta, value: TileValue, dtype: np.dtype, wide: MayBeProduct) -> tuple[Any, ...]:
    """The lowest and the highest word of `value` element by element, or itself where it is exact. `wide`: one word further."""
    found = _ends(m, value, dtype, wide)
    if found is None:
        return (value,)
    return tuple(in_form_of(value, words_of(each, array_of(value, dtype).dtype)) for each in found)


def sides(
    m: Cta, values: tuple[TileValue, ...], dtypes: tuple[np.dtype, ...], wide: tuple[MayBeProduct, ...]
) -> tuple[tuple[Any, ...], ...]:
    """`values` at their lowest words, then all at their highest."""
    found = [ends(m, *each) for each in zip(values, dtypes, wide, strict=True)]
    return tuple(each[0] for each in found), tuple(each[-1] for each in found)


def turning_points(m: Cta, value: TileValue, dtype: np.dtype) -> tuple[Any, ...]:
    """The lowest and the highest word of `value`, and its zeros: between them a product with itself, and a size, rise or fall."""
    known = m.launch.enclosures.enclosure_of(value)
    if known is None:
        return (value,)
    points = [known.low, known.high]
    if ((known.low < 0) & (known.high >= 0)).any():
        points += [np.clip(each, known.low, known.high) for each in (-1, 0)]
    return tuple(in_form_of(value, words_of(each, array_of(value, dtype).dtype)) for each in points)


def every_word(m: Cta, op: Operation, values: tuple[TileValue, ...], dtypes: tuple[np.dtype, ...]) -> Iterator[tuple[Any, ...]]:
    """`values` at each of their words. NotModelled where these are more than `enclosures.MOST_WORDS` for an element, or in all."""
    word_ranges = [_ends(m, value, dtype, False) for value, dtype in zip(values, dtypes, strict=True)]
    counts = [1 if word_range is None else int((word_range[1] - word_range[0]).max()) + 1 for word_range in word_ranges]
    if prod(counts) > enclosures.MOST_WORDS:
        raise NotModelled(op, f"of a value whose enclosure has {prod(counts)} words: at most {enclosures.MOST_WORDS} are tried")
    for steps in product(*map(range, counts)):
        yield tuple(
            value
            if word_range is None
            else in_form_of(value, words_of(np.minimum(word_range[0] + step, word_range[1]), array_of(value, dtype).dtype))
            for value, dtype, word_range, step in zip(values, dtypes, word_ranges, steps, strict=True)
        )


def smooth(m: Cta, op: Operation, value: TileValue, dtype: np.dtype, pole: bool) -> Iterator[tuple[Any, ...]]:
    """`value` at its ends, for a function that rises or falls all along; at each of its words where it has both signs, and the
    function a `pole` between them."""
    known = m.launch.enclosures.enclosure_of(value)
    if known is None or (pole and ((known.low < 0) & (known.high >= 0)).any()):
        yield from every_word(m, op, (value,), (dtype,))
    else:
        for each in ends(m, value, dtype, False):
            yield (each,)


def quotients(
    m: Cta, op: Operation, values: tuple[TileValue, TileValue], dtypes: tuple[np.dtype, np.dtype]
) -> Iterator[tuple[Any, ...]]:
    """Dividend and divisor at their ends where the divisors of all enclosed quotients are far from zero and from infinity: there a
    quotient rises or falls in each. Elsewhere both at each of their words."""
    left = m.launch.enclosures.enclosure_of(values[0])
    divisor = _enclosure_or_value(m, values[1], dtypes[1])
    open_ = divisor.low != divisor.high if left is None else (divisor.low != divisor.high) | (left.low != left.high)
    size = dtypes[1].itemsize
    low, high = np.maximum(divisor.low, ~divisor.high), np.maximum(divisor.high, ~divisor.low)  # of the sizes, where one sign is
    near, far = ({8: 1023 << 52, 4: 127 << 23}[size] + (sign * 126 << {8: 52, 4: 23}[size]) for sign in (-1, 1))
    if (open_ & ((low < near) | (high > far))).any():
        yield from every_word(m, op, values, dtypes)
        return
    for first in ends(m, values[0], dtypes[0], False):
        for second in ends(m, values[1], dtypes[1], False):
            yield first, second


def check_product(m: Cta, op: Operation, factors: tuple[TileValue, TileValue], dtype: np.dtype, fmt: str | None) -> None:
    """NotModelled where one of `factors` may be zero and the other infinite: the ends of a product do not show that NaN."""
    known = [_enclosure_or_value(m, value, dtype) for value in factors]
    for zero, other in (known, known[::-1]):
        crossing = (zero.low < 0) & (zero.high >= 0) & (zero.low != zero.high)
        if crossing.any() and any((crossing & np.isinf(widen(words_of(end, dtype), fmt))).any() for end in (other.low, other.high)):
            raise NotModelled(op, "of a value that is enclosed and may be zero, times an infinity")


def other_outcomes(m: Cta, outcome: TileValue, values: tuple[TileValue, TileValue], dtype: np.dtype) -> tuple[Any, ...]:
    """The other `outcome` of a comparison by == or != where the two `values` may be equal, or not."""
    left, right = (_enclosure_or_value(m, value, dtype) for value in values)
    at = left.low, left.high, right.low, right.high
    low, high, other_low, other_high = at if dtype.kind in INTEGER_KINDS else map(_one_zero, at)
    settled = (low > other_high) | (other_low > high) | ((low == high) & (other_low == other_high))
    return (in_form_of(outcome, np.where(settled, outcome, np.logical_not(outcome))),)


def _enclosure_or_value(m: Cta, value: TileValue, dtype: np.dtype) -> Enclosure:
    """The enclosure of `value`, or itself."""
    return m.launch.enclosures.enclosure_of(value) or Enclosure(*(keys(array_of(value, dtype)),) * 2)


def _one_zero(at: np.ndarray) -> np.ndarray:
    """The keys `at` of floats, that of +0 for -0."""
    return at + (at == -1)


def total(values: np.ndarray) -> np.ndarray:
    """The sum of the sizes of all `values`: no sum of some of them is larger."""
    return np.abs(values).sum()


def check_no_wrap(op: Operation, bits: int, run: Callable[..., np.ndarray], *choices: TileValue) -> None:
    """NotModelled where an integer of `bits` bits that `run` makes of `choices` wraps: then the ends say nothing."""
    real = run(*(np.asarray(choice, np.float64) for choice in choices))
    if (np.abs(real) >= 2.0 ** (bits - 1) * (1 - 2.0**-40)).any():
        raise NotModelled(op, "of integers that are enclosed, and may leave the range of their type")


def extreme(
    m: Cta,
    op: Operation,
    values: tuple[TileValue, TileValue],
    dtypes: tuple[np.dtype, np.dtype],
    fmt: str | None,
    axis: int,
    largest: bool,
) -> Iterator[tuple[Any, Any]]:
    """The lowest words of the largest (smallest) element along `axis` and of the number beside it, then the highest. Of equal
    elements each may be chosen."""
    element, number = (_enclosure_or_value(m, value, dtype) for value, dtype in zip(values, dtypes, strict=True))
    if np.isnan(widen(words_of(element.low, dtypes[0]), fmt)).any():
        raise NotModelled(op, "of values that are enclosed, beside a NaN")
    low, high = _one_zero(element.low), _one_zero(element.high)
    candidates = high >= low.max(axis, keepdims=True) if largest else low <= high.min(axis, keepdims=True)
    over = (element.low <= -1).any(axis) & (element.high >= 0).any(axis)  # where both zeros may be the largest or the smallest
    run = np.max if largest else np.min
    first, last = run(element.low, axis), run(element.high, axis)
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    lower = np.where(over & (first == 0), -1, first), np.where(candidates, number.low, most).min(axis)
    upper = np.where(over & (last == -1), 0, last), np.where(candidates, number.high, least).max(axis)
    for side in (lower, upper):
        yield words_of(side[0], dtypes[0]), words_of(side[1], dtypes[1])


def combined_ends(
    m: Cta,
    combine: Combine,
    values: tuple[np.ndarray, ...],
    dtypes: tuple[np.dtype, ...],
    axis: int,
    order: ReductionOrder | ScanOrder,
    reverse: bool,
) -> Iterator[tuple[np.ndarray, ...]]:
    """The lowest words that a reduction or scan of `values` by `combine` may leave, then the highest. An element is its words and
    the keys of their ends. Of two lanes each combines its own word with the other's: what either gives lies inside."""
    count, ends = len(values), [_enclosure_or_value(m, value, dtype) for value, dtype in zip(values, dtypes, strict=True)]
    parts = (*values, *(pair.low for pair in ends), *(pair.high for pair in ends))

    def one_way(left: Parts, right: Parts) -> Parts:
        for side in (left, right):
            for i, value in enumerate(side[:count]):
                m.launch.enclosures.hold(value, Enclosure(side[count + i], side[2 * count + i]))
        results = combine(*left[:count], *right[:count])
        next_ends = [_enclosure_or_value(m, value, dtype) for value, dtype in zip(results, dtypes, strict=True)]
        return (*results, *(pair.low for pair in next_ends), *(pair.high for pair in next_ends))

    def both_ways(*sides: np.ndarray) -> Parts:
        left, right = sides[: 3 * count], sides[3 * count :]
        results = one_way(left, right)
        if isinstance(order, ScanOrder) or next(inside_a_thread, False):
            return results
        other_results = one_way(right, left)
        return (
            *results[:count],
            *map(np.minimum, results[count : 2 * count], other_results[count : 2 * count]),
            *map(np.maximum, results[2 * count :], other_results[2 * count :]),
        )

    if isinstance(order, ScanOrder):
        parts = scan_parts(parts, axis, order, both_ways, reverse=reverse)
    else:
        inside_a_thread = iter([True] * order.steps_of_thread)
        parts = reduce_parts(parts, axis, order, both_ways)
    for keys_of_ends in (parts[count : 2 * count], parts[2 * count :]):
        yield tuple(words_of(end, dtype) for end, dtype in zip(keys_of_ends, dtypes, strict=True))


def wider(m: Cta, before: tuple[Enclosure, ...], words: int, value: TileValue, dtype: np.dtype) -> tuple[Enclosure, ...]:
    """The one enclosure of `before`, of what is computed of `value`, `words` further to both sides where that is enclosed."""
    (enclosure,), operand = before, m.launch.enclosures.enclosure_of(value)
    if operand is None:
        return before
    low, high = enclosure.low, enclosure.high
    for _ in range(words):
        low, high = _below(low, dtype), _above(high, dtype)
    open_ = operand.low != operand.high
    return (Enclosure(np.where(open_, low, enclosure.low), np.where(open_, high, enclosure.high)),)


def widen_to_range(
    m: Cta, before: tuple[Enclosure, ...], value: TileValue, dtype: np.dtype, fmt: str | None, bits: int, is_signed: bool
) -> tuple[Enclosure, ...]:
    """The one enclosure of `before`, of the integers of `bits` bits that floats become: any integer where the ends of `value` do
    not show which. Integers of 8 bits are the low half of 16; unsigned ones are held as signed words."""
    (enclosure,), operand = before, m.launch.enclosures.enclosure_of(value)
    if operand is None:
        return before
    top = 2.0 ** (bits - 1)
    low, high = (widen(words_of(end, dtype), fmt) for end in (operand.low, operand.high))
    inside = (low > -top - 1 if is_signed else low > -1) & (high < top) | (operand.low == operand.high)
    if is_signed and bits > 8:
        return before
    return (Enclosure(np.where(inside, enclosure.low, int(-top)), np.where(inside, enclosure.high, int(top) - 1)),)
