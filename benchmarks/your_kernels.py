"""The kernels of `docs/examples/your_kernels/`: right ones pass, their mutants fail, and no generated case of a right one fails.

Run: `python -m benchmarks.your_kernels [--right] [--mutants] [--cases N] [--jobs N] [--target TARGET] [--work DIR] [NAME ...]`.

- `--right` judges the kernels by pytest in an empty environment with the wheel, in a repository that has packages called `kernels`,
  `reference` and `harness`. It prints what each file took on each target. DIR keeps the environment for the next time.
- `--mutants` judges the mutants of `tests/faults/your_kernels/`, over the required cases and `DRAWN` generated ones of each, and
  prints a line for each: outcomes, and whether all that failed are of its family.
- `--cases N` judges N generated cases of the right kernels, over all targets, and prints each that does not pass.

Without any of the three it does the first two. Exit status 1 where a right kernel does not pass, a mutant passes, a mutant fails as
another family than its own, or more than one case in twenty is inconclusive.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.campaign import Option, parse, refuse, run_script
from benchmarks.foreign_repository import EXAMPLES, made
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target, targets
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.session.case_source import CaseSource, in_turns
from bitverdict.harness.workers.pool import WorkerPool
from tests.faults.mutants import Mutant
from tests.faults.your_kernels.collected import MUTANTS, NAMES, written

DRAWN = 20  # generated cases of a mutant on each target, besides the required ones
SEEDS, SIMPLE = 9, 8  # draws repeat themselves: so many seeds are asked for what is left, each of which begins with simple cases
UNDECIDED = {"outside the bound"}  # of a case whose real values are not known: it has no family
INCONCLUSIVE = 0.05
SECONDS = 300  # what the right kernels may take


def lines_of(path: Path) -> int:
    """Lines of a file that are not blank."""
    return sum(1 for line in path.read_text().splitlines() if line.strip())


def judge_right(work: Path, names: Sequence[str]) -> bool:
    """Judge the right kernels in the empty environment; whether all passed, in time."""
    place = made(work)
    files = [f"test_{name}.py" for name in names]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= {"TRITON_CACHE_DIR": str(work / "triton"), "BITVERDICT_STATE": str(work / "state")}
    report, begun = work / "report.xml", time.monotonic()
    command = [place.python, "-m", "pytest", "-q", "-n", "auto", f"--junitxml={report}", *files]
    ended = subprocess.run(command, cwd=place.repository, env=environment)
    wall = time.monotonic() - begun
    print(f"\n{'kernel':24s} {'lines':>5s}  test                                          outcome        seconds")
    for case in ElementTree.parse(report).iter("testcase"):
        name = case.get("classname", "").removeprefix("test_")
        outcome = next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")
        lines = lines_of(EXAMPLES / f"test_{name}.py")
        print(f"{name:24s} {lines:5d}  {case.get('name', ''):45s} {outcome:12s} {float(case.get('time', 0)):8.1f}")
    print(f"{wall:.0f} s for {len(names)} kernels on {len(os.sched_getaffinity(0))} cores, without a GPU")
    return ended.returncode == 0 and wall < SECONDS


def generated(address: str, there: Target, count: int) -> list[Case]:
    """`count` cases of a described kernel that differ, or fewer where there are no more."""
    found: dict[str, Case] = {}
    for seed in range(SEEDS):
        found |= {case.key: case for case in CaseSource(address, there, seed=seed).drawn(count - len(found) + SIMPLE)}
        if len(found) >= count:
            break
    return list(found.values())[:count]


def cases_of(address: str, drawn: int, where: Sequence[Target], required: bool) -> Iterator[tuple[Case, Target]]:
    """The required cases of a described kernel on each target, if asked for, and `drawn` generated ones."""
    lists = []
    for there in where:
        first = CaseSource(address, there).required() if required else []
        lists.append([(case, there) for case in first + generated(address, there, drawn)])
    yield from in_turns(lists)


def judge_mutant(pool: WorkerPool, mutant: Mutant, folder: Path, where: Sequence[Target]) -> tuple[Counter[str], Verdict | None]:
    """What came of the cases of one mutant, written into `folder`, and its first failure."""
    seen, first = Counter[str](), None
    for _, _, verdict in pool.judge_all(cases_of(written(mutant, folder), DRAWN, where, True)):
        failed = verdict.decision is Decision.FAIL
        seen[str(verdict.outcome if failed else verdict.decision)] += 1
        if failed:
            first = first or verdict
    return seen, first


def family(mutant: Mutant, seen: Counter[str]) -> str:
    """How cases of `mutant` failed beside its family: "right" where some fail as it and none as another."""
    of_it = {name for name in seen if name in mutant.expected}
    others = set(seen) - of_it - {str(decision) for decision in Decision} - UNDECIDED
    if not of_it and not others:
        return "NOT FOUND"
    return "another" if not of_it else "another too" if others else "right"


def judge_mutants(pool: WorkerPool, names: Sequence[str], where: Sequence[Target]) -> bool:
    """Judge the mutants on `where`; whether each failed, and as its family alone."""
    asked = [mutant for mutant in MUTANTS if Path(mutant.kernel).stem in names]
    failed, of_families = 0, Counter[str]()
    print(f"\n{'kernel':20s} {'family':26s} {'mutant':50s} {'family is':11s} outcomes")
    with tempfile.TemporaryDirectory() as directory:
        sys.path.insert(0, directory)  # as pytest does with the folder of a test
        for mutant in asked:
            seen, first = judge_mutant(pool, mutant, Path(directory), where)
            said = family(mutant, seen)
            failed += first is not None
            of_families[said] += 1
            told = ", ".join(f"{name} {count}" for name, count in seen.most_common())
            print(f"{Path(mutant.kernel).stem:20s} {mutant.kind:26s} {mutant.name:50s} {said:11s} {told}", flush=True)
            if said != "right" and first:
                print(f"{'':20s} {first.outcome}: {first.message} [{first.location}]", file=sys.stderr, flush=True)
    print(
        f"{failed} of {len(asked)} mutants fail; their family: {', '.join(f'{name} {n}' for name, n in of_families.most_common())}"
    )
    return failed == of_families["right"] == len(asked)


def judge_cases(pool: WorkerPool, names: Sequence[str], where: Sequence[Target], count: int) -> bool:
    """Judge `count` generated cases of the right kernels; whether none failed."""
    each = -(-count // (len(names) * len(where)))
    total, few = Counter[Decision](), True
    heads = ("cases", "pass", "failed", "inconclusive", "not run", "words", "seconds")
    print(f"\n{'kernel':24s} " + " ".join(f"{head:>12s}" for head in heads))
    for name in names:
        decisions, words, begun = Counter[Decision](), 0, time.monotonic()
        for case, there, verdict in pool.judge_all(cases_of(f"{EXAMPLES / f'test_{name}.py'}:test_{name}", each, where, False)):
            decisions[verdict.decision] += 1
            words += verdict.words
            if verdict.decision not in (Decision.PASS, Decision.NOT_RUN):
                told = f"{there.name}: {verdict.decision}: {verdict.outcome}: {verdict.message} [{verdict.location}]"
                print(f"{told}\n  {case.to_json()}", file=sys.stderr, flush=True)
        total += decisions
        run = decisions.total() - decisions[Decision.NOT_RUN]
        bad = run - decisions[Decision.PASS] - decisions[Decision.INCONCLUSIVE]
        few = few and decisions[Decision.INCONCLUSIVE] <= INCONCLUSIVE * run
        row = (
            decisions.total(), decisions[Decision.PASS], bad, decisions[Decision.INCONCLUSIVE], decisions[Decision.NOT_RUN],
            f"{words:,}", f"{time.monotonic() - begun:.0f}",
        )  # fmt: skip
        print(f"{name:24s} " + " ".join(f"{part!s:>12}" for part in row), flush=True)
    told = ", ".join(f"{decision} {many}" for decision, many in total.most_common())
    print(f"{total.total()} generated cases of right kernels: {told}")
    return few and set(total) <= {Decision.PASS, Decision.INCONCLUSIVE, Decision.NOT_RUN}


def main() -> int:
    given = parse(
        __doc__, "names*", right=False, mutants=False, cases=0, target=[], jobs=0,
        work=Option(Path, "folder for the environment, kept (default: one that is removed)"),
    )  # fmt: skip
    if unknown := set(given.names) - set(NAMES):
        refuse(f"{unknown.pop()!r}: no such kernel; there are {', '.join(NAMES)}")
    names, good = given.names or NAMES, True
    where = [target(name) for name in given.target] if given.target else [here for here in targets() if here.emulated]
    if not (given.right or given.mutants or given.cases):
        given.right = given.mutants = True
    if given.right:
        with tempfile.TemporaryDirectory() as directory:
            good &= judge_right((given.work or Path(directory)).resolve(), names)
    if given.mutants or given.cases:
        sys.path.insert(0, str(EXAMPLES))
        with WorkerPool(jobs=given.jobs) as pool:
            good &= not given.mutants or judge_mutants(pool, names, where)
            good &= not given.cases or judge_cases(pool, names, where, given.cases)
    return int(not good)


if __name__ == "__main__":
    run_script(main)
