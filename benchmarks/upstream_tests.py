"""Triton's own tests on emulated GPUs: a drawn sample of the parametrisations of each test function, by upstream's assertions.

Run: `python -m benchmarks.upstream_tests FOLDER FILE[@TARGET] ... [--sample N] [--seconds S] [--results FILE]`.
FOLDER is `python/test` of a checkout of Triton, FILE a file below it, TARGET an emulated GPU (by default sm_90; a Gluon file
sm_100). Nothing of FOLDER is part of this repository. It is copied first, and `--replace OLD=NEW` changes a name in the copy,
where the tests are of another release than the Triton that is installed.

Each function's sample is drawn from `--draw` and its own name. pytest collects a file once; each case then runs in a fork of that
process, with a limit of the processor's time. `--results FILE` keeps each result, and goes on where a run was ended.

A case is *passed*, *refused* (a feature that the emulated GPU does not model), *refused by Triton* (its front end, verifier or
capacity), *not run* (it skips itself, or launches no kernel), at its *time limit*, or *failed*.

Exit status 1 where a case failed that `EXAMINED` does not name.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, parse, refuse, run_script
from benchmarks.forked_runs import Ended, forked
from benchmarks.tutorial_cases import FAIL, FILE, LIMIT, NOT_RUN, PASS, Case, Result, last_line, told
from benchmarks.tutorial_copies import copied
from benchmarks.upstream_tutorials import keep, read

SECONDS = 60.0
SAMPLE = 3
PRELOADED = ["torch", "triton.testing", "pytest", "bitverdict.harness.emulator.device", "benchmarks.upstream_tests"]


class Sampled:
    """A plugin of pytest: keeps a sample of each function's cases, and runs each in a fork of this process."""

    def __init__(self, target: str, file: str, given: argparse.Namespace, done: set, tell: Callable[[Result], None]) -> None:
        self.target, self.file, self.given, self.done, self.tell = target, file, given, done, tell
        self.cases: dict[Any, Case] = {}
        self.raised: BaseException | None = None
        self.log = Path(tempfile.mkdtemp(), "log.txt")

    def pytest_collection_modifyitems(self, items: list) -> None:
        functions = defaultdict(list)
        for item in items:
            functions[item.originalname or item.name].append(item)
        kept = []
        for name, found in functions.items():
            if self.given.test not in name:
                continue
            drawn = random.Random(f"{self.given.draw} {self.file} {name}")
            places = sorted(drawn.sample(range(len(found)), min(self.given.sample, len(found))))
            for place in places:
                case = Case(self.target, self.file, name, found[place].name, place)
                if case.key not in self.done:
                    self.cases[found[place]] = case
                    kept.append(found[place])
        items[:] = kept

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            said = str(report.longrepr).strip().splitlines()[-1].removeprefix("E").strip()
            missing = re.search(r"No module named|Could not find", said)  # of this machine
            found = (NOT_RUN, "") if missing else (FAIL, "import")
            self.tell(Result(Case(self.target, self.file, FILE, FILE, -1), *found, said))

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        case = self.cases[item]
        ended = forked(lambda: self.run(item), self.given.seconds, self.log, of_processor=True)
        self.tell(result(case, ended))
        return True

    def run(self, item: Any) -> tuple[str, str, str, str, int]:
        """(state, outcome, said, where, launches) of one case, in the fork."""
        from _pytest.runner import runtestprotocol
        from triton.runtime import driver

        device = driver.active.device
        before = len(device.launches)
        reports = runtestprotocol(item, log=False, nextitem=None)
        if self.raised is not None and not any(hasattr(report, "wasxfail") for report in reports):
            return *told(self.raised), len(device.launches) - before
        if skipped := next((report for report in reports if report.skipped), None):
            where = skipped.longrepr
            said = (
                f"expected to fail: {skipped.wasxfail}"
                if hasattr(skipped, "wasxfail")
                else str(where[2] if type(where) is tuple else where)
            )
            return NOT_RUN, "", said.removeprefix("Skipped: "), "", 0
        if not all(report.passed for report in reports):
            return FAIL, "pytest", last_line(str(reports[-1].longrepr)), "", 0
        return PASS, "", "", "", len(device.launches) - before

    def pytest_exception_interact(self, call: Any) -> None:
        self.raised = self.raised or call.excinfo.value

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        import pytest

        if call.excinfo is not None and not call.excinfo.errisinstance((pytest.skip.Exception, pytest.xfail.Exception)):
            self.raised = self.raised or call.excinfo.value


def result(case: Case, ended: Ended) -> Result:
    """The result of a case whose fork `ended`."""
    if ended.over:
        return Result(case, LIMIT, seconds=ended.seconds)
    if ended.sent is None:
        return Result(case, FAIL, "process ended", last_line(ended.text), seconds=ended.seconds)
    state, outcome, said, where, launches = ended.sent
    if state == PASS and not launches:
        state, said = NOT_RUN, "no kernel was launched"
    return Result(case, state, outcome, said[:300], where, ended.seconds, launches)


def run_file(pipe: Any, folder: str, file: str, target: str, given: argparse.Namespace, done: set) -> None:
    """The sample of one file on one target; each Result goes into `pipe` as it comes, and None at the end."""
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import pytest
    import torch

    from bitverdict.harness.emulator import LaunchOptions, emulated

    sys.stdout = open(os.devnull, "w")
    torch.set_num_threads(1)
    os.chdir(folder)
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, "--confcutdir", folder, "--tb", "short"]
    with emulated(target, options=LaunchOptions(takes_cpu_tensors=False)):
        pytest.main([*options, file], plugins=[Sampled(target, file, given, done, pipe.send)])
    pipe.send(None)


def target_of(asked: str) -> tuple[str, str]:
    """(file, target) of FILE or FILE@TARGET."""
    file, _, target = asked.partition("@")
    return file, target or ("sm_100" if "gluon/" in file else "sm_90")


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "folder/", "files+", argv=arguments, sample=Option(SAMPLE, "cases of each function"),
        draw=Option(0, "which cases"), test=Option("", "functions whose name has TEXT in it"),
        seconds=Option(SECONDS, "processor seconds of a case"), replace=Option([], "a name that has changed"), results=Path,
    )  # fmt: skip
    if not given.folder.is_dir():
        refuse(f"{given.folder}: no such folder; give python/test of a checkout of Triton")
    done = {each.case.key: each for each in read(given.results)} if given.results and given.results.exists() else {}
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "as_written")
        copied(given.folder, copy, dict(text.split("=") for text in given.replace), reduced=False)
        for file, target in map(target_of, given.files):
            if not (copy / file).is_file():
                refuse(f"{file}: no such file in {given.folder}")
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=run_file, args=(sender, str(copy), file, target, given, set(done)))
            process.start()
            sender.close()
            try:
                while (found := receiver.recv()) is not None:
                    keep(found, given.results, done)
            except EOFError:
                print(f"{file}: the process that collected it ended", file=sys.stderr)
            process.join()
    return int(any(each.state == FAIL for each in done.values()))


if __name__ == "__main__":
    run_script(main)
