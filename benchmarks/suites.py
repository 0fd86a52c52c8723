"""Suites of other people's under `pytest --emulate`, as they are, and with faults planted into the kernels under them.

Run: `python -m benchmarks.suites run FOLDER --results FILE [--suite NAME] [--only TEXT] [--sample N] [--seconds S] [--budget S]`,
`... plant FOLDER --results FILE`, `... compare FOLDER --results FILE`, and `... page FOLDER --results FILE > docs/suites.md`.
FOLDER holds a checkout a suite, by the names of `SUITES`; what their tests import (transformers, einops) must be importable.
Nothing of them is part of this repository.

pytest collects a file once; each test then runs in a fork of that process, with a limit of processor seconds. `run` takes a sample
of N cases of each test function (0: all), drawn, or with `--small` those whose parameters have the smallest product, a case of each
function before a second of any; what is over the limit is *too large*, and what was not taken, or is left when the file's budget
is spent, *not run*. A test that passes and launches nothing is told apart: it says nothing
of a kernel. With `--device NAME` a real GPU takes the same tests, in a process a
file; the page tells which of them end otherwise there. `plant` writes one fault of `tests/faults/suites.py` after another into a
copy and runs the tests that name the kernel: under `--emulate`, and in Triton's interpreter, where nothing but the test's own
assertion judges. The same tests run without a fault, for false alarms. `compare` gives a sample to the emulated GPU with an empty
cache, to it again, and to the interpreter, a process a file, as pytest does, which has imported what a session imports once: the
page compares the processor seconds of each test, and where one way was over the limit, that is the least it takes.
"""

# One file because a run, a planting and the page share the states of a test, and each is of no use without the others.

from __future__ import annotations

import gc
import importlib
import multiprocessing
import os
import pkgutil
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from itertools import zip_longest
from multiprocessing.synchronize import Lock
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.campaign import Option, append, commit, parse, records, refuse, run_script
from benchmarks.forked_runs import forked
from bitverdict.harness.model.paths import ROOT

OPTIONS = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--tb", "short"]
EMULATE = ["-p", "bitverdict.harness.frontends.pytest_options", "--emulate"]
PASSED, FAILED, FOUND, REFUSED, SKIPPED = "passed", "failed", "fault found", "refused", "skipped"
WITHOUT_LAUNCH = "passed without a launch"
LARGE, NOT_RUN, NOT_KNOWN = "too large", "not run", "not known"
ENDED, NOT_COLLECTED = "process ended", "not collected"
TO_THE_END = (PASSED, FAILED, FOUND)
WAYS = "cold", "warm", "interpreter"
IMPORTED_ONCE = (  # by a session, with what lies below
    "torch._dynamo",
    "torch.distributed.tensor",
    "bitverdict.harness.emulator",
    "bitverdict.harness.ptx_machine",
)
EXAMINED = (
    "Missed, layer_norm's variance with its padding lanes: a value, no access. It adds mean²/1023, below the test's tolerance.",
    "Missed, glu's first half read without its mask: what is read is the second half, which the launch was given too, and lies "
    "in the same storage. What a launch may reach is kept by storage, not by pointer.",
    "attorch's Conv2d: a `forward` of its own that is called with one argument more than it takes; no launch was made.",
    "attorch's Hardswish at -3 and 3: torch's gradient there is 0 and 1 since PyTorch's pull request 148049, on CPU and GPU; "
    "before, it was -0.5 and 1.5, which attorch has (its issue 16): the suite's fault, with this torch.",
    "Liger: a gradient of luspo that is too small and read past its end stands in found.md. flex attention launches nothing "
    "without torch.compile. Its rope passes beside transformers 5.17; 5.24 lacks an argument of it.",
    "The first run of Liger and of 24 planted faults there lacked nvdisasm, without which 74 tests were refused; they were run "
    "again, but for 15 of cross-entropy that the budget left out.",
    "Ours, fixed since: torch has kernels of its own for the gradients of silu and mish, and takes them apart on a device that "
    "it does not know: Liger's LlamaMLP failed in bf16. `torch.addmm` with a type for its result was refused, which its fused "
    "linear losses take.",
    "FlagGems runs on Triton 3.6.0, nearest to its commit of those that are tried: on 3.8 a block pointer has no `element_ty`, "
    "and on 3.9 there is none. Its `LibEntry` adds what heuristics and tuning give a kernel on Triton 3.3 to 3.5 alone: from "
    "the second call on, later releases are handed too few arguments (`takes 15 arguments, 11 were given`; torch turns the same"
    " into `'>' not supported`). Theirs. On the real GPU tests shared a process, where a second launch fails so; three such "
    "tests in one process fail under `--emulate` alike.",
    "Ours, fixed since: FlagGems' isclose, pad and log_sigmoid stand for operators that torch takes apart before any tensor "
    "sees them. Its dropout's test counts zeros of an unseeded draw, and fails now and then, here and there.",
    "Ours, fixed since: FlagGems' mm hands `get_device_capability` a tuple, which torch takes for the current device; and "
    "torch's `nan_to_num` of bf16 was computed in fp32, so that its greatest word rounded to infinity.",
    "FlagGems' pow of fp16 and bf16 asks libdevice for a function of two types, which Triton 3.6.0 lacks. That release leaves "
    "out a fence before wgmma, a race that the report names, in 4 of its attention tests.",
    "torchao: a stray read at kernels.py:368 stands in found.md; `scale_k[:, None]` of a scalar is refused by Triton 3.9.0.",
    "FlagGems' addmv: the test's reference adds a bias in float32 to products in float64, which `TORCH_META_FUNC(addmv)` "
    "refuses on any device: the test's fault.",
    "FlagGems: its processes of a pool and of a local function are started anew, and have no emulated GPU; `ast` ends in a "
    "SystemError of Python 3.11.",
    "attorch's attention says that it is deprecated. Its linear layer in fp32 with softsign and mish differs by more than the "
    "test allows, by 0.007 and 1.66 relative: not read. Its softplus gives fp16 under autocast, torch's for GPUs fp32.",
    "fla runs on Triton 3.7.1: on 3.9 its `chunk_delta_h` names BT in `triton.autotune`, which its kernel lacks. Of autotuned "
    "kernels the real GPU took the first configuration too. Ours, fixed since: a softplus in inline assembly was refused before"
    " a sum, its conftest replaces `torch.empty` before the first tensor, and torchvision did not import beside "
    "`torch.version.cuda`. What is too large is, where it was read (gated delta rule, 63 tokens), one kernel of which the "
    "compiler is asked register by register what it fused.",
    "vLLM: a block table that is read past its end stands in found.md. Run were the 93 files that name or import a Triton "
    "kernel of its own and are not of another vendor, of FlashInfer, CUTLASS, Marlin or the like. What failed asks for its "
    "native extension (113), CUTLASS's Python, the Hub, NVML, a CUDA build of torch, or fixtures of the engine; what was not "
    "collected for torchvision, or the extension. Ours, fixed since: `kernel.device_caches` had no entry of torch's device 0, "
    "for which test_engram asks.",
    "triton_kernels: ours, fixed since: constants of base 2, and `ex2.approx.ftz` before a sum, were refused. test_topk imports"
    " Proton, which was left out of the package there. Gluon's tutorials 07 to 14 did not import without cuBLAS, whose handle "
    "is answered since.",
    "Triton's language tests: theirs are a store past X of one element in test_annotations, and three tests whose programs "
    "meet: two load and store one word (the same word, so that nothing shows), and one takes a lock by a relaxed "
    "compare-and-swap. Ours, fixed since: a function that makes a tensor descriptor made one for all of its calls, copies "
    "that a called function leaves unused were called a race, and a compile error in a test that a package brings was "
    "called the harness's (five, refused in the table). What failed asks for a newer Triton than 3.7.1 (frontend), "
    "FileCheck, or a process of its own, which has no emulated GPU; of test_histogram's machine code, and of persistent "
    "matmuls that are too large, the cause was not read.",
    "Triton's plain tutorials as `bitverdict exec --target sm_90 FILE`, benchmarks included, Triton 3.7.1, at 373d088f to "
    "1f086aa4, two cores beside other work: to their end come 01 (58 s), 03 (73 s), 04 (7 s), 11 (63 s) and, where "
    "libdevice lies beside the checkout, 07 (10 s); what was too large of their benchmarks has the time NaN. 05 ends in the"
    " race of its lock that upstream_tutorials.md names (21 s). 02 and 06 had not ended after 400 s, in which 06 mostly "
    "draws the operands of benchmarks, and 08 not after 70 s. 10 asks for another GPU. 09 ends at its warp-specialised "
    "kernel, not judged: the compiler initialises four pairs of mbarriers that nothing uses at one place of shared memory, "
    "without invalidating one first.",
    "Ten files of fla's, run again one small case of each function, 45 to 60 s a test, at 1f086aa4 (ttt, titans, wall_attn,"
    " backends, dplr_tilelang, intracard_cache, cache, gdn_kernels, lightning_attn, solve_tril): 23 pass, 4 are too large, "
    "none is refused.",
)
"""What was read of the results, for the page."""


class Limits(NamedTuple):
    """Of a run: cases of each function (0: all), processor seconds of a test and of a file of tests (0: any), small cases alone,
    a fork for each test."""

    sample: int
    seconds: float
    budget: float = 0.0
    small: bool = False
    forks: bool = True


@dataclass(frozen=True)
class Suite:
    """A package's tests: folders that Python looks in, files of tests as a pattern, modules that all of them import, its own
    options of pytest, and a function (module:name) that is called before tests are collected."""

    tests: str
    path: tuple[str, ...] = (".",)
    preloaded: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    prepare: str = ""


SUITES = {
    "liger": Suite("test/transformers/test_*.py", ("src", "."), ("transformers",)),
    "attorch": Suite("tests/test_*.py"),
    "fla": Suite("tests/*[ep]s/test_*.py", preloaded=("transformers", "einops")),
    "flaggems": Suite("tests/test_*.py", ("src", "."), options=("--mode", "quick")),
    "triton_kernels": Suite("python/triton_kernels/tests/**/test_*.py", ("python/triton_kernels", ".")),
    "tutorials": Suite("python/tutorials/gluon/*-*.py"),
    "triton": Suite("python/test/unit/language/test_*.py"),
    "mamba": Suite("tests/ops/triton/test_*.py", preloaded=("transformers", "einops")),
    "scattermoe": Suite("tests/test_*.py"),
    "torchao": Suite("test/prototype/*/test_*kernels.py"),
    "gemlite": Suite("tests/test_*.py"),
    "vllm": Suite(
        "tests/kernels/**/test_*.py",
        preloaded=("transformers", "einops"),
        options=("-p", "benchmarks.vllm_fixtures"),  # the checkout lacks tests/conftest.py, which imports the engine
        prepare="benchmarks.corpus_vllm:prepare_platform",
    ),
}


class ForkedTests:
    """A plugin of pytest: keeps a sample of each function's cases, runs each in a fork, and tells what it came to. Without `forks`
    they run in this process, which is what a real GPU's driver asks."""

    def __init__(self, limits: Limits, tell: Callable[[dict[str, Any]], None], *, forks: bool = True, prepare: str = "") -> None:
        self.limits, self.tell, self.forks, self.prepare = limits, tell, forks, prepare
        self.log = Path(tempfile.mkdtemp(), "log.txt")
        self.spent = 0.0

    def pytest_sessionstart(self) -> None:
        if self.prepare:
            module, _, name = self.prepare.partition(":")
            getattr(importlib.import_module(module), name)()

    def pytest_collection_modifyitems(self, items: list) -> None:
        functions = defaultdict(list)
        for item in items:
            functions[item.nodeid.partition("[")[0]].append(item)
        drawn = [random.Random(name).sample(found, len(found)) for name, found in functions.items()]
        if self.limits.small:
            drawn = [sorted(found, key=size_of) for found in drawn]
        in_rounds = [item for round_ in zip_longest(*drawn) for item in round_ if item is not None]
        kept = {id(item) for found in drawn for item in found[: self.limits.sample or len(found)]}
        for item in items:
            if id(item) not in kept:
                self.tell({"test": item.nodeid, "state": NOT_RUN})
        items[:] = [item for item in in_rounds if id(item) in kept]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tell({"test": report.nodeid, "state": NOT_COLLECTED, "said": str(report.longrepr).strip().splitlines()[-1][:300]})

    def pytest_runtest_protocol(self, item: Any, nextitem: Any) -> bool:
        begun, seconds = time.process_time(), 0.0
        if self.limits.budget and self.spent > self.limits.budget:
            state: dict[str, Any] = {"state": NOT_RUN}
        elif self.forks:
            ended = forked(lambda: reports_of(item, nextitem), self.limits.seconds, self.log, of_processor=True)
            state = {"state": LARGE} if ended.over else ended.sent or {"state": ENDED, "said": ended.text[-300:]}
            seconds = ended.processor
            if ended.sent is None:
                release_locks()
        else:
            state = within(self.limits.seconds, lambda: reports_of(item, nextitem))
            seconds = time.process_time() - begun
            if state["state"] == LARGE:
                within(self.limits.seconds, lambda: torn_down(item, nextitem))
        self.spent += seconds
        self.tell({"test": item.nodeid, "seconds": round(seconds, 4), **state})
        return True


class LaunchClock:
    """The processor seconds that launches took in this process, since somebody set them to 0."""

    seconds, is_inside = 0.0, False

    def watch(self, place: str, name: str) -> None:
        """Time the method `name` of the class at `place` (module:name), by which kernels are launched."""
        module, _, owner_name = place.partition(":")
        owner = getattr(importlib.import_module(module), owner_name)
        launch = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            if self.is_inside:
                return launch(*args, **kwargs)
            self.is_inside, begun = True, time.process_time()
            try:
                return launch(*args, **kwargs)
            finally:
                self.seconds, self.is_inside = self.seconds + time.process_time() - begun, False

        setattr(owner, name, timed)


LAUNCHES = LaunchClock()


def within(seconds: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `call` gives, or *too large* where it is ended after `seconds` of the processor."""
    over = []
    begun = time.process_time()

    def end(*_: object) -> None:
        left = seconds - (time.process_time() - begun)
        if left > 0.01:
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        over.append(True)
        signal.setitimer(signal.ITIMER_REAL, 1.0)  # again each second: the test may catch it
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)  # of the processor would round the clock of processes to ticks
    try:
        state = call()
    except TimeoutError:
        state = {}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return {"state": LARGE} if over else state


def release_locks() -> None:
    """Release the locks of `multiprocessing` that a fork held when it ended: all forks share them, and this process holds none."""
    gc.unfreeze()  # what is frozen is not listed
    for lock in [each for each in gc.get_objects() if isinstance(each, Lock)]:
        lock.acquire(block=False)
        lock.release()
    gc.freeze()


def size_of(item: Any) -> int:
    """The product of the numbers among a case's parameters: which of a function's cases has the smallest tensors."""
    size, left = 1, list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    while left:
        value = left.pop()
        if isinstance(value, (tuple, list)):
            left += value
        elif isinstance(value, int):
            size *= max(abs(value), 1)
    return size


def reports_of(item: Any, nextitem: Any) -> dict[str, Any]:
    """What one test came to, in the fork."""
    from _pytest.runner import runtestprotocol

    LAUNCHES.seconds = 0.0
    reports = runtestprotocol(item, log=False, nextitem=nextitem)
    faults = [fault for report in reports for fault in getattr(report, "emulation", {}).get("faults", [])]
    counted = [report.emulation["launches"] for report in reports if hasattr(report, "emulation")]
    said = next((str(report.longrepr) for report in reports if report.longrepr), "")
    if faults:
        said = f"{faults[0]['outcome']}: {faults[0]['message']} [{Path(faults[0]['file']).name}:{faults[0]['line']}]"
        state = FOUND
    elif any(report.failed for report in reports):
        state, said = FAILED, next((line for line in reversed(said.splitlines()) if line.startswith("E ")), said[-300:])
    elif any(report.skipped for report in reports):
        state = REFUSED if "not judged" in said else SKIPPED
    else:
        state = WITHOUT_LAUNCH if counted and not sum(counted) else PASSED
    return {"state": state, "said": said[:400], "launches": sum(counted), "in_launches": round(LAUNCHES.seconds, 4)}


def torn_down(item: Any, nextitem: Any) -> dict[str, Any]:
    """Tear a test down that was ended wherever it stood, and forget what was found in it: how that ended."""
    from _pytest.runner import call_and_report

    return {"state": call_and_report(item, "teardown", log=False, nextitem=nextitem).outcome}


def serve(pipe: Any, preloaded: tuple[str, ...], way: str) -> None:
    """Run what comes through `pipe`, each time the arguments of `in_suite` but the last, in a fork; None ends it. `way`: "emulate",
    "interpreter" (Triton's runs the kernels) or "gpu"."""
    os.environ |= {"GEMS_VENDOR": "nvidia"}  # else FlagGems asks nvidia-smi, when it is imported
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TRITON_INTERPRET": str(int(way == "interpreter"))}
    import pytest  # noqa: F401
    import torch
    import triton.testing

    import bitverdict.harness.frontends.pytest_emulate  # noqa: F401

    sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != ROOT]  # its `kernels` hides Hugging Face's
    torch.set_num_threads(1)
    triton.runtime.cache.triton_key()  # of its library, once a process: as the imports no cost of a test
    for name in (*IMPORTED_ONCE, *preloaded):
        below = pkgutil.walk_packages(getattr(importlib.import_module(name), "__path__", ()), f"{name}.")
        for module in below if name.startswith("bitverdict.") else ():
            importlib.import_module(module.name)
    while (asked := pipe.recv()) is not None:
        ended = forked(lambda asked=asked: in_suite(*asked, way), 3600.0, Path(tempfile.mkdtemp(), "suite.txt"))
        said = next((line for line in reversed(ended.text.splitlines()) if line.startswith("E ")), ended.text[-300:])
        pipe.send(ended.sent or [{"test": "", "state": ENDED if ended.sent is None else NOT_COLLECTED, "said": said}])


def in_suite(
    folder: str, path: tuple[str, ...], prepare: str, arguments: list[str], limits: Limits, way: str
) -> list[dict[str, Any]]:
    """The results of pytest with `arguments` in `folder`, in the fork."""
    import pytest

    from bitverdict.harness.emulator import LaunchOptions, emulated

    os.chdir(folder)
    sys.path[:0] = [str(Path(folder, each)) for each in path]
    results: list[dict[str, Any]] = []
    LAUNCHES.watch(
        *(("triton.runtime.interpreter:GridExecutor", "__call__") if way == "interpreter" else ("triton:JITFunction", "run"))
    )
    plugins = [ForkedTests(limits, results.append, forks=way != "gpu" and limits.forks, prepare=prepare)]
    words = [*OPTIONS, "--rootdir", folder, "--confcutdir", folder, *(EMULATE if way == "emulate" else ()), *arguments]
    if way != "interpreter":
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
    """A process that has imported what a suite's tests do, and forks; `way` as `serve` takes it."""

    def __init__(self, suite: Suite, way: str = "emulate") -> None:
        self.suite = suite
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, suite.preloaded, way))
        self.process.start()

    def run(self, folder: Path, arguments: list[str], limits: Limits) -> list[dict[str, Any]]:
        self.pipe.send((str(folder), self.suite.path, self.suite.prepare, [*self.suite.options, *arguments], limits))
        return self.pipe.recv()  # type: ignore[no-any-return]

    def close(self) -> None:
        self.pipe.send(None)
        self.process.join()


def version_of(checkout: Path) -> str:
    """The commit of a suite's checkout, or what its file COMMIT says where it was packed, and the Triton that its tests run on."""
    packed = checkout / "COMMIT"
    asked = subprocess.run(["git", "-C", str(checkout), "log", "-1", "--format=%h, %as"], capture_output=True, text=True)
    commit_text = packed.read_text() if packed.exists() else asked.stdout
    return f"{commit_text.strip() or 'no checkout'}, Triton {version('triton')}"


def run_suites(given: Any, done: set) -> None:
    """A record a file of tests: its results, test by test, on the emulated GPU or on a real one."""
    what = "gpu" if given.device else "run"
    limits = Limits(given.sample, given.seconds, given.budget, given.small)
    for name, suite in SUITES.items():
        checkout = given.folder / name
        files = sorted(checkout.glob(suite.tests), key=lambda file: file.stat().st_size)
        files = [file for file in files if given.only in str(file) and (what, name, str(file.relative_to(checkout))) not in done]
        if not files or given.suite not in ("", name):
            continue
        first, count = map(int, given.part.split("/"))
        server = Server(suite, "gpu" if given.device else "emulate")
        for file in files[first::count]:
            start = time.monotonic()
            results = server.run(checkout, [str(file.relative_to(checkout))], limits)
            record = {"what": what, "suite": name, "version": version_of(checkout), "file": str(file.relative_to(checkout))}
            record |= {"device": given.device} if given.device else {}
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
        servers = {"emulate": Server(suite), "own": Server(suite, "interpreter")}
        for fault_name, (file, keyword), fault in asked:
            with tempfile.TemporaryDirectory() as folder:
                copy = Path(folder, name)
                shutil.copytree(
                    given.folder / name, copy, ignore=shutil.ignore_patterns(".git", "__pycache__", "docs"), symlinks=True
                )
                if fault is not None:
                    fault.plant(copy)
                results = {
                    way: server.run(copy, [file, "-k", keyword], Limits(0, given.seconds)) for way, server in servers.items()
                }
            key, tests = fault_name or str((file, keyword)), str((file, keyword))
            record = {"what": "plant", "suite": name, "file": key, "planted": fault is not None, "tests": tests}
            append(given.results, record | results)
            print(f"{name} {key}: { {way: told(found) for way, found in results.items()} }", file=sys.stderr, flush=True)
        for server in servers.values():
            server.close()


def compare_speed(given: Any, done: set) -> None:
    """A record a file of tests: the results of one sample by the ways of `WAYS`."""
    limits = Limits(given.sample, given.seconds, given.budget, given.small, forks=False)
    for name, suite in SUITES.items():
        checkout = given.folder / name
        files = [str(file.relative_to(checkout)) for file in sorted(checkout.glob(suite.tests)) if given.only in str(file)]
        files = [file for file in files if ("compare", name, file) not in done]
        if not files or given.suite not in ("", name):
            continue
        with tempfile.TemporaryDirectory() as cache:
            os.environ |= {"TRITON_CACHE_DIR": cache, "BITVERDICT_STATE": str(Path(cache, "state"))}
            servers = {"cold": Server(suite), "interpreter": Server(suite, "interpreter")}
            servers["warm"] = servers["cold"]
            for file in files:
                record = {"what": "compare", "suite": name, "version": version_of(checkout), "file": file}
                append(given.results, record | {way: servers[way].run(checkout, [file], limits) for way in WAYS})
                print(f"{name} {file}", file=sys.stderr, flush=True)
            servers["cold"].close()
            servers["interpreter"].close()


def beside_the_interpreter(compared: list[dict[str, Any]]) -> Iterator[str]:
    """How many times as long as `--emulate` Triton's interpreter takes, over the tests that neither fails."""
    functions: dict[tuple[str, str], list[float]] = {}
    states = Counter[str]()
    for each in compared:
        by_way = [{test["test"]: test for test in each[way]} for way in WAYS]
        for name in by_way[0].keys() & by_way[1].keys() & by_way[2].keys():
            tests = [tests_[name] for tests_ in by_way]
            ended = {test["state"] for test in tests[:2]}
            if not ended <= {PASSED, LARGE}:
                continue
            states[tests[2]["state"]] += 1
            if tests[2]["state"] == PASSED or (tests[2]["state"] == LARGE and ended == {PASSED}):
                seconds = functions.setdefault((each["suite"], name.partition("[")[0]), [0.0] * 4)
                taken = [*(test["seconds"] for test in tests), tests[2].get("in_launches", 0.0)]
                seconds[:] = [sum(pair) for pair in zip(seconds, taken, strict=True)]
    if not functions:
        return
    yield "\n## Beside Triton's interpreter\n"
    others = ", ".join(f"{state} {count}" for state, count in states.most_common() if state != PASSED) or "all"
    yield f"Of {states.total()} tests that `--emulate` does not fail {states[PASSED]} pass in the interpreter ({others}):"
    yield f"{len(functions)} functions. Processor seconds of a test, its fixtures and its reference included; of one that is over"
    yield "the limit, the limit. The last column is the median ratio that launches would have which take no time, over the"
    yield "functions that the interpreter comes to the end of: the rest is the test's own.\n"
    yield "| suite | cache | functions | median ratio | ratio of the sums | not slower | slower | or faster | in no time |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | --- | --- | ---: |"
    for suite in (*dict.fromkeys(suite for suite, _ in functions), ""):
        mine = {name: seconds for (each, name), seconds in functions.items() if suite in ("", each)}
        for place, way in enumerate(WAYS[:2]):
            ratios = {name.rpartition("::")[2]: seconds[2] / max(seconds[place], 0.001) for name, seconds in mine.items()}
            lists = [[f"{name} ({ratio:.2f})" for name, ratio in ratios.items() if (ratio >= 1) == side] for side in (False, True)]
            not_slower, shorter = f"{len(lists[1])} ({len(lists[1]) / len(ratios):.0%})", min(lists, key=len)
            named = (", ".join(each) if suite and each is shorter else "" for each in lists)  # the shorter list tells the other too
            whole = sum(seconds[2] for seconds in mine.values()) / sum(seconds[place] for seconds in mine.values())
            figures = f"{len(ratios)} | {statistics.median(ratios.values()):.1f} | {whole:.1f} | {not_slower} | {' | '.join(named)}"
            without = [seconds[2] / (seconds[2] - seconds[3]) for seconds in mine.values() if 0 < seconds[3] < seconds[2]]
            yield f"| {suite or 'all'} | {way} | {figures} | {statistics.median(without or [0]):.1f} |"


def told(results: list[dict[str, Any]]) -> str:
    """The worst state of `results`, without those that were not run."""
    states = {each["state"] for each in results}
    worst = (FOUND, FAILED, ENDED, NOT_COLLECTED, LARGE, REFUSED, PASSED, WITHOUT_LAUNCH, SKIPPED)
    return next((state for state in worst if state in states), NOT_RUN)


def sentence(said: str) -> str:
    """What was said, on one line, without folders, addresses and times of the machine."""
    return re.sub(r"/\S*/| at 0x[0-9a-f]+| in [\d.]+s\b", "", " ".join(said.split()))


def on_gpu(runs: list[dict[str, Any]], on_real: list[dict[str, Any]]) -> Iterator[str]:
    """Which tests end otherwise on a real GPU than under `--emulate`."""
    here, there = (
        {(each["suite"], test["test"]): test for each in records_ for test in each["tests"] if test["state"] in TO_THE_END}
        for records_ in (runs, on_real)
    )
    both = [name for name in here if name in there]
    if not both:
        return
    devices = "; ".join(sorted({each["device"] for each in on_real}))
    well_here, well_there = ({name for name in both if found[name]["state"] == PASSED} for found in (here, there))
    yield f"\n{len(both):,} of them were run on a real GPU too ({devices}), where {len(well_there):,} pass. Of those"
    yield f"{len(well_there - well_here):,} do not pass here, and {len(well_here - well_there):,} pass here alone:\n"
    for where, other, found in (("here", well_there - well_here, here), ("there", well_here - well_there, there)):
        for name in sorted(other):
            yield f"- {name[0]}, `{name[1]}`: {found[name]['state']} {where}: {sentence(found[name]['said'])[:200]}"


def page(given: Any) -> Iterator[str]:
    """docs/suites.md, from the results."""
    everything = records(given.results)
    runs, planted = ([each for each in everything if each["what"] == what] for what in ("run", "plant"))
    yield "# Other people's suites under `pytest --emulate`\n"
    yield f"Printed by `python -m benchmarks.suites page` at {commit()}, from the results of its `run` and `plant`. {given.of}\n"
    columns = (PASSED, FAILED, FOUND, REFUSED, LARGE, ENDED, WITHOUT_LAUNCH, SKIPPED, NOT_RUN, NOT_COLLECTED)
    yield f"| suite | commit | files | tests | {' | '.join(columns)} | launches | seconds | run to an end |"
    yield f"| --- | --- | {' | '.join(['---:'] * (len(columns) + 5))} |"
    for suite in (*SUITES, ""):
        mine = [each for each in runs if suite in ("", each["suite"])]
        states = Counter(test["state"] for each in mine for test in each["tests"])
        if not mine:
            continue
        seconds, launches = (sum(test.get(what, 0) for each in mine for test in each["tests"]) for what in ("seconds", "launches"))
        counts = " | ".join(f"{states[state]:,}" if states[state] else "" for state in columns)
        begun = sum(states[state] for state in columns[:6])
        to_the_end = f"{sum(states[state] for state in TO_THE_END):,} of {begun:,}"
        name = f"{suite} | {mine[0]['version']}" if suite else "all | "
        yield f"| {name} | {len(mine)} | {states.total():,} | {counts} | {launches:,} | {seconds:,.0f} | {to_the_end} |"
    yield from on_gpu(runs, [each for each in everything if each["what"] == "gpu"])
    yield from beside_the_interpreter([each for each in everything if each["what"] == "compare"])
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
        __doc__, "what=run|plant|compare|page", "folder/", argv=arguments, suite="", only="",
        sample=Option(0, "cases of each function"), seconds=Option(60.0, "the limit of a test, in processor seconds"),
        small=Option(False, "of each function the cases with the smallest parameters, none drawn"),
        part=Option("0/1", "files number K, K + N, ... of each suite, for one of N processes: K/N"),
        device=Option("", "a real GPU instead, as the page calls it"),
        budget=Option(0.0, "processor seconds of a file of tests, after which no test begins"),
        results=Option(Path, more={"required": True}), of=Option("", "machine and date"),
    )  # fmt: skip
    if not given.folder.is_dir():
        refuse(f"{given.folder}: no such folder; give one that holds checkouts: {', '.join(SUITES)}")
    given.folder = given.folder.resolve()
    done = {(each["what"], each["suite"], each["file"]) for each in records(given.results)}
    if given.what == "page":
        print("\n".join(page(given)))
    else:
        {"run": run_suites, "plant": plant_faults, "compare": compare_speed}[given.what](given, done)
    return 0


if __name__ == "__main__":
    run_script(main)
