"""What a Ray worker does for `bitverdict.harness.workers.ray_pool`: one case at a time, under the supervision of any other run.

A kernel never runs in the Ray worker itself. It runs in a worker process below it, which may die or hang, and its end is a verdict.
What Ray sees end was ended from outside.
"""

from __future__ import annotations

import hashlib
import os
import platform
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, cast

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import code_digest, state_directory
from bitverdict.harness.model.targets import Target, targets
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.workers.journal import verdict_record
from bitverdict.harness.workers.slot import WorkerSlot

_slots: dict[tuple[str, str], WorkerSlot] = {}  # (target, GPUs that Ray gives) -> its worker


@dataclass(frozen=True)
class SentWork:
    """The record of a case or a task: this process imports no file of a user's, so it never makes the case."""

    record: Mapping[str, Any]

    @property
    def contract(self) -> str:
        return self.record["contract"]

    def to_json(self) -> dict:
        return dict(self.record)


@cache
def deciding_versions() -> dict[str, str]:
    """What must be equal on all machines of one run: the code, and the versions that decide bits."""
    found = {"code": code_digest(), "python": platform.python_version()}
    return found | {name: metadata.version(name) for name in ("torch", "triton", "numpy")}


def digests(files: tuple[str, ...]) -> dict[str, str]:
    """File -> a digest of it, or "missing"."""
    found = {name: Path(name) for name in files}
    return {name: hashlib.sha256(at.read_bytes()).hexdigest()[:16] if at.is_file() else "missing" for name, at in found.items()}


def judged(request: Mapping[str, Any]) -> dict[str, Any]:
    """The task of a Ray worker. ``verdict``: of the case, as JSON. ``again``: what came before it was judged once more. Or
    ``refused``: why nothing can be judged on this node, in one sentence.

    `request`: ``work`` (record of a case or a task), ``target`` (fields), ``timeout`` (seconds), ``directory``, ``knobs`` (variable
    -> value, None: unset), ``deciding`` and ``files`` (what must be the same here).
    """
    target = Target(**request["target"])
    if refused := _refusal_reason(request, target):
        return {"refused": f"node {socket.gethostname()}: {refused}"}
    visible_devices = "" if target.emulated else os.environ.get("CUDA_VISIBLE_DEVICES", "")
    for key in [key for key in _slots if not target.emulated and key[1] not in ("", visible_devices)]:  # Ray gives another GPU now
        _slots.pop(key).end()
    if (target.name, visible_devices) not in _slots:
        logs = state_directory() / "fleet"
        logs.mkdir(parents=True, exist_ok=True)
        _slots[target.name, visible_devices] = WorkerSlot(target, timeout=request["timeout"], directory=logs)
    slot, first = _slots[target.name, visible_devices], list[Verdict]()
    slot.timeout = request["timeout"]
    verdict = slot.judge(cast(Case, SentWork(request["work"])), on_rerun=first.append)
    return {"verdict": verdict.to_json(), "again": [verdict_record(each) for each in first]}


def _refusal_reason(request: Mapping[str, Any], target: Target) -> str:
    """Why this node cannot judge for the run; empty where it can. It takes on the run's directory and knobs."""
    for name, wanted in request["deciding"].items():
        if wanted != (here := deciding_versions()[name]):
            return (
                f"{name} is {here}, of the run it is {wanted}, and verdicts would not be comparable; install the same on each node"
            )
    directory = Path(request["directory"])
    if directory.is_dir():
        os.chdir(directory)
    elif request["files"]:
        return f"directory {directory} of the run is missing; share it with each node, at the same path"
    for name, digest in digests(tuple(request["files"])).items():
        if digest != request["files"][name]:
            return f"file {name} is {digest}, of the run it is {request['files'][name]}; share it with each node, at the same path"
    for name, value in request["knobs"].items():
        os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
    if not target.emulated:
        seen = [each for each in targets() if not each.emulated]
        if not seen or (seen[0].arch, seen[0].model) != (target.arch, target.model):
            found = f"{seen[0].model} ({seen[0].arch})" if seen else "none"
            return f"its GPU is {found}, of the run it is {target.model} ({target.arch}); start Ray's nodes with accelerator types"
    return ""


def gpu() -> dict[str, Any] | None:
    """The GPU that Ray gives to this task, as fields of a `Target`; None where none is visible."""
    return next((asdict(each) for each in targets() if not each.emulated), None)
