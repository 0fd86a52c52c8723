"""Contract under test: a gather from a column off a multiple of 16 bytes, and a scatter to such a column or to a negative row or
column, expect an illegal instruction; and a launch that does not trap fails. Under iisan: `test_under_iisan.py`.

`tests/faults/kernels/tma_*.py` hold kernels that do not trap where they expect it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from triton import knobs
from triton.backends.nvidia.compiler import CUDAOptions

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision
from tests.faults.kernels.tma_scatter import MUTANTS
from tests.faults.mutants import mutant_contract

BLACKWELL = Target("emulated:sm_100", "sm_100")


def owing(stem: str) -> list[Case]:
    """The cases of the required cases that expect a fault of the hardware."""
    contract = resolve(stem)
    return [case for case in contract.required(BLACKWELL) if contract.expected_outcome(case, BLACKWELL).layer == "hardware"]


CASES = [*owing("tma_gather"), *owing("tma_scatter")]


def test_the_required_cases_expect_each_kind_of_fault() -> None:
    reasons = [(case.contract, resolve(case.contract).expected_outcome(case, BLACKWELL).reason) for case in CASES]
    assert sum(stem == "tma_gather" and "multiple of 16 bytes" in reason for stem, reason in reasons) == 3
    assert sum(stem == "tma_scatter" and "multiple of 16 bytes" in reason for stem, reason in reasons) == 3
    assert sum("scatter to column" in reason for _, reason in reasons) == 2
    assert sum("scatter to row -1" in reason for _, reason in reasons) == 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.contract}-{case.problem.column_offset}-{case.regime}")
def test_an_expected_illegal_instruction_comes_and_passes(case: Case) -> None:
    found = judge(case, BLACKWELL)
    assert (found.decision, found.outcome, found.basis) == (Decision.PASS, "illegal instruction", Basis.EXPECTED_FAULT)
    assert found.location.startswith(f"kernels/{case.contract}.py:")


def test_iisan_asserts_it_where_the_compiler_has_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton 3.6 takes the mode and does nothing."""
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "iisan")
    found = judge(CASES[-1], BLACKWELL)
    expected = "device assert" if hasattr(CUDAOptions, "enable_iisan") else "illegal instruction"
    assert (found.decision, found.outcome) == (Decision.PASS, expected), found.message


def test_a_launch_that_does_not_trap_where_it_expects_it_fails(tmp_path: Path) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "negative rows put into the first")
    contract = mutant_contract(mutant, tmp_path)
    case = next(case for case in contract.required(BLACKWELL) if case.regime.endswith("/negative"))
    found = judge(case, BLACKWELL, contract)
    assert (found.decision, found.outcome) == (Decision.FAIL, "not refused")
    assert "expects: illegal instruction by the hardware" in found.message


def test_past_the_clauses_a_legal_column_expects_its_result() -> None:
    """A user's launcher decides for itself."""
    case = CASES[0]
    contract = resolve(case.contract)
    legal = replace(case, problem=replace(case.problem, column_offset=8))
    verdict = judge(legal, BLACKWELL)
    assert verdict.outcome == "pass"
    assert contract.expected_outcome(replace(case, launcher="somebody:launcher"), BLACKWELL).outcome == "refused"


def test_the_launcher_asks_its_clauses_again_afterwards() -> None:
    import bitverdict.kernels.tma_gather as kernel
    from bitverdict.kernels.clauses import require

    judge(CASES[0], BLACKWELL)
    assert kernel.require is require
