"""What real values cost: launches with them beside the same launches without, in one run.

    python benchmarks/real_values.py [--rounds 7] [--only NAME] [--profile] [--markdown]

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
os.environ.setdefault("HARNESS_TRANSLATIONS", "off")

import argparse  # noqa: E402
import statistics  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.everyday_kernels import CASES  # noqa: E402
from bitverdict.harness.emulator import emulated  # noqa: E402
from bitverdict.harness.emulator.device import LaunchOptions  # noqa: E402

MEDIAN, MOST, ROUNDS, LEAST_SECONDS = 3.0, 5.0, 7, 0.02
SIDES = {"without": LaunchOptions(), "with": LaunchOptions(real_values=frozenset())}
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


def timed(launch: Launch, options: LaunchOptions, repeats: int) -> tuple[float, str]:
    """(seconds of the processor of one launch, what hangs)."""
    with emulated("sm_90", options=options) as device:
        begun = time.process_time()
        for _ in range(repeats):
            launch()
        return (time.process_time() - begun) / repeats, ", ".join(sorted({reason for reason, _ in device.hangs}))


def row(name: str, make: Callable[[], Launch], rounds: int) -> Row:
    """One kernel, both forms in turn."""
    try:
        launch = make()
        spent: dict[str, list[float]] = {side: [] for side in SIDES}
        repeats, hangs = 1, ""
        for options in SIDES.values():
            timed(launch, options, 1)
            repeats = max(repeats, int(LEAST_SECONDS / timed(launch, options, 1)[0]))
        for _ in range(rounds):
            for side, options in SIDES.items():
                seconds, hangs = timed(launch, options, repeats)
                spent[side].append(seconds)
    except Exception as error:
        return Row(name, refused=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    ratios = [with_ / without for without, with_ in zip(spent["without"], spent["with"], strict=True)]
    return Row(name, *map(statistics.median, spent.values()), statistics.median(ratios), hangs)


def told(rows: list[Row], markdown: bool) -> Iterator[str]:
    """The table, dearest first."""
    shape = "| {} | {} | {} | {} | {} |" if markdown else "{:32s} {:>10s} {:>10s} {:>6s}  {}"
    yield shape.format("kernel", "without ms", "with ms", "cost", "hangs")
    if markdown:
        yield shape.format(*["---"] * 5)
    for each in sorted((each for each in rows if not each.refused), key=lambda each: -each.cost):
        yield shape.format(each.name, f"{1e3 * each.without:.2f}", f"{1e3 * each.beside:.2f}", f"{each.cost:.2f}", each.hangs)
    for each in rows:
        if each.refused:
            yield f"not counted: {each.name}: {each.refused}"


def profile(name: str, make: Callable[[], Launch]) -> None:
    """Where a launch with real values spends its time."""
    import cProfile
    import pstats

    launch = make()
    timed(launch, SIDES["with"], 1)
    profiler = cProfile.Profile()
    profiler.enable()
    timed(launch, SIDES["with"], 20)
    profiler.disable()
    print(name)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(18)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    given = parser.parse_args()
    chosen = {name: make for name, make in CASES.items() if given.only in name}
    if given.profile:
        for name, make in chosen.items():
            profile(name, make)
        return 0
    rows = [row(name, make, given.rounds) for name, make in chosen.items()]
    for line in told(rows, given.markdown):
        print(line)
    counted = [each.cost for each in rows if not each.refused]
    median, most = statistics.median(counted), max(counted)
    print(f"{len(counted)} kernels: median {median:.2f}, most {most:.2f}")
    return int(median > MEDIAN or most > MOST)


if __name__ == "__main__":
    sys.exit(main())
