"""A judging worker's executor, and its processes of the candidate: started when the first sealed case asks, ended with the worker.

Both kinds are confined processes of zygotes that the run has started (`bitverdict.harness.sealed.processes.jails`). The worker
hands the sockets of the candidate's processes to the executor, which can start and connect nothing.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.judge import hang_report
from bitverdict.harness.model.targets import Target
from bitverdict.harness.sealed.candidate import judge_side
from bitverdict.harness.sealed.candidate.arrays import channel_of
from bitverdict.harness.sealed.candidate.executor import ON_A_GPU, WITHOUT_A_GPU
from bitverdict.harness.sealed.isolation import EXECUTORS, GPU_JAIL, JAIL
from bitverdict.harness.sealed.jail.confine import unreadable
from bitverdict.harness.sealed.jail.jail import ConfinedProcess, JailDied, how, start_process, wait_ready
from bitverdict.harness.sealed.jail.policy import EXECUTOR
from bitverdict.harness.sealed.processes.jails import heard

VISIBLE = "CUDA_VISIBLE_DEVICES"
GONE_WITHIN = 2.0  # seconds in which a process that closed its channel is reaped


class Trio:
    """The executor of this worker, and the processes of the candidate that it was handed."""

    def __init__(self, jail: str, executors: str, log: Path, gpu_jail: str = "") -> None:
        self._jail, self._executors, self._log, self._gpu_jail = jail, executors, log, gpu_jail
        self._executor: ConfinedProcess | None = None
        self._contract: str | None = None
        self._candidates: dict[int, ConfinedProcess] = {}
        self._running: dict[tuple[str, bool], int] = {}  # (address, whether it has the GPU) -> the one that serves call after call
        self._count = 0

    def start(self) -> None:
        """Start an executor, which has imported no contract yet."""
        ours, theirs = socket.socketpair()
        self._handing, executor_end = socket.socketpair()
        self._executor = _start_confined(
            self._executors,
            "bitverdict.harness.sealed.processes.executor_process:serve",
            (theirs, executor_end),
            log=self._log,
            name=EXECUTOR.name,
        )
        theirs.close()
        executor_end.close()
        self.channel, self._contract = channel_of(ours), None

    def for_contract(self, contract: str) -> Trio:
        """This, with an executor that imports `contract` and no other: it can import nothing once it is confined."""
        if self._executor is not None and self._contract not in (None, contract):
            self.end()
        if self._executor is None:
            self.start()
        self._contract = contract
        return self

    def candidate(self, address: str, *, fresh_process: bool, gpu: bool) -> int:
        running = self._running.get((address, gpu))
        if running is not None and not fresh_process:
            self._candidates[running].new_case()
            return running
        self._count += 1
        ours, theirs = socket.socketpair()
        function = (
            "bitverdict.harness.sealed.candidate.on_a_gpu:serve" if gpu else "bitverdict.harness.sealed.candidate.candidate:serve"
        )
        jail, variables = (self._gpu_jail, {VISIBLE: os.environ[VISIBLE]}) if gpu else (self._jail, {})
        self._candidates[self._count] = _start_confined(jail, function, (theirs,), variables=variables, log=self._log)
        socket.send_fds(self._handing, [ON_A_GPU if gpu else WITHOUT_A_GPU], [ours.fileno()])
        ours.close()
        theirs.close()
        if not fresh_process:
            for key in [key for key in self._running if key[1] == gpu]:  # of another address
                self._candidates.pop(self._running.pop(key)).end()
            self._running[address, gpu] = self._count
        return self._count

    def drop(self, candidate: int, *, died: bool = False) -> judge_side.End:
        process = self._candidates.pop(candidate)
        self._running = {key: number for key, number in self._running.items() if number != candidate}
        end = _wait_end(process) if died else judge_side.End()
        process.end()
        return end

    def wait_end(self) -> judge_side.End:
        """All of them go with the executor."""
        assert self._executor is not None
        end = _wait_end(self._executor)
        self.end()
        return end

    def looked_at(self, number: int, frame: object) -> None:
        """Where this worker hangs the executor says: it has the kernel, and it knows whether it waits for the candidate."""
        if self._executor is not None:
            os.kill(self._executor.pid, number)

    def end(self) -> None:
        for process in (*self._candidates.values(), *([self._executor] if self._executor else [])):
            process.end()
        self._candidates.clear()
        self._running.clear()
        self._executor = None


def _start_confined(address: str, function: str, channels: Sequence[socket.socket], **given: Any) -> ConfinedProcess:
    try:
        return start_process(address, function, channels, **given)
    except JailDied as error:
        raise judge_side.NoZygote(str(error)) from None


def _wait_end(process: ConfinedProcess) -> judge_side.End:
    """How `process` ended, which closed its channel; of its sentence what is more than the status."""
    sentence = process.end_sentence(GONE_WITHIN)
    if process.status is None:
        return judge_side.End(None, sentence, with_zygote=process.lost)
    why = sentence.removeprefix(f"{process.name} {how(process.status)}")
    return judge_side.End(os.waitstatus_to_exitcode(process.status), why.lstrip(":; "))


def install(target: Target, log: Path) -> str:
    """Where this worker is one of sealed cases, have the judge ask a trio of its own. Empty, or why it has none."""
    try:
        _install(log)
    except Exception as error:  # of a zygote that ended, mostly: each sealed case of this worker says so
        judge_side.why_none = f"{type(error).__name__}: {str(error)[:300]}"
    return judge_side.why_none


def _install(log: Path) -> None:
    if jail := os.environ.get(JAIL):
        unreadable()
        zygotes = [heard(each) for each in (jail, os.environ[EXECUTORS], os.environ.get(GPU_JAIL, "")) if each]
        trio = Trio(zygotes[0], zygotes[1], log, *zygotes[2:])
        for address in zygotes:
            wait_ready(address)  # what a zygote imports must not take the time of a case
        trio.start()
        judge_side.executor = trio.for_contract
        for number in (hang_report.DUMP, hang_report.LOOK):
            faulthandler.unregister(number)
            signal.signal(number, trio.looked_at)
