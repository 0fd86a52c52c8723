"""What probes hold: masks and units, and terms that cancel in pairs. Which of them work is asked of the sum itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.checks.sums.probes import NotRecovered, SummedOutput
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
    max_units: int


def span_of(summed: SummedOutput) -> Span:
    low, high = summed.factor_ranges()
    return Span(int(low.sum(axis=0).max()), int(high.sum(axis=0).min()))


def rungs_of(summed: SummedOutput) -> list[tuple[int, int]]:
    span = span_of(summed)
    found = [(high, max(low, span.low)) for high, low in LADDER if high <= span.high]
    found.append((min(span.high, span.low + 60), span.low))
    return list(dict.fromkeys((high, low) for high, low in found if high - low >= FEWEST_BITS)) or found[-1:]


def asker(summed_output: SummedOutput, carriers: np.ndarray, high: int, low: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def ask(masks: np.ndarray, units: np.ndarray) -> np.ndarray:
        results = np.empty(len(masks))
        for start in range(0, len(masks), 4096):
            some = slice(start, start + 4096)
            values = np.where(units[some], 2.0**low, 0.0)  # (P, T)
            for side, sign in ((0, 1.0), (1, -1.0)):
                rows = np.flatnonzero(masks[some, side] >= 0)
                values[rows, masks[some][rows, side]] = sign * 2.0**high
            results[some] = summed_output.probe_results(summed_output.factors_for(values), carriers) / 2.0**low
        return results

    return ask


def scales(summed_output: SummedOutput, members: np.ndarray, rng: np.random.Generator) -> Iterator[Scale]:
    """Those of the ladder with which units are counted exactly and masks go. Raises NotRecovered where there is none."""
    outputs = np.flatnonzero(members == np.argmax(np.bincount(members)))
    terms = np.flatnonzero(summed_output.terms.present(outputs[:1])[0])
    carriers = summed_output.carriers(outputs)
    count, reason, has_scale = summed_output.terms.count, "", False
    for high, low in rungs_of(summed_output):
        ask = asker(summed_output, carriers, high, low)
        for max_units in dict.fromkeys(min(each, len(terms), 2**summed_output.bits) for each in (1 << 20, 2048, 256, 16, 4)):
            units = np.zeros((-(-len(terms) // max_units), count), bool)
            for place in range(len(units)):
                units[place, terms[place :: len(units)]] = True
            fewer = np.repeat(units[:1], 7, axis=0)
            fewer[np.arange(7), terms[:: len(units)][np.arange(7) % max_units]] = False  # an odd count shows a bit that is lost
            fewer[3:] &= rng.random((4, count)) < 0.75
            counted = np.concatenate([units, fewer])
            got = ask(np.full((len(counted), 2), -1), counted)
            if not np.array_equal(got, counted.sum(axis=1)):
                at = int(np.argmax(got != counted.sum(axis=1)))
                reason = f"{got[at]} of {counted[at].sum()} units are counted, without a mask"
                continue
            if len(terms) < 3:
                yield Scale(high, low, max_units)
                return
            pairs = np.stack([rng.permutation(terms)[:2] for _ in range(8)])  # (8, 2)
            repeated_units = np.repeat(units[:1], 8, axis=0)
            np.put_along_axis(repeated_units, pairs, False, axis=1)
            left = ask(pairs, repeated_units)
            if not (np.isfinite(left).all() and (left == np.rint(left)).all() and ((left >= 0) & (left <= max_units)).all()):
                reason = f"beside masks of 2^{high} the result counts {left[0]} units"
                continue
            if len(terms) > 3 and max_units > 3 and (left == repeated_units.sum(axis=1)).all():
                reason = f"no unit of 2^{low} vanishes beside 2^{high}: the sum is compensated, exact, or wider than that"
                continue
            has_scale = True
            yield Scale(high, low, max_units)
            break
    if not has_scale:
        raise NotRecovered(f"{summed_output.name}: {reason}")


def in_pairs(summed_output: SummedOutput, terms: np.ndarray, high: int, rng: np.random.Generator) -> np.ndarray:
    """(T,) values of terms that cancel in pairs, of exponents far apart, none of them near the ends of a format."""
    span = span_of(summed_output)
    bits = min(summed_output.formats[segment.factors[0][0]].mantissa_bits for segment in summed_output.terms.segments)
    least, most = max(span.low + bits, -12), min(span.high - 1, 4 if high <= 14 else 12)
    pairs = rng.permutation(terms)[: len(terms) // 2 * 2].reshape(2, -1)
    drawn = 1 + rng.integers(0, 1 << bits, pairs.shape[1]) / (1 << bits)
    drawn *= np.exp2(rng.integers(least, max(most, least), pairs.shape[1], endpoint=True))
    values = np.zeros(summed_output.terms.count)
    values[pairs[0]], values[pairs[1]] = drawn, -drawn
    return values
