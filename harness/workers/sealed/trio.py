"""A judging worker's executor, and its processes of the candidate: started when the first sealed case asks, ended with the worker.

Both kinds are confined processes of zygotes that the run has started (`bitverdict.harness.workers.sealed.jails`). The worker hands
the sockets of the candidate's processes to the executor, which can start and connect nothing.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
from pathlib import Path
from typing import Any

from bitverdict.harness.judge import hang_report
from bitverdict.harness.judge.sealed import asking
from bitverdict.harness.judge.sealed.arrays import channel_of
from bitverdict.harness.model.targets import Target
from bitverdict.harness.workers.jail.confine import unreadable
from bitverdict.harness.workers.jail.jail import ConfinedProcess, how, start_process, wait_ready
from bitverdict.harness.workers.jail.policy import EXECUTOR
from bitverdict.harness.workers.sealed.jails import EXECUTORS, JAIL, heard

GONE_WITHIN = 2.0  # seconds in which a process that closed its channel is reaped


class Trio:
    """The executor of this worker, and the processes of the candidate that it was handed."""

    def __init__(self, jail: str, executors: str, log: Path) -> None:
        self._jail, self._executors, self._log = jail, executors, log
        self._executor: ConfinedProcess | None = None
        self._contract: str | None = None
        self._candidates: dict[int, ConfinedProcess] = {}
        self._running: tuple[str, int] | None = None
        self._count = 0

    def start(self) -> None:
        """Start an executor, which has imported no contract yet."""
        ours, theirs = socket.socketpair()
        self._handing, handed = socket.socketpair()
        self._executor = start_process(
            self._executors,
            "bitverdict.harness.workers.sealed.executing:serve",
            (theirs, handed),
            log=self._log,
            name=EXECUTOR.name,
        )
        theirs.close()
        handed.close()
        self.channel, self._contract = channel_of(ours), None

    def asked(self, contract: str) -> Trio:
        """This, with an executor that imports `contract` and no other: it can import nothing once it is confined."""
        if self._executor is not None and self._contract not in (None, contract):
            self.end()
        if self._executor is None:
            self.start()
        self._contract = contract
        return self

    def candidate(self, address: str, *, afresh: bool) -> int:
        if not afresh and self._running is not None and self._running[0] == address:
            self._candidates[self._running[1]].new_case()
            return self._running[1]
        self._count += 1
        ours, theirs = socket.socketpair()
        self._candidates[self._count] = start_process(
            self._jail, "bitverdict.harness.judge.sealed.candidate:serve", (theirs,), log=self._log
        )
        socket.send_fds(self._handing, [b"c"], [ours.fileno()])
        ours.close()
        theirs.close()
        if not afresh:
            if self._running is not None:
                self._candidates.pop(self._running[1]).end()
            self._running = address, self._count
        return self._count

    def dropped(self, candidate: int, *, died: bool = False) -> asking.End:
        process = self._candidates.pop(candidate)
        if self._running is not None and self._running[1] == candidate:
            self._running = None
        end = _ended(process) if died else asking.End()
        process.end()
        return end

    def ended(self) -> asking.End:
        """All of them go with the executor."""
        assert self._executor is not None
        end = _ended(self._executor)
        self.end()
        return end

    def looked_at(self, number: int, frame: Any) -> None:
        """Where this worker hangs the executor says: it has the kernel, and it knows whether it waits for the candidate."""
        if self._executor is not None:
            os.kill(self._executor.pid, number)

    def end(self) -> None:
        for process in (*self._candidates.values(), *([self._executor] if self._executor else [])):
            process.end()
        self._candidates.clear()
        self._executor = self._running = None


def _ended(process: ConfinedProcess) -> asking.End:
    """How `process` ended, which closed its channel; of its sentence what is more than the status."""
    sentence = process.ended(GONE_WITHIN)
    if process.status is None:
        return asking.End(None, sentence)
    why = sentence.removeprefix(f"{process.name} {how(process.status)}")
    return asking.End(os.waitstatus_to_exitcode(process.status), why.lstrip(":; "))


def install(target: Target, log: Path) -> None:
    """Where this worker is one of sealed cases, have the judge ask a trio of its own."""
    if jail := os.environ.get(JAIL):
        unreadable()
        trio = Trio(heard(jail), heard(os.environ[EXECUTORS]), log)
        for address in (heard(jail), heard(os.environ[EXECUTORS])):
            wait_ready(address)  # what a zygote imports must not take the time of a case
        trio.start()
        asking.executor = trio.asked
        for number in (hang_report.DUMP, hang_report.LOOK):
            faulthandler.unregister(number)
            signal.signal(number, trio.looked_at)
