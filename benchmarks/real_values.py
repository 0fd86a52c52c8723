"""What real values cost: launches with them beside the same launches without, in one run.

    python -m benchmarks.real_values [--rounds 7] [--only NAME] [--profile] [--markdown]

The kernels of `everyday_kernels.py`, and of this project the required cases of each that has a contract. Both forms of a launch
take turns in one process on one core, in seconds of the processor; the first launch of each compiles and is not timed. A row is the
median of the rounds, "cost" the median of the paired ratios. Goals (exit status 1 where one is missed): a median of at most 3 over
all kernels, none above 5.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.setdefault("BITVERDICT_TRANSLATIONS", "off")

import cProfile  # noqa: E402
import pstats  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from benchmarks.campaign import Option, parse, run_script  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.everyday_kernels import CASES  # noqa: E402
from bitverdict.harness.emulator import emulated  # noqa: E402
from bitverdict.harness.emulator.device import Device  # noqa: E402
from bitverdict.harness.judge.guarded_buffers import far_bytes  # noqa: E402
from bitverdict.harness.judge.judge import judge  # noqa: E402
from bitverdict.harness.model.paths import kernels_with_a_contract  # noqa: E402
from bitverdict.harness.model.targets import targets  # noqa: E402
from bitverdict.harness.session.case_source import CaseSource  # noqa: E402

MEDIAN, MOST, ROUNDS, LEAST_SECONDS = 3.0, 5.0, 7, 0.02
CASES_OF_EACH = 3
SIDES = (None, frozenset[str]())
Launch = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """Median seconds of a launch without real values and with them, the median of the paired ratios, what hangs; or why there is
    none."""

    name: str
    without: float = 0.0
    beside: float = 0.0
    cost: float = 0.0
    hangs: str = ""
    refused: str = ""


class Clock:
    """Seconds of the processor that launches take, of each emulated device, whatever its own options say of real values."""

    def __init__(self) -> None:
        self.real_values: frozenset[str] | None = None
        self.seconds = 0.0
        self.hangs: set[str] = set()
        run = Device.run

        def timed(device: Device, *given: Any, **named: Any) -> None:
            device.options = replace(device.options, real_values=self.real_values)
            begun = time.process_time()
            try:
                run(device, *given, **named)
            finally:
                self.seconds += time.process_time() - begun
                self.hangs |= {reason for reason, _ in device.hangs}

        Device.run = timed  # type: ignore[method-assign]

    def time(self, launch: Launch, real_values: frozenset[str] | None, repeats: int = 1) -> float:
        """Seconds of one launch."""
        self.real_values, self.seconds = real_values, 0.0
        for _ in range(repeats):
            launch()
        return self.seconds / repeats


def everyday(make: Callable[[], Launch]) -> Launch:
    """The launch that `make` makes, on a device of its own."""
    launch = make()

    def run() -> None:
        with emulated("sm_90"):
            launch()

    return run


def judged(stem: str) -> Iterator[tuple[str, Launch]]:
    """Required cases of a kernel of this project, on the first target that has what it needs, spread over all there are. Far
    operands are left out: no case carries the real values of gigabytes."""
    able = next(source for target in targets() if target.emulated and not (source := CaseSource(stem, target)).missing_features)
    cases = [case for case in able.required() if not far_bytes(able.contract.operands(case))]
    for case in cases[:: max(1, len(cases) // CASES_OF_EACH)][:CASES_OF_EACH]:
        yield f"{stem} {case.regime} {case.problem}"[:46], partial(judge, case, able.target)


def row(name: str, launch: Launch, rounds: int, clock: Clock) -> Row:
    """One kernel, both forms in turn."""
    try:
        repeats, clock.hangs = 1, set()
        for real_values in SIDES:
            clock.time(launch, real_values)
            repeats = max(repeats, int(LEAST_SECONDS / max(clock.time(launch, real_values), 1e-4)))
        spent: list[list[float]] = [[] for _ in SIDES]
        for _ in range(rounds):
            for real_values, seconds in zip(SIDES, spent, strict=True):
                seconds.append(clock.time(launch, real_values, repeats))
    except Exception as error:
        return Row(name, refused=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    if not all(map(all, spent)):
        return Row(name, refused="nothing was launched")
    ratios = [with_ / without for without, with_ in zip(*spent, strict=True)]
    return Row(name, *map(statistics.median, spent), statistics.median(ratios), ", ".join(sorted(clock.hangs)))


def told(rows: list[Row], markdown: bool) -> Iterator[str]:
    """The table, dearest first."""
    shape = "| {} | {} | {} | {} | {} |" if markdown else "{:46s} {:>10s} {:>10s} {:>6s}  {}"
    yield shape.format("kernel", "without ms", "with ms", "cost", "hangs")
    if markdown:
        yield shape.format(*["---"] * 5)
    for each in sorted((each for each in rows if not each.refused), key=lambda each: -each.cost):
        yield shape.format(each.name, f"{1e3 * each.without:.2f}", f"{1e3 * each.beside:.2f}", f"{each.cost:.2f}", each.hangs)
    for each in rows:
        if each.refused:
            yield f"not counted: {each.name}: {each.refused}"


def profile(launch: Launch, clock: Clock) -> None:
    """Where launches with real values spend their time."""
    clock.time(launch, frozenset())
    profiler = cProfile.Profile()
    profiler.enable()
    clock.time(launch, frozenset(), 20)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def main() -> int:
    given = parse(
        __doc__, rounds=ROUNDS, only="", profile=Option(False, "show where launches with real values spend their time"),
        markdown=False,
    )  # fmt: skip
    clock = Clock()
    found = [(name, everyday(make)) for name, make in CASES.items()]
    found += [
        each for stem in kernels_with_a_contract() if not given.only or given.only.split()[0] in stem for each in judged(stem)
    ]
    chosen = [(name, launch) for name, launch in found if given.only in name]
    if given.profile:
        for name, launch in chosen:
            print(name)
            profile(launch, clock)
        return 0
    rows = [row(name, launch, given.rounds, clock) for name, launch in chosen]
    for line in told(rows, given.markdown):
        print(line)
    counted = [each.cost for each in rows if not each.refused]
    median, most = statistics.median(counted), max(counted)
    print(f"{len(counted)} kernels: median {median:.2f}, most {most:.2f}")
    return int(median > MEDIAN or most > MOST)


if __name__ == "__main__":
    run_script(main)
