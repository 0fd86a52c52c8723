"""``bitverdict invariance``: whether equal calls give equal words, and the same row the same bits in any batch."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bitverdict.harness.frontends import cli_run
from bitverdict.harness.frontends.subjects import find_subjects
from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.targets import targets
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.harness.session.result_files import FREE

if TYPE_CHECKING:
    from bitverdict.harness.session.case_source import CaseSource

CASES = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    from bitverdict.harness.checks.invariance.invariance_finding import CHECKS

    add("stems", nargs="+", metavar="STEM | FILE:FUNCTION", help="kernels, tests or contracts")
    add("--launcher", default="", metavar="FILE:FUNCTION", help="a launcher of yours, by the kernel's mathematics")
    add("--target", action="append", default=[], metavar="T", help="as of run (default: the first GPU, else sm_90)")
    add("--check", action="append", default=[], metavar="NAME", help=f"one of {', '.join(CHECKS)} (default: all)")
    add(
        "--batch-invariant",
        action="append",
        default=[],
        metavar="SIZE",
        help="the kernel promises it: rows, the name of a size, or configurations; other words fail then",
    )
    add("--deterministic", action="store_true", help="the kernel promises the same words in any order of atomics")
    add("--cases", type=int, default=CASES, metavar="N", help=f"cases of each (default {CASES}; 0: of every kind)")
    add("--sizes", type=int, default=0, metavar="N", help="smaller batches of each size (default: about fifteen)")
    add("--jobs", type=int, default=0, metavar="N", help="workers at a time (default 0: one a core)")
    add("--json", type=Path, default=None, metavar="FILE", help="every finding as a line of JSON")
    add("-v", "--verbose", action="store_true", help="a line for each finding")


def run(arguments: argparse.Namespace) -> int:
    """Make the checks and print what they found; the exit status is that of `run`. UsageError for anything that cannot be."""
    from bitverdict.harness.checks.invariance.calls import Promises
    from bitverdict.harness.checks.invariance.invariance_finding import CHECKS
    from bitverdict.harness.report.invariance import report_lines
    from bitverdict.harness.report.invariance.campaign import examine_requests, requests_of
    from bitverdict.harness.session import tables
    from bitverdict.harness.session.tally import Tally
    from bitverdict.harness.workers.pool import WorkerPool

    if unknown := [name for name in arguments.check if name not in CHECKS]:
        meant = did_you_mean(unknown[0], CHECKS)
        raise UsageError(f"--check {unknown[0]!r}: no such check{meant}; it must be of {', '.join(CHECKS)}")
    for name in ("cases", "sizes", "jobs"):
        if getattr(arguments, name) < 0:
            raise UsageError(f"--{name} {getattr(arguments, name)}: must be at least 0")
    sources = _sources(arguments)
    promises = Promises(arguments.deterministic, tuple(arguments.batch_invariant))
    work = [each for source in sources for each in requests_of(source, arguments.cases)]
    if not work:
        print("no case of it gives a result on the target: nothing to compare", file=sys.stderr)
    tally = Tally()
    rows = []
    with WorkerPool(jobs=arguments.jobs or len(os.sched_getaffinity(0)), timeout=cli_run.PROFILES["quick"].case_seconds) as pool:
        with pool.interruptible():
            checks = arguments.check or CHECKS
            for row in examine_requests(work, pool, checks=checks, limit=arguments.sizes, promises=promises):
                rows.append(row)
                tally.count(row.case, row.name, row.target, {}, row.verdict)
    if arguments.json is not None:
        with writing("--json", arguments.json, FREE):
            arguments.json.write_text("".join(report_lines.line(row) + "\n" for row in rows))
    console = tables.console()
    for part in report_lines.report(rows, is_full=arguments.verbose):
        console.print(part, markup=False, soft_wrap=True)
    print(tally.sentence())
    return tally.status()


def _sources(arguments: argparse.Namespace) -> list[CaseSource]:
    """What is asked, as `run` reads it."""
    if not arguments.target:
        gpu = next((each.name for each in targets() if not each.emulated), "")
        arguments.target = [gpu or "emulated:sm_90"]
    if not arguments.launcher:
        subjects = find_subjects(arguments.stems, "invariance")
        arguments.stems, arguments.launcher = list(subjects.addresses), subjects.launcher
    given = {name: getattr(arguments, name) for name in ("stems", "launcher", "target", "jobs", "json")}
    return cli_run.check_arguments(argparse.Namespace(**cli_run.defaults() | given))
