"""All checks of one case on one target, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bitverdict.harness.checks.invariance import configurations
from bitverdict.harness.checks.invariance.batch import batched, batches, permuted
from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Call, Caller, Promises
from bitverdict.harness.checks.invariance.finding import CHECKS, End, Finding, attributed
from bitverdict.harness.checks.invariance.metamorphic import padded, scaled
from bitverdict.harness.checks.invariance.relation import UNABLE
from bitverdict.harness.checks.invariance.repeated import repeated
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target


def examined(
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable[..., Any] | RemoteLauncher | None,
    checks: frozenset[str] = frozenset(CHECKS),
    limit: int = 0,
    promises: Promises = NO_PROMISES,
) -> list[Finding]:
    """What the `checks` find of `case`. `limit`: at most so many smaller batches of a size. `promises`: beside those of
    the contract and the case."""
    own = Promises.of(contract, case)
    both = (*own.batch_invariant, *promises.batch_invariant)
    made = Promises(own.deterministic or promises.deterministic, both)
    caller = Caller(contract, target, launcher, made)
    first = caller.call(case)
    if (seen := first.launch_result).outcome is not None:
        end = End.NOT_DECIDED if seen.outcome in UNABLE else End.FAULT
        return [Finding(check="the call itself", end=end, reason=f"{seen.outcome}: {seen.message}".partition("\n")[0])]
    return attributed(list(_found(caller, first, checks, limit)))


def _found(caller: Caller, first: Call, checks: frozenset[str], limit: int) -> Iterator[Finding]:
    yield from repeated(caller, first, checks)
    followed, others = batches(caller, first) if checks & {"batch", "position", "zeros"} else ([], [])
    for batch in followed:
        if "batch" in checks:
            yield from batched(caller, first, batch, limit)
        if "position" in checks:
            yield permuted(caller, first, batch)
    if "configurations" in checks:
        yield from configurations.configured(caller, first)
    if "scale" in checks:
        yield from scaled(caller, first)
    if "zeros" in checks:
        for each in others:
            yield padded(caller, first, each)
