"""The executor: the process that launches for the judge. It runs untrusted tile programs, and holds nothing that is expected.

It has the contract's code, the operands of one case, and the memory of an emulated GPU. The candidate's file is imported by
processes of the candidate's own. The judge starts those and hands their sockets over; the executor asks them
(`bitverdict.harness.sealed.remote`).
"""

from __future__ import annotations

import os
import resource
import socket
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from bitverdict.harness.checks.second_call import CalledAgain
from bitverdict.harness.emulator import untrusted
from bitverdict.harness.judge.classify import LaunchResult, outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import entered
from bitverdict.harness.judge.guarded_buffers import Poison, far_bytes
from bitverdict.harness.judge.launch import Allocations, launch
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, case_from_record
from bitverdict.harness.model.feature_table import probes
from bitverdict.harness.model.sealing import seal
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import DEVICE_FAULTS
from bitverdict.harness.sealed.candidate.arrays import PREPARE, channel_of, receive, send
from bitverdict.harness.sealed.candidate.by_bytes import CandidateOnAGpu, GpuLauncher
from bitverdict.harness.sealed.candidate.by_bytes import launched as launched_by_bytes
from bitverdict.harness.sealed.candidate.description import described
from bitverdict.harness.sealed.candidate.seen_as_bytes import told
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import CandidateGone, CandidateRaised, ChannelClosed

probes()  # once confined, this process imports nothing
WITHOUT_A_GPU, ON_A_GPU = b"c", b"g"
"""What comes with the socket of a process of the candidate's."""
Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


class Asked(Protocol):
    """What asks one process of the candidate's: `bitverdict.harness.sealed.remote.executor.Candidate`."""

    def launcher(self, address: str, *, folders: Sequence[str] = (), arch: str = ...) -> Any: ...


@dataclass(frozen=True)
class Confinement:
    """What takes from this process, and from the one that it forks for native compilers, what they need no more."""

    executor: Callable[[Sequence[int]], None]
    """Of this process, which may signal those of the numbers given."""
    compiler: Callable[[], None]


def by_remote(connected: socket.socket) -> Asked:
    """A process of the candidate's that launches on the emulated GPU of this one."""
    from bitverdict.harness.sealed.remote.executor import Candidate

    return Candidate(Channel(connected))


def serve(
    connected: socket.socket,
    handed: socket.socket,
    asks: Callable[[socket.socket], Asked] = by_remote,
    confinement: Confinement | None = None,
) -> None:
    """Answer the judge's requests until it closes its end. Over `handed` come the sockets of the candidate's processes, each before
    the first request that names it by a new number. `confinement` takes hold once the contract of the first one is imported."""
    channel, candidates, known = channel_of(connected), dict[int, Asked](), Known()
    if confinement is not None:
        untrusted.begin(confinement.compiler, os.environ["TMPDIR"])
    with suppress(ChannelClosed):
        while True:
            record, arrays = receive(channel)
            try:
                seal(record["launcher"])
                if "case" in record:
                    if confinement is not None:
                        os.chdir(record["directory"])  # where the contract's address may begin
                    add_search_path(record["case"].get("search_path", ()))
                    resolve(record["case"]["contract"])
                if confinement is not None:
                    confinement.executor(untrusted.processes())
                    confinement = None
                if record["asks"] == PREPARE:
                    known.prepare(record["case"])
                    continue
                answer, beside = _answered(record, arrays, known, _of_number(record["candidate"], candidates, handed, asks))
            except Exception as error:  # of the contract or of ours: it says nothing about a kernel
                if record["asks"] == PREPARE:
                    continue  # the launch will say it
                details = {"raised": type(error).__name__, "traceback": traceback.format_exception(error)}
                answer, beside = {"failed": f"{type(error).__name__}: {error}", "details": details}, {}
            send(channel, answer | {"over": untrusted.is_over()}, beside)


def _of_number(number: int, known: dict[int, Asked], handed: socket.socket, asks: Callable[[socket.socket], Asked]) -> Asked:
    """The process of the candidate's with that number: it was handed over as one that has a GPU, or as one that has none."""
    if number not in known:
        kind, descriptors, _, _ = socket.recv_fds(handed, 1, 1)
        connected = socket.socket(fileno=descriptors[0])
        known[number] = CandidateOnAGpu(connected) if kind == ON_A_GPU else asks(connected)
    return known[number]


class Known:
    """The case that comes next, as far as it can be known without its operands."""

    def __init__(self) -> None:
        self._record: Mapping[str, Any] | None = None

    def prepare(self, record: Mapping[str, Any]) -> None:
        """Make the case of `record` ahead, and what its contract declares of it."""
        self._record = None
        self._contract = resolve(record["contract"])
        self._case = case_from_record(self._contract, record)
        self._record = record
        if self._case.real_values:
            self._contract.declared(self._case)  # which the contract keeps

    def take(self, record: Mapping[str, Any]) -> tuple[Contract, Case]:
        """The contract and the case of `record`."""
        if self._record != record:
            self.prepare(record)
        self._record = None
        return self._contract, self._case


def _answered(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], known: Known, candidate: Asked) -> Answer:
    if record["asks"] == "launch":
        return _launched(record, arrays, known, candidate)
    try:
        launcher = candidate.launcher(record["launcher"], folders=record["folders"])
        return described(launcher) if record["asks"] == "describe" else {"taken": launcher.requires.ask(record["fields"])}, {}
    except (CandidateRaised, CandidateGone) as error:
        seen, arrays = told(outcome_of(error))
        return {"seen": seen}, arrays


def _launched(record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], known: Known, candidate: Asked) -> Answer:
    """What the launch that `record` asks for comes to."""
    contract, case = known.take(record["case"])
    if case.calls != 1:
        contract = CalledAgain(contract)
    operands = {
        each["name"]: Operand(
            name=each["name"],
            format=each["format"],
            codes=arrays[each["name"]],
            strides=None if each["strides"] is None else tuple(each["strides"]),
            offset=each["offset"],
        )
        for each in record["operands"]
    }
    clock, target = Clock(), Target(**record["target"])
    poison = None if record["poison"] is None else Poison(*record["poison"])
    allocations = Allocations(followed=record["followed"], zeroed=record["zeroed"], poison=poison)
    entering = partial(entered, rounded_arguments=True) if record["rounded_arguments"] else entered
    try:
        launcher = candidate.launcher(record["launcher"], folders=case.search_path, arch=target.arch)

        def there(where: Target) -> LaunchResult:
            with _reserving() if far_bytes(operands.values()) else nullcontext():
                return launch(case, where, contract, launcher, operands, clock, entering, allocations)

        seen = launched_by_bytes(case, target, launcher, there, poison) if isinstance(launcher, GpuLauncher) else there(target)
    except (CandidateRaised, CandidateGone) as error:  # its file was imported, or was to be
        seen = outcome_of(error)
    if "if this is meant" in seen.details and contract.remedy:
        seen.details["if this is meant"] = contract.remedy
    said, found = told(seen)
    spent = not target.emulated and seen.outcome in DEVICE_FAULTS  # the context of its process is dead
    return {"seen": said, "seconds": clock.buckets, "left": contract.left(), "spent": spent}, found


@contextmanager
def _reserving() -> Iterator[None]:
    """Inside, this process may reserve address space without a bound: what far operands do not touch takes no memory. What it holds
    is watched from outside."""
    bound, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
