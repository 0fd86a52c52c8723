"""The same case in every configuration: which of them give the same words."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from bitverdict.harness.checks.invariance.calls import CONFIGURATIONS, Call, Caller
from bitverdict.harness.checks.invariance.invariance_finding import InvarianceFinding
from bitverdict.harness.checks.invariance.relation import Relation, compare_calls, identity_map
from bitverdict.harness.model.case import Case


def configuration_findings(caller: Caller, first_call: Call) -> Iterator[InvarianceFinding]:
    """A finding for each other configuration: of the contract's own, or of the autotuners that the first call showed."""
    promised = CONFIGURATIONS in caller.promises.batch_invariant
    for case, changed in [*_of_the_contract(caller, first_call), *_of_autotuners(first_call)]:
        relation = Relation(
            CONFIGURATIONS, changed, dict.fromkeys(first_call.outputs(), identity_map), same_operands=True, is_promised=promised
        )
        outcome = caller.contract.expected_outcome(case, caller.target)
        if not outcome.result:
            yield relation.not_applicable_finding(f"{outcome.outcome}: {outcome.reason or outcome.message}")
            continue
        yield compare_calls(relation, caller, first_call, caller.call(case, first_call.operands))


def _of_the_contract(caller: Caller, first: Call) -> Iterator[tuple[Case, str]]:
    before = _fields(first.case.config)
    for case in caller.contract.configured(first.case, caller.target):
        after = _fields(case.config)
        differ = [f"{name} = {value} for {before.get(name)}" for name, value in after.items() if before.get(name) != value]
        yield case, ", ".join(differ)


def _fields(config: object) -> dict[str, Any]:
    return dataclasses.asdict(config) if dataclasses.is_dataclass(config) and not isinstance(config, type) else {}


def _of_autotuners(first: Call) -> Iterator[tuple[Case, str]]:
    chosen = first.launch_result.launch_record.get("tuned", ())
    for number in range(max((each["of"] for each in chosen), default=0)):
        if any(each["took"] != number % each["of"] for each in chosen):
            yield dataclasses.replace(first.case, tuning=f"config {number}"), f"configuration {number} of the autotuner"
