"""Contract under test: a user's wrong launcher fails with its true cause beside it, by real values and by words alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.kernels.matmul import Problem
from tests.faults.causes.matmul_launchers import BUGS
from tests.faults.mutants import mutant_source

JUDGED = ("tail of K left out", "tile transposed", "bf16 before the store")


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.mutant.name in JUDGED], ids=lambda bug: bug.mutant.stem)
def test_a_wrong_launcher_fails_with_its_cause(bug, tmp_path: Path) -> None:
    file = tmp_path / "launcher.py"
    file.write_text(mutant_source(bug.mutant))
    for real_values in (True, False):
        case = Case(
            contract="matmul",
            problem=Problem(**bug.cases[0]),
            data_seed=1,
            launcher=f"{file}:matmul",
            real_values=real_values,
        )
        verdict = judge(case, target(bug.on), resolve("matmul"))
        assert verdict.failed and bug.names_it(verdict.details["cause"]), verdict.details
