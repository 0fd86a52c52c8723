"""In a worker of sealed cases: the task that asks a candidate's process what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitverdict.harness.model import sealing
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.sealed.candidate import judge_side
from bitverdict.harness.workers.task import TASK_RESULT


def describe_candidate(target: Target, request: Mapping[str, Any]) -> Verdict:
    """What the candidate at `given["address"]` says of itself, or of each of `given["fields"]`, as what was measured."""
    address, folders = request["address"], request["folders"]
    sealing.seal(address)
    if request["fields"] is None:
        found: Any = judge_side.description(address, folders)
    else:
        found = judge_side.ask_requires(address, folders, request["fields"])
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})
