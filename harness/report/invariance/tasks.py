"""The work of a worker: all checks of one case, as a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Promises
from bitverdict.harness.checks.invariance.examine import examined
from bitverdict.harness.checks.invariance.finding import CHECKS, End, Finding
from bitverdict.harness.judge.instrumentation import own_instrumentation
from bitverdict.harness.judge.launchers import launcher_of
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Basis, Decision, Outcome, Verdict
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

TIMEOUT = 600.0  # seconds of one case: a hundred launches


def task_of(case: Case, checks: Iterable[str] = CHECKS, limit: int = 0, promises: Promises = NO_PROMISES) -> Task:
    """What a worker is asked of `case`."""
    given = {
        "case": case.to_json(),
        "checks": sorted(checks),
        "limit": limit,
        "deterministic": promises.deterministic,
        "batch_invariant": list(promises.batch_invariant),
    }
    return Task(function=f"{__name__}:performed", contract=case.contract, given=given, timeout=TIMEOUT)


def performed(target: Target, given: Mapping) -> Verdict:
    """The findings on one case, in this process."""
    record = dict(given["case"])
    add_search_path(record.get("search_path", ()))
    contract = resolve(record["contract"])
    case = case_from_record(contract, record)
    promises = Promises(given["deterministic"], tuple(given["batch_invariant"]))
    with own_instrumentation(case.launcher or case.contract):
        launcher = launcher_of(case, target)
        found = examined(case, target, contract, launcher, frozenset(given["checks"]), given["limit"], promises)
    return verdict_on(found)


def verdict_on(found: list[Finding]) -> Verdict:
    """What `found` comes to: the first finding that fails decides."""
    failed = next((each for each in found if each.fails), None)
    compared = sum(each.compared for each in found)
    details = {TASK_RESULT: [each.to_json() for each in found]}
    if failed is not None:
        said = f"{failed.check}: {failed.told}" + (f", with {failed.changed}" if failed.end is End.FAULT else "")
        return Verdict(
            decision=Decision.FAIL, outcome=Outcome.NOT_INVARIANT, message=said, basis=BASIS, words=compared, details=details
        )
    if not compared:
        said = next((each.reason for each in found), "no check was asked")
        return Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, message=said, details=details)
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, basis=BASIS, words=compared, details=details)


BASIS = str(Basis.EQUAL_CALL)


def findings_of(verdict: Verdict) -> list[Finding]:
    """What `performed` found; where its process ended otherwise, that is the one finding."""
    found = task_result_of(verdict)
    if found is None:
        end = End.FAULT if verdict.failed else End.NOT_DECIDED
        return [Finding(check="the call itself", end=end, reason=f"{verdict.outcome}: {verdict.message}")]
    return [Finding.from_json(each) for each in found]
