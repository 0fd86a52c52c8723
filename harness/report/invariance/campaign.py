"""Cases of case sources, each examined in a worker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Promises
from bitverdict.harness.checks.invariance.invariance_finding import CHECKS, InvarianceFinding
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.report.invariance.cases import choose_cases
from bitverdict.harness.report.invariance.tasks import findings_of, task_of
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.pool import WorkerPool


@dataclass(frozen=True)
class ExaminationRequest:
    """A case of the kernel called `name`, to be examined on a target."""

    name: str
    case: Case
    target: Target


@dataclass(frozen=True)
class Examination:
    """What came of it."""

    name: str
    target: str
    case: Case
    findings: list[InvarianceFinding]
    verdict: Verdict


def requests_of(source: CaseSource, max_cases: int) -> list[ExaminationRequest]:
    """At most `max_cases` cases of `source`, of each kind one where it is 0. UsageError for a sealed launcher."""
    if source.is_sealed:
        raise UsageError(f"{source.name}: is sealed: equal calls of it are compared without --sealed alone")
    if source.unserved_reason:
        return []
    return [
        ExaminationRequest(source.name, case, source.target)
        for case in choose_cases(source.contract, source.required(), source.target, max_cases)
    ]


def examine_requests(
    work: Sequence[ExaminationRequest],
    pool: WorkerPool,
    *,
    checks: Iterable[str] = CHECKS,
    limit: int = 0,
    promises: Promises = NO_PROMISES,
) -> Iterator[Examination]:
    """Each as it comes."""
    tasks = [(task_of(each.case, checks, limit, promises), each.target) for each in work]
    places = {id(task): each for (task, _), each in zip(tasks, work, strict=True)}
    for task, _, verdict in pool.judge_all(tasks):
        each = places[id(task)]
        yield Examination(each.name, each.target.name, each.case, findings_of(verdict), verdict)
