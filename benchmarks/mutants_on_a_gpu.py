"""The same source mutants on a real GPU and on the emulated GPU of its architecture: every difference between the two outcomes.

    python -m benchmarks.mutants_on_a_gpu --generate FILE --count 520 [--seed 0]           # here: needs libcst, no GPU
    python -m benchmarks.mutants_on_a_gpu --mutants FILE --count 520 --seconds 420 --out DIR    # beside a GPU: needs no libcst
    python -m benchmarks.mutants_on_a_gpu --table DIR                                       # prints the tables

A mutant is judged on the emulated GPU until a case fails. That case is then launched on the GPU; of a survivor the first two cases
that reach its edit are. Each launch has a worker that may die; one that hangs is ended after `--timeout` seconds, and the next
worker has to pass a launch of its own before it gets a case. `--count` are launched on the GPU; what the compiler refuses is not
counted. The right kernel is launched in each case first, once in a process.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.campaign import Option, append, parse, records, run_script
from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.targets import target as target_called
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, digest_of, drawn
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

MODULE = "benchmarks.mutants_on_a_gpu"  # which workers import
ARCH = "sm_90"
TOGETHER = 8  # mutants of one kernel that a place judges before it takes others
MOST_CASES = 32  # required cases of a kernel, evenly chosen
SURVIVORS_CASES = 2
SPARE = 1.6  # mutants that are generated for each that is to be launched: some do not compile


@dataclass(frozen=True)
class Pair:
    """One mutant in one case: what came on the emulated GPU, and on the real one. "passes" where nothing failed."""

    mutant: str
    line: str
    case: str
    told: str
    emulated: str
    real: str
    emulated_said: str
    real_said: str

    @property
    def differs(self) -> bool:
        return self.emulated != self.real


def kernels() -> list[str]:
    """The shipped kernels that the architecture can run."""
    features = target_called(f"emulated:{ARCH}").features
    return [stem for stem in kernels_with_a_contract() if resolve(stem).requires <= features]


def generate(path: Path, count: int, seed: int) -> None:
    """Write enough mutants of all kernels for `count` launches, an equal share of each kernel."""
    from bitverdict.harness.mutants.source.generate import generate as of_source

    stems = kernels()
    share = int(SPARE * count / len(stems)) + 1
    found = [each.to_json() for stem in stems for each, _ in zip(drawn(of_source(Kernel(stem)), seed), range(share))]
    path.write_text("".join(json.dumps(each) + "\n" for each in found))
    print(f"{len(found)} mutants of {len(stems)} kernels: {path}")


# -- in a worker ----------------------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def _under(stem: str, name: str) -> tuple[KernelUnderMutation, dict[str, Case]]:
    kernel = Kernel(stem)
    cases = kernel.cases(target_called(f"emulated:{ARCH}"))
    chosen = cases[:: max(1, -(-len(cases) // MOST_CASES))]
    return KernelUnderMutation(kernel, target_called(name)), {digest_of(case): case for case in chosen}


def on_the_emulated(target: Target, given: Mapping[str, Any]) -> Verdict:
    """The task of an emulated worker: what came of a mutant, and the cases that reach its edit."""
    mutant = GeneratedMutant.from_json(given["mutant"])
    under, cases = _under(mutant.kernel, target.name)
    result = under.judge(mutant, list(cases.values()))
    right = under.source.cases
    reached = [
        digest
        for digest, case in cases.items()
        if case in right and right.right_case(case).passes and right.right_case(case).reaches(mutant, right.entered)
    ]
    first = [result.killed_by] if result.killed_by else reached[:SURVIVORS_CASES]
    found = {"result": result.to_json(), "cases": {digest: describe(cases[digest]) for digest in first}}
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})


def on_the_gpu(target: Target, given: Mapping[str, Any]) -> Verdict:
    """The task of a GPU's worker: the verdict on a mutant in one case. An error where the right kernel does not pass it."""
    mutant = GeneratedMutant.from_json(given["mutant"])
    under, cases = _under(mutant.kernel, target.name)
    case = cases[given["case"]]
    right = _right(mutant.kernel, target.name, given["case"])
    if right.decision is not Decision.PASS:
        said = f"the right kernel: {right.outcome}: {right.message}"
        return Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message=said)
    return judge(case, target, under.contract(mutant), explained=False)


@lru_cache(maxsize=256)
def _right(stem: str, name: str, digest: str) -> Verdict:
    under, cases = _under(stem, name)
    return judge(cases[digest], target_called(name), under.right, explained=False)


# -- the campaign -----------------------------------------------------------------------------------------------------------
class Campaign:
    """`count` mutants launched on `gpu` within `seconds`, by `jobs` places; what came of each goes to `out` at once."""

    def __init__(self, pool: WorkerPool, gpu: Target, out: Path, count: int, seconds: float) -> None:
        self.pool, self.gpu, self.count = pool, gpu, count
        self.emulated = target_called(f"emulated:{ARCH}")
        self.until = time.monotonic() + seconds
        self.launched: set[str] = set()
        self.ends: Counter[str] = Counter()
        self.pairs = out / "pairs.jsonl"
        self._lock = threading.Lock()

    @property
    def over(self) -> bool:
        return time.monotonic() > self.until or len(self.launched) >= self.count

    def judge(self, mutants: Sequence[GeneratedMutant], place: int) -> None:
        for mutant in mutants:
            if self.over:
                return
            for pair in self._pairs(mutant, place):
                with self._lock:
                    self.launched.add(mutant.id)
                    append(self.pairs, asdict(pair))

    def _pairs(self, mutant: GeneratedMutant, place: int) -> Iterator[Pair]:
        verdict = self._asked(on_the_emulated.__name__, mutant, {}, self.emulated, place)
        found = task_result_of(verdict)
        if found is None:
            self.ends[f"emulated: {verdict.outcome}"] += 1
            return
        result = found["result"]
        self.ends[result["end"]] += 1
        if result["end"] in (End.INVALID, End.ERROR):
            return
        for digest, told in found["cases"].items():
            real = self._asked(on_the_gpu.__name__, mutant, {"case": digest}, self.gpu, place)
            if real.decision is Decision.ERROR:
                self.ends[f"GPU: {real.message[:80]}"] += 1
            yield Pair(
                mutant=mutant.id,
                line=f"{mutant.file}:{mutant.line}: {mutant.before} -> {mutant.after}",
                case=digest,
                told=told,
                emulated=result["outcome"] or "passes",
                real=outcome_of(real),
                emulated_said=(result["message"] or result["why"])[:300],
                real_said=f"{real.message} ({real.location})"[:300] if real.decision is not Decision.PASS else "",
            )

    def _asked(self, name: str, mutant: GeneratedMutant, more: dict, target: Target, place: int) -> Verdict:
        given = {"mutant": mutant.to_json(), **more}
        return self.pool.judge(Task(function=f"{MODULE}:{name}", contract=mutant.kernel, given=given), target, place=place)


def outcome_of(verdict: Verdict) -> str:
    """ "passes", or what failed."""
    return "passes" if verdict.decision is Decision.PASS else str(verdict.outcome)


def run(arguments: argparse.Namespace) -> int:
    arguments.out.mkdir(parents=True, exist_ok=True)
    gpu = target_called(arguments.target)
    by_kernel: dict[str, list[GeneratedMutant]] = {}
    for each in map(GeneratedMutant.from_json, records(arguments.mutants)):
        by_kernel.setdefault(each.kernel, []).append(each)
    begun = time.monotonic()
    with WorkerPool(jobs=arguments.jobs, timeout=arguments.timeout) as pool, pool.interruptible():
        campaign = Campaign(pool, gpu, arguments.out, arguments.count, arguments.seconds)
        for _ in pool.spread(list(in_turns(by_kernel.values())), lambda mutants, place: campaign.judge(mutants, place)):
            if campaign.over:
                break
    print(f"{len(campaign.launched)} mutants launched on {gpu.model or gpu.name} in {time.monotonic() - begun:.0f} s")
    print(f"of all that were generated and judged: {dict(campaign.ends)}")
    print(table(arguments.out))
    return 0


def in_turns(groups: Iterable[list[GeneratedMutant]]) -> Iterator[list[GeneratedMutant]]:
    """Some mutants of each kernel, then some more of each."""
    left = [list(group) for group in groups]
    while any(left):
        for group in left:
            if group:
                yield group[:TOGETHER]
                del group[:TOGETHER]


def table(out: Path) -> str:
    """How many pairs came to which outcomes, and each that differs."""
    pairs = [Pair(**record) for record in records(out / "pairs.jsonl")]
    mutants = {pair.mutant for pair in pairs}
    counts = Counter((pair.emulated, pair.real) for pair in pairs)
    lines = [f"{len(mutants)} mutants, {len(pairs)} launches; {sum(pair.differs for pair in pairs)} launches differ", ""]
    lines += ["| emulated | real | launches |", "| --- | --- | ---: |"]
    lines += [f"| {one} | {other} | {count} |" for (one, other), count in sorted(counts.items(), key=lambda each: -each[1])]
    lines.append("")
    for pair in sorted((pair for pair in pairs if pair.differs), key=lambda each: (each.emulated, each.real, each.mutant)):
        lines += [f"{pair.emulated} / {pair.real}: {pair.mutant}", f"    {pair.line}", f"    case {pair.case}: {pair.told}"]
        lines += [f"    emulated: {pair.emulated_said}", f"    real: {pair.real_said}"]
    return "\n".join(lines)


def main() -> int:
    arguments = parse(
        __doc__, generate=Option(Path, "write mutants, and do nothing else"), mutants=Option(Path, "what --generate wrote"),
        out=Path("mutants_on_a_gpu"), table=Option(Path, "print the tables of an earlier run"),
        count=Option(520, "mutants that are launched (default 520)"), seed=Option(0, "of the draw"),
        seconds=Option(420.0, "no mutant is begun later"), timeout=Option(45.0, "of one mutant on one machine"),
        jobs=min(16, os.cpu_count() or 1), target="cuda:0",
    )  # fmt: skip
    if arguments.generate:
        generate(arguments.generate, arguments.count, arguments.seed)
        return 0
    if arguments.table:
        print(table(arguments.table))
        return 0
    return run(arguments)


if __name__ == "__main__":
    run_script(main)
