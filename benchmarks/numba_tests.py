"""Numba-CUDA's own tests on an emulated GPU: each kernel that they launch is executed as PTX, and their assertions judge it.

    python -m benchmarks.numba_tests [--target sm_80] [--only test_atomics ...]

`pip install bitverdict[numba] filecheck` brings Numba-CUDA with its tests. What they ask of a driver is answered here: ``cuda.jit``
gives a kernel of `bv.numba_kernel`, arrays stay NumPy's. A test that asks for more of the driver, or launches nothing, is left out;
one that fails is named with what it says.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import re
import signal
import sys
import types
import unittest
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import bitverdict as bv
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.ptx_machine.numba_source import NumbaKernel, compile_function

MODULES = (
    "array_args array_methods atomics blackscholes boolean casting complex complex_kernel constmem cooperative_groups device_func"
    " enums fastmath forall freevar frexp_ldexp globals idiv intrinsics lang laplace libdevice localmem mandel math matmul minmax"
    " montecarlo nondet operator optimization powi py2_div_issue random reduction slicing sm sm_creation ssa sync transpose"
    " vector_type warp_ops array iterators alignment overload recursion inline byteflow"
).split()
SECONDS = 120  # for one test


class DeviceArray(np.ndarray):
    """What ``cuda.to_device`` gives."""

    def copy_to_host(self, to: np.ndarray | None = None) -> np.ndarray:
        if to is None:
            return np.array(self)
        to[...] = self
        return to


@contextlib.contextmanager
def _numba_errors() -> Iterator[None]:
    """What Numba said, as a test expects it."""
    try:
        yield
    except BadArgument as error:
        raise error.__cause__ or error from None


class TestedKernel:
    """A kernel that a test launches. `launched` has each that was, since it was emptied."""

    launched: list[str] = []

    def __init__(self, function: Callable[..., None], signature: object, options: dict[str, Any], arch: str) -> None:
        self.kernel = NumbaKernel(function, signature, bool(options.get("fastmath")))
        self.py_func = function
        if signature:
            with _numba_errors():
                compile_function(function, signature, arch, self.kernel.is_fast)

    def __getitem__(self, shape: Any) -> Callable[..., None]:
        sizes = [tuple(map(int, each)) if isinstance(each, tuple | list) else int(each) for each in shape[:2]]
        shared = int(shape[3]) if len(shape) > 3 else 0

        def launch(*values: object) -> None:
            with _numba_errors():
                self.kernel[(*sizes, 0, shared)](*(np.asarray(each) if isinstance(each, np.ndarray) else each for each in values))
            TestedKernel.launched.append(f"{str(self.py_func.__module__).rpartition('.')[2]}.{self.py_func.__qualname__}")

        return launch

    def forall(self, count: int, *_: object, **__: object) -> Callable[..., None]:
        return self[-(-count // 128), 128]


def install(arch: str) -> None:
    """Put the emulated GPU in the place of Numba's driver."""
    from numba import cuda
    from numba.cuda.cudadrv import devices

    jit = cuda.jit
    chip = types.SimpleNamespace(compute_capability=divmod(int(arch[3:]), 10), name=b"emulated", WARP_SIZE=32, id=0)
    context = types.SimpleNamespace(device=chip, synchronize=lambda: None)

    def jit_of_kernels(first: Any = None, device: bool = False, **options: Any) -> Any:
        if device or options.get("link"):
            return jit(first, device=device, **options)
        if callable(first) and not hasattr(first, "args"):
            return TestedKernel(first, None, options, arch)
        signature = first[0] if isinstance(first, list) else first
        return lambda function: TestedKernel(function, signature, options, arch)

    def to_device(array: Any, *_: object, **__: object) -> DeviceArray:
        return np.array(array).view(DeviceArray)

    def device_array(shape: Any, dtype: Any = np.float64, **__: object) -> DeviceArray:
        return np.zeros(shape, dtype).view(DeviceArray)

    answers: dict[str, Any] = {
        "jit": jit_of_kernels,
        "to_device": to_device,
        "device_array": device_array,
        "device_array_like": lambda array: np.zeros_like(array).view(DeviceArray),
        "get_current_device": lambda: chip,
        "synchronize": lambda: None,
        "current_context": lambda: context,
    }
    for name, answer in answers.items():
        setattr(cuda, name, answer)
    devices.get_context = lambda *_: context


def run(test: unittest.TestCase) -> tuple[str, str]:
    """What a test came to ("passed", "failed", "refused", "left out") and what it said."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    TestedKernel.launched.clear()
    result = unittest.TestResult()
    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        test.run(result)
    finally:
        signal.alarm(0)
    text = "".join(text for _, text in (*result.failures, *result.errors))
    lines = text.splitlines()
    errors = [place for place, line in enumerate(lines) if re.match(r"[\w.]+(?:Error|Fault|Argument)\b", line)]
    said = " ".join(" ".join(lines[errors[-1] if errors else -1 :]).split())
    if result.skipped or not (text or TestedKernel.launched):
        return "left out", result.skipped[0][1] if result.skipped else "launches nothing"
    if not text:
        return "passed", ""
    if "BadArgument" in said or "not modelled" in said:
        return "refused", said
    if "EmulatedFault" in said or "TimeoutError" in said:
        return "failed", said
    asks_more = "driver is installed" in text or "has no attribute" in said  # of the driver than is here
    return ("failed" if result.failures and not asks_more else "left out"), said


def tests_of(suite: Any) -> list[unittest.TestCase]:
    return [suite] if isinstance(suite, unittest.TestCase) else [test for each in suite for test in tests_of(each)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="sm_80", metavar="ARCH")
    parser.add_argument("--only", nargs="*", default=[f"test_{name}" for name in MODULES], metavar="MODULE")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    install(given.target)
    outcomes: Counter[str] = Counter()
    kernels: set[str] = set()
    for name in given.only:
        try:
            module = importlib.import_module(f"numba.cuda.tests.cudapy.{name}")
        except Exception as error:
            print(f"{name}: not imported: {error}", flush=True)
            continue
        for test in tests_of(unittest.defaultTestLoader.loadTestsFromModule(module)):
            with bv.emulated(given.target):
                outcome, said = run(test)
            outcomes[outcome] += 1
            if outcome == "passed":
                kernels |= set(TestedKernel.launched)
            print(f"{outcome:9} {name}.{test._testMethodName}{': ' if said else ''}{said[:300]}", flush=True)
    print(f"{len(kernels)} kernels of {outcomes['passed']} tests pass; {dict(outcomes)}")
    return int(outcomes["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
