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

from bitverdict.harness.checks.second_call import SecondCallContract
from bitverdict.harness.judge.classify import LaunchResult, outcome_of
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.guarded_buffers import Poison, far_bytes
from bitverdict.harness.judge.launch import Allocations, launch
from bitverdict.harness.model.addresses import add_search_path, resolve
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, case_from_record
from bitverdict.harness.model.feature_table import observers
from bitverdict.harness.model.sealing import seal
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import DEVICE_FAULTS
from bitverdict.harness.sealed.candidate import untrusted_programs
from bitverdict.harness.sealed.candidate.arrays import PREPARE, channel_of, receive, send
from bitverdict.harness.sealed.candidate.by_bytes import CandidateOnAGpu, GpuLauncher
from bitverdict.harness.sealed.candidate.by_bytes import launch_by_bytes as launched_by_bytes
from bitverdict.harness.sealed.candidate.description import describe_launcher
from bitverdict.harness.sealed.candidate.seen_as_bytes import encode_result
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import CandidateGone, CandidateRaised, ChannelClosed

observers()  # once confined, this process imports nothing
WITHOUT_A_GPU, ON_A_GPU = b"c", b"g"
"""What comes with the socket of a process of the candidate's."""
Answer = tuple[dict[str, Any], dict[str, np.ndarray]]


class CandidateClient(Protocol):
    """What asks one process of the candidate's: `bitverdict.harness.sealed.remote.executor.Candidate`."""

    def launcher(self, address: str, *, folders: Sequence[str] = (), arch: str = ...) -> Any: ...


@dataclass(frozen=True)
class Confinement:
    """What takes from this process, and from the one that it forks for native compilers, what they need no more."""

    executor: Callable[[Sequence[int]], None]
    """Of this process, which may signal those of the numbers given."""
    compiler: Callable[[], None]


def by_remote(connected: socket.socket) -> CandidateClient:
    """A process of the candidate's that launches on the emulated GPU of this one."""
    from bitverdict.harness.sealed.remote.executor import Candidate

    return Candidate(Channel(connected))


def serve(
    connection: socket.socket,
    candidate_sockets: socket.socket,
    asks: Callable[[socket.socket], CandidateClient] = by_remote,
    confinement: Confinement | None = None,
) -> None:
    """Answer the judge's requests until it closes its end. Over `handed` come the sockets of the candidate's processes, each before
    the first request that names it by a new number. `confinement` takes hold once the contract of the first one is imported."""
    channel, candidates, prepared_case = channel_of(connection), dict[int, CandidateClient](), PreparedCase()
    if confinement is not None:
        untrusted_programs.begin(confinement.compiler, os.environ["TMPDIR"])
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
                    confinement.executor(untrusted_programs.processes())
                    confinement = None
                if record["asks"] == PREPARE:
                    prepared_case.prepare(record["case"])
                    continue
                answer, answer_arrays = _answer_request(
                    record, arrays, prepared_case, _of_number(record["candidate"], candidates, candidate_sockets, asks)
                )
            except Exception as error:  # of the contract or of ours: it says nothing about a kernel
                if record["asks"] == PREPARE:
                    continue  # the launch will say it
                details = {"raised": type(error).__name__, "traceback": traceback.format_exception(error)}
                answer, answer_arrays = {"failed": f"{type(error).__name__}: {error}", "details": details}, {}
            send(channel, answer | {"over": untrusted_programs.is_over()}, answer_arrays)


def _of_number(
    number: int, clients: dict[int, CandidateClient], handed: socket.socket, asks: Callable[[socket.socket], CandidateClient]
) -> CandidateClient:
    """Candidate process `number`, which was started with or without a GPU."""
    if number not in clients:
        kind, descriptors, _, _ = socket.recv_fds(handed, 1, 1)
        connected = socket.socket(fileno=descriptors[0])
        clients[number] = CandidateOnAGpu(connected) if kind == ON_A_GPU else asks(connected)
    return clients[number]


class PreparedCase:
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


def _answer_request(
    record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], known: PreparedCase, candidate: CandidateClient
) -> Answer:
    if record["asks"] == "launch":
        return _launch_case(record, arrays, known, candidate)
    try:
        launcher = candidate.launcher(record["launcher"], folders=record["folders"])
        return describe_launcher(launcher) if record["asks"] == "describe" else {
            "taken": launcher.requires.ask(record["fields"])
        }, {}
    except (CandidateRaised, CandidateGone) as error:
        seen, arrays = encode_result(outcome_of(error))
        return {"seen": seen}, arrays


def _launch_case(
    record: Mapping[str, Any], arrays: Mapping[str, np.ndarray], known: PreparedCase, candidate: CandidateClient
) -> Answer:
    """What the launch that `record` asks for comes to."""
    contract, case = known.take(record["case"])
    if case.calls != 1:
        contract = SecondCallContract(contract)
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
    allocations = Allocations(tracks_unwritten=record["followed"], zero_allocation=record["zeroed"], poison=poison)
    enter_target = partial(target_device, rounded_arguments=True) if record["rounded_arguments"] else target_device
    try:
        launcher = candidate.launcher(record["launcher"], folders=case.search_path, arch=target.arch)

        def launch_on(where: Target) -> LaunchResult:
            with _unbounded_address_space() if far_bytes(operands.values()) else nullcontext():
                return launch(case, where, contract, launcher, operands, clock, enter_target, allocations)

        launch_result = (
            launched_by_bytes(case, target, launcher, launch_on, poison) if isinstance(launcher, GpuLauncher) else launch_on(target)
        )
    except (CandidateRaised, CandidateGone) as error:  # its file was imported, or was to be
        launch_result = outcome_of(error)
    if "if this is meant" in launch_result.details and contract.remedy:
        launch_result.details["if this is meant"] = contract.remedy
    said, found = encode_result(launch_result)
    spent = not target.emulated and launch_result.outcome in DEVICE_FAULTS  # the context of its process is dead
    return {"seen": said, "seconds": clock.buckets, "left": contract.left(), "spent": spent}, found


@contextmanager
def _unbounded_address_space() -> Iterator[None]:
    """Inside, this process may reserve address space without a bound: what far operands do not touch takes no memory. What it holds
    is watched from outside."""
    bound, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
