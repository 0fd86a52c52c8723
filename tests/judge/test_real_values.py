"""Contract under test: real values are held to the mathematics first, words then; what is not known neither fails nor passes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from bitverdict.harness.judge.compare import Comparison, compare
from bitverdict.harness.judge.decide import UNKNOWN, against_words
from bitverdict.harness.judge.real_values import why_unknown
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict

EXACT = np.array([[1.0, 2.5, -3.0], [0.25, 7.0, 100.0]])  # what the kernel is to compute
ONCE = 2.0**-52  # float64's own rounding of a number near 1


def expected(exact: np.ndarray = EXACT, error: float | np.ndarray = ONCE, slack: float = 0.5, **more) -> ExpectedOutput:
    """A bound as wide as `slack` around `exact`, which is known to `error`."""
    exact = np.asarray(exact, np.float64)
    with np.errstate(invalid="ignore"):
        low, high = (np.asarray(exact + step, np.float32).view(np.uint32) for step in (-slack, slack))
    bound = {"value": exact, "bound": np.full(exact.shape, slack), "low": low, "high": high, "basis": Basis.BOUND}
    exactly = {"exact": exact, "exact_error": np.broadcast_to(error, exact.shape)}
    return ExpectedOutput(**{"name": "y", "format": "fp32", "shape": exact.shape} | bound | exactly | more)


def words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def real(values: np.ndarray = EXACT, error: float | np.ndarray = ONCE) -> SimpleNamespace:
    values = np.asarray(values, np.float64)
    return SimpleNamespace(value=values, error=np.broadcast_to(error, values.shape))


def changed(place: tuple[int, int], by: float) -> np.ndarray:
    found = EXACT.copy()
    found[place] += by
    return found


def verdict(found: Comparison, due: ExpectedOutput, hangs: tuple = ()) -> Verdict:
    return against_words([due], [found], hangs)


def test_one_element_wrong_by_less_than_the_bound_is_wrong_mathematics() -> None:
    off = changed((0, 2), 1e-9)
    found = compare(expected(), words(off), real=real(off))
    assert (found.outcome, found.details["wrong"]) == (Outcome.WRONG_MATHEMATICS, 1)
    assert compare(expected(), words(off)).outcome is Outcome.PASS  # what words alone say
    assert "y: 1 of 6 elements are wrong before any rounding" in found.message
    assert "first at [0, 2]" in found.message and "without rounding -2.999999999, expected -3 +- 4.4e-16" in found.message


def test_right_real_values_and_words_in_the_bound_pass() -> None:
    due = expected()
    found = compare(due, words(EXACT + 0.25), real=real())
    told = verdict(found, due)
    assert (told.decision, told.words, told.details) == (Decision.PASS, 6, {})
    assert told.basis.startswith("real values, bound: derived from the operands")


def test_right_real_values_and_words_outside_the_bound_lost_precision() -> None:
    due = expected()
    found = compare(due, words(changed((1, 1), 0.75)), real=real())
    assert (found.outcome, found.details["wrong"]) == (Outcome.LOST_PRECISION, 1)
    assert "have the right mathematics and lie outside the bound" in found.message
    assert compare(due, words(changed((1, 1), 0.75))).outcome is Outcome.OUTSIDE_BOUND  # as before, without real values


def test_wrong_mathematics_comes_before_lost_precision() -> None:
    off = changed((0, 0), 0.125)
    found = compare(expected(), words(off + np.array([0.0, 0.0, 4.0])), real=real(off))
    assert (found.outcome, found.details["wrong"], found.details["first"][0]["at"]) == (Outcome.WRONG_MATHEMATICS, 1, [0, 0])
    one, other = expected(), replace(expected(), name="z")
    lost, wrong = compare(one, words(EXACT + 9), real=real()), compare(other, words(off), real=real(off))
    assert against_words([one, other], [lost, wrong]).outcome is Outcome.WRONG_MATHEMATICS


@pytest.mark.parametrize("side", ["kernel", "reference"])
def test_what_is_not_known_is_counted_and_left_to_the_words(side) -> None:
    unknown = np.where(EXACT == 7.0, np.inf, ONCE)
    off = changed((1, 1), 1e-3)  # there the mathematics is not known
    due = expected(error=unknown if side == "reference" else ONCE)
    came = real(off, unknown if side == "kernel" else ONCE)
    found = compare(due, words(off), real=came)
    told = verdict(found, due, (("comparison", "k.py:3"), ("comparison", "k.py:3"), ("bit cast", "")))
    assert (told.decision, found.words, found.unknown) == (Decision.PASS, 6, 1)
    assert told.details[UNKNOWN] == "1 of 6 elements: comparison at k.py:3, bit cast"
    assert compare(due, words(off + 1), real=came).outcome is Outcome.OUTSIDE_BOUND  # not known to be right either
    assert compare(due, words(off), real=real(off)).outcome is (Outcome.PASS if side == "reference" else Outcome.WRONG_MATHEMATICS)


def test_a_case_is_inconclusive_where_neither_words_nor_real_values_decide() -> None:
    hidden = expected(inconclusive=np.ones(EXACT.shape, bool))
    by_reals = verdict(compare(hidden, words(EXACT), real=real()), hidden)
    assert (by_reals.decision, by_reals.words) == (Decision.PASS, 6)
    assert by_reals.basis == f"{Basis.REAL_VALUES}; no conversion is mathematics"
    assert compare(hidden, words(EXACT), real=real(EXACT + 1e-9)).outcome is Outcome.WRONG_MATHEMATICS
    neither = verdict(compare(hidden, words(EXACT), real=real(error=np.inf)), hidden, (("comparison", "k.py:3"),))
    assert (neither.decision, neither.basis) == (Decision.INCONCLUSIVE, str(Basis.BOUND))
    assert neither.message == "no word of this case can be decided, and its unrounded values depend on: comparison at k.py:3"


@pytest.mark.parametrize(
    ("exact", "value", "wrong"),
    [
        (np.nan, np.nan, False),
        (np.nan, 1.0, True),
        (1.0, np.nan, True),
        (np.inf, np.inf, False),
        (np.inf, -np.inf, True),
        (np.inf, 1e300, True),
        (1e300, np.inf, True),
        (0.0, -0.0, False),
        (1.0, 1.0 + 4 * ONCE, True),
        (1.0, 1.0 + 2 * ONCE, False),
    ],
)
def test_values_agree_to_both_bounds_and_as_nan_or_infinity(exact, value, wrong) -> None:
    due = expected(np.array([exact, 1.0]), slack=np.inf)
    found = compare(due, words(np.array([1.0, 1.0])), real=real(np.array([value, 1.0])))
    assert (found.outcome is Outcome.WRONG_MATHEMATICS) == wrong


def test_a_wrong_word_that_is_due_bit_for_bit_keeps_its_name() -> None:
    due = ExpectedOutput(name="y", format="fp32", shape=EXACT.shape, words=words(EXACT), exact=EXACT, basis=Basis.EXACT)
    assert compare(due, words(EXACT), real=real()).outcome is Outcome.PASS
    assert compare(due, words(changed((0, 0), 1)), real=real()).outcome is Outcome.WRONG_WORDS
    assert compare(due, words(EXACT), real=real(changed((0, 0), 1))).outcome is Outcome.WRONG_MATHEMATICS


def test_declared_conversions_stand_in_the_basis() -> None:
    due = expected(declared=frozenset({"e4m3", "bf16"}))
    assert verdict(compare(due, words(EXACT), real=real()), due).basis.endswith("running bound, with bf16, e4m3 as declared")


def test_elements_that_nobody_wrote_are_told_as_wrong_mathematics() -> None:
    holes = words(EXACT).copy()
    holes[1] = 0x7FABCDEF
    unwritten = EXACT.copy()
    unwritten[1] = np.nan  # the value of the poison
    found = compare(expected(), holes, poison=0x7FABCDEF, real=real(unwritten))
    assert found.outcome is Outcome.WRONG_MATHEMATICS and "3 of them never written" in found.message


def test_of_many_reasons_three_are_told() -> None:
    assert why_unknown([("comparison", f"k.py:{line}") for line in range(5)]).endswith("k.py:2, and 2 more")
    assert why_unknown([]) == ""
