"""Contract under test: each rule of a traced reference is needed: without it a test of tracing fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import mpmath
import numpy as np
import pytest

from bitverdict.reference.tracing.state import OPERATIONS
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module
from tests.reference_checks import test_tracing_bounds as bounds
from tests.reference_checks import test_tracing_products as products
from tests.reference_checks import test_tracing_undecided as undecided
from tests.reference_checks.other_namespaces import PRECISION, Exact


@contextmanager
def in_force(mutant: Mutant) -> Iterator[None]:
    """The edited module's operations in the namespace: executing it puts them there."""
    kept = dict(OPERATIONS)
    try:
        with mutant_module(mutant):
            yield
    finally:
        OPERATIONS.clear()
        OPERATIONS.update(kept)


def words_lie_inside() -> None:
    for name, regime, seeds in (("products_and_sums", "normal", 3), ("softmax", "normal", 2), ("softmax", "large", 2)):
        for seed in range(seeds):
            given = bounds.operands(name, regime, seed)
            output = bounds.traced(name, given)
            for drawn in range(4):
                assert not bounds.outside(output, bounds.evaluated(name, given, 100 * seed + drawn), "fp32").any(), (name, regime)


def sums_are_rounded_and_overflow() -> None:
    """Sums of many terms, one after another, so that the roundings add up; and of some that overflow."""
    x = np.full((1, 4000), 1 + 2.0**-12, np.float32)
    x[0, 0] = 2.0**12
    (output,) = bounds.trace(lambda xp, x: xp.sum(x, axis=1), [("fp32", x.view(np.uint32))])
    assert not bounds.outside(output, np.add.accumulate(x, axis=1, dtype=np.float32)[:, -1], "fp32").any()
    undecided.test_sums_that_may_overflow_admit_infinity_and_on_both_sides_nothing()


def the_mathematics_lies_within_the_error() -> None:
    with mpmath.workprec(PRECISION):
        for name, regime in (("softmax", "wide"), ("layer_norm", "normal"), ("swiglu", "large"), ("products_and_sums", "wide"),
                             ("log_sum_exp", "large")):  # fmt: skip
            for seed in range(3):
                given = bounds.operands(name, regime, seed)
                output = bounds.traced(name, given)
                exact = bounds.REFERENCES[name](Exact(), *(Exact.array(each.astype(np.float64)) for each in given))
                assert (np.abs(Exact.array(output.value) - exact) <= output.error).all(), name


def chains_of_exact_errors_grow() -> None:
    """A sum of errors of one sign that float64 makes: none may be forgotten."""
    x = np.float32([[1 / 3, 1e-9, 3.0]])
    (output,) = bounds.trace(lambda xp, x: xp.sum(x / 3 * 7, axis=1) / (x[:, 1] / 7) * (x[:, 0] / 7), [("fp32", x.view(np.uint32))])
    assert output.error[0] > 7 * 2.0**-53 * abs(output.value[0])


CHECKS: list[Callable[[], None]] = [
    bounds.test_a_product_is_one_in_any_order, bounds.test_a_sum_is_one_in_any_order_and_may_overflow_in_another,
    bounds.test_a_part_of_a_product_may_overflow_or_vanish_in_another_order, bounds.test_a_reciprocal_may_be_flushed_to_zero,
    bounds.test_a_sum_is_as_wide_as_its_terms, bounds.test_a_wave_is_as_wide_as_its_argument,
    bounds.test_a_quotient_and_a_product_are_as_wide_as_their_operands, bounds.test_a_quotient_may_be_by_a_rounded_reciprocal,
    sums_are_rounded_and_overflow, chains_of_exact_errors_grow,
    undecided.test_a_comparison_inside_the_running_error_is_unknown,
    undecided.test_a_comparison_inside_a_rounding_of_fp32_is_known_to_mathematics,
    undecided.test_where_joins_both_branches_of_an_undecided_condition,
    undecided.test_argmax_hangs_between_elements_nearer_than_their_errors,
    undecided.test_argsort_hangs_for_the_neighbours_alone,
    undecided.test_a_conversion_hangs_at_whole_numbers_and_beyond_the_range,
    undecided.test_round_to_is_unknown_at_a_tie_within_the_error,
    undecided.test_kept_in_lets_an_implementation_round_and_leaves_the_mathematics,
    products.test_fp32_operands_may_be_cut_to_tf32_unless_ieee_is_said,
    products.test_an_operand_that_is_computed_may_be_kept_in_fp16,
    products.test_scales_may_be_put_on_the_sums_of_blocks,
    products.test_the_13_bits_of_fp8_on_hopper_are_in_the_interval,
    products.test_an_infinity_times_what_tf32_cuts_to_zero_is_not_decided,
    the_mathematics_lies_within_the_error, words_lie_inside,
]  # fmt: skip
"""The quick ones first."""


def first_to_fail() -> str | None:
    for check in CHECKS:
        try:
            check()
        except AssertionError:
            return check.__name__
    return None


def test_the_rules_as_they_are_pass_every_check() -> None:
    assert first_to_fail() is None


@pytest.mark.parametrize("mutant", corpus.TRACING, ids=lambda mutant: mutant.name)
def test_a_missing_rule_is_noticed(mutant: Mutant) -> None:
    with in_force(mutant):
        assert first_to_fail()
