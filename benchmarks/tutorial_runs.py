"""Many cases of tutorials, each in a process of its own with a time limit; what is too large is run again, reduced."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from benchmarks.forked_runs import WAITING, processor_seconds
from benchmarks.tutorial_cases import (
    FAIL,
    FILE,
    LIMIT,
    NOT_RUN,
    NOT_TRIED,
    PASS,
    SCRIPT,
    Case,
    Result,
    last_line,
    result_of,
    run_in_process,
)

LISTING = 120.0  # seconds at least to list the tests of a file, which imports it
NAMED = re.compile(r"\d\d-.*\.py")
PRELOADED = [
    "torch",
    "triton.testing",
    "pytest",
    "bitverdict.harness.emulator.device",
    "bitverdict.harness.judge.classify",
    "benchmarks.tutorial_cases",
]


class Runs:
    """Processes of cases, `jobs` at a time, each for `seconds` of the processor; none after `end` by the monotonic clock."""

    def __init__(self, folders: dict[bool, Path], logs: Path, jobs: int, seconds: float, schedule: str, end: float) -> None:
        self.folders, self.logs, self.jobs, self.seconds, self.schedule, self.end = folders, logs, jobs, seconds, schedule, end
        root = str(Path(__file__).resolve().parent.parent)
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
        self.running: dict[Any, tuple[Any, Case, float, Path]] = {}  # pipe -> process, case, when it began, its output
        self.begun = 0

    def start(self, case: Case) -> None:
        receiver, sender = self.context.Pipe(duplex=False)
        log = self.logs / f"{self.begun}.txt"
        given = (sender, str(log), str(self.folders[case.reduced]), case, self.schedule)
        process = self.context.Process(target=run_in_process, args=given)
        process.start()
        sender.close()
        self.running[receiver] = process, case, time.monotonic(), log
        self.begun += 1

    def ended(self) -> Iterator[tuple[Case, Any, float, str]]:
        """(case, what its process sent, or None for nothing, or LIMIT, seconds, its output) of those that ended."""
        ready = set(connection.wait(list(self.running), 0.2))
        for pipe, (process, case, begun, log) in list(self.running.items()):
            seconds, limit = time.monotonic() - begun, self.seconds if case.place >= 0 else max(self.seconds, LISTING)
            if pipe not in ready and processor_seconds(process.pid) < limit and seconds < WAITING * limit:
                continue
            sent: Any = LIMIT
            if pipe in ready:
                try:
                    sent = pipe.recv()
                except EOFError:
                    sent = None
                process.join(5)
            self._stop(pipe)
            text = log.read_text(errors="replace") if log.exists() else ""
            log.unlink(missing_ok=True)
            yield case, sent, seconds, text

    def _stop(self, pipe: Any) -> None:
        process = self.running.pop(pipe)[0]
        if process.is_alive():
            try:
                os.killpg(process.pid, signal.SIGKILL)  # what it started too
            except ProcessLookupError:  # it has no group of its own yet
                process.kill()
        process.join()
        pipe.close()

    @property
    def is_over(self) -> bool:
        """Whether the time is up; what still runs is stopped then."""
        if time.monotonic() < self.end:
            return False
        for pipe in list(self.running):
            self._stop(pipe)
        return True


def cases_of(runs: Runs, folder: Path, targets: list[str], only: str) -> Iterator[Case | Result]:
    """The cases of each file on each target; a Result for one that is skipped, and for a file that could not be read."""
    files = [file for file in sorted(folder.rglob("*.py")) if NAMED.fullmatch(file.name) and only in str(file.relative_to(folder))]
    waiting = []
    for target in targets:
        for file in files:
            name = str(file.relative_to(folder))
            if re.search(r"^\s*import pytest", file.read_text(), re.MULTILINE):
                waiting.append(Case(target, name, FILE, FILE, -1))
            else:
                yield Case(target, name, SCRIPT, SCRIPT, 0)
    while (waiting or runs.running) and not runs.is_over:
        while waiting and len(runs.running) < runs.jobs:
            runs.start(waiting.pop(0))
        for case, sent, seconds, text in runs.ended():
            if not isinstance(sent, tuple):
                yield result_of(case, sent, seconds, text)
                continue
            listed, told = sent
            if told[0] != PASS or not listed:
                yield result_of(case, (*told, 0) if told[0] != PASS else (FAIL, "pytest", last_line(text), "", 0), seconds, text)
            for function, name, place, size, skipped in listed:
                found = Case(case.target, case.file, function, name, place, size)
                yield Result(found, NOT_RUN, said=skipped) if skipped else found


def run(runs: Runs, cases: list[Case], done: dict[tuple, Result]) -> Iterator[Result]:
    """The results of `cases` that are not `done`, smallest first, and those of the reduced runs of what is too large.

    Of the cases of a test that are larger than any before, one goes ahead: where it reaches the limit the others are not tried.
    """
    too_large: dict[tuple, int] = {}  # the smallest size that reached the limit
    small_enough: dict[tuple, int] = defaultdict(int)  # the largest size that did not
    for result in done.values():
        _note(result, too_large, small_enough)
    waiting = sorted((case for case in cases if case.key not in done), key=lambda c: (c.size, c.target, c.file, c.place))
    for case in cases:
        again = replace(case, reduced=True)
        if case.key in done and done[case.key].state in (LIMIT, NOT_TRIED) and again.key not in done:
            waiting.insert(0, again)
    while (waiting or runs.running) and not runs.is_over:
        ahead = {case.group for _, case, _, _ in runs.running.values() if case.size > small_enough[case.group] and not case.reduced}
        for case in list(waiting):
            if len(runs.running) >= runs.jobs:
                break
            if not case.reduced and case.size >= too_large.get(case.group, case.size + 1):
                waiting.remove(case)
                waiting.insert(0, replace(case, reduced=True))
                yield Result(case, NOT_TRIED, said="another case of this size reached the limit")
            elif case.reduced or case.size <= small_enough[case.group] or case.group not in ahead:
                waiting.remove(case)
                if not case.reduced and case.size > small_enough[case.group]:
                    ahead.add(case.group)
                runs.start(case)
        for case, sent, seconds, text in runs.ended():
            result = result_of(case, sent, seconds, text)
            _note(result, too_large, small_enough)
            if result.state == LIMIT and not case.reduced:
                waiting.insert(0, replace(case, reduced=True))
            yield result


def _note(result: Result, too_large: dict[tuple, int], small_enough: dict[tuple, int]) -> None:
    case = result.case
    if case.reduced or case.place < 0:
        return
    if result.state == LIMIT:
        too_large[case.group] = min(case.size, too_large.get(case.group, case.size))
    elif result.state not in (NOT_TRIED, NOT_RUN):
        small_enough[case.group] = max(case.size, small_enough[case.group])
