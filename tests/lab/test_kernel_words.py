"""Contract under test: the benchmark of many words asks each kernel for cases that give words, and tells a wrong one."""

from __future__ import annotations

import pytest

from benchmarks import kernel_words
from bitverdict.harness.contracts import softmax
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target


@pytest.mark.parametrize("kernel", kernel_words.KERNELS)
def test_each_case_is_one_that_gives_words_on_a_hopper(kernel: str) -> None:
    contract, hopper = resolve(kernel), target("emulated:sm_90")
    for number in range(12):
        problem, config = kernel_words.asked(kernel, number, 1.0)
        case = contract.case(problem, config, regime=contract.regime(number), data_seed=number)
        assert contract.expected_outcome(case, hopper).result, (number, case)


def test_a_plan_with_a_wrong_word_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = kernel_words.judged("softmax", 0, 0.001, "")
    assert right.decision == "pass" and right.words > 0 and not right.said
    plan = softmax.softmax
    monkeypatch.setattr(softmax, "softmax", lambda *given, **named: plan(*given, **named) ^ 1)
    (wrong,) = kernel_words.judged("softmax", 0, 0.001, "")
    assert wrong.decision == "fail" and "words differ" in wrong.said
