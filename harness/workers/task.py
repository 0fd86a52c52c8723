"""Work of a worker other than judging a case: a function by its address, JSON in, a verdict out.

A large product or a comparison of machines is such work. It has the worker pool's journal, timeout, retry and attribution like a
case: a worker that dies or hangs over it leaves a verdict by name, and the work after it is unaffected.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bitverdict.harness.model.addresses import add_search_path, load, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.sealing import seal
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Verdict

TASK_RESULT = "measured"
"""In the details of a task's verdict: what its function returned beside the verdict."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """`function` is ``package.module:name``. A worker calls it as ``function(target, given)``, and it returns a `Verdict`.

    What else it found stands in that verdict's ``details["measured"]`` (`task_result_of`). `given` and what was found go through
    JSON. `contract` is the address of the kernel's contract, by which failures that would come again are told. `timeout` is in
    seconds; None: the worker pool's.
    """

    function: str
    contract: str
    given: Mapping[str, Any] = field(default_factory=dict)
    timeout: float | None = None

    def to_json(self) -> dict:
        return {"task": self.function, "contract": self.contract, "given": dict(self.given)}


def perform(record: Mapping, target: Target) -> Verdict:
    """Judge the case, or call the task's function, of `record` in this process. Raises what the contract or the function raises."""
    if "task" in record:
        return load(record["task"])(target, record["given"])
    from bitverdict.harness.judge.judge import judge  # not where a task is only handed over

    if record.get("sealed"):
        seal(record["launcher"])
    add_search_path(record.get("search_path", ()))
    contract = resolve(record["contract"])
    return judge(case_from_record(contract, dict(record)), target, contract)


def task_result_of(verdict: Verdict) -> Any:
    """The result of a task besides its verdict; None where it left a verdict of its end alone: a death, a hang, an error, or not
    judged."""
    return verdict.details.get(TASK_RESULT)


def timeout_of(work: Case | Task, otherwise: float) -> float:
    """The seconds that `work` may take."""
    given = work.timeout if isinstance(work, Task) else None
    return otherwise if given is None else given
