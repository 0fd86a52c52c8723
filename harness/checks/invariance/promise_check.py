"""A case that is right, held to what its kernel promises besides: determinism, and the same bits for a row in any batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Promises
from bitverdict.harness.checks.invariance.examine import examine_case
from bitverdict.harness.checks.invariance.invariance_finding import REPEAT_CHECKS
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

BATCHES = 3  # smaller ones of each size, of every case: `bitverdict invariance` makes more


def held_to_promises(
    verdict: Verdict, case: Case, target: Target, contract: Contract, launcher: Callable[..., object] | RemoteLauncher | None
) -> Verdict:
    """`verdict`, or a failure by the first promise of `contract` or of the case's launcher that the case breaks. What did not pass
    is told as it is. Inconclusive where a sealed launcher's words of another call are no kernel's."""
    promises = Promises.of_case(contract, case)
    if promises == NO_PROMISES or verdict.outcome is not Outcome.PASS or case.calls > 1:
        return verdict
    checks = {"batch", "position"} if promises.batch_invariant else set()
    checks |= {*REPEAT_CHECKS} - {"multiprocessors"} if promises.deterministic else set()
    found = examine_case(case, target, contract, launcher, frozenset(checks), BATCHES)
    broken = next((each for each in found if each.fails), None)
    if broken is None:
        by_host = next((each for each in found if each.reason.startswith(Outcome.COMPUTED_ON_HOST)), None)
        if by_host is None:
            return verdict
        said = f"{by_host.check}: {by_host.reason}"
        return replace(verdict, decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPUTED_ON_HOST, message=said)
    said = f"{broken.output}: {broken.check}: {broken.sentence}"
    details = verdict.details | {"promise": list(promises.batch_invariant) or ["deterministic"], "finding": broken.to_json()}
    return replace(verdict, decision=Decision.FAIL, outcome=Outcome.NOT_INVARIANT, message=said, details=details)
