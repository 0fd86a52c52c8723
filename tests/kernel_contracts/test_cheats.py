"""Contract under test: no cheat of `tests/faults/cheats/` is believed; each is a whole file, and names whose pattern it follows."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.kernels.matmul import Problem
from tests.faults.cheats.handed_in import HERE, candidate, write_candidate
from tests.faults.cheats.records import CHEATS, DECIDED, MATMUL, NOT_OURS, SAID, SOURCES, Cheat
from tests.support.shares import in_this_run

FAMILIES = sorted({cheat.family for cheat in CHEATS})


def _defined(family: str) -> set[str]:
    """Names that the file of `family` defines at its top level."""
    found: set[str] = set()
    for each in ast.parse(candidate(family)).body:
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            found.add(each.name)
        elif isinstance(each, ast.Assign):
            found |= {name.id for name in each.targets if isinstance(name, ast.Name)}
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_a_file_of_cheats_is_whole_and_has_no_other_cheat(family: str) -> None:
    """A candidate imports nothing of the tests. Each public function of a file of launchers is a cheat with a record."""
    named = {cheat.name for cheat in CHEATS if cheat.family == family}
    assert "tests.faults" not in candidate(family)
    assert named <= _defined(family)
    tree = ast.parse((HERE / f"{family}.py").read_text())
    launchers = {
        each.name
        for each in tree.body
        if isinstance(each, ast.FunctionDef)
        and [argument.arg for argument in each.args.args] == ["a", "b"]
        and not each.name.startswith("_")
    }
    assert launchers == (named & launchers)


def test_cheats_name_their_sources_and_how_they_may_end() -> None:
    assert len({cheat.id for cheat in CHEATS}) == len(CHEATS) >= 40
    used = {source for cheat in CHEATS for source in cheat.sources} | {source for _, sources, _ in NOT_OURS for source in sources}
    assert used == set(SOURCES)
    assert all(cheat.sources and cheat.ends and set(cheat.ends) <= set(DECIDED) for cheat in CHEATS)
    assert not [cheat.id for cheat in CHEATS if not cheat.says]
    assert set(SAID) <= {cheat.family for cheat in CHEATS} | {f"{cheat.family}: {cheat.name}" for cheat in CHEATS}


ALONE = {
    "resources",
    "files_changed",
    "claimed_little",
    "guessed_operands",
}  # benchmarks/cheats.py judges them in runs of their own
SMALL = {"host_steered"}  # a launch a word, or sixteen: of few words
ONE_CASE = [
    cheat for cheat in CHEATS if (cheat.task == MATMUL or cheat.family in SMALL) and cheat.family not in ALONE and not cheat.seconds
]


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerPool]:
    with WorkerPool(timeout=60, journal=Journal(tmp_path_factory.mktemp("journal") / "run.jsonl")) as pool:
        yield pool


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all: candidates of one folder share what is imported for them."""
    return tmp_path_factory.mktemp("candidates")


def judged(pool: WorkerPool, family: str, name: str, directory: Path) -> Verdict:
    """One case, which calls the launcher three times, sealed."""
    launcher = write_candidate(family, name, directory)
    problem = Problem(m=3, n=5, k=19) if family in SMALL else Problem(m=33, n=17, k=19)
    case = Case(contract="matmul", problem=problem, data_seed=3, launcher=launcher, calls=3, sealed=True)
    return pool.judge(case, target("emulated:sm_90"))


def test_the_wrong_kernel_fails_without_a_cheat_and_a_right_one_passes(pool: WorkerPool, directory: Path) -> None:
    assert judged(pool, "matmuls", "wrong_matmul", directory).decision is Decision.FAIL
    assert judged(pool, "matmuls", "right_matmul", directory).decision is Decision.PASS


@pytest.mark.parametrize("cheat", [cheat for cheat in ONE_CASE if in_this_run(cheat.id, 30, in_ci=4)], ids=lambda cheat: cheat.id)
def test_no_cheat_is_believed(cheat: Cheat, pool: WorkerPool, directory: Path) -> None:
    """The profile quick judges a thirtieth, ci a fourth, each commit the next. `benchmarks.cheats` judges all."""
    verdict = judged(pool, cheat.family, cheat.name, directory)
    assert verdict.decision in (Decision.FAIL, Decision.INCONCLUSIVE, Decision.ERROR), verdict
    said = f"{verdict.outcome}: {verdict.message}"
    assert any(text in said for text in cheat.says), said
