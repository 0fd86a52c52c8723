"""All checks of one case on one target, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitverdict.harness.checks.invariance import configurations
from bitverdict.harness.checks.invariance.batch import batch_findings, batches, permutation_finding
from bitverdict.harness.checks.invariance.calls import NO_PROMISES, Call, Caller, Promises
from bitverdict.harness.checks.invariance.invariance_finding import CHECKS, End, InvarianceFinding, attribute_causes
from bitverdict.harness.checks.invariance.metamorphic import padding_finding, scale_findings
from bitverdict.harness.checks.invariance.relation import UNABLE
from bitverdict.harness.checks.invariance.repeat_calls import repeat_findings
from bitverdict.harness.judge.remote_launcher import RemoteLauncher
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target


def examine_case(
    case: Case,
    target: Target,
    contract: Contract,
    launcher: Callable[..., object] | RemoteLauncher | None,
    checks: frozenset[str] = frozenset(CHECKS),
    limit: int = 0,
    promises: Promises = NO_PROMISES,
) -> list[InvarianceFinding]:
    """What the `checks` find of `case`. `limit`: at most so many smaller batches of a size. `promises`: beside those of
    the contract and the case."""
    own = Promises.of_case(contract, case)
    both = (*own.batch_invariant, *promises.batch_invariant)
    made = Promises(own.deterministic or promises.deterministic, both)
    caller = Caller(contract, target, launcher, made)
    first = caller.call(case)
    if (seen := first.launch_result).outcome is not None:
        end = End.NOT_DECIDED if seen.outcome in UNABLE else End.FAULT
        return [InvarianceFinding(check="the call itself", end=end, reason=f"{seen.outcome}: {seen.message}".partition("\n")[0])]
    return attribute_causes(list(_all_findings(caller, first, checks, limit)))


def _all_findings(caller: Caller, first_call: Call, checks: frozenset[str], limit: int) -> Iterator[InvarianceFinding]:
    yield from repeat_findings(caller, first_call, checks)
    followed, operand_sizes = batches(caller, first_call) if checks & {"batch", "position", "zeros"} else ([], [])
    for batch in followed:
        if "batch" in checks:
            yield from batch_findings(caller, first_call, batch, limit)
        if "position" in checks:
            yield permutation_finding(caller, first_call, batch)
    if "configurations" in checks:
        yield from configurations.configuration_findings(caller, first_call)
    if "scale" in checks:
        yield from scale_findings(caller, first_call)
    if "zeros" in checks:
        for each in operand_sizes:
            yield padding_finding(caller, first_call, each)
