"""Contract under test: of a few draws too many a run keeps those that may tell apart what the cases before them do not."""

from __future__ import annotations

from typing import Any

import pytest

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.draw_preference import draw_count, marks, prefer_draws

MATMUL: Any = resolve("matmul")


def product(regime: str, seed: int, **sizes: int) -> Case:
    problem = MATMUL.module.Problem(**({"m": 33, "n": 40, "k": 96, "dtype": "fp16", "out": "fp32"} | sizes))
    tiles = MATMUL.module.Config(block_m=32, block_n=32, block_k=32)
    return Case(contract="matmul", problem=problem, config=tiles, regime=regime, data_seed=seed)


def test_a_case_that_tells_more_is_kept_before_one_that_tells_less() -> None:
    one, many = product("integers", 1, m=1, n=1, k=1), product("normal", 2)
    assert len(marks(one)) < len(marks(product("integers", 3))) < len(marks(many))
    assert prefer_draws([one, many], 1, before=[]) == [many]


def test_what_was_told_before_counts_less() -> None:
    told = [product("normal", seed) for seed in range(20)]
    again, other = product("normal", 21), product("wide", 22, m=1)
    assert prefer_draws([again, product("integers", 23)], 1, before=told) != [again]
    assert prefer_draws([again, other], 1, before=[]) == [again]


def test_generated_cases_are_the_same_again_and_as_many_as_asked() -> None:
    source = CaseSource("softmax", target("emulated:sm_90"), seed=5)
    first = source.drawn(16)
    assert first == source.drawn(16) and 0 < len(first) <= 16 and draw_count(16) == 20


def test_a_refusal_that_is_expected_tells_less_than_a_result() -> None:
    refused, one = product("normal", 1), product("normal", 2, m=1, n=1)
    assert prefer_draws([refused, one], 1, before=[]) == [refused]
    assert prefer_draws([refused, one], 1, before=[], has_words=lambda case: case is one) == [one]


def test_what_a_chosen_case_tells_counts_less_in_the_next_choice() -> None:
    first, alike, other = product("normal", 1), product("normal", 2), product("integers", 3, dtype="bf16")
    assert prefer_draws([first, alike, other], 2, before=[]) == [first, other]


@pytest.mark.parametrize("regime", ["planted", "subnormals"])
def test_rounded_sums_of_special_values_tell_what_normal_ones_tell(regime: str) -> None:
    special, plain = marks(product(regime, 1)), marks(product("normal", 2))
    assert plain < special and [subject for subject, _ in special - plain] == [f"values of {regime}"]
