"""Contract under test: each hazard that the sanitizers of a GPU are asked about fails on the emulated GPU under one of its
names and by no other, the kernels as they are pass, and a fault of the compiler's is mutated in the program it made.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import bitverdict.kernels.matmul
from bitverdict.harness.contracts import matmul as contracts
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.sanitizers import page
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome
from tests.faults.compiler.program_edits import edited
from tests.faults.hazards_for_sanitizers import HAZARDS, SCHEDULES, write_hazard
from tests.faults.mutants import Mutant, once

HOPPER = Target("emulated:sm_90", "sm_90")
UNDER = SCHEDULES[:3]


@pytest.mark.share(2, "_as_it_is")
@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.stem)
def test_a_hazard_fails_under_its_name_and_a_kernel_as_it_is_is_not(hazard: Mutant, tmp_path: Path) -> None:
    case = write_hazard(hazard, tmp_path)
    contract = resolve(case.contract)
    verdicts = [judge(replace(case, schedule=schedule), HOPPER, contract) for schedule in UNDER]
    assert all(verdict.outcome is not Outcome.NOT_RUN for verdict in verdicts)
    if hazard.in_program:
        assert {verdict.outcome for verdict in verdicts} == {Outcome.COMPILER_FAULT}, "the kernel as it is stands in the file"
        found = {verdict.message.partition(" made by the compiler of Triton ")[0] for verdict in verdicts}
    else:
        found = {str(verdict.outcome) for verdict in verdicts}
    assert found <= set(hazard.expected)


def test_each_kernel_has_hazards_of_many_classes_and_no_two_one_name() -> None:
    faulty = [hazard for hazard in HAZARDS if hazard.kind != "none" and hazard.expected != ("pass",)]
    assert len(faulty) >= 40 and len({hazard.kind for hazard in faulty}) >= 12
    assert min(Counter(hazard.kernel for hazard in faulty).values()) >= 5
    assert len({hazard.stem for hazard in HAZARDS}) == len(HAZARDS)


def test_a_text_that_does_not_occur_is_not_mutated(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="occurs 0 times"):
        write_hazard(replace(HAZARDS[-1], edits=once("no such text", "")), tmp_path)


def test_an_edit_of_a_program_that_has_no_such_text_says_so() -> None:
    contract = edited(contracts.contract(bitverdict.kernels.matmul), "no such operation", "")
    found = judge(contract.required(HOPPER)[0], HOPPER, contract)
    assert "the program has no such text" in found.message and found.failed


def test_the_page_tells_a_hazard_from_the_kernel_as_it_is() -> None:
    names = {f"{hazard.stem}.py:CONTRACT": hazard.kind != "none" for hazard in HAZARDS}
    assert list(names.values()).count(False) >= 6
    for name, faulty in names.items():
        case = {"contract": name, "problem": {"tiles": 7, "programs": 1, "form": "ring"}}
        assert page.is_hazard(case) is faulty
