"""Mutants killed per second: `python -m benchmarks.mutants --kind program` (or `source`), over all kernels or those named.

Workers of a campaign judge a draw of each kernel's mutants. The second half of the results is counted, by the time of arrival: by
then the workers hold operands, expected results and compiled programs. Time that went into killed, surviving, equivalent and other
mutants is counted apart. Kills per second are workers * kills / seconds of killed mutants. The machine should be quiet.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from statistics import median

from benchmarks.campaign import Option, parse, run_script
from benchmarks.mutation_score import generate_programs, target_of
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.mutants.campaign import PlannedMutants, judge_all
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind, MutantResult, drawn


def mutants_of(kernel: str, kind: Kind, folder: Path, jobs: int) -> list[GeneratedMutant]:
    """The mutants of `kernel` of one kind, in the order in which campaigns judge them."""
    if kind is Kind.SOURCE:
        from bitverdict.harness.mutants.source.generate import generate

        return list(drawn(generate(Kernel(kernel))))
    path = folder / f"{kernel}.jsonl"
    for _, wrong in generate_programs({path: (Kernel(kernel), target_of(kernel))}, jobs=jobs):
        if wrong:
            raise RuntimeError(f"{kernel}: {wrong}")
    return list(drawn(GeneratedMutant.from_json(json.loads(line)) for line in path.read_text().splitlines()))


def measured(kernel: str, kind: Kind, count: int, jobs: int) -> list[MutantResult]:
    """The results that are counted, of `count` mutants of `kernel`."""
    with tempfile.TemporaryDirectory() as folder:
        mutants = list(islice(mutants_of(kernel, kind, Path(folder), jobs), count))
        plan = PlannedMutants(Kernel(kernel), target_of(kernel), mutants)
        results = [each.result for each in judge_all([plan], Path(folder) / "results.jsonl", jobs=jobs)]
    return results[len(results) // 2 :]


def told(results: Sequence[MutantResult], jobs: int) -> tuple[float, str]:
    """Kills per second, and a line of the table: mutants and milliseconds of each, by end."""
    seconds: dict[End, list[float]] = defaultdict(list)
    for result in results:
        seconds[result.end].append(result.seconds)
    killed = seconds[End.KILL]
    rate = jobs * len(killed) / sum(killed) if killed else 0.0
    cells = [f"{len(seconds[end])} of {1000 * median(seconds[end]):.0f} ms" if seconds[end] else "-" for end in SHOWN]
    return rate, " | ".join([f"{rate:.1f}", *cells])


SHOWN = (End.KILL, End.SURVIVAL, End.EQUIVALENT, End.INVALID, End.ERROR)


def main(given: Sequence[str] | None = None) -> int:
    arguments = parse(
        __doc__, "kernels*", argv=given, kind=Option(str(Kind.PROGRAM), choices=[str(kind) for kind in Kind]),
        mutants=Option(80, "mutants a kernel, of which half are counted"), jobs=2,
    )  # fmt: skip
    kind, rates = Kind(arguments.kind), []
    print(f"| kernel | target | kills/s on {arguments.jobs} | {' | '.join(SHOWN)} |\n| {'--- | ' * (3 + len(SHOWN))}")
    for kernel in arguments.kernels or kernels_with_a_contract():
        rate, line = told(measured(kernel, kind, arguments.mutants, arguments.jobs), arguments.jobs)
        rates.append(rate)
        print(f"| {kernel} | {target_of(kernel).arch} | {line} |", flush=True)
    print(f"\nmedian of {len(rates)} kernels: {median(rates):.1f} kills per second")
    return 0


if __name__ == "__main__":
    run_script(main)
