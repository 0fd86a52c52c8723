"""``bitverdict lab sanitize STEM``: cases under iisan, consan, fpsan and compute-sanitizer, beside the bare launch."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision

if TYPE_CHECKING:
    from rich.console import Console

    from bitverdict.harness.workers.pool import WorkerPool

LONGEST_TABLE = 200  # verdicts that a table can show one by one


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("contracts", nargs="+", metavar="STEM", help="kernels, or addresses of contracts")
    parser.add_argument("--target", default="", metavar="T", help="machine (default: the first GPU, else emulated:sm_90)")
    parser.add_argument("--mode", action="append", help="bare, iisan, consan, fpsan, memcheck or racecheck")
    parser.add_argument("--cases", type=int, default=3, metavar="N", help="cases of the required cases (default 3; 0: all of it)")
    parser.add_argument("--together", type=int, default=1, metavar="N", help="cases of a kernel to one worker (default 1)")
    parser.add_argument("--cases-of", type=Path, metavar="FILE", help="these cases, by --json, not the required cases's")
    parser.add_argument("--schedule", action="append", help="on an emulated target: under this schedule (may be repeated)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for one case in one mode")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="workers at a time (default: one a core, at most 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict to this file")


def run(arguments: argparse.Namespace) -> int:
    """Examine and print a table. Status 1 where something fails, 0 where nothing does, 5 where nothing ran."""
    from bitverdict.harness.lab.sanitizers import runs
    from bitverdict.harness.model.targets import target, targets
    from bitverdict.harness.session import tables
    from bitverdict.harness.workers.pool import WorkerPool

    here = targets() if not arguments.target else []
    machine = target(arguments.target) if arguments.target else next((t for t in here if not t.emulated), target("emulated:sm_90"))
    modes = arguments.mode or list(runs.MODES)
    earlier = runs.read(arguments.cases_of) if arguments.cases_of else None
    work = []
    for stem in arguments.contracts:
        cases = runs.choose_cases(stem, machine, arguments.cases or None) if earlier is None else runs.cases_of(earlier, stem)
        work += [
            (stem, case if schedule is None else replace(case, schedule=schedule), mode)
            for case in cases
            for schedule in arguments.schedule or [None]
            for mode in modes
        ]
    if unknown := [mode for mode in modes if mode not in runs.MODES]:
        raise UsageError(f"--mode {unknown[0]!r}: must be one of {', '.join(runs.MODES)}")
    jobs = arguments.jobs or min(os.cpu_count() or 1, 8)
    with WorkerPool(jobs=jobs, timeout=arguments.timeout) as pool, pool.interruptible():
        found = _examine(work, machine, max(arguments.together, 1), pool, arguments.json)
    if len(found) <= LONGEST_TABLE:
        _show(tables.console(), machine, work, found)
    else:
        _sum_up(tables.console(), work, found)
    ran = [v for v in found if str(v.outcome) != "not run"]
    if any(v.failed for v in ran):
        return 1
    return 5 if not ran else 3 if any(v.decision is Decision.ERROR for v in ran) else 0


def _examine(work: list, machine: Target, batch_size: int, pool: WorkerPool, path: Path | None) -> list:
    """The verdicts in the order of `work`, up to `together` cases of one kernel and mode to a worker.

    What there is stands in the file at `path` after each worker: a run that is ended leaves it.
    """
    from bitverdict.harness.lab.sanitizers import runs
    from bitverdict.harness.workers.slot import RunCancelled

    by_kind: dict[tuple[str, str], list[int]] = {}
    for place, (stem, _, mode) in enumerate(work):
        by_kind.setdefault((stem, mode), []).append(place)
    batches = [places[first : first + batch_size] for places in by_kind.values() for first in range(0, len(places), batch_size)]
    all_verdicts: list = [None] * len(work)

    def examine(places: list[int], place: int) -> tuple[list[int], list]:
        stem, _, mode = work[places[0]]
        missing = runs.check_features(stem, machine)
        cases = [work[place][1] for place in places]
        try:
            verdicts = [missing] * len(places) if missing else runs.examine_together(cases, machine, mode, pool=pool, place=place)
        except RunCancelled:
            raise
        except Exception as error:  # the next worker is unaffected
            verdicts = [runs.unable(error)] * len(places)
        return places, verdicts

    for places, verdicts in pool.spread(batches, examine):
        for place, verdict in zip(places, verdicts, strict=True):
            all_verdicts[place] = verdict
        if path:
            _write(path, machine, work, all_verdicts)
    return all_verdicts


def _write(path: Path, machine: Target, work: list, found: list) -> None:
    rows = [
        {"contract": stem, "case": case.to_json(), "mode": mode, "target": machine.name, "verdict": verdict.to_json()}
        for (stem, case, mode), verdict in zip(work, found, strict=True)
        if verdict is not None
    ]
    unfinished = path.with_name(path.name + ".part")  # a reader never finds half a file
    unfinished.write_text(json.dumps(rows, indent=1, default=str))
    unfinished.replace(path)


def _sum_up(console: Console, work: list, verdicts: list) -> None:
    """A line a kernel and mode, and each verdict that is neither right nor `not run`."""
    from collections import Counter

    for stem, mode in dict.fromkeys((stem, mode) for stem, _, mode in work):
        here = [v for (s, _, m), v in zip(work, verdicts, strict=True) if (s, m) == (stem, mode)]
        told = ", ".join(f"{outcome} {count}" for outcome, count in Counter(str(v.outcome) for v in here).items())
        console.print(f"{stem} {mode}: {told}; {sum(v.seconds.get('worker', 0.0) for v in here):.1f} s", markup=False)
    for (stem, case, mode), verdict in zip(work, verdicts, strict=True):
        if str(verdict.outcome) not in ("pass", "not run"):
            console.print(f"{stem} {mode} {case.problem} {case.config}: {verdict.outcome}: {verdict.message[:200]}", markup=False)


def _show(console: Console, machine: Target, work: list, verdicts: list) -> None:
    from rich.table import Table

    table = Table(title=f"under sanitizers on {machine.name} ({machine.model or machine.arch})")
    for column in ("kernel", "case", "mode", "decision", "outcome", "what it says", "where", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for (stem, case, mode), verdict in zip(work, verdicts, strict=True):
        number = [c for s, c, _ in work if s == stem]
        table.add_row(
            stem,
            str(list(dict.fromkeys(c.key for c in number)).index(case.key)),
            mode,
            str(verdict.decision),
            str(verdict.outcome),
            verdict.message[:120],
            verdict.location,
            str(verdict.seconds.get("worker", "")),
        )
    console.print(table)
