"""Triton's tutorials, and those of Gluon below them, on emulated GPUs: each test and each script by its own assertions.

Run: `python -m benchmarks.upstream_tutorials FOLDER [--target TARGET] [--only TEXT] [--jobs N] [--seconds S] [--results FILE]`.
FOLDER is `python/tutorials` of a checkout of Triton; nothing of it is part of this repository. It is copied first, and
`--replace OLD=NEW` changes a name in the copy, where the tutorials are of another release than the Triton that is installed.

A file that imports pytest is its tests, each case in a process of its own. Any other is run as a script, and a line of its output
with a cross fails it. Benchmarks do not run: `perf_report` and `do_bench` call nothing, a script ends where it starts Triton's
profiler, calls of functions named `pool...` outside of functions and the `__main__` part of a file with tests are left out.

There is no cuBLAS: its product is torch's, and a script ends where it asks for a block-scaled one. Torch's product is the CPU's.
Where an assertion fails then, the case runs once more, and torch's products of 16-bit floats are those of the target's tensor
core, in one ascending chain: a tolerance below one ulp of the result means the words of a tensor core.

What Triton's own front end, verifier or capacity refuses is *refused by Triton*: mostly a tutorial of another release.

A case that is not done after `--seconds` of the processor has reached the time limit. It is run again in a copy whose sizes are
reduced: each integer above 767 outside of functions becomes the one from 512 to 767 that is the same modulo 256. Cases of the same
test that are as large run reduced at once, and count as not tried. `--results FILE` keeps each result, and goes on where a run was
ended.

Prints the page of `docs/upstream_tutorials.md`. Exit status 1 where a case failed that `EXAMINED` does not name.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, replace
from datetime import date
from pathlib import Path

from benchmarks.campaign import Option, append, commit, parse, records, refuse, run_script
from benchmarks.tutorial_cases import BY_TRITON, FAIL, FILE, LIMIT, NOT_RUN, NOT_TRIED, PASS, REFUSED, Case, Result
from benchmarks.tutorial_copies import copied
from benchmarks.tutorial_runs import Runs, cases_of, run

SECONDS = 120.0
SHOWN = (PASS, REFUSED, FAIL, BY_TRITON, LIMIT)


@dataclass(frozen=True)
class Examined:
    """Failures of a test that were read to their cause, which is the tutorial's own or that of torch on a CPU."""

    file: str
    name: str
    outcomes: tuple[str, ...]
    why: str


EXAMINED = (
    Examined("gluon/07-persistence.py", "test_persistent_matmul_pipelined", ("race",),
             "loads for a tile that does not exist, without the predicate of the others, are under way when the program ends"),
    Examined("gluon/09-tma-gather-scatter.py", "test_matmul_fused_gather_scatter", ("illegal address", "stray read", "race"),
             "the row numbers of a tile that does not exist are read, from beyond their tensor; then as in 07"),
    Examined("gluon/11-tcgen05-mma-scaled.py", "test_mma_scaled_pipelined", ("race", "uninitialised read"),
             "copies into tensor memory in the drained tail, without the predicate of the wait before them"),
    Examined("gluon/13-conv-im2col.py", "test_conv2d_tma_im2col", ("race",),
             "the one pair of buffers is loaded for the next step while the product of this one reads it: the wait for the product "
             "stands behind the loads. 11 of the 48 were run with the wait before the loads, and pass"),
    Examined("gluon/14-multicta.py", "test_tma_multicast_copy", ("race",),
             "the program ends behind a store by TMA that reads its shared memory, and never waits for it"),
    Examined("gluon/14-multicta.py", "test_two_cta_tcgen05", ("race",), "as test_tma_multicast_copy"),
    Examined("05-layer-norm.py", "(script)", ("assertion",),
             "torch on a CPU, which stands in for the GPU's, sums gradients of fp16 weights in fp16. At 1151 rows they are 0.06 "
             "from float64's, those of the kernel 0.004; 0.01 is taken"),
)  # fmt: skip


def page(results: list[Result], given: list[str]) -> str:
    """The whole page, Markdown: a table by test, and what was said where a case did not pass.

    Tests of which nothing runs on a target have no row in the first."""
    heads = ["file", "test", "target", "cases", NOT_RUN, *SHOWN, NOT_TRIED, *(f"reduced: {state}" for state in SHOWN)]
    lines = ["# Triton's own tutorials on the emulated GPU", "", "Printed by `python -m benchmarks.upstream_tutorials`.", ""]
    lines += [*given, "", "| " + " | ".join(heads) + " |", "| --- " * 3 + "| ---: " * (len(heads) - 3) + "|"]
    groups: dict[tuple, Counter] = defaultdict(Counter)
    for result in results:
        case = result.case
        groups[_order(case.file), case.name, (len(case.target), case.target)][result.state, case.reduced] += 1
    for ((_, file), name, (_, target)), counts in sorted(groups.items()):
        if set(counts) != {(NOT_RUN, False)}:  # those stand below
            lines.append(_row(file, name, target.removeprefix("emulated:"), counts))
    lines.append(_row("all", "", "", sum(groups.values(), Counter())))
    lines += ["", "## What did not pass", ""]
    lines += ["| | file | test | on | cases | for example | said | at |", "| --- | --- | --- | --- | ---: | --- | --- | --- |"]
    said: dict[tuple, list[Result]] = defaultdict(list)
    states = (FAIL, BY_TRITON, REFUSED, NOT_RUN)
    for result in results:
        if result.state in states:
            name = result.case.name if result.state != NOT_RUN else ""
            said[states.index(result.state), _order(result.case.file), name, result.outcome, _general(result.said)].append(result)
    for _, found in sorted(said.items()):
        lines.append(_example(found))
    lines += ["", "Failures whose cause is the tutorial's own, or torch's on a CPU ([how it was found]("]
    lines[-1] += "emulator.md#found-in-published-kernels)):"
    lines += [""]
    lines += [f"- {each.file}, {each.name}, {' and '.join(each.outcomes)}: {each.why}." for each in EXAMINED]
    return "\n".join(lines) + "\n"


def _row(file: str, name: str, target: str, counts: Counter) -> str:
    cases = sum(n for (_, reduced), n in counts.items() if not reduced)
    shown = [cases, counts[NOT_RUN, False], *(counts[state, False] for state in SHOWN), counts[NOT_TRIED, False]]
    shown += [counts[state, True] for state in SHOWN]
    return f"| {file} | {name} | {target} | " + " | ".join(str(n) if n else "" for n in shown) + " |"


def _example(found: list[Result]) -> str:
    """One line for results that are alike."""
    first = found[0]
    word = f"{first.state}: {first.outcome}" if first.outcome else first.state
    on = ", ".join(sorted({result.case.target.removeprefix("emulated:") for result in found}))
    example = f"`{first.case.case}`" + (" reduced" if first.case.reduced else "")
    where = f"`{Path(first.where).name}`" if first.where else ""
    names = ", ".join(sorted({result.case.name for result in found}))
    shown = [word, first.case.file, names, on, str(len(found)), example, first.said, where]
    return "| " + " | ".join(each.replace("|", "\\|") for each in shown) + " |"


def _order(file: str) -> tuple[int, str]:
    return file.count("/"), file


def _general(said: str) -> str:
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?|%\w+", "#", said)[:80]


def unexamined(results: list[Result]) -> list[Result]:
    """The failures that `EXAMINED` does not name."""
    known = {(each.file, each.name, outcome) for each in EXAMINED for outcome in each.outcomes}
    return [r for r in results if r.state == FAIL and (r.case.file, r.case.name, r.outcome) not in known]


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "folder/", argv=arguments, target=[], only="", test=Option("", "tests whose name has TEXT in it"), jobs=0,
        seconds=Option(SECONDS, "the limit of a case"), within=Option(math.inf, "end after so many seconds; --results goes on"),
        schedule="eager", replace=Option([], "a name that has changed"), results=Path,
        of=Option("", "where the tutorials are from, for the page"),
    )  # fmt: skip
    if not given.folder.is_dir():
        refuse(f"{given.folder}: no such folder; give python/tutorials of a checkout of Triton")
    if wrong := [text for text in given.replace if not re.fullmatch(r"[\w.]+=[\w.]+", text)]:
        refuse(f"--replace {wrong[0]!r}: it is OLD=NEW, two names, which may have dots")
    from bitverdict.harness.model.architectures import EMULATED_ARCHITECTURES

    known = [f"emulated:{arch}" for arch in EMULATED_ARCHITECTURES]
    if unknown := set(given.target or ()) - set(known):
        refuse(f"--target {unknown.pop()}: no emulated target of that name; there are {', '.join(known)}")
    done = {result.case.key: result for result in read(given.results)} if given.results and given.results.exists() else {}
    end = time.monotonic() + given.within
    with tempfile.TemporaryDirectory() as place:
        folders = {reduced: Path(place, "reduced" if reduced else "as_written", "python", "tutorials") for reduced in (False, True)}
        for reduced, to in folders.items():
            copied(given.folder, to, dict(text.split("=") for text in given.replace), reduced=reduced)
            to.parents[1].joinpath("third_party").symlink_to(given.folder.resolve().parents[1] / "third_party")  # 07 reads there
        runs = Runs(folders, Path(place), given.jobs, given.seconds, given.schedule, end)
        cases: list[Case] = []
        listed: set[tuple] = set()
        for found in cases_of(runs, folders[False], given.target or known, given.only):
            case = found.case if isinstance(found, Result) else found
            if given.test not in case.name and case.name != FILE:
                continue
            listed.add(case.key)
            if isinstance(found, Case):
                cases.append(found)
            elif found.case.key not in done:
                keep(found, given.results, done)
        for result in run(runs, cases, dict(done)):
            keep(result, given.results, done)
    results = [result for result in done.values() if replace(result.case, reduced=False).key in listed]
    print(page(results, _described(given, results, missing(cases, done))), end="")
    return int(bool(unexamined(results)))


def keep(result: Result, file: Path | None, done: dict[tuple, Result]) -> None:
    """Put `result` into `done` and, as a line, into `file`; say it on standard error."""
    done[result.case.key] = result
    case = result.case
    line = f"{result.state:10s} {result.seconds:6.1f} s {case.target} {case.file}::{case.case}{' reduced' * case.reduced}"
    print(f"{line} {result.outcome} {result.said}".rstrip(), file=sys.stderr, flush=True)
    append(file, asdict(result))


def missing(cases: list[Case], done: dict[tuple, Result]) -> int:
    """How many of `cases` are not `done`, as written or reduced."""
    ended = [done[case.key] for case in cases if case.key in done]
    again = [replace(result.case, reduced=True) for result in ended if result.state in (LIMIT, NOT_TRIED)]
    return len(cases) - len(ended) + sum(case.key not in done for case in again)


def read(file: Path) -> list[Result]:
    """The results that a run kept in `file`."""
    return [Result(**{**record, "case": Case(**record["case"])}) for record in records(file)]


def _described(given: argparse.Namespace, results: list[Result], left: int) -> list[str]:
    import torch
    import triton

    spent = sum(result.seconds for result in results) / 3600
    changed = f"; changed in the copy: {', '.join(given.replace)}" if given.replace else ""
    versions = f"Triton {triton.__version__}, torch {torch.__version__.split('+')[0]}"
    limit = f"a limit of {given.seconds:.0f} s of the processor a case, {spent:.1f} hours of processes"
    return [
        f"{date.today()}, commit {commit()}, {versions}, schedule {given.schedule}, {limit}.",
        f"Tutorials: {given.of or given.folder.name}{changed}.",
        *([f"The run was ended before {left:,} more cases were done."] if left else []),
    ]


if __name__ == "__main__":
    run_script(main)
