"""``python -m harness sanitize STEM``: cases under iisan, consan, fpsan and compute-sanitizer, beside the bare launch."""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("contracts", nargs="+", metavar="STEM", help="kernels, or addresses of contracts")
    parser.add_argument("--target", default="", metavar="T", help="machine (default: the first GPU, else emulated:sm_90)")
    parser.add_argument("--mode", action="append", help="bare, iisan, consan, fpsan, memcheck or racecheck")
    parser.add_argument("--cases", type=int, default=3, metavar="N", help="cases of the cover list (default 3)")
    parser.add_argument("--cases-of", type=Path, metavar="FILE", help="these cases, by --json, not the cover list's")
    parser.add_argument("--schedule", action="append", help="on an emulated target: under this schedule (may be repeated)")
    parser.add_argument("--timeout", type=float, default=300.0, metavar="S", help="seconds for one case in one mode")
    parser.add_argument("--jobs", type=int, default=0, metavar="N", help="children at a time (default: one a core, at most 8)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every verdict to this file")


def run(arguments: argparse.Namespace) -> int:
    """Examine and print a table. Status 1 where something convicts, 0 where nothing does, 5 where nothing ran."""
    from harness import report, sanitizer
    from harness.targets import target, targets

    here = targets() if not arguments.target else []
    machine = target(arguments.target) if arguments.target else next((t for t in here if not t.emulated), target("emulated:sm_90"))
    modes = arguments.mode or list(sanitizer.MODES)
    earlier = sanitizer.read(arguments.cases_of) if arguments.cases_of else None
    work = []
    for stem in arguments.contracts:
        cases = sanitizer.chosen(stem, machine, arguments.cases) if earlier is None else sanitizer.cases_of(earlier, stem)
        work += [(stem, case if schedule is None else replace(case, schedule=schedule), mode)
                 for case in cases for schedule in arguments.schedule or [None] for mode in modes]
    if unknown := [mode for mode in modes if mode not in sanitizer.MODES]:
        raise ValueError(f"--mode {unknown[0]!r}: must be one of {', '.join(sanitizer.MODES)}")
    jobs = arguments.jobs or min(os.cpu_count() or 1, 8)
    with ThreadPoolExecutor(jobs) as pool:
        found = list(pool.map(lambda w: sanitizer.examine(w[1], machine, w[2], timeout=arguments.timeout), work))
    _show(report.console(), machine, work, found)
    if arguments.json:
        rows = [{"contract": stem, "case": case.to_json(), "mode": mode, "target": machine.name, "verdict": verdict.to_json()}
                for (stem, case, mode), verdict in zip(work, found, strict=True)]
        arguments.json.write_text(json.dumps(rows, indent=1))
    ran = [v for v in found if str(v.outcome) != "not run"]
    return 5 if not ran else 1 if any(v.convicted for v in ran) else 0


def _show(shown, machine, work: list, found: list) -> None:
    from rich.table import Table

    table = Table(title=f"under sanitizers on {machine.name} ({machine.model or machine.arch})")
    for column in ("kernel", "case", "mode", "ruling", "outcome", "what it says", "where", "s"):
        table.add_column(column, justify="right" if column == "s" else "left", overflow="fold")
    for (stem, case, mode), verdict in zip(work, found, strict=True):
        number = [c for s, c, _ in work if s == stem]
        table.add_row(stem, str(list(dict.fromkeys(c.key for c in number)).index(case.key)), mode, str(verdict.ruling),
                      str(verdict.outcome), verdict.message[:120], verdict.location, str(verdict.seconds.get("child", "")))
    shown.print(table)
