"""Tasks that checks of the worker pool hand to a worker."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping

from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers.one_thread import VARIABLES
from bitverdict.harness.workers.task import TASK_RESULT
from tests.support.vector_add import misbehave


def threads(target: Target, given: Mapping) -> Verdict:
    """How many threads torch computes on in this process, and what its libraries were told."""
    import torch

    found = {name: os.environ.get(name) for name in VARIABLES} | {"threads": torch.get_num_threads()}
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})


def doubled(target: Target, given: Mapping) -> Verdict:
    """Twice the number of `given`, on the named target; or the fault that it asks for (`tests.support.vector_add.misbehave`)."""
    import torch

    nothing = torch.zeros(3)
    misbehave(given.get("fault", ""), nothing, nothing, nothing)
    return Verdict(
        decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: {"target": target.name, "twice": 2 * given["number"]}}
    )


def variables(target: Target, given: Mapping) -> Verdict:
    """The environment of this process."""
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: dict(os.environ)})


def frozen(target: Target, given: Mapping) -> Verdict:
    """How many objects collections pass over in this process, and after how many new ones they come."""
    found = {"objects": gc.get_freeze_count(), "thresholds": list(gc.get_threshold())}
    return Verdict(decision=Decision.PASS, outcome=Outcome.PASS, details={TASK_RESULT: found})
