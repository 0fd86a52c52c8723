"""One case of a tutorial, and what a process of its own does with it: run it on the emulated GPU and say what it came to."""

from __future__ import annotations

import gc
import importlib.util
import io
import math
import os
import re
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

PASS, REFUSED, LIMIT, FAIL = "pass", "refused", "time limit", "fail"
BY_TRITON, NOT_RUN, NOT_TRIED = "refused by Triton", "not run", "not tried"
SCRIPT, FILE = "(script)", "(import)"
ASSERTION = "assertion"
CROSS = "\u274c"  # what a script prints beside a result that is wrong
POINTERS_IN_MEMORY = ("08-grouped-gemm.py",)  # whose kernels load pointers: they may lead to each tensor that lives


@dataclass(frozen=True)
class Case:
    """One test with its parameters, a script, or (place -1) a file whose tests are to be listed.

    Reduced sizes change the names of cases, so `place` says which one it is.
    """

    target: str
    file: str
    name: str  # of the test function
    case: str  # as pytest names it
    place: int  # among the cases of its test
    size: int = 0  # the product of the integers among the parameters
    reduced: bool = False

    @property
    def group(self) -> tuple:
        return self.target, self.file, self.name

    @property
    def key(self) -> tuple:
        return self.target, self.file, self.case, self.place, self.reduced


@dataclass(frozen=True)
class Result:
    """What a case came to: its state, the name of the outcome where it failed, what was said, where, and the seconds it took."""

    case: Case
    state: str
    outcome: str = ""
    said: str = ""
    where: str = ""
    seconds: float = 0.0
    launches: int = 0


def result_of(case: Case, sent: Any, seconds: float, text: str) -> Result:
    """The result of a case whose process `sent` something, or None for nothing, or LIMIT, and printed `text`."""
    if sent is None:
        return Result(case, FAIL, "process ended", last_line(text), seconds=seconds)
    if sent == LIMIT:
        return Result(case, LIMIT, seconds=seconds)
    state, outcome, said, where, launches = sent
    said, where = (re.sub(r"\S*/(?:as_written|reduced)/", "", each) for each in (said, where))
    if state == PASS and case.name == SCRIPT and (crosses := [line for line in re.split(r"[\r\n]", text) if CROSS in line]):
        state, outcome, said = FAIL, ASSERTION, crosses[0].strip()
    elif state == PASS and not launches:
        state, said = NOT_RUN, last_line(text) if case.name == SCRIPT else "no kernel was launched"
    return Result(case, state, outcome, said, where, seconds, launches)


def last_line(text: str) -> str:
    return next((line.strip()[:200] for line in reversed(text.splitlines()) if line.strip()), "")


def run_in_process(pipe: Any, log: str, folder: str, case: Case, schedule: str) -> None:
    """Send what `case` came to through `pipe`: (state, outcome, said, where, launches). Output goes to the file `log`.

    Of a case at place -1 what is sent are its file's tests, as (name, case, place, size, why it is skipped), and what it raised.
    """
    os.setsid()
    to = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(to, 1)
    os.dup2(to, 2)
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(place, "wb", 0), write_through=True) for place in (1, 2))
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    import torch

    from bitverdict.harness.emulator import LaunchOptions, emulated

    torch.set_num_threads(1)
    file = Path(folder, case.file)
    os.chdir(file.parent)
    sys.path.insert(0, str(file.parent))
    with (
        emulated(case.target.removeprefix("emulated:"), schedule, options=LaunchOptions(takes_cpu_tensors=False)) as device,
        _without_benchmarks(),
    ):
        if file.name in POINTERS_IN_MEMORY:
            device.reach(_on_the_gpu)
        if case.place < 0:
            listed = _asked(file, None)
            pipe.send((listed.listed, told(listed.raised)))
            return
        run = (lambda: _script(file)) if case.name == SCRIPT else (lambda: _test(file, case))
        with Products(device.arch) as products:
            found = run()
            if found[1] == ASSERTION and products.asked:
                products.by_tensor_core = True
                found = run()
        pipe.send((*found, len(device.launches)))


def _script(file: Path) -> tuple[str, str, str, str]:
    sys.argv = [str(file)]
    try:
        runpy.run_path(str(file), run_name="__main__")
    except _Benchmark:
        pass
    except BaseException as error:
        traceback.print_exc()
        return told(error)
    return told(None)


def _test(file: Path, case: Case) -> tuple[str, str, str, str]:
    asked = _asked(file, case)
    if asked.raised is not None:
        return told(asked.raised)
    if asked.skipped:
        return NOT_RUN, "", asked.skipped.removeprefix("Skipped: "), ""
    return (PASS, "", "", "") if asked.passed else (FAIL, "pytest", "the case was not run", "")


def told(raised: BaseException | None) -> tuple[str, str, str, str]:
    """(state, outcome, what was said, where) of what was `raised`."""
    from bitverdict.harness.judge.classify import outcome_of
    from bitverdict.harness.model.verdict import Outcome

    if raised is None:
        return PASS, "", "", ""
    if isinstance(raised, ModuleNotFoundError) and raised.name and importlib.util.find_spec(raised.name.split(".")[0]) is None:
        return NOT_RUN, "", f"the module {raised.name} is not installed", ""
    seen = outcome_of(raised)
    if seen.outcome is Outcome.NOT_MODELLED:
        return REFUSED, "", seen.message, seen.location
    if isinstance(raised, AssertionError):
        return FAIL, ASSERTION, " ".join(str(raised).split())[:200], seen.location
    if seen.layer in ("front end", "verifier", "ptxas", "capacity"):
        return BY_TRITON, seen.layer, seen.message[:300], seen.location
    return FAIL, str(seen.outcome), seen.message[:300], seen.location


class _Asked:
    """A plugin of pytest: keeps one case, or lists all; and what was raised."""

    def __init__(self, case: Case | None) -> None:
        self.case, self.passed, self.skipped = case, False, ""
        self.listed: list[tuple[str, str, int, int, str]] = []
        self.raised: BaseException | None = None

    def pytest_collection_modifyitems(self, items: list) -> None:
        from _pytest.skipping import evaluate_skip_marks

        found = Counter[str]()
        for item in list(items):
            name = item.originalname or item.name
            place, found[name] = found[name], found[name] + 1
            if self.case is not None and (self.case.name, self.case.place) != (name, place):
                items.remove(item)
                continue
            given = getattr(item, "callspec", SimpleNamespace(params={})).params
            size = math.prod(n for n in _integers(list(given.values())) if n > 1)
            skipped = evaluate_skip_marks(item)
            self.listed.append((name, item.name, place, size, skipped.reason if skipped else ""))

    def pytest_exception_interact(self, call: Any) -> None:
        self.raised = self.raised or call.excinfo.value

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.skipped:
            self.skipped = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        self.passed |= report.when == "call" and report.passed


def _asked(file: Path, case: Case | None) -> _Asked:
    """The tests of `file` as pytest finds them; of these `case` is run."""
    import pytest

    asked, only = _Asked(case), ["--collect-only"] if case is None else []
    options = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(file.parent), "--tb", "short", *only]
    pytest.main([str(file), *options], plugins=[asked])
    return asked


def _integers(value: Any) -> list[int]:
    if isinstance(value, list | tuple):
        return [n for each in value for n in _integers(each)]
    return [value] if type(value) is int else []


def _on_the_gpu() -> dict[str, Any]:
    """Each tensor of the emulated GPU that lives, by name."""
    from bitverdict.harness.emulator.cuda_tensors import CudaTensor

    return {f"tensor {number}": each for number, each in enumerate(o for o in gc.get_objects() if type(o) is CudaTensor)}


class Products:
    """Until the block ends: whether torch was `asked` for products of 16-bit floats on the emulated GPU of `arch`, and once
    `by_tensor_core` is set, those products as its tensor core takes them: one ascending chain, rounded once at the end.

    That stands for cuBLAS, which tutorials compare with more closely than another order of sums allows.
    """

    FAMILIES = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}
    FORMATS = {"torch.float16": "fp16", "torch.bfloat16": "bf16"}

    def __init__(self, arch: str) -> None:
        self.arch, self.asked, self.by_tensor_core = arch, False, False

    def __enter__(self) -> Products:
        from bitverdict.harness.emulator.cuda_tensors import CudaTensor

        self.before = vars(CudaTensor)["__torch_dispatch__"]
        dispatch = CudaTensor.__torch_dispatch__

        def answer(cls: type, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            if str(func) == "aten.mm.default" and str(args[0].dtype) in self.FORMATS:
                self.asked = True
                if self.by_tensor_core:
                    return self.product(args[0], args[1])
            return dispatch(func, types, args, kwargs)

        CudaTensor.__torch_dispatch__ = classmethod(answer)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        from bitverdict.harness.emulator.cuda_tensors import CudaTensor

        CudaTensor.__torch_dispatch__ = self.before  # type: ignore[method-assign]

    def product(self, a: Any, b: Any) -> Any:
        """a (m, k) @ b (k, n), of their type."""
        import numpy as np
        import torch

        from bitverdict.harness.emulator.cuda_tensors import inside, outside
        from bitverdict.harness.emulator.numerics.matrix_products import product

        codes = [inside(each).contiguous().view(torch.int16).numpy().view(np.uint16) for each in (a, b)]
        name, zero = self.FORMATS[str(a.dtype)], np.zeros((a.shape[0], b.shape[1]), np.uint32)  # (m, n)
        found = product(self.arch, self.FAMILIES[self.arch], (name, name, "fp32"), codes[0], codes[1], zero)
        return outside(torch.from_numpy(found).to(a.dtype))


class _Benchmark(BaseException):
    """A script has come to its benchmark, or to cuBLAS."""


class _Cublas:
    """Triton's handle of cuBLAS, as torch's product. A script ends where it asks for a block-scaled one."""

    def __init__(self, workspace: Any) -> None: ...

    def matmul(self, a: Any, b: Any, c: Any) -> None:
        """c (m, n) = a (m, k) @ b (n, k) transposed."""
        c.copy_((a.float() @ b.float().T).to(c.dtype))

    def __getattr__(self, name: str) -> Any:
        raise _Benchmark(name) if name.startswith("block_scaled") else AttributeError(name)


@contextmanager
def _without_benchmarks() -> Iterator[None]:
    """Plots, timings, the profiler and cuBLAS are out of the way until the block ends."""
    import triton.testing
    from triton._C.libtriton import nvidia

    def timed(*_: Any, quantiles: Any = None, **__: Any) -> Any:
        return 1.0 if quantiles is None else [1.0] * len(quantiles)

    def profiled(*_: Any, **__: Any) -> None:
        raise _Benchmark

    changed: list[tuple[Any, str, Any]] = [(triton.testing.Mark, "run", lambda *_, **__: None)]
    changed += [(triton.testing, name, timed) for name in vars(triton.testing) if name.startswith("do_bench")]
    changed += [(nvidia, "cublas", SimpleNamespace(CublasLt=_Cublas))]
    if importlib.util.find_spec("triton.profiler"):
        import triton.profiler

        changed += [(triton.profiler, "start", profiled)]
    before = [(place, name, getattr(place, name, None)) for place, name, _ in changed]
    for place, name, value in changed:
        setattr(place, name, value)
    try:
        yield
    finally:
        for place, name, value in before:
            setattr(place, name, value)
