"""The work of a worker: all checks of one case, as a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Promises
from bitverdict.harness.checks.invariance.examine import examine_case
from bitverdict.harness.checks.invariance.invariance_finding import CHECKS, End, InvarianceFinding
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.remote_launcher import launcher_of
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

TIMEOUT = 600.0  # seconds of one case: a hundred launches


def task_of(case: Case, checks: Iterable[str] = CHECKS, limit: int = 0, promises: Promises = NO_PROMISES) -> Task:
    """What a worker is asked of `case`."""
    request = {
        "case": case.to_json(),
        "checks": sorted(checks),
        "limit": limit,
        "deterministic": promises.deterministic,
        "batch_invariant": list(promises.batch_invariant),
    }
    return Task(function=f"{__name__}:perform_checks", contract=case.contract, given=request, timeout=TIMEOUT)


def perform_checks(target: Target, request: Mapping) -> Verdict:
    """The findings on one case, in this process."""
    record = dict(request["case"])
    add_search_path(record.get("search_path", ()))
    contract = resolve(record["contract"])
    case = case_from_record(contract, record)
    promises = Promises(request["deterministic"], tuple(request["batch_invariant"]))
    with own_instrumentation(case.launcher or case.contract):
        launcher = launcher_of(case, target)
        found = examine_case(case, target, contract, launcher, frozenset(request["checks"]), request["limit"], promises)
    return verdict_on(found)


def verdict_on(findings: list[InvarianceFinding]) -> Verdict:
    """What `findings` come to: the first finding that fails decides."""
    failed = next((check_finding for check_finding in findings if check_finding.fails), None)
    compared_words = sum(check_finding.compared for check_finding in findings)
    details = {TASK_RESULT: [check_finding.to_json() for check_finding in findings]}
    if failed is not None:
        message = f"{failed.check}: {failed.sentence}" + (f", with {failed.changed}" if failed.end is End.FAULT else "")
        return Verdict(
            decision=Decision.FAIL,
            outcome=Outcome.NOT_INVARIANT,
            message=message,
            basis=BASIS,
            words=compared_words,
            details=details,
        )
    if not compared_words:
        message = next((check_finding.reason for check_finding in findings), "no check was asked")
        return Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, message=message, details=details)
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, basis=BASIS, words=compared_words, details=details)


BASIS = str(Basis.EQUAL_CALL)


def findings_of(verdict: Verdict) -> list[InvarianceFinding]:
    """The findings of a task; where its process ended otherwise, that is the one finding."""
    found = task_result_of(verdict)
    if found is None:
        end = End.FAULT if verdict.failed else End.NOT_DECIDED
        return [InvarianceFinding(check="the call itself", end=end, reason=f"{verdict.outcome}: {verdict.message}")]
    return [InvarianceFinding.from_json(each) for each in found]
