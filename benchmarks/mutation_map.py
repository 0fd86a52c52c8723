"""Which tests execute which line, and how long each takes: made by one run of the suite, kept in one file.

`make` runs the suite in a copy of the checkout with `benchmarks.mutation_measure` in every process. Tests that fail are run again
unmeasured, and left out where they fail again: they tell nothing of a mutant.
"""

from __future__ import annotations

import ast
import json
import lzma
import multiprocessing
import os
import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.mutation_run import copied, environment, outcomes, pytest_command, run_to_end

ROOMS = ("harness", "reference", "kernels")
OTHERS = 60.0  # seconds of tests that do not execute the line of the mutant, of each kind


@dataclass(frozen=True)
class Map:
    """`tests`: node ids that pass, quickest first. `sets`: distinct sets of numbers of tests. `lines`: file to line to the number
    of its set. `users`: file to the files that import it, tests among them."""

    tests: list[str]
    seconds: dict[str, float]
    sets: list[list[int]]
    lines: dict[str, dict[str, int]]
    users: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> Map:
        return cls(**json.loads(lzma.decompress(path.read_bytes())))

    def write(self, path: Path) -> None:
        part = path.with_suffix(".part")
        part.write_bytes(lzma.compress(json.dumps(vars(self)).encode(), preset=1))
        part.rename(path)

    @cached_property
    def of_file(self) -> dict[str, set[int]]:
        """The tests that execute any line of a file by themselves."""
        return {path: set().union(*(self.sets[number] for number in set(own.values()))) for path, own in self.lines.items()}

    def at(self, path: str, line: int) -> list[int]:
        number = self.lines.get(path, {}).get(str(line))
        return self.sets[number] if number is not None else []

    def all_at_import(self, path: str, line: int) -> bool:
        """Whether no test executes the line by itself."""
        return not self.at(path, line)

    def tests_for(self, path: str, line: int, budget: float) -> list[str]:
        """Node ids for a mutant of the line: those that execute it, quickest first, up to `budget` seconds of them.

        Then up to `OTHERS` seconds of each of: tests that execute its file, tests whose file imports it, and, where no test
        executes the line by itself, tests that execute a file that imports it.
        """
        own = self.at(path, line)
        users = self.users.get(path, [])
        importing = {number for number, test in enumerate(self.tests) if test.partition("::")[0] in users}
        groups = [set(own), self.of_file.get(path, set()), importing]
        if not own:
            groups.append(set().union(*(self.of_file.get(user, set()) for user in users)))
        chosen: dict[int, None] = {}
        for allowed, group in zip((budget, *[min(budget, OTHERS)] * 3), groups, strict=False):
            for number in sorted(group - set(chosen)):
                allowed -= self.seconds[self.tests[number]]
                if allowed < 0:
                    break
                chosen[number] = None
        return [self.tests[number] for number in chosen]


def make(checkout: Path, path: Path, work: Path, jobs: int, tests: list[str], limit: float) -> None:
    """Run the suite (or the paths `tests` of it) measured on `jobs` processes, for `limit` seconds at most, and write its map to
    `path`: of what was measured by then."""
    begun = time.monotonic()
    tree = copied(checkout, work)
    measured = work / "measured"
    (measured / "now").mkdir(parents=True)
    hook = work / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(
        f"import pathlib, sys\nsys.path.append({str(tree)!r})\n"
        f"from benchmarks import mutation_measure\nmutation_measure.start(pathlib.Path({str(tree)!r}))\n"
    )
    log = work / "log.jsonl"
    variables = environment(tree, before=[str(hook)]) | {"MUTATION_MEASURE": str(measured), "MUTATION_LOG": str(log)}
    told = run_to_end([*pytest_command(jobs), *tests], tree, variables, limit)
    seen = outcomes(log)
    print(f"map: {len(seen)} tests measured in {time.monotonic() - begun:.0f} s: {told[-1:]}", flush=True)
    if not seen:
        raise SystemExit("the suite did not run:\n" + "\n".join(told[-30:]))
    failed = sorted(test for test, (outcome, _) in seen.items() if outcome == "failed")
    if failed:
        chosen, again = work / "failed.json", work / "again.jsonl"
        chosen.write_text(json.dumps(failed))
        files = sorted({test.partition("::")[0] for test in failed})
        variables = environment(tree) | {"MUTATION_TESTS": str(chosen), "MUTATION_LOG": str(again)}
        run_to_end([*pytest_command(jobs), *files], tree, variables, limit)
        seen |= outcomes(again)
        left = [test for test in failed if seen[test][0] == "failed"]
        print(f"map: {len(failed)} failed measured, {len(left)} of them unmeasured too: {left[:40]}", flush=True)
    tests = sorted((test for test, (outcome, _) in seen.items() if outcome == "passed"), key=lambda test: (seen[test][1], test))
    numbers = {test: number for number, test in enumerate(tests)}
    executed: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    data = [str(part) for part in measured.glob("data.*")]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for own in pool.imap_unordered(_read, data, chunksize=4):
            for name, lines in own.items():
                relative = os.path.relpath(name, tree)
                for line, contexts in lines.items():
                    executed[relative][line].update(numbers[test] for test in contexts if test in numbers)
    sets: dict[tuple[int, ...], int] = {}
    lines = {
        name: {str(line): sets.setdefault(tuple(sorted(found)), len(sets)) for line, found in own.items() if found}
        for name, own in executed.items()
    }
    seconds = {test: seen[test][1] for test in tests}
    Map(tests, seconds, [list(one) for one in sets], lines, users(tree)).write(path)
    print(f"map: {len(tests)} tests, {sum(seconds.values()):.0f} s of them, {len(data)} processes, {len(sets)} sets, "
          f"{path.stat().st_size:,} bytes, {time.monotonic() - begun:.0f} s", flush=True)  # fmt: skip


def _read(path: str) -> dict[str, dict[int, list[str]]]:
    """Of one process: file to line to the tests that executed it."""
    import coverage

    data = coverage.CoverageData(path)
    try:
        data.read()
        return {name: data.contexts_by_lineno(name) for name in data.measured_files()}
    except Exception as error:  # of a process that was killed while it wrote
        print(f"map: {Path(path).name}: {error}", flush=True)
        return {}


def users(tree: Path) -> dict[str, list[str]]:
    """Which files of the rooms and of the tests import a file, by name."""
    paths = {str(path.relative_to(tree)) for room in (*ROOMS, "tests") for path in (tree / room).rglob("*.py")}
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(paths):
        for node in ast.walk(ast.parse((tree / path).read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in names:
                stem = name.removeprefix("bitverdict.").replace(".", "/")
                found_at = next((end for end in (f"{stem}.py", f"{stem}/__init__.py") if end in paths), None)
                if found_at is not None:
                    found[found_at].add(path)
    return {path: sorted(own - {path}) for path, own in found.items()}
