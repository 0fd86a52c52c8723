"""Contract under test: each mutant of the Gluon kernels fails as what it is, and no two of a kernel by one case,
message and line.

The faults are in `tests/faults/kernels/<stem>.py`, at least eight a kernel. They are looked for in the required cases of the
kernel's own contract, on the emulated GPU that has its instructions."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Verdict
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import Mutant, mutant_contract, once

MACHINES = {
    "ampere_gemm": "sm_80",
    "hopper_matmul": "sm_90",
    "tmem_copy": "sm_100",
    "small_mma": "sm_100",
    "blocked_matmul": "sm_100",
    "blocked_matmul_pipelined": "sm_100",
    "tma_gather": "sm_100",
    "tma_scatter": "sm_100",
    "fused_gather_scatter_matmul": "sm_100",
    "warp_specialized_matmul": "sm_100",
    "warp_specialized_gather_scatter_matmul": "sm_100",
}
FEWEST = 8


def mutants_of(stem: str) -> list[Mutant]:
    return [mutant for mutant in COLLECTIONS["kernels"] if mutant.kernel == stem]


ALL = [mutant for stem in MACHINES for mutant in mutants_of(stem)]


@cache
def failure_report(mutant: Mutant, directory: Path) -> tuple[Case, Verdict] | None:
    """The first case of the required cases that fails, and its verdict."""
    contract = mutant_contract(mutant, directory)
    machine = Target(f"emulated:{MACHINES[mutant.kernel]}", MACHINES[mutant.kernel])
    cases = contract.required(machine)
    if mutant.name.endswith("not checked"):  # shows where the right kernel refuses
        cases.sort(key=lambda case: resolve(mutant.kernel).expected_outcome(case, machine).result)
    wanted = set(mutant.shows_in)
    cases.sort(key=lambda case: not wanted <= {(name, str(value)) for name, value in contract.coverage(case, machine).items()})
    for case in cases:
        verdict = judge(case, machine, contract)
        if verdict.failed:
            return case, verdict
    return None


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mutants")


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: f"{mutant.kernel}: {mutant.name}".replace(" ", "-"))
def test_each_mutant_fails_as_its_kind(mutant: Mutant, aside: Path) -> None:
    found = failure_report(mutant, aside)
    assert found is not None, "passed by the whole required cases"
    assert found[1].outcome in mutant.expected, found[1].message


@pytest.mark.parametrize("stem", MACHINES)
def test_no_two_faults_of_a_kernel_fail_by_one_case_message_and_line(stem: str, aside: Path) -> None:
    mutants = mutants_of(stem)
    assert len(mutants) >= FEWEST
    seen: dict[tuple, str] = {}
    for mutant in mutants:
        found = failure_report(mutant, aside)
        assert found is not None, mutant.name
        case, verdict = found
        mark = (
            repr((case.problem, case.config, case.regime, case.schedule)),
            verdict.message.replace(str(aside), ""),
            verdict.location.rpartition(":")[2],
        )
        message = mark[1].replace(mutant.stem, "")
        mark = (mark[0], message, mark[2])
        assert mark not in seen, (seen[mark], mutant.name)
        seen[mark] = mutant.name


@pytest.mark.parametrize("stem", MACHINES)
def test_the_untouched_kernel_passes_through_the_same_door(stem: str, tmp_path: Path) -> None:
    first = "from __future__ import annotations\n"
    same = Mutant(kernel=stem, name="none", edits=once(first, first), expected=())
    contract = mutant_contract(same, tmp_path)
    machine = Target(f"emulated:{MACHINES[stem]}", MACHINES[stem])
    verdicts = [judge(case, machine, contract) for case in contract.required(machine)[:6]]
    assert {verdict.decision for verdict in verdicts} == {Decision.PASS}
