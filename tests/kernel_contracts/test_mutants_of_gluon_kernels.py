"""Contract under test: each mutant of the Gluon kernels fails as what it is, and no two of a kernel by one case,
message and line.

The faults are in `tests/faults/kernels/<stem>.py`, at least eight a kernel. They are looked for in the required cases of the
kernel's own contract, on the emulated GPU that has its instructions."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.lab.pages.mutation_score import newest_emulated
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision, Outcome
from tests.faults.corpus import COLLECTIONS
from tests.faults.mutants import Mutant, mutant_contract, once
from tests.support.shares import judged_here

OLDER = {
    "ampere_gemm": "sm_80",
    "pointer_gather_scatter_matmul": "sm_80",
    "fp8_blockwise_matmul": "sm_90",
    "split_k_matmul": "sm_90",
    "grouped_matmul": "sm_80",
    "softmax": "sm_90",
    "swiglu": "sm_80",
    "rope": "sm_90",
    "dropout": "sm_80",
    "attention": "sm_90",
    "quantize_mxfp": "sm_90",
}
"""Kernel -> where it is judged; every other one on the newest target that has its features."""
ELSEWHERE = {"matmul", "block_scaled_matmul", "tile_scheduler"}  # test_mutants_of_matmul.py and so on
STEMS = sorted({mutant.kernel for mutant in COLLECTIONS["kernels"]} - ELSEWHERE)
FEWEST = 8
OF_ONE_LOOP = ("softmax", "rms_norm", "swiglu", "rope")  # each has few lines to get wrong


def mutants_of(stem: str) -> list[Mutant]:
    return [mutant for mutant in COLLECTIONS["kernels"] if mutant.kernel == stem]


def machine_of(stem: str) -> Target:
    return target(f"emulated:{OLDER[stem]}") if stem in OLDER else newest_emulated(resolve(stem))


ALL = [mutant for stem in STEMS for mutant in judged_here(mutants_of(stem))]


def failure_report(mutant: Mutant, aside: Path) -> dict[str, str] | None:
    """Of the first required case that fails: the case, and the verdict's outcome, message and line. Where none fails, of one that
    was not run or where the compiler makes a hazard, or None.

    Kept in `aside`, which all workers of the run share: each mutant is judged once."""
    kept = aside / f"{hashlib.sha256(mutant.id.encode()).hexdigest()[:16]}.json"
    if kept.exists():
        return json.loads(kept.read_text())
    directory = aside / f"of-{os.getpid()}"
    directory.mkdir(exist_ok=True)
    contract = mutant_contract(mutant, directory)
    machine = machine_of(mutant.kernel)
    cases = contract.required(machine)
    if mutant.name.endswith("not checked") or mutant.expected == ("not refused",):  # shows where the right kernel refuses
        cases.sort(key=lambda case: resolve(mutant.kernel).expected_outcome(case, machine).result)
    wanted = set(mutant.shows_in)
    cases.sort(key=lambda case: not wanted <= {(name, str(value)) for name, value in contract.coverage(case, machine).items()})
    found = None
    for case in cases:
        verdict = judge(case, machine, contract)
        if verdict.failed or verdict.outcome in (Outcome.NOT_RUN, Outcome.COMPILER_FAULT):
            found = {
                "case": repr((case.problem, case.config, case.regime, case.schedule)),
                "outcome": str(verdict.outcome),
                "message": verdict.message.replace(str(directory), ""),
                "line": verdict.location.rpartition(":")[2],
            }
        if verdict.failed:
            break
    unfinished = kept.with_suffix(f".{os.getpid()}")  # a reader never finds half a file
    unfinished.write_text(json.dumps(found))
    unfinished.replace(kept)
    return found


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of this run, the same in each of its workers."""
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "mutants-of-gluon-kernels"
    shared.mkdir(exist_ok=True)
    return shared


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: f"{mutant.kernel}: {mutant.name}".replace(" ", "-"))
def test_each_mutant_fails_as_its_kind(mutant: Mutant, aside: Path) -> None:
    found = failure_report(mutant, aside)
    assert found is not None, "passed by the whole required cases"
    assert found["outcome"] in set(map(str, mutant.expected)), f"{found['outcome']}, not {mutant.expected}: {found['message']}"


@pytest.mark.parametrize("stem", STEMS)
def test_no_two_faults_of_a_kernel_fail_by_one_case_message_and_line(stem: str, aside: Path) -> None:
    mutants = mutants_of(stem)
    assert len(mutants) >= (5 if stem in OF_ONE_LOOP else FEWEST), f"add mutants to tests/faults/kernels/{stem}.py"
    seen: dict[tuple, str] = {}
    for mutant in judged_here(mutants):
        found = failure_report(mutant, aside)
        assert found is not None, mutant.name
        mark = (found["case"], found["message"].replace(mutant.stem, ""), found["line"])
        assert mark not in seen, (seen[mark], mutant.name)
        seen[mark] = mutant.name


@pytest.mark.share(3)
@pytest.mark.parametrize("stem", STEMS)
def test_the_untouched_kernel_passes_through_the_same_door(stem: str, tmp_path: Path) -> None:
    first = "from __future__ import annotations\n"
    same = Mutant(kernel=stem, name="none", edits=once(first, first), expected=())
    contract = mutant_contract(same, tmp_path)
    machine = machine_of(stem)
    verdicts = [judge(case, machine, contract) for case in contract.required(machine)[:2]]
    assert {verdict.decision for verdict in verdicts} == {Decision.PASS}
