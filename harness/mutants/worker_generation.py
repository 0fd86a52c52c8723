"""The mutants of a kernel that a user named, made in a worker: it imports the user's file, and may die of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.mutants.campaign import kernel_and_cases
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import GeneratedMutant, Kind
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

MAX_REPORTED_CASES = 5  # cases that fail without any mutant


@dataclass(frozen=True)
class GeneratedMutants:
    """The mutants of a kernel for a target; how many cases every run judges, and those that the right kernel fails, a line each."""

    mutants: tuple[GeneratedMutant, ...]
    cases: int
    failing_cases: tuple[str, ...]


def generate_in_worker(pool: WorkerPool, kernel: Kernel, target: Target, kinds: Sequence[Kind]) -> GeneratedMutants:
    """The mutants of `kernel` of these kinds. UsageError for what no worker can import or launch."""
    given = {"kernel": kernel.address, "like": kernel.like, "kinds": list(kinds)}
    task = Task(function=f"{__name__}:in_worker", contract=kernel.contract_address, given=given)
    verdict = pool.judge(task, target)
    if (found := task_result_of(verdict)) is None:
        raise UsageError(f"mutate {kernel.address}: {verdict.message}")
    return GeneratedMutants(tuple(map(GeneratedMutant.from_json, found["mutants"])), found["cases"], tuple(found["failing"]))


def in_worker(target: Target, request: Mapping[str, Any]) -> Verdict:
    """The task of a worker: the mutants of one kernel, and what its cases come to without any. Each case is launched once."""
    from bitverdict.harness.mutants.source.generate import generate as of_source  # libcst is imported by this alone

    kernel_under_mutation, cases = kernel_and_cases(request["kernel"], request["like"], target.name)
    failing_cases = [
        f"{describe(case)}: {said}" for case in cases if (said := kernel_under_mutation.source.cases.right_case(case).failure)
    ]
    mutants: list[GeneratedMutant] = []
    if Kind.SOURCE in request["kinds"]:
        mutants += of_source(kernel_under_mutation.kernel)
    if Kind.PROGRAM in request["kinds"]:
        mutants += kernel_under_mutation.programs.generate(cases)
    found = {"mutants": [each.to_json() for each in mutants], "cases": len(cases), "failing": failing_cases[:MAX_REPORTED_CASES]}
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})
