"""Suites of other people's under `pytest --emulate`, as they are, and with faults planted into the kernels under them.

Run: `python -m benchmarks.suites run FOLDER --results FILE [--suite NAME] [--only TEXT] [--sample N] [--seconds S]`,
`... plant FOLDER --results FILE`, and `... page FOLDER --results FILE > docs/suites.md`. FOLDER holds a checkout a suite, by the
names of `SUITES`; what their tests import (transformers, einops) must be importable. Nothing of them is part of this repository.

pytest collects a file once; each test then runs in a fork of that process, with a time limit. `run` takes a sample of N cases of
each test function (0: all); what is over the limit is *too large*, and what was not drawn *not run*. `plant` writes one fault of
`tests/faults/suites.py` after another into a copy and runs the tests that name the kernel: under `--emulate`, and in Triton's
interpreter, where nothing but the test's own assertion judges. The same tests run without a fault, for false alarms.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, append, commit, parse, records, refuse, run_script
from benchmarks.forked_runs import forked

OPTIONS = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--tb", "short"]
EMULATE = ["-p", "bitverdict.harness.frontends.pytest_options", "--emulate"]
PASSED, FAILED, FOUND, REFUSED, SKIPPED = "passed", "failed", "fault found", "refused", "skipped"
LARGE, NOT_RUN, NOT_KNOWN = "too large", "not run", "not known"
ENDED, NOT_COLLECTED = "process ended", "not collected"
EXAMINED = (
    "Missed, layer_norm's variance with its padding lanes: a value, no access. It adds mean²/1023, below the test's tolerance.",
    "Missed, glu's first half read without its mask: what is read is the second half, which the launch was given too, and lies in "
    "the same storage. What a launch may reach is kept by storage, not by pointer.",
    "attorch's Conv2d: a `forward` of its own that is called with one argument more than it takes; no launch was made.",
    "attorch's Hardswish at -3 and 3: not read to its cause.",
    "fla at this commit names a parameter in `triton.autotune` that its kernel lacks, which Triton 3.9 refuses at import.",
)
"""What was read of the results, for the page."""


@dataclass(frozen=True)
class Suite:
    """A package's tests: folders that Python looks in, files of tests as a pattern, modules that all of them import."""

    tests: str
    path: tuple[str, ...] = (".",)
    preloaded: tuple[str, ...] = ()


SUITES = {
    "liger": Suite("test/transformers/test_*.py", ("src", "."), ("transformers",)),
    "attorch": Suite("tests/test_*.py"),
    "fla": Suite("tests/[mo][op][ds]*/test_*.py", preloaded=("transformers", "einops")),
    "flaggems": Suite("tests/test_*.py", ("src", ".")),
    "tutorials": Suite("python/tutorials/*.py"),
}


class ForkedTests:
    """A plugin of pytest: keeps a sample of each function's cases, runs each in a fork, and tells what it came to."""

    def __init__(self, sample: int, seconds: float, tell: Callable[[dict[str, Any]], None]) -> None:
        self.sample, self.seconds, self.tell = sample, seconds, tell
        self.log = Path(tempfile.mkdtemp(), "log.txt")

    def pytest_collection_modifyitems(self, items: list) -> None:
        functions = defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        drawn = {
            id(item)
            for name, found in functions.items()
            for item in (random.Random(name).sample(found, min(self.sample, len(found))) if self.sample else found)
        }
        for item in items:
            if id(item) not in drawn:
                self.tell({"test": item.nodeid, "state": NOT_RUN})
        items[:] = [item for item in items if id(item) in drawn]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tell({"test": report.nodeid, "state": NOT_COLLECTED, "said": str(report.longrepr).strip().splitlines()[-1][:300]})

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        ended = forked(lambda: reports_of(item, nextitem), self.seconds, self.log)
        state = {"state": LARGE} if ended.over else ended.sent or {"state": ENDED, "said": ended.text[-300:]}
        self.tell({"test": item.nodeid, "seconds": round(ended.seconds, 2), **state})
        return True


def reports_of(item: Any, nextitem: Any) -> dict[str, Any]:
    """What one test came to, in the fork."""
    from _pytest.runner import runtestprotocol

    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    faults = [fault for report in reports for fault in getattr(report, "emulation", {}).get("faults", [])]
    launches = sum(getattr(report, "emulation", {}).get("launches", 0) for report in reports)
    said = next((str(report.longrepr) for report in reports if report.longrepr), "")
    if faults:
        said = f"{faults[0]['outcome']}: {faults[0]['message']} [{Path(faults[0]['file']).name}:{faults[0]['line']}]"
        state = FOUND
    elif any(report.failed for report in reports):
        state, said = FAILED, next((line for line in reversed(said.splitlines()) if line.startswith("E ")), said[-300:])
    elif any(report.skipped for report in reports):
        state = REFUSED if "not judged" in said else SKIPPED
    else:
        state = PASSED
    return {"state": state, "said": said[:400], "launches": launches}


def serve(pipe: Any, preloaded: tuple[str, ...], options: list[str]) -> None:
    """Run what comes through `pipe`, (folder, path, arguments of pytest, sample, seconds), each in a fork; None ends it. Without
    `options` Triton's interpreter runs the kernels."""
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TRITON_INTERPRET": "0" if options else "1"}
    import pytest  # noqa: F401
    import torch
    import triton.testing  # noqa: F401

    import bitverdict.harness.frontends.pytest_emulate  # noqa: F401

    torch.set_num_threads(1)
    for name in preloaded:
        __import__(name)
    while (asked := pipe.recv()) is not None:
        ended = forked(lambda asked=asked: in_suite(*asked, options), 3600.0, Path(tempfile.mkdtemp(), "suite.txt"))
        said = next((line for line in reversed(ended.text.splitlines()) if line.startswith("E ")), ended.text[-300:])
        pipe.send(ended.sent or [{"test": "", "state": ENDED if ended.sent is None else NOT_COLLECTED, "said": said}])


def in_suite(
    folder: str, path: tuple[str, ...], arguments: list[str], sample: int, seconds: float, options: list[str]
) -> list[dict[str, Any]]:
    """The results of pytest with `arguments` in `folder`, in the fork."""
    import pytest

    from bitverdict.harness.emulator import LaunchOptions, emulated

    os.chdir(folder)
    sys.path[:0] = [str(Path(folder, each)) for each in path]
    results: list[dict[str, Any]] = []
    plugins = [ForkedTests(sample, seconds, results.append)]
    words = [*OPTIONS, "--rootdir", folder, "--confcutdir", folder, *options, *arguments]
    if options:
        pytest.main(words, plugins=plugins)
    else:  # nothing but the tests' own assertions: Triton's interpreter takes the launches
        _let_floats_be_tensors()
        with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)):
            pytest.main(words, plugins=plugins)
    return results


def _let_floats_be_tensors() -> None:
    """Triton's interpreter hands a kernel a float as Python's; a compiled one gets a scalar of fp32, which has `to`."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    convert = interpreter._implicit_cvt

    def converted(argument: Any) -> Any:
        if type(argument) is not float:
            return convert(argument)
        return tl.tensor(interpreter.TensorHandle(np.array([argument], np.float32), tl.float32), tl.float32)

    interpreter._implicit_cvt = converted


class Server:
    """A process that has imported what a suite's tests do, and forks. `interpreter`: Triton's, in the emulated GPU's place."""

    def __init__(self, suite: Suite, *, interpreter: bool = False) -> None:
        self.suite = suite
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, suite.preloaded, [] if interpreter else EMULATE))
        self.process.start()

    def run(self, folder: Path, arguments: list[str], sample: int, seconds: float) -> list[dict[str, Any]]:
        self.pipe.send((str(folder), self.suite.path, arguments, sample, seconds))
        return self.pipe.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()


def version_of(checkout: Path) -> str:
    """The commit of a suite's checkout, and the Triton that its tests run on."""
    asked = subprocess.run(["git", "-C", str(checkout), "log", "-1", "--format=%h, %as"], capture_output=True, text=True)
    return f"{asked.stdout.strip() or 'no checkout'}, Triton {version('triton')}"


def run_suites(given: Any, done: set) -> None:
    """A record a file of tests: its results, test by test."""
    for name, suite in SUITES.items():
        checkout = given.folder / name
        files = sorted(checkout.glob(suite.tests), key=lambda file: file.stat().st_size)
        files = [file for file in files if given.only in str(file) and ("run", name, str(file.relative_to(checkout))) not in done]
        if not files or given.suite not in ("", name):
            continue
        server = Server(suite)
        for file in files:
            start = time.monotonic()
            results = server.run(checkout, [str(file.relative_to(checkout))], given.sample, given.seconds)
            record = {"what": "run", "suite": name, "version": version_of(checkout), "file": str(file.relative_to(checkout))}
            append(
                given.results, record | {"seconds": round(time.monotonic() - start, 1), "sample": given.sample, "tests": results}
            )
            print(f"{name} {file.name}: {dict(Counter(each['state'] for each in results))}", file=sys.stderr, flush=True)
        server.close()


def plant_faults(given: Any, done: set) -> None:
    """A record a fault, and one for each selection of tests without any."""
    from tests.faults.suites import FAULTS

    for name, suite in SUITES.items():
        faults = [each for each in FAULTS if each.suite == name and given.only in each.name]
        selections = dict.fromkeys(("", each.tests) for each in faults)
        asked = [(fault.name, fault.tests, fault) for fault in faults] + [(no, tests, None) for no, tests in selections]
        asked = [each for each in asked if ("plant", name, each[0] or str(each[1])) not in done]
        if not asked or given.suite not in ("", name):
            continue
        servers = {"emulate": Server(suite), "own": Server(suite, interpreter=True)}
        for fault_name, (file, keyword), fault in asked:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder, name)
                shutil.copytree(
                    given.folder / name, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "docs"), symlinks=True
                )
                if fault is not None:
                    fault.plant(copy)
                results = {way: server.run(copy, [file, "-k", keyword], 0, given.seconds) for way, server in servers.items()}
            key = fault_name or str((file, keyword))
            append(
                given.results,
                {
                    "what": "plant",
                    "suite": name,
                    "file": key,
                    "planted": fault is not None,
                    "tests": str((file, keyword)),
                    **results,
                },
            )
            print(f"{name} {key}: { {way: told(found) for way, found in results.items()} }", file=sys.stderr, flush=True)
        for server in servers.values():
            server.close()


def told(results: list[dict[str, Any]]) -> str:
    """The worst state of `results`, without those that were not run."""
    states = {each["state"] for each in results}
    worst = (FOUND, FAILED, ENDED, NOT_COLLECTED, LARGE, REFUSED, PASSED, SKIPPED)
    return next((state for state in worst if state in states), NOT_RUN)


def sentence(said: str) -> str:
    """What was said, on one line, without folders and addresses of the machine."""
    return re.sub(r"/\S*/| at 0x[0-9a-f]+", "", " ".join(said.split()))


def page(given: Any) -> Iterator[str]:
    """docs/suites.md, from the results."""
    everything = records(given.results)
    runs, planted = ([each for each in everything if each["what"] == what] for what in ("run", "plant"))
    yield "# Other people's suites under `pytest --emulate`\n"
    yield f"Printed by `python -m benchmarks.suites page` at {commit()}, from the results of its `run` and `plant`. {given.of}\n"
    columns = (PASSED, FAILED, FOUND, REFUSED, LARGE, SKIPPED, NOT_RUN, NOT_COLLECTED, ENDED)
    yield f"| suite | commit | files | tests | {' | '.join(columns)} | seconds |"
    yield f"| --- | --- | {' | '.join(['---:'] * (len(columns) + 3))} |"
    for suite in SUITES:
        if not (mine := [each for each in runs if each["suite"] == suite]):
            continue
        states = Counter(test["state"] for each in mine for test in each["tests"])
        seconds = sum(test.get("seconds", 0.0) for each in mine for test in each["tests"])
        counts = " | ".join(f"{states[state]:,}" if states[state] else "" for state in columns)
        yield f"| {suite} | {mine[0]['version']} | {len(mine)} | {states.total():,} | {counts} | {seconds:,.0f} |"
    yield "\nWhat did not pass:\n"
    for each in runs:
        wrong = [test for test in each["tests"] if test["state"] in (FAILED, FOUND, ENDED, REFUSED, NOT_COLLECTED)]
        sentences = Counter((test["state"], test.get("said", "")[:220]) for test in wrong)
        for (state, said), count in sentences.most_common(4):
            yield f"- {each['suite']}, {each['file']}: {state} ({count}): {sentence(said)}".replace("|", "\\|")
    faults = [each for each in planted if each["planted"]]
    right = {each["file"]: each for each in planted if not each["planted"]}
    judged_by_own = {file for file, each in right.items() if told(each["own"]) == PASSED}
    own = {each["file"]: told(each["own"]) if each["tests"] in judged_by_own else NOT_KNOWN for each in faults}
    found = [each for each in faults if told(each["emulate"]) in (FOUND, FAILED)]
    alarms = [file for file, each in right.items() if told(each["emulate"]) != PASSED]
    yield "\n## Planted faults\n"
    count = Counter(own.values())
    yield f"`--emulate` finds {len(found)} of {len(faults)}. By the tests' own assertions, in Triton's interpreter,"
    yield f"{count[FAILED]} fail and"
    yield f"{count[PASSED]} pass; {count[ENDED]} end the interpreter's process, which writes where they say; of {count[NOT_KNOWN]}"
    yield "it is not known, because the interpreter fails these tests without a fault too."
    yield f"Without a fault {len(alarms)} of {len(right)} selections of tests do not pass under `--emulate`.\n"
    yield from (f"- {each}" for each in EXAMINED)
    yield "\n| suite | fault | under `--emulate` | said | the test's own assertion |"
    yield "| --- | --- | --- | --- | --- |"
    for each in faults:
        worst = told(each["emulate"])
        said = next((test.get("said", "") for test in each["emulate"] if test["state"] == worst), "")
        cells = (each["suite"], f"`{each['file']}`", worst, sentence(said)[:140], own[each["file"]])
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def main(arguments: list[str] | None = None) -> int:
    given = parse(
        __doc__, "what=run|plant|page", "folder/", argv=arguments, suite="", only="",
        sample=Option(0, "cases of each function"), seconds=Option(60.0, "the limit of a test"),
        results=Option(Path, more={"required": True}), of=Option("", "machine and date"),
    )  # fmt: skip
    if not given.folder.is_dir():
        refuse(f"{given.folder}: no such folder; give one that holds checkouts: {', '.join(SUITES)}")
    given.folder = given.folder.resolve()
    done = {(each["what"], each["suite"], each["file"]) for each in records(given.results)}
    if given.what == "page":
        print("\n".join(page(given)))
    elif given.what == "run":
        run_suites(given, done)
    else:
        plant_faults(given, done)
    return 0


if __name__ == "__main__":
    run_script(main)
