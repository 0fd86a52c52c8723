"""Contract under test: the kernels of `docs/examples/your_kernels/` are a user's own; each has a test and ten mutants.

`python -m benchmarks.your_kernels` judges all of them: the right ones in an empty environment, each mutant, generated cases."""

from __future__ import annotations

import ast
import os
from collections import Counter
from pathlib import Path
from zlib import crc32

import pytest

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_source import CaseSource
from tests.faults.mutants import CHECKOUT, Mutant
from tests.faults.your_kernels.collected import MUTANTS, NAMES, written
from tests.faults.your_kernels.records import FOLDER

FILES = sorted((CHECKOUT / FOLDER).glob("*.py"))
LINES = 10


def test_each_kernel_has_a_test_and_ten_mutants() -> None:
    assert sorted(path.stem for path in FILES) == sorted([*NAMES, *(f"test_{name}" for name in NAMES)])
    assert Counter(Path(mutant.kernel).stem for mutant in MUTANTS) == dict.fromkeys(NAMES, 10)


@pytest.mark.parametrize("path", [path for path in FILES if path.stem.startswith("test_")], ids=lambda path: path.stem)
def test_a_test_of_a_users_kernel_has_ten_lines_at_most(path: Path) -> None:
    assert len([line for line in path.read_text().splitlines() if line.strip()]) <= LINES


@pytest.mark.parametrize("path", [path for path in FILES if not path.stem.startswith("test_")], ids=lambda path: path.stem)
def test_a_users_kernel_knows_nothing_of_this_project(path: Path) -> None:
    found = {alias.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Import) for alias in node.names}
    assert found == {"torch", "triton", "triton.language"}
    assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]


def verdicts(address: str) -> list[Verdict]:
    """On the required cases of a described kernel, up to the first that does not pass."""
    here, found = target("emulated:sm_90"), []
    source = CaseSource(address, here)
    for case in source.required():
        found.append(judge(case, here, source.contract))
        if found[-1].decision is not Decision.PASS:
            break
    return found


def judged_here() -> list[Mutant]:
    """One mutant of each kernel; under the profile `quick` of two kernels that compile fast."""
    quick = os.environ.get("BITVERDICT_PROFILE", "quick") == "quick"
    of_each = {Path(mutant.kernel).stem: mutant for mutant in sorted(MUTANTS, key=lambda mutant: crc32(mutant.id.encode()))}
    return [mutant for name, mutant in of_each.items() if not quick or name in ("swiglu", "histogram")]


@pytest.mark.share(4)
def test_mutants_of_users_kernels_fail_as_their_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for mutant in judged_here():
        *_, last = verdicts(written(mutant, tmp_path))
        assert last.decision is Decision.FAIL and last.outcome in mutant.expected, (mutant.id, last)
