"""What probes hold: masks and units, and terms that cancel in pairs. Which of them work is asked of the sum itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.checks.sums.probing import NotRecovered, Summed
from bitverdict.reference.sums.rounding import Span

LADDER = ((60, 0), (30, -12), (30, -20), (14, -24), (14, -18), (14, -14))
"""Exponents of the mask and of a unit, the first that works: a mask must fit every format that a partial sum is kept in, and
exceed the sum of all units by more bits than an accumulator has. A unit below what a format holds is the least that it holds."""
FEWEST_BITS = 27  # between mask and unit


@dataclass(frozen=True)
class Scale:
    """Exponents of mask and unit, and how many units are counted at a time."""

    high: int
    low: int
    most: int


def span_of(summed: Summed) -> Span:
    low, high = summed.factor_ranges()
    return Span(int(low.sum(axis=0).max()), int(high.sum(axis=0).min()))


def rungs_of(summed: Summed) -> list[tuple[int, int]]:
    span = span_of(summed)
    found = [(high, max(low, span.low)) for high, low in LADDER if high <= span.high]
    found.append((min(span.high, span.low + 60), span.low))
    return list(dict.fromkeys((high, low) for high, low in found if high - low >= FEWEST_BITS)) or found[-1:]


def asker(summed: Summed, carriers: np.ndarray, high: int, low: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def ask(masks: np.ndarray, units: np.ndarray) -> np.ndarray:
        found = np.empty(len(masks))
        for start in range(0, len(masks), 4096):
            some = slice(start, start + 4096)
            values = np.where(units[some], 2.0**low, 0.0)  # (P, T)
            for side, sign in ((0, 1.0), (1, -1.0)):
                rows = np.flatnonzero(masks[some, side] >= 0)
                values[rows, masks[some][rows, side]] = sign * 2.0**high
            found[some] = summed.asked(summed.factored(values), carriers) / 2.0**low
        return found

    return ask


def scales(summed: Summed, members: np.ndarray, rng: np.random.Generator) -> Iterator[Scale]:
    """Those of the ladder with which units are counted exactly and masks go. Raises NotRecovered where there is none."""
    outputs = np.flatnonzero(members == np.argmax(np.bincount(members)))
    terms = np.flatnonzero(summed.terms.present(outputs[:1])[0])
    carriers = summed.carriers(outputs)
    count, said, some = summed.terms.count, "", False
    for high, low in rungs_of(summed):
        ask = asker(summed, carriers, high, low)
        for most in dict.fromkeys(min(each, len(terms), 2**summed.bits) for each in (1 << 20, 2048, 256, 16, 4)):
            units = np.zeros((-(-len(terms) // most), count), bool)
            for place in range(len(units)):
                units[place, terms[place :: len(units)]] = True
            fewer = np.repeat(units[:1], 7, axis=0)
            fewer[np.arange(7), terms[:: len(units)][np.arange(7) % most]] = False  # an odd count shows a bit that is lost
            fewer[3:] &= rng.random((4, count)) < 0.75
            counted = np.concatenate([units, fewer])
            got = ask(np.full((len(counted), 2), -1), counted)
            if not np.array_equal(got, counted.sum(axis=1)):
                at = int(np.argmax(got != counted.sum(axis=1)))
                said = f"{got[at]} of {counted[at].sum()} units are counted, without a mask"
                continue
            if len(terms) < 3:
                yield Scale(high, low, most)
                return
            pairs = np.stack([rng.permutation(terms)[:2] for _ in range(8)])  # (8, 2)
            given = np.repeat(units[:1], 8, axis=0)
            np.put_along_axis(given, pairs, False, axis=1)
            left = ask(pairs, given)
            if not (np.isfinite(left).all() and (left == np.rint(left)).all() and ((left >= 0) & (left <= most)).all()):
                said = f"beside masks of 2^{high} the result counts {left[0]} units"
                continue
            if len(terms) > 3 and most > 3 and (left == given.sum(axis=1)).all():
                said = f"no unit of 2^{low} vanishes beside 2^{high}: the sum is compensated, exact, or wider than that"
                continue
            some = True
            yield Scale(high, low, most)
            break
    if not some:
        raise NotRecovered(f"{summed.name}: {said}")


def in_pairs(summed: Summed, terms: np.ndarray, high: int, rng: np.random.Generator) -> np.ndarray:
    """(T,) values of terms that cancel in pairs, of exponents far apart, none of them near the ends of a format."""
    span = span_of(summed)
    bits = min(summed.formats[segment.factors[0][0]].mantissa_bits for segment in summed.terms.segments)
    least, most = max(span.low + bits, -12), min(span.high - 1, 4 if high <= 14 else 12)
    pairs = rng.permutation(terms)[: len(terms) // 2 * 2].reshape(2, -1)
    drawn = 1 + rng.integers(0, 1 << bits, pairs.shape[1]) / (1 << bits)
    drawn *= np.exp2(rng.integers(least, max(most, least), pairs.shape[1], endpoint=True))
    values = np.zeros(summed.terms.count)
    values[pairs[0]], values[pairs[1]] = drawn, -drawn
    return values
