"""Mutants of kernels, judged in warm workers until the first case that fails. What a results file holds is not judged again.

A place of the worker pool stays with a kernel as long as it has mutants: its worker keeps operands, expected results and compiled
programs of that kernel. The cases that killed most of a kernel's mutants so far come first. A worker that dies or does not end over
a mutant has killed it; the next mutant is unaffected.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.targets import target as target_called
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.clauses import clause_of
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.mutant_judge import KernelUnderMutation
from bitverdict.harness.mutants.record import End, GeneratedMutant, JudgedMutant, Kind, MutantResult, append, digest_of, read
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

BACKSTOP = 1800.0
"""Seconds of the wall for one mutant in a worker, which is ended then: a kill. Each case, and the proofs together, have limits of
their own, of operations or of the processor, which come first on a machine that is as much as seven times too busy."""
ENDED_BY = (Outcome.TIMEOUT, Outcome.SEGMENTATION_FAULT, Outcome.COMPILER_ABORT, Outcome.KILLED)
"""Ends of a worker that kill the mutant it judged."""


@dataclass
class PlannedMutants:
    """Mutants of one kernel in the order of their judging, until `live` of them are live (None: all), by the required cases of its
    contract. Not `until_first`: each by all of them."""

    kernel: Kernel
    target: Target
    mutants: Sequence[GeneratedMutant]
    live: int | None = None
    until_first: bool = True
    kills: Counter[str] = field(default_factory=Counter)
    """Case, by its digest -> mutants that it was the first to fail."""
    queue: deque[GeneratedMutant] = field(default_factory=deque)
    live_count: int = 0
    """Live mutants so far, and those that are being judged."""
    places: int = 0
    """Places of the pool that are with this kernel."""

    def resume(self, results: Mapping[str, MutantResult]) -> None:
        """Leave out what is `done`, and learn from it."""
        self.queue = deque(each for each in self.mutants if each.id not in results or results[each.id].end is End.ERROR)
        for each in self.mutants:
            if each.id in results:
                self.heard(results[each.id])
                self.live_count += results[each.id].live

    def heard(self, result: MutantResult) -> None:
        if result.killed_by:
            self.kills[result.killed_by] += 1

    @property
    def open(self) -> bool:
        return bool(self.queue) and (self.live is None or self.live_count < self.live)


def judge_all(
    plans: Sequence[PlannedMutants], out: Path, *, jobs: int = 1, seconds: float | None = None, pool: WorkerPool | None = None
) -> Iterator[JudgedMutant]:
    """Judge what is planned and not yet in the results file `out`; each result as it comes, after it was written there.

    No mutant is begun when `seconds` are over. What ended in an error of the harness is judged again. `pool`: judges in place of
    `jobs` workers of this machine, and is closed at the end.
    """
    done = {each.mutant.id: each.result for each in read(out)}
    for each in plans:
        each.resume(done)
    until = None if seconds is None else time.monotonic() + seconds
    dealer = _Dealer(plans, until)
    with pool or WorkerPool(jobs=jobs, timeout=BACKSTOP) as pool, pool.interruptible():

        def do(_: None, place: int) -> list[JudgedMutant]:
            taken = dealer.take(place, lambda left: pool.release(left, place=place))
            if taken is None:
                return []
            plan, mutant = taken
            result = _judge_in_worker(pool, place, plan, mutant)
            dealer.finish(plan, result)
            return [JudgedMutant(mutant, result)]

        while dealer.goes_on:  # again, where mutants that were out came back and were not live
            for found in pool.spread(dealer.turns(), do):
                for judged in found:
                    append(out, judged)
                    yield judged


class _Dealer:
    """Which mutant a place gets next. Safe for the threads of a pool."""

    def __init__(self, planned: Sequence[PlannedMutants], until: float | None) -> None:
        self.planned, self.until = planned, until
        self.at: dict[int, PlannedMutants] = {}
        self.lock = threading.Lock()

    @property
    def is_over(self) -> bool:
        return self.until is not None and time.monotonic() > self.until

    @property
    def goes_on(self) -> bool:
        return not self.is_over and any(each.open for each in self.planned)

    def turns(self) -> Iterator[None]:
        """One item for each mutant that may be judged: a place asks which (`take`)."""
        while self.goes_on:
            yield None

    def take(self, place: int, leave: Callable[[Target], Any]) -> tuple[PlannedMutants, GeneratedMutant] | None:
        """The next mutant of the kernel that `place` is with; when that is done, of the plan that has most left for each place."""
        with self.lock:
            before = self.at.get(place)
            plan = before
            if plan is None or not plan.open:
                going = [each for each in self.planned if each.open]
                if not going or self.is_over:
                    return None
                alike = [each for each in going if before is not None and each.kernel == before.kernel]
                plan = max(alike or going, key=lambda each: len(each.queue) / (each.places + 1))
                if before is not None:
                    before.places -= 1
                plan.places += 1
                self.at[place] = plan
            mutant = plan.queue.popleft()
            plan.live_count += 1
        if before is not None and before.target != plan.target:
            leave(before.target)
        return plan, mutant

    def finish(self, plan: PlannedMutants, result: MutantResult) -> None:
        with self.lock:
            plan.heard(result)
            plan.live_count -= not result.live


def _judge_in_worker(pool: WorkerPool, place: int, plan: PlannedMutants, mutant: GeneratedMutant) -> MutantResult:
    """What came of `mutant` in the worker of `place`."""
    start = time.perf_counter()
    request = {
        "kernel": plan.kernel.address,
        "like": plan.kernel.like,
        "mutant": mutant.to_json(),
        "kills": plan.kills.most_common(),
        "until_first": plan.until_first,
    }
    task = Task(function=f"{__name__}:in_worker", contract=plan.kernel.contract_address, given=request)
    verdict = pool.judge(task, plan.target, place=place)
    if (found := task_result_of(verdict)) is not None:
        result = MutantResult.from_json(found)
    elif verdict.outcome in ENDED_BY:
        ended = MutantResult(mutant=mutant.id, end=End.KILL, target=plan.target.name, message=verdict.message[:300])
        result = replace(ended, outcome=str(verdict.outcome), clause=clause_of(verdict))
    else:
        result = MutantResult(mutant=mutant.id, end=End.ERROR, target=plan.target.name, why=verdict.message[:300])
    return replace(result, seconds=round(time.perf_counter() - start, 4))


def in_worker(target: Target, request: Mapping[str, Any]) -> Verdict:
    """The task of a worker: the result of one mutant, judged by its kernel's cases."""
    kernel, cases = kernel_and_cases(request["kernel"], request["like"], target.name)
    mutant, killed = GeneratedMutant.from_json(request["mutant"]), Counter(dict(request["kills"]))
    if mutant.kind is Kind.SOURCE:
        kernel.kills |= killed
    result = kernel.judge(mutant, order_cases(cases, list(killed)), until_first=request["until_first"])
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: result.to_json()})


def programs_in_worker(target: Target, given: Mapping[str, Any]) -> Verdict:
    """The task of a worker: the mutants of a kernel's tile programs, written to a file."""
    kernel, cases = kernel_and_cases(given["kernel"], given["like"], target.name)
    path = Path(given["file"])
    part = path.with_suffix(".part")
    least = given["cases"]
    reached = lambda each: sum(1 for _ in islice(kernel.programs.touched_cases(each, cases), least)) == least
    made = filter(reached, kernel.programs.generate(cases))
    part.write_text("".join(json.dumps(each.to_json()) + "\n" for each in made))
    part.replace(path)
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS)


@lru_cache(maxsize=1)
def kernel_and_cases(address: str, like: str, target_name: str) -> tuple[KernelUnderMutation, list[Case]]:
    """The kernel that this process judges mutants of, and the cases that every run judges."""
    where, named = target_called(target_name), Kernel(address, like)
    return KernelUnderMutation(named, where), named.cases(where)


def order_cases(cases: Iterable[Case], first: Sequence[str]) -> list[Case]:
    """`cases`, those whose digests are in `first` before the others, in that order."""
    place = {digest: number for number, digest in enumerate(first)}
    return sorted(cases, key=lambda case: place.get(digest_of(case), len(place)))
