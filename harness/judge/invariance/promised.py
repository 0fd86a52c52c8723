"""A case that is right, held to what its kernel promises besides: determinism, and the same bits for a row in any batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bitverdict.harness.judge.invariance.examine import examined
from bitverdict.harness.judge.invariance.finding import REPEATED
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

BATCHES = 3  # smaller ones of each size, of every case: `bitverdict invariance` makes more


def held_to_promises(
    verdict: Verdict, case: Case, target: Target, contract: Contract, launcher: Callable[..., Any] | None
) -> Verdict:
    """`verdict`, or a failure by the first promise of `contract` that the case breaks. What did not pass is told as it is."""
    promises = bool(contract.batch_invariant) or contract.deterministic
    if not promises or verdict.outcome is not Outcome.PASS or case.sealed or case.calls > 1:
        return verdict
    checks = {"batch", "position"} if contract.batch_invariant else set()
    checks |= {*REPEATED} - {"multiprocessors"} if contract.deterministic else set()
    broken = next((each for each in examined(case, target, contract, launcher, frozenset(checks), BATCHES) if each.fails), None)
    if broken is None:
        return verdict
    said = f"{broken.output}: {broken.check}: {broken.told}"
    details = verdict.details | {"promise": list(contract.batch_invariant) or ["deterministic"], "finding": broken.to_json()}
    return replace(verdict, decision=Decision.FAIL, outcome=Outcome.NOT_INVARIANT, message=said, details=details)
