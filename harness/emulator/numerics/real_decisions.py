"""What becomes of real values where a program decides by them: comparisons, conversions to integers, bit casts, choices.

The words decide. Where the real values, to within their errors, surely decide alike, the result is exact. Elsewhere it hangs on a
rounding: it is marked, and what is made of it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.numerics.real_values import Real, Taint, TileValue, errors_of, with_taint
from bitverdict.harness.emulator.numerics.scalar_ops import widen

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation


def mark_taint(m: Cta, op: Operation, taint: np.ndarray, reason: str) -> Taint:
    """`taint` (...) bool as a Taint, told of where any of it is True."""
    if not np.any(taint):
        return None
    m.launch.reals.hang(op, reason)
    return np.asarray(taint)


def comparison_taint(m: Cta, op: Operation, found: np.ndarray, outcome: Callable[[Any, Any], Any], a: Real, b: Real) -> Taint:
    """Where the words' result `found` of the comparison `outcome` hangs on a rounding."""
    wrong = np.not_equal(outcome(a.value, b.value), found)
    if a.error is None and b.error is None:
        return mark_taint(m, op, wrong, "comparison")
    margin = errors_of(a, b)
    sure = (np.abs(a.value - b.value) > margin) | (margin == 0) | _differ_in_class(a, b)
    return mark_taint(m, op, wrong | ~sure, "comparison")


def _differ_in_class(a: Real, b: Real) -> Any:
    """Where one is a NaN or an infinity that is known, and the other is known: an error never reaches it."""
    return np.isfinite(errors_of(a, b)) & ~(np.isfinite(a.value) & np.isfinite(b.value))


def to_integer(m: Cta, op: Operation, word_integers: np.ndarray, convert: Callable[[Any], Any], real: Real) -> Taint:
    """Where the integers `word_integers` hang on a rounding; `convert` makes them of float64."""
    differs = np.not_equal(convert(np.asarray(real.value)), word_integers)
    if real.error is not None:
        ends = (convert(np.asarray(end)) for end in (real.value - real.error, real.value + real.error))
        for each in ends:
            differs = differs | np.not_equal(each, word_integers)
        differs = differs | ~np.isfinite(real.error)
    return mark_taint(m, op, differs, "float to integer")


def bits_of(m: Cta, op: Operation, word: TileValue, fmt: str | None, real: Real) -> Taint:
    """Where the bits of `word` are not those of its real value."""
    value = np.asarray(widen(word, fmt))
    same = (value == real.value) | (np.isnan(value) & np.isnan(real.value))
    if real.error is not None:
        same = same & (real.error == 0)
    return mark_taint(m, op, ~same, "bit cast")


def from_bits(word: TileValue, fmt: str | None, taint: Taint) -> Real:
    """The float `word` that was made of bits."""
    return with_taint(Real(np.asarray(widen(word, fmt))), taint)


def from_changed_bits(m: Cta, op: Operation, word: TileValue, fmt: str | None, taint: Taint) -> Real:
    """The float `word` of an integer that was computed from bits of a float. Powers of two alone are known, as scales are made:
    what else looks like that may be rounded by hand."""
    found = from_bits(word, fmt, taint)
    mantissa, _ = np.frexp(np.where(np.isfinite(found.value), found.value, 0.0))
    if np.isin(np.abs(mantissa), (0.0, 0.5)).all():
        return found
    m.launch.reals.hang(op, "bits of a float that were changed")
    return with_taint(found, np.ones(np.shape(found.value), np.bool_))


def choose_real(condition: TileValue, taint: Taint, a: Real, b: Real) -> Real:
    """`a` where `condition`, else `b`. Where the condition hangs on a rounding it does not matter if the two agree to within their
    errors; else the result is unknown."""
    value = np.where(condition, a.value, b.value)
    if a.error is None and b.error is None and taint is None:
        return Real(value)
    lost, off = (0.0 if each.error is None else each.error for each in (a, b))
    error = np.where(condition, lost, off)
    if taint is None:
        return Real(value, error)
    apart = np.abs(a.value - b.value)
    either = np.where(apart <= lost + off, apart + np.maximum(lost, off), np.where(a.value == b.value, error, np.inf))
    return Real(value, np.where(taint, either, error))


def chosen_words(condition: TileValue, taint: Taint, a: Taint, b: Taint, equal_words: TileValue) -> Taint:
    """The same of integers and truth values; `same`: where they are equal words."""
    if taint is None and a is None and b is None:
        return None
    found = np.where(condition, False if a is None else a, False if b is None else b)
    if taint is not None:
        found = found | (taint & ~(equal_words & ~np.asarray(False if a is None else a) & ~np.asarray(False if b is None else b)))
    return found if found.any() else None


def combine_logic(a: TileValue, b: TileValue, hung_a: Taint, hung_b: Taint, decides: bool) -> Taint:
    """Of `a and b` (`decides` False) or `a or b` (True) of truth values: an operand that is surely `decides` settles it."""
    if hung_a is None and hung_b is None:
        return None
    first, second = (np.asarray(False if each is None else each) for each in (hung_a, hung_b))
    settled = (~first & (np.asarray(a, np.bool_) == decides)) | (~second & (np.asarray(b, np.bool_) == decides))
    found = (first | second) & ~settled
    return found if found.any() else None


__all__ = ["bits_of", "choose_real", "chosen_words", "combine_logic", "comparison_taint", "from_bits", "mark_taint", "to_integer"]
