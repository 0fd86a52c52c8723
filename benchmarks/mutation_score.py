"""The mutation score of the shipped kernels: `python -m benchmarks.mutation_score --out DIR`. `--page FILE` prints its page.

Mutants of each kernel's source and of its tile programs are generated once, into `DIR/generated`, and judged in a drawn order until
so many of a kernel are live. A run that ends, by `--seconds` or otherwise, goes on with the same line. The exit status is 1
while mutants are left. `--worth N` judges N live ones a kernel by every required case instead: it says which earn their place.

`DIR/generated` may come from elsewhere: generating source mutants needs libcst, judging them does not.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

from benchmarks.campaign import REQUIRED_PATH, Option, append, parse, records, run_script
from benchmarks.campaign import commit as head
from bitverdict.harness.lab.pages.mutation_score import Campaign, CasesWorth, cases_worth, newest_emulated, page, share
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.mutants.campaign import BACKSTOP, PlannedMutants, judge_all, programs_in_worker
from bitverdict.harness.mutants.counts import count_ends
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import End, GeneratedMutant, Kind, MutantResult, digest_of, drawn, read
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task

CHECKOUT = Path(__file__).resolve().parents[1]
WHY: dict[str, list[str]] = json.loads((CHECKOUT / "benchmarks/mutation_survivors.json").read_text())
SURVIVORS = {mutant: why for why, mutants in WHY.items() for mutant in mutants}
"""Why a mutant, by id, survives. *Nothing to see*: what it computes is what the kernel computes, and no general rule
shows it. *Not judged*: a difference that no required case is made to show. Each was read in the source or in the tile program, but
those of `block_scaled_matmul`'s programs, given to a class. None is a proof; a mutant without a reason was not examined."""
MACHINES = {
    "sm_80": ("ampere_gemm", "pointer_gather_scatter_matmul", "grouped_matmul", "swiglu", "dropout"),
    "sm_90": ("fp8_blockwise_matmul", "split_k_matmul", "softmax", "rope", "attention", "quantize_mxfp", "matmul"),
}
"""Architecture -> kernels that are judged on it; every other one on the newest target that has its features."""
PROGRAMS, SOURCES = 120, 60
"""Live mutants of a kernel, of its tile programs and of its source: of 25 kernels together more than 3,000."""
PLACES = 4
"""A place of a tile program is drawn from where so many required cases come to it: one that few come to is a specialisation's, and
would count a statement again for each way in which it is compiled."""


def target_of(kernel: str) -> Target:
    """The emulated target that the mutants of `kernel` are judged on."""
    older = next((arch for arch, kernels in MACHINES.items() if kernel in kernels), "")
    return target(f"emulated:{older}") if older else newest_emulated(resolve(kernel))


def generate_programs(plans: Mapping[Path, tuple[Kernel, Target]], *, jobs: int = 1, cases: int = 1) -> Iterator[tuple[Path, str]]:
    """Write the mutants of each kernel's tile programs, those that its required cases launch, to the file beside it, one a line.
    Left out are places that fewer than so many `cases` come to. (file, what went wrong, if anything) as they come."""
    with WorkerPool(jobs=jobs, timeout=BACKSTOP) as pool, pool.interruptible():

        def do(item: tuple[Path, tuple[Kernel, Target]], place: int) -> tuple[Path, str]:
            path, (kernel, where) = item
            given = {"kernel": kernel.address, "like": kernel.like, "file": str(path), "cases": cases}
            address = f"{programs_in_worker.__module__}:{programs_in_worker.__name__}"
            task = Task(function=address, contract=kernel.contract_address, given=given)
            verdict = pool.judge(task, where, place=place)
            return path, "" if verdict.outcome is Outcome.PASS else f"{verdict.outcome}: {verdict.message}"

        yield from pool.spread(plans.items(), do)


def generate(out: Path, kernels: Sequence[str], jobs: int) -> None:
    """Make the files of mutants that are not there yet, or tell which could not be made."""
    (out / "generated").mkdir(parents=True, exist_ok=True)
    for kernel in kernels:
        if not (path := of_kind(out, kernel, Kind.SOURCE)).is_file():
            from bitverdict.harness.mutants.source.generate import generate

            path.write_text("".join(json.dumps(each.to_json()) + "\n" for each in generate(Kernel(kernel))))
    missing = {path: kernel for kernel in kernels if not (path := of_kind(out, kernel, Kind.PROGRAM)).is_file()}
    for path, wrong in generate_programs(
        {path: (Kernel(each), target_of(each)) for path, each in missing.items()}, jobs=jobs, cases=PLACES
    ):
        if wrong:
            print(f"{path.name}: not made: {wrong}", flush=True)


def of_kind(out: Path, kernel: str, kind: Kind) -> Path:
    """The file of a kernel's mutants of one kind."""
    return out / "generated" / f"{kernel}.{kind}.jsonl"


def planned(arguments: argparse.Namespace, kernels: Sequence[str]) -> list[PlannedMutants]:
    """What is to be judged: of each kernel, and of each kind, so many live mutants."""
    return [
        PlannedMutants(
            Kernel(kernel), target_of(kernel), list(drawn(GeneratedMutant.from_json(json.loads(line)) for line in lines)), live
        )
        for kernel in kernels
        for kind, live in ((Kind.PROGRAM, arguments.programs), (Kind.SOURCE, arguments.sources))
        if (path := of_kind(arguments.out, kernel, kind)).is_file() and (lines := path.read_text().splitlines())
    ]


def judge(arguments: argparse.Namespace) -> int:
    """Judge what is left; 1 where mutants are left then."""
    out, new = arguments.out, 0
    kernels = arguments.kernels or kernels_with_a_contract()
    generate(out, kernels, arguments.jobs)
    plans = planned(arguments, kernels)
    if arguments.generate:
        print(f"{sum(len(each.mutants) for each in plans)} mutants of {len(kernels)} kernels")
        return 0
    if arguments.worth:
        print(f"{by_every_case(arguments, plans)} judged now by every case")
        return 0
    try:
        for each in judge_all(plans, out / "results.jsonl", jobs=arguments.jobs, seconds=arguments.seconds):
            new += 1
            if each.result.end not in (End.KILL, End.INVALID):
                print(f"{each.result.end}: {each.mutant.id} ({each.mutant.file}:{each.mutant.line}) {each.result.why}", flush=True)
    finally:  # a run that Ctrl-C or a signal ends has judged too
        if new:
            noted(out, arguments.commit or head(), new)
    found = count_ends(read(out / "results.jsonl"))
    print(f"{new} judged now; of {found.live} live {found.killed_count} are killed: {share(found)}")
    return int(any(each.open for each in plans))


def by_every_case(arguments: argparse.Namespace, plans: Sequence[PlannedMutants]) -> int:
    """Judge the first live mutants of each kernel by all of its required cases; how many were judged now."""
    ends = {each.mutant.id: each.result for each in read(arguments.out / "results.jsonl")}
    sample = [
        replace(each, mutants=[mutant for mutant in each.mutants if mutant.id in ends and ends[mutant.id].live][: arguments.worth])
        for each in plans
    ]
    for each in sample:
        each.until_first, each.live, each.live_count, each.places, each.kills = False, None, 0, 0, Counter()
    return sum(1 for _ in judge_all(sample, arguments.out / "worth.jsonl", jobs=arguments.jobs, seconds=arguments.seconds))


def campaign(out: Path) -> Campaign:
    """What `out` holds."""
    judged = [each for each in read(out / "results.jsonl") if each.mutant.kernel in kernels_with_a_contract()]
    cases, lines = {}, {}
    for kernel in kernels_with_a_contract():
        required = resolve(kernel).required(target_of(kernel))
        cases[kernel] = len(required)
        lines |= {digest_of(case): describe(case) for case in required}
    reasons = {each.mutant.id: SURVIVORS.get(each.mutant.id, "") for each in judged}
    return Campaign(judged, list(runs(out)), cases, worth(out), lines, reasons)


def worth(out: Path) -> dict[str, CasesWorth]:
    """By kernel what its required cases are worth, of the mutants that all of them judged."""
    found: dict[str, list[MutantResult]] = {}
    for each in read(out / "worth.jsonl"):
        if each.result.live:
            found.setdefault(each.mutant.kernel, []).append(each.result)
    return {
        kernel: cases_worth([digest_of(case) for case in resolve(kernel).required(target_of(kernel))], results)
        for kernel, results in sorted(found.items())
    }


def runs(out: Path) -> Iterator[dict[str, str]]:
    """What was run, one a line of ``runs.jsonl``."""
    yield from records(out / "runs.jsonl")


def noted(out: Path, commit: str, mutants: int) -> None:
    """Add this run to ``runs.jsonl``."""
    import triton

    record = {
        "date": str(date.today()),
        "commit": commit,
        "machine": f"{os.cpu_count()} cores",
        "triton": triton.__version__,
        "mutants": str(mutants),
    }
    append(out / "runs.jsonl", record)


def main() -> int:
    arguments = parse(
        __doc__, out=REQUIRED_PATH, seconds=Option(float("inf"), "begin no mutant after them"),
        jobs=os.cpu_count(), programs=Option(PROGRAMS, f"live ones a kernel (default: {PROGRAMS})"),
        sources=Option(SOURCES, f"live ones a kernel (default: {SOURCES})"),
        kernels=Option(str, "default: all that have a contract", {"nargs": "*", "metavar": "STEM"}),
        worth=Option(0, "mutants a kernel that every required case judges"),
        generate=Option(False, "generate the mutants and judge none"),
        commit=Option("", "of a copy that is no checkout, for the page"), page=Path,
    )  # fmt: skip
    if arguments.page:
        arguments.page.write_text(page(campaign(arguments.out)))
        return 0
    return judge(arguments)


if __name__ == "__main__":
    run_script(main)
