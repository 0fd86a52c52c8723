"""A worker pool over a Ray cluster: each case is a task of Ray's. It is a `WorkerPool` whose places are tasks, not processes.

Ray places a task where a processor or a GPU is free, and begins it again elsewhere when its worker or its node ends. A place waits
for one answer, whichever attempt gives it, so no case counts twice. This process alone writes the journal. A case that was out when
this process was killed is judged again by ``--resume``.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bitverdict.harness.judge.machine_faults import MachineFault
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.extras import pip_line
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.workers import ray_node
from bitverdict.harness.workers.journal import Journal
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.process import STARTED_WITHIN
from bitverdict.harness.workers.ray_head import Head
from bitverdict.harness.workers.slot import RECYCLED_AFTER, SLICE, RunCancelled
from bitverdict.harness.workers.start import PLAIN_START, Start
from bitverdict.harness.workers.task import Task, timeout_of

RETRIES = 20  # ends of a Ray worker or a node that one case may see
LOOKS = 3  # times that a slot may judge one case (`bitverdict.harness.workers.slot`)
PROBED_WITHIN = 180.0  # seconds in which a GPU of the cluster must say what it is
CONNECTED_WITHIN = 10.0  # seconds
TYPE = "accelerator_type:"  # what Ray's resource of a model of GPU begins with


class Cluster:
    """A connection to the Ray cluster at `address`. UsageError where there is none, or no Ray.

    `ray` is Ray's module, or a test's own with as much of it as is used here.
    """

    def __init__(self, address: str | None = None, ray: Any = None) -> None:
        self.ray = ray if ray is not None else import_ray()
        address = address if address is not None else os.environ.get("RAY_ADDRESS", "")
        if not address or address == "local" or "://" in address:
            raise UsageError(
                f"--on ray: RAY_ADDRESS={address!r} names no running cluster; start one by `ray start --head`, "
                "and set RAY_ADDRESS to its HOST:PORT, or to auto on one of its nodes"
            )
        reachable(address)
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except Exception as error:  # a connection, another version of Ray, or its own RuntimeError
            said = " ".join(str(error).split())[:300]
            raise UsageError(
                f"--on ray: RAY_ADDRESS={address!r} must name a running cluster of the same Ray ({said}); see `ray status`"
            ) from error
        self.head = Head(self.ray.get_runtime_context().gcs_address)
        self._types: dict[str, str] = {}  # target -> Ray's resource of its model
        self._kept = self.ray.remote(max_calls=RECYCLED_AFTER, max_retries=RETRIES, num_cpus=1)(ray_node.judged)

    def close(self) -> None:
        self.ray.shutdown()

    @property
    def processors(self) -> int:
        """How many cases the nodes that are there now can judge at a time."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 0)))

    def gpus(self) -> list[Target]:
        """A target for each model of GPU in the cluster: cuda:0, cuda:1 and so on, in the order of Ray's accelerator types."""
        there = self.ray.cluster_resources()
        gpu_targets: list[Target] = []
        for kind in sorted(name for name in there if name.startswith(TYPE)) or ([""] if there.get("GPU") else []):
            self._types[f"cuda:{len(gpu_targets)}"] = kind
            asks = self.ray.remote(num_cpus=1)(ray_node.gpu).options(**self._placement_options(f"cuda:{len(gpu_targets)}"))
            try:
                row = self.ray.get(asks.remote(), timeout=PROBED_WITHIN)
            except self.ray.exceptions.GetTimeoutError:
                raise UsageError(
                    f"--on ray: no GPU ({kind or 'GPU'}) became free in {PROBED_WITHIN:g} s; see `ray status`"
                ) from None
            if row is not None:
                gpu_targets.append(replace(Target(**row), name=f"cuda:{len(gpu_targets)}", index=0))
        return gpu_targets

    def submit(self, asked: Mapping[str, object], target: Target) -> Any:
        """Ray's reference of the answer of `ray_node.judged`."""
        return self._kept.options(**({} if target.emulated else self._placement_options(target.name))).remote(asked)

    def _placement_options(self, gpu: str) -> dict[str, Any]:
        """Ray's options for a task on a GPU of the model that `gpu` names."""
        kind = self._types.get(gpu, "")
        return {"num_gpus": 1} | ({"resources": {kind: 0.001}} if kind else {})


def import_ray() -> Any:
    """Ray's module; UsageError where it is not installed."""
    before = list(sys.path)
    try:
        ray: Any = importlib.import_module("ray")
        told: Any = importlib.import_module("ray._private.worker")
    except ImportError as error:
        raise UsageError(f"--on ray: Ray cannot be imported ({error}); on each machine {pip_line('ray')}") from error
    sys.path[:] = before  # Ray puts its copies in front, and a case of a user's file holds the path
    if hasattr(told, "print_to_stdstream"):  # standard output is the report's, and Ray has no setting for what it tells there
        told.print_to_stdstream = _tell
    return ray


def reachable(address: str) -> None:
    """UsageError where nothing listens at HOST:PORT: Ray itself would look for two minutes."""
    host, colon, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        if not (colon and port.isdigit()):
            raise OSError("this is no HOST:PORT")
        socket.create_connection((host, int(port)), CONNECTED_WITHIN).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--on ray: RAY_ADDRESS={address!r} must be the HOST:PORT of a running cluster, or auto ({error}); "
            "`ray start --head` prints it"
        ) from error


def _tell(data: Mapping[str, Any], ignore_prefix: bool = False) -> None:
    """What Ray tells of nodes and workers that ended: the first line of each, on standard error."""
    for text in data["lines"]:
        print(f"ray: {text.strip().partition(chr(10))[0][:300]}", file=sys.stderr)


class RayPool(WorkerPool):
    """`jobs` cases are out at a time (0: one for each processor of the cluster). `knobs`: variables that decide verdicts (None: not
    set), `files`: the user's files that are judged; both hold on each node. A context manager, which closes `cluster`."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        jobs: int = 0,
        timeout: float = 120.0,
        journal: Journal | None = None,
        knobs: Mapping[str, str | None] | None = None,
        files: Sequence[str] = (),
    ) -> None:
        super().__init__(jobs=jobs or cluster.processors, timeout=timeout, journal=journal)
        self.cluster = cluster
        same = {"deciding": ray_node.deciding_versions(), "files": ray_node.digests(tuple(files))}
        self.asked = same | {"directory": str(Path.cwd()), "knobs": dict(knobs or {})}

    def close(self) -> None:
        super().close()
        self.cluster.close()

    def prepare(self, targets: Sequence[Target], addresses: Sequence[str] = ()) -> None:
        """Nothing waits: Ray starts workers where it places tasks."""

    def compile_ahead(self, work: Iterable[tuple[Case, Target]]) -> int:
        """None: the nodes' processors judge."""
        return 0

    def _slot(self, target: Target, place: int, start: Start) -> RaySlot:  # type: ignore[override]
        if start is not PLAIN_START:
            raise UsageError(f"--on ray: {start.name or 'a sealed case'} needs a worker of this machine; leave --on ray out")
        with self._lock:
            if self.closed:
                raise RunCancelled
            key = (place, target.name)
            return self.slots.setdefault(key, RaySlot(self, target))  # type: ignore[arg-type,return-value]


class RaySlot:
    """One place: at most one task is out. It answers as `bitverdict.harness.workers.slot.WorkerSlot` does."""

    def __init__(self, pool: RayPool, target: Target) -> None:
        self.pool, self.target = pool, target
        self.printed: list[str] = []
        self._ended = threading.Event()

    def judge(
        self, work: Case | Task, tick: Callable[[], None] = lambda: None, on_rerun: Callable[[Verdict], None] = lambda first: None
    ) -> Verdict:
        """The verdict on a case or a task. An error where Ray lost its worker more than `RETRIES` times; UsageError where a node
        cannot judge for this run; MachineFault where this machine's own node ended, or the cluster's head."""
        ray = self.pool.cluster.ray
        timeout = timeout_of(work, self.pool.timeout)
        asked = self.pool.asked | {"work": work.to_json(), "target": asdict(self.target), "timeout": timeout}
        try:
            answer = self._answer(asked, LOOKS * (timeout + STARTED_WITHIN), tick)
        except ray.exceptions.RayTaskError as error:
            raise UsageError(
                f"--on ray: a node cannot judge ({_last_line(error)}); install bitverdict on each node as here"
            ) from error
        except ray.exceptions.LocalRayletDiedError as error:
            raise MachineFault(
                f"Ray's node on this machine ended ({_last_line(error)}); start it again, then run --resume"
            ) from error
        except ray.exceptions.RayError as error:
            if self._ended.is_set():
                raise RunCancelled from None
            if not self.pool.cluster.head.listens():
                raise self.pool.cluster.head.end_fault() from error
            return lost_verdict(
                f"Ray gave the case up after {RETRIES} retries ({_last_line(error)}); see `ray status`, then run --resume"
            )
        if "refused" in answer:
            raise UsageError(f"--on ray: {answer['refused']}")
        for first in answer["again"]:
            on_rerun(Verdict.from_json(first))
        return Verdict.from_json(answer["verdict"])

    def end(self) -> None:
        """From any thread: what is out is no longer waited for."""
        self._ended.set()

    def _answer(self, asked: Mapping[str, Any], limit: float, tick: Callable[[], None]) -> Any:
        """The first answer that comes. A task that is silent for `limit` seconds is cancelled and begun again: its worker may
        be stopped, which Ray does not see."""
        cluster = self.pool.cluster
        while True:
            reference, begun = cluster.submit(asked, self.target), time.monotonic()
            try:
                while time.monotonic() - begun < limit:
                    tick()
                    cluster.head.check()
                    if self._ended.is_set():
                        raise RunCancelled
                    if cluster.ray.wait([reference], timeout=SLICE)[0]:
                        return cluster.ray.get(reference)
            except BaseException:
                self._cancel(reference)
                raise
            self._cancel(reference)

    def _cancel(self, reference: Any) -> None:
        with contextlib.suppress(Exception):  # the connection may be closed, or the task over
            self.pool.cluster.ray.cancel(reference, force=True)


def lost_verdict(message: str) -> Verdict:
    """The verdict on a case that came to none: an error, which says nothing of the kernel, and is judged again by ``--resume``."""
    return Verdict(decision=Decision.ERROR, outcome=Outcome.ERROR, message=message, details={"layer": "fleet"})


def _last_line(error: BaseException) -> str:
    """The last line of what Ray tells."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
