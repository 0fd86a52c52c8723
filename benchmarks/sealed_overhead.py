"""What a sealed case costs beside the same case unsealed: paired, interleaved, in warm workers, on one core each.

Run: `python -m benchmarks.sealed_overhead [--cases 2] [--turns 5] [--target emulated:sm_90] [NAME ...]`. A drawn sample of
`tests/support/honest_launchers/listed.py` is judged; NAME is a part of the name of one. Each case is judged once both ways first:
that starts workers, imports, compiles and translates, and is told apart. Then both ways take turns. The ratio of a case is the
median of its sealed times by the median of the others. Printed are the ratios, their median, quartiles and the ratio of the sums;
on a busy machine the ratios of the shortest times and of the processor's time say more, because a sealed case waits for three
processes. Exit status 1 where the ratio of the sums is above `GOAL`.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from benchmarks.campaign import parse, run_script
from benchmarks.sealed_honest import cases_of
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.honest_launchers.listed import Honest, listed

GOAL = 1.20
SAMPLE, SEED = 4, 17  # launchers of each group, and what draws them


def sample(chosen: list[Honest], names: list[str]) -> list[Honest]:
    """Those whose name holds one of `names`; without any, some of each group."""
    if names:
        return [each for each in chosen if any(name in each.name for name in names)]
    draw, found = random.Random(SEED), list[Honest]()
    for group in dict.fromkeys(each.group for each in chosen):
        own = [each for each in chosen if each.group == group]
        found += draw.sample(own, min(SAMPLE, len(own)))
    return found


def processor() -> float:
    """Seconds of processor that this process and all below it have taken, as far as they live."""
    parent, taken = dict[int, int](), dict[int, float]()
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            number = int(place.name)
            parent[number] = int((place / "stat").read_text().rpartition(")")[2].split()[1])
            taken[number] = int((place / "schedstat").read_text().split()[0]) / 1e9
    total = 0.0
    for number, seconds in taken.items():
        at = number
        while at not in (0, 1, os.getpid()):
            at = parent.get(at, 0)
        total += seconds if at == os.getpid() else 0.0
    return total


def timed(pool: WorkerPool, case: Case, there: Target) -> tuple[float, float, dict[str, float]]:
    """(seconds, seconds of processor, those of each part) of one case."""
    before, begun = processor(), time.perf_counter()
    verdict = pool.judge(case, there)
    return time.perf_counter() - begun, processor() - before, verdict.seconds


def main() -> int:
    arguments = parse(__doc__, "names*", cases=2, turns=5, target="emulated:sm_90")
    there = target(arguments.target)
    shortest, worked = [0.0, 0.0], [0.0, 0.0]
    ratios, sums, first, parts = list[float](), [0.0, 0.0], [0.0, 0.0], dict[str, list[float]]()
    print(f"{'launcher':36s} {'sealed ms':>10s} {'unsealed':>9s} {'ratio':>6s}   first sealed, unsealed s")
    with tempfile.TemporaryDirectory() as folder, WorkerPool(jobs=1) as pool:
        for honest in sample(listed(Path(folder)), arguments.names):
            source = honest.source(there)
            for sealed in [] if source.unserved_reason else cases_of(honest, there, arguments.cases):
                ways = sealed, replace(sealed, sealed=False)
                begun = [timed(pool, way, there)[0] for way in ways]
                times: list[list[float]] = [[], []]
                for turn in range(arguments.turns):
                    for place in (0, 1) if turn % 2 else (1, 0):
                        took, busy, told = timed(pool, ways[place], there)
                        times[place].append(took)
                        worked[place] += busy
                        for name, seconds in told.items():
                            parts.setdefault(name, [0.0, 0.0])[place] += seconds
                one, other = (statistics.median(each) for each in times)
                ratios.append(one / other)
                for place, took in enumerate((one, other)):
                    sums[place] += took
                    shortest[place] += min(times[place])
                    first[place] += begun[place]
                print(f"{honest.name:36s} {1e3 * one:10.1f} {1e3 * other:9.1f} {one / other:6.2f}   {begun[0]:.1f}, {begun[1]:.1f}")
                sys.stdout.flush()
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
    whole = sums[0] / sums[1]
    print(f"\n{len(ratios)} cases on {there.name}, {arguments.turns} turns each")
    print(f"ratio of a case: median {middle:.2f}, quartiles {low:.2f} and {high:.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    print(f"ratio of the sums: {whole:.2f} ({1e3 * sums[0]:.0f} ms sealed, {1e3 * sums[1]:.0f} ms unsealed); goal {GOAL:.2f}")
    print(f"ratio of the sums of the shortest times: {shortest[0] / shortest[1]:.2f}")
    print(f"ratio of the processor's time: {worked[0] / worked[1]:.2f} ({worked[0]:.1f} s sealed, {worked[1]:.1f} s unsealed)")
    print(f"first of each, with starts, imports, compilation, translation: {first[0]:.1f} s sealed, {first[1]:.1f} s unsealed")
    print("parts (s, all turns, sealed and unsealed): " + ", ".join(f"{n} {a:.2f} {b:.2f}" for n, (a, b) in parts.items()))
    return int(whole > GOAL)


if __name__ == "__main__":
    run_script(main)
