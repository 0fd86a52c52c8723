"""The comparison of an output with what is expected: how many words differ, the first of them, how far, and where they cluster.

Real values come first, where there are some (`bitverdict.harness.judge.real_values`): what they disagree about is *wrong
mathematics*. Then the words, in three modes, chosen by the `ExpectedOutput`: word for word, between a lowest and a highest word by
value, or |got - value| <= bound per element in float64. Outside of a bound is *lost precision* where the real value is right.

A NaN is expected where NaN is expected and nowhere else; of words its payload is expected too, unless `any_nan`. Interval and bound
see neither the sign of a zero nor a NaN's payload. Elements whose words are marked `inconclusive` are left to the real values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bitverdict.harness.judge.diagnose import _by_bound, clusters, first_words, heat, values
from bitverdict.harness.judge.real_values import Mathematics, RealValues, first_values, mathematics
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Outcome

_DIFFERS = {
    Outcome.WRONG_WORDS: "words differ",
    Outcome.OUTSIDE_BOUND: "elements lie outside the bound",
    Outcome.WRONG_MATHEMATICS: "elements are wrong before any rounding",
    Outcome.LOST_PRECISION: "elements have the right mathematics and lie outside the bound",
}


@dataclass(frozen=True)
class Comparison:
    """What one output shows. `words` counts the elements that were decided, by their words or by their real values.

    `by_words` and `by_real_values` are how many each of the two decided, `unknown` those whose real value is not known; 0 where
    there are no real values."""

    outcome: Outcome
    words: int
    inconclusive: int = 0
    message: str = ""
    bound_used: float | None = None
    details: dict[str, Any] = field(default_factory=dict)
    by_words: int = 0
    by_real_values: int = 0
    unknown: int = 0


def compare(
    expected: ExpectedOutput,
    words: np.ndarray,
    *,
    poison: int | None = None,
    dtypes: tuple[str, str] | None = None,
    real: RealValues | None = None,
) -> Comparison:
    """Hold `got`, the output's words (unsigned, any shape), against `expected`; `poison` is the word of an unwritten element.
    `dtypes`: the names of the dtype that came and of the one that is due, where known: words of equal width may be of two types.
    `real`: the real values of the launch, where it computed some."""
    if tuple(words.shape) != tuple(expected.shape):
        return Comparison(
            Outcome.WRONG_SHAPE, 0, message=f"{expected.name}: shape {tuple(words.shape)}, expected {tuple(expected.shape)}"
        )
    if dtypes is not None and dtypes[0] != dtypes[1]:
        message = f"{expected.name}: dtype {dtypes[0]}, expected {dtypes[1]} ({expected.format})"
        return Comparison(Outcome.WRONG_SHAPE, 0, message=message)
    due = _itemsize(expected)
    if words.dtype.itemsize != due:
        message = f"{expected.name}: words of {8 * words.dtype.itemsize} bits, expected {8 * due} ({expected.format})"
        return Comparison(Outcome.WRONG_SHAPE, 0, message=message)
    differs, decided, by_bound, used = compare_words(expected, words)
    mathematics_check = mathematics(expected, real)
    element_counts = replace(_count_elements(decided, mathematics_check), bound_used=used)
    if mathematics_check is not None and mathematics_check.wrong_elements.any():
        outcome, differs = Outcome.WRONG_MATHEMATICS, mathematics_check.wrong_elements
    elif not differs.any():
        return element_counts
    elif not by_bound[differs].all():
        outcome = Outcome.WRONG_WORDS
    else:
        outcome = (
            Outcome.LOST_PRECISION
            if mathematics_check is not None and mathematics_check.known_elements[differs].all()
            else Outcome.OUTSIDE_BOUND
        )
    unwritten = differs & (words == words.dtype.type(poison)) if poison is not None else np.zeros_like(differs)
    details: dict[str, Any] = {
        "output": expected.name,
        "wrong": int(differs.sum()),
        "of": element_counts.words,
        "never_written": int(unwritten.sum()),
        "first": first_words(expected, words, differs),
        "clusters": clusters(expected, words, differs),
        "heat": heat(expected, differs),
    }
    if mathematics_check is not None:
        for each in details["first"]:
            each |= first_values(mathematics_check, tuple(each["at"]))
    return replace(element_counts, outcome=outcome, message=_message(outcome, expected, details), details=details)


def _count_elements(decided_elements: np.ndarray, mathematics_check: Mathematics | None) -> Comparison:
    """Of an output with nothing wrong: elements decided by words or real values, by each of them, and by neither."""
    known_elements = np.zeros(decided_elements.shape, bool) if mathematics_check is None else mathematics_check.known_elements
    count = int((decided_elements | known_elements).sum())
    return Comparison(
        Outcome.PASS if count or not decided_elements.size else Outcome.INCONCLUSIVE,
        count,
        decided_elements.size - count,
        by_words=int(decided_elements.sum()),
        by_real_values=int(known_elements.sum()),
        unknown=0 if mathematics_check is None else int((~known_elements).sum()),
    )


def compare_words(expected: ExpectedOutput, words: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float | None]:
    """(differs, decided, by bound, largest used share of the bound): of each element of `got`, words of the shape that is due.
    `differs` only where `decided`."""
    decided_elements = np.ones(words.shape, bool) if expected.inconclusive is None else ~expected.inconclusive
    bound_share = None
    by_bound = _by_bound(expected, words)
    differs = np.zeros(words.shape, bool)
    if expected.words is not None:
        differs = _words_differ(expected, words) & ~by_bound
    if by_bound.any() or expected.words is None:
        outside, bound_share, decidable = _outside_bound(expected, words, by_bound & decided_elements)
        decided_elements = decided_elements & (decidable | ~by_bound)
        differs = differs | (outside & by_bound)
    return differs & decided_elements, decided_elements, by_bound, bound_share


def with_enclosed(expected: ExpectedOutput, low: np.ndarray, high: np.ndarray) -> ExpectedOutput:
    """`expected` of a launch whose words lie between `low` and `high` (unsigned words of its shape), because the compiled program
    leaves a choice open: where they differ, no word is decided unless no choice can give the one that is expected."""
    if expected.words is None or tuple(low.shape) != tuple(expected.shape):
        return expected
    from bitverdict.reference.formats import FORMATS

    order = _order_keys if expected.format in FORMATS or expected.format == "fp64" else _signed_words
    right, lowest, highest = (order(words.view(low.dtype)) for words in (_right_words(expected), low, high))
    open_ = (low != high) & ((lowest <= right) & (right <= highest)).any(axis=0)
    return replace(expected, inconclusive=open_ if expected.inconclusive is None else expected.inconclusive | open_)


def _order_keys(words: np.ndarray) -> np.ndarray:
    """Integers in the order of the floats whose unsigned words are given."""
    signed = words.view(f"i{words.itemsize}").astype(np.int64)
    return np.where(signed < 0, -(signed & np.iinfo(f"i{words.itemsize}").max) - 1, signed)


def _signed_words(words: np.ndarray) -> np.ndarray:
    """The signed integers whose unsigned words are given: in that order an enclosure of integers lies, signed or not."""
    return words.view(f"i{words.itemsize}").astype(np.int64)


def contradiction(expected: ExpectedOutput) -> str:
    """How the expected words lie outside of what a bound lets them be; empty where they do not, or where there is no bound."""
    if expected.opinion is None:
        return ""
    words = np.ascontiguousarray(expected.opinion.words)  # (R, C)
    found = compare(expected.opinion.output, words.view(f"u{words.dtype.itemsize}"))
    return "" if found.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE) else found.message


def _itemsize(expected: ExpectedOutput) -> int:
    """Bytes of an output's word; a format that is no floating-point one is named as NumPy names it."""
    if expected.words is not None:
        return expected.words.dtype.itemsize
    from bitverdict.reference.formats import FORMATS

    fmt = FORMATS.get(expected.format)
    return np.dtype(fmt.storage if fmt else expected.format).itemsize


def _message(outcome: Outcome, expected: ExpectedOutput, details: Mapping[str, Any]) -> str:
    """The first line names the bug; without its numbers it is the bug's signature. The second gives the first wrong word."""
    head = f"{expected.name}: {details['wrong']} of {details['of']} {_DIFFERS[outcome]}"
    if 10 * details["never_written"] >= details["wrong"]:  # fewer hold the poison's value by chance
        head += f", {details['never_written']} of them never written (they hold the poison)"
    first_word = details["first"][0]
    if first_word.get("ulp") == 0 and "real value" in first_word:
        due = (
            f"{first_word['real value']}, expected {first_word['exact']}: it is not rounded by the rule that the reference declares"
        )
        return (
            f"{head}\nfirst at {first_word['at']}: got {first_word['got']}, which is the expected word, but without rounding {due}"
        )
    distance = f", {first_word['ulp']} ulp" if first_word.get("ulp") is not None else ""
    real = f"; without rounding {first_word['real value']}, expected {first_word['exact']}" if "real value" in first_word else ""
    return f"{head}\nfirst at {first_word['at']}: got {first_word['got']}, expected {first_word['expected']}{distance}{real}"


def _right_words(expected: ExpectedOutput) -> np.ndarray:
    """(1 or more, *shape): the words of which one must come."""
    assert expected.words is not None
    one = expected.words[None]
    return one if expected.others is None else np.concatenate([one, expected.others.view(one.dtype)])


def _words_differ(expected: ExpectedOutput, got: np.ndarray) -> np.ndarray:
    right = _right_words(expected).view(got.dtype)  # (R, *shape)
    differs: np.ndarray = (got != right).all(axis=0)
    if expected.any_nan and differs.any():
        differs &= ~(np.isnan(values(expected.format, got)) & np.isnan(values(expected.format, right)).any(axis=0))
    return differs


def _outside_bound(
    expected: ExpectedOutput, words: np.ndarray, selection: np.ndarray
) -> tuple[np.ndarray, float | None, np.ndarray]:
    """(outside, largest used share of the bound where `selection`, decidable). A bound that is not finite is inconclusive about a
    finite value; an interval of words always decides."""
    if expected.value is None or expected.bound is None:
        raise ValueError(f"expected {expected.name!r}: gives neither words nor value and bound; a contract must give one of them")
    value, bound, out = expected.value, expected.bound, values(expected.format, words)
    finite = np.isfinite(value)
    has_bound = finite & np.isfinite(bound)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(out - value)
        if expected.low is not None and expected.high is not None:
            outside, decidable = _outside_interval(expected, out), np.ones(words.shape, bool)
        else:
            outside = np.where(finite, ~(distance <= bound), ~((out == value) | (np.isnan(out) & np.isnan(value))))
            decidable = ~finite | has_bound
        share = np.where(distance == 0, 0.0, distance / np.where(bound == 0, np.finfo(float).tiny, bound))
    shares = share[selection & has_bound & np.isfinite(share)]
    return outside & decidable, float(shares.max()) if shares.size else None, decidable


def _outside_interval(expected: ExpectedOutput, out: np.ndarray) -> np.ndarray:
    """Which values `out` of the result are below the lowest word or above the highest; NaN only where both are, or `or_nan`."""
    low, high = (values(expected.format, end.view(f"u{end.dtype.itemsize}")) for end in (expected.low, expected.high))  # type: ignore[union-attr]
    inside = ((low <= out) & (out <= high)) | (np.isnan(out) & np.isnan(low))
    result: np.ndarray = ~inside if expected.or_nan is None else ~(inside | (np.isnan(out) & expected.or_nan))
    return result
