"""Contract under test: the cases of the profile `whole` are the tutorials' sizes, and see a fault that no smaller size has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Outcome
from tests.faults.mutants import Mutant, mutant_contract, once

BLACKWELL = target("emulated:sm_100")
TILE = {"block_m": 64, "num_warps": 4}
COLUMN, LIMITED = "column = gl.program_id(1) * BLOCK_N", "column = gl.minimum(gl.program_id(1), 5) * BLOCK_N"
SEVENTH_COLUMN = Mutant(
    kernel="blocked_matmul", name="no seventh column of tiles", edits=once(COLUMN, LIMITED), expected=("wrong words", "race")
)


def asked(cases: list[Case], **fields: Any) -> Case:
    """The first of `cases` with these fields."""
    return next(case for case in cases if fields.items() <= (vars(case.problem) | vars(case.config)).items())


@pytest.fixture
def mutant(tmp_path: Path) -> Contract:
    return mutant_contract(SEVENTH_COLUMN, tmp_path)


def test_a_fault_past_the_tiles_of_every_run_fails_at_the_whole_size(mutant: Contract) -> None:
    whole = judge(asked(mutant.whole(BLACKWELL), n=416, **TILE), BLACKWELL, mutant)
    assert whole.decision is Decision.FAIL and whole.outcome in SEVENTH_COLUMN.expected, whole.message
    smaller = judge(asked(mutant.required(BLACKWELL), m=208, **TILE), BLACKWELL, mutant)
    assert smaller.outcome is Outcome.PASS, smaller.message


def test_the_right_kernel_passes_at_the_whole_size() -> None:
    contract = resolve("blocked_matmul")
    assert judge(asked(contract.whole(BLACKWELL), n=416, **TILE), BLACKWELL, contract).decision is Decision.PASS


@pytest.mark.parametrize("stem", ["blocked_matmul", "blocked_matmul_pipelined", "fused_gather_scatter_matmul", "matmul"])
def test_the_longest_case_comes_first_and_none_is_required_as_well(stem: str) -> None:
    contract = resolve(stem)
    cases = contract.whole(BLACKWELL)
    work = [getattr(case.problem, "m", getattr(case.problem, "rows", 0)) * case.problem.n * case.problem.k for case in cases]
    assert work == sorted(work, reverse=True) and work
    assert not {case.key for case in cases} & {case.key for case in contract.required(BLACKWELL)}
