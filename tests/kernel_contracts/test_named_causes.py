"""Contract under test: a user's wrong launcher fails with its true cause beside it, by real values and by words alone, and so does
a wrong kernel with the mathematics that its user describes."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.kernels.matmul import Problem
from tests.faults.causes import kernels_of_models, shipped_kernels
from tests.faults.causes.matmul_launchers import BUGS
from tests.faults.mutants import CHECKOUT, mutant_contract, mutant_source

JUDGED = ("tail of K left out", "tile transposed", "bf16 before the store")


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.mutant.name in JUDGED], ids=lambda bug: bug.mutant.stem)
def test_a_wrong_launcher_fails_with_its_cause(bug, tmp_path: Path) -> None:
    file = tmp_path / "launcher.py"
    file.write_text(mutant_source(bug.mutant))
    for real_values in (True, False):
        case = Case(
            contract="matmul", problem=Problem(**bug.cases[0]), data_seed=1, launcher=f"{file}:matmul", real_values=real_values
        )
        verdict = judge(case, target(bug.on), resolve("matmul"))
        assert verdict.failed and bug.names_it(verdict.details["cause"]), verdict.details


OF_FORMULAS = [bug for bug in shipped_kernels.BUGS if bug.contract in ("attention", "cross_entropy")]


@pytest.mark.share(2)
@pytest.mark.parametrize("bug", OF_FORMULAS, ids=lambda bug: bug.mutant.stem)
def test_a_wrong_kernel_on_rows_fails_with_its_cause(bug, tmp_path: Path) -> None:
    contract, machine = mutant_contract(bug.mutant, tmp_path), target(bug.on)
    verdicts = (judge(case, machine, contract) for case in contract.required(machine))
    sentence = next(verdict.details["cause"] for verdict in verdicts if verdict.failed and "cause" in verdict.details)
    assert bug.names_it(sentence), sentence


FOLDER = kernels_of_models.FOLDER
NAMED = {
    f"{FOLDER}/linear_cross_entropy.py: running sum not rescaled",
    f"{FOLDER}/linear_cross_entropy.py: smoothing over the block",
    f"{FOLDER}/gptq_gemm.py: zero point + 1 forgotten",
    f"{FOLDER}/selective_scan.py: state lost between chunks",
    f"{FOLDER}/reshape_and_cache.py: heads and positions exchanged",
}
MOST_CASES = 4


@pytest.mark.share(2)
@pytest.mark.parametrize("bug", [bug for bug in kernels_of_models.BUGS if bug.mutant.id in NAMED], ids=lambda bug: bug.mutant.stem)
def test_a_wrong_kernel_fails_with_its_cause_and_the_right_one_passes(bug, tmp_path: Path) -> None:
    right = CHECKOUT / bug.mutant.kernel
    wrong = tmp_path / f"{bug.mutant.stem}.py"
    wrong.write_text(mutant_source(bug.mutant))
    name, machine = f"test_{right.stem}", target(bug.on)
    contract, edited = resolve(f"{right}:{name}"), resolve(f"{wrong}:{name}")
    cases = edited.required(machine)[:MOST_CASES]
    verdicts = [judge(case, machine, edited) for case in cases]
    sentences = [verdict.details["cause"] for verdict in verdicts if verdict.failed and "cause" in verdict.details]
    assert any(bug.names_it(sentence) for sentence in sentences), [(verdict.message, verdict.details) for verdict in verdicts]
    assert not any(judge(case, machine, contract).failed for case in contract.required(machine)[:MOST_CASES])
