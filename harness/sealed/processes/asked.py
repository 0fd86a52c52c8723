"""In a worker of sealed cases: the task that asks a candidate's process what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bitverdict.harness.model import sealing
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.sealed.candidate import asking
from bitverdict.harness.workers.task import TASK_RESULT


def told(target: Target, given: Mapping[str, Any]) -> Verdict:
    """What the candidate at `given["address"]` says of itself, or of each of `given["fields"]`, as what was measured."""
    address, folders = given["address"], given["folders"]
    sealing.seal(address)
    if given["fields"] is None:
        found: Any = asking.description(address, folders)
    else:
        found = asking.taken(address, folders, given["fields"])
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})
