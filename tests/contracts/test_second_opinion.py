"""Contract under test: the words of a plan lie in the bound that the operands give, or the harness reports its own error.

The bound knows neither order nor roundings of the plan. A plan with a wrong constant and a bound with a term left out both show.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from bitverdict.harness.contracts.oracle import block_scaled_gemm_bound, gemm_bound
from bitverdict.harness.contracts.oracle.dot_lowering import mutated_model
from bitverdict.harness.contracts.oracle.gemm_bound import COLUMNS, ROWS, second_opinion, spread_out
from bitverdict.harness.judge.compare import contradiction
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from bitverdict.reference.error_bound import Accumulation
from bitverdict.reference.tensor_core import Instruction, product

CONTRACTS = (("matmul", "sm_80"), ("hopper_matmul", "sm_90"), ("small_mma", "sm_100"), ("block_scaled_matmul", "sm_90"))
FIRST = 16
Words = np.ndarray | None


def cases(kernel: str, arch: str) -> list[Case]:
    """The first `FIRST` required cases with a result."""
    contract, machine = resolve(kernel), target(f"emulated:{arch}")
    listed = [case for case in contract.required(machine) if case.config is not None or kernel == "block_scaled_matmul"]
    sized = [case for case in listed if min(case.problem.m, case.problem.n)]
    return [case for case in sized if contract.expected_outcome(case, machine).result][:FIRST]


def contradictions(kernel: str, arch: str) -> tuple[int, int]:
    """Required cases whose words lie outside of the bound, and those with a bound."""
    contract, machine = resolve(kernel), target(f"emulated:{arch}")
    found = seen = 0
    for case in cases(kernel, arch):
        operands = {operand.name: operand for operand in contract.operands(case)}
        for expected in contract.expected(case, machine, operands, {}):
            seen += expected.opinion is not None
            found += bool(contradiction(expected))
    return found, seen


def changed(**constants: Callable[[Instruction], int]) -> Callable[[Instruction, np.ndarray, np.ndarray, Words], np.ndarray]:
    """The model with constants of each float instruction replaced."""

    def model(rule: Instruction, a: np.ndarray, b: np.ndarray, c: Words = None) -> np.ndarray:
        if rule.d == "int32":
            return product(rule, a, b, c)
        return product(dataclasses.replace(rule, **{name: value(rule) for name, value in constants.items()}), a, b, c)

    return model


def shorter(rule: Instruction, a: np.ndarray, b: np.ndarray, c: Words = None) -> np.ndarray:
    return product(rule, a[:, : max(a.shape[1] - 1, 1)], b[: max(b.shape[0] - 1, 1)], c)


@contextmanager
def bound_with(change: Callable[[Accumulation], Accumulation], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    plain = gemm_bound.accumulations
    with monkeypatch.context() as patched:
        for module in (gemm_bound, block_scaled_gemm_bound):
            patched.setattr(module, "accumulations", lambda *given, **named: [change(how) for how in plain(*given, **named)])
        yield


@pytest.mark.parametrize(("kernel", "arch"), CONTRACTS)
def test_the_words_of_every_required_case_lie_in_the_bound(kernel: str, arch: str) -> None:
    found, seen = contradictions(kernel, arch)
    assert (found, seen) == (0, FIRST)


@pytest.mark.parametrize(("kernel", "arch"), CONTRACTS)
@pytest.mark.parametrize(
    "model",
    [changed(fraction_bits=lambda rule: rule.fraction_bits - 12), shorter],
    ids=["F less by 12", "the last product dropped"],
)
def test_a_plan_with_a_wrong_constant_contradicts_the_bound(model: Callable, kernel: str, arch: str) -> None:
    with mutated_model(model):
        assert contradictions(kernel, arch)[0] >= 3


@pytest.mark.parametrize(("kernel", "arch"), CONTRACTS)
def test_a_bound_without_cut_and_rounding_contradicts_the_plan(kernel: str, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def exact(how: Accumulation) -> Accumulation:
        return dataclasses.replace(how, fraction_bits=60, output_fraction_bits=52)

    with bound_with(exact, monkeypatch):
        assert contradictions(kernel, arch)[0] >= 1
    with bound_with(lambda how: how, monkeypatch):
        assert contradictions(kernel, arch)[0] == 0


def test_a_bound_without_the_rounding_of_blocks_contradicts_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    with bound_with(lambda how: dataclasses.replace(how, output_fraction_bits=52), monkeypatch):
        assert contradictions("small_mma", "sm_100")[0] >= 1


def test_a_contradiction_is_the_harness_s_error_and_never_the_kernel_s() -> None:
    machine = target("emulated:sm_90")
    case = next(case for case in cases("hopper_matmul", "sm_90") if case.regime == "normal")
    right = judge(case, machine)
    assert right.decision is Decision.PASS and right.basis.partition(":")[0] == "words by hardware, in bound"
    assert "256 of" in right.basis and "words inside the derived bound too" in right.basis
    with mutated_model(changed(fraction_bits=lambda rule: rule.fraction_bits - 12)):
        wrong = judge(case, machine)
    assert (wrong.decision, wrong.outcome) == (Decision.ERROR, Outcome.ERROR) and not wrong.failed
    assert wrong.message.startswith("plan and bound contradict each other: c: ")


def test_a_fault_that_the_bound_cannot_see_is_still_seen_by_words() -> None:
    """One bit of F is below what a bound sees: the words see it, and it counts as the kernel's."""
    machine = target("emulated:sm_90")
    with mutated_model(changed(fraction_bits=lambda rule: rule.fraction_bits - 1)):
        verdicts = [judge(case, machine) for case in cases("hopper_matmul", "sm_90")[:4]]
    assert {verdict.decision for verdict in verdicts} <= {Decision.PASS, Decision.FAIL}
    assert any(verdict.outcome is Outcome.WRONG_WORDS for verdict in verdicts)


@pytest.mark.parametrize(("size", "count"), [(1, 16), (2, 16), (16, 16), (17, 16), (4096, 16), (100, 2)])
def test_rows_are_spread_from_the_first_to_the_last(size: int, count: int) -> None:
    rows = spread_out(size, count)
    assert rows[0] == 0 and rows[-1] == size - 1 and len(rows) == min(size, count)


@pytest.mark.parametrize(("k", "most"), [(1, ROWS * COLUMNS), (1024, ROWS * COLUMNS), (1 << 16, 4), (1 << 20, 4)])
def test_a_deep_k_is_held_to_the_bound_at_fewer_elements(k: int, most: int) -> None:
    asked: list[int] = []

    def bound(rows: np.ndarray, columns: np.ndarray) -> ExpectedOutput:
        asked.append(len(rows) * len(columns))
        return ExpectedOutput(name="c", format="fp32", shape=(len(rows), len(columns)))

    found = second_opinion(np.zeros((100, 100), np.uint32), k, bound)
    assert found is not None and found.word_count == 10000 and asked == [most]
    assert second_opinion(np.zeros((0, 100), np.uint32), k, bound) is None
