"""What stands for a sealed candidate where cases are chosen: it says what the candidate's process said, and is never called.

A worker of sealed cases is asked, as for a verdict, because the process that chooses starts no executor of its own.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bitverdict.harness.model import sealing
from bitverdict.harness.model.targets import nearest_emulated
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.sealed.candidate.description import SealedLauncher
from bitverdict.harness.sealed.processes import jails
from bitverdict.harness.workers.process import Worker, WorkerDied
from bitverdict.harness.workers.start import Start
from bitverdict.harness.workers.task import Task, task_result_of

ANSWERED_WITHIN = 120.0  # seconds; the candidate's file is imported meanwhile
ARCH = "sm_90"  # what the file finds when it asks for its GPU, as where it is imported unsealed


class DescriptionWorker:
    """A worker that is asked about sealed candidates; ended with this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._workers: dict[str, Worker] = {}

    def ask(self, address: str, folders: Sequence[str], fields: Sequence[Mapping[str, object]] | None) -> Any:
        """What the candidate at `address` says of itself, or of `fields` whether it takes them. UsageError where it cannot."""
        given = {"address": address, "folders": list(folders), "fields": fields}
        for _ in range(2):  # once more where the zygote of its processes has ended
            start = jails.start_of(address, folders)
            verdict, jail_end = self._ask_worker(start, address, given), jails.last_words(start)
            if jails.start_of(address, folders).name == start.name:
                break
        if verdict is None or verdict.decision is not Decision.PASS:
            self._workers.pop(start.name).end()
            said = f"{address}: its process says nothing within {ANSWERED_WITHIN:g} s; fix the file"
            told = f"{address}: {jail_end}" if jail_end else verdict.message if verdict is not None else said
            raise UsageError(told)
        return task_result_of(verdict)

    def _ask_worker(self, start: Start, address: str, task_fields: Mapping[str, object]) -> Verdict | None:
        worker = self._workers.get(start.name) or Worker(nearest_emulated(ARCH), self._directory, (), start)
        self._workers[start.name] = worker
        try:
            worker.wait_ready()
            worker.send(
                Task(
                    function="bitverdict.harness.sealed.processes.description_task:describe_candidate",
                    contract=address,
                    given=task_fields,
                )
            )
            return worker.answer(ANSWERED_WITHIN)
        except WorkerDied:
            return None

    def end(self) -> None:
        """End the workers, and remove what they printed."""
        for worker in self._workers.values():
            worker.end()
        shutil.rmtree(self._directory, ignore_errors=True)


@functools.cache
def _description_worker(process: int) -> DescriptionWorker:
    made = DescriptionWorker(Path(tempfile.mkdtemp(prefix="bitverdict-")))
    atexit.register(lambda: made.end() if os.getpid() == process else None)
    return made


@functools.cache
def _launcher(process: int, address: str) -> SealedLauncher:
    folders = sealing.folders_of(address)
    return SealedLauncher(
        _description_worker(process).ask(address, folders, None),
        lambda fields: _description_worker(os.getpid()).ask(address, folders, fields),
    )


def stand_in(address: str) -> SealedLauncher:
    """What stands for the sealed candidate at `address` in this process."""
    return _launcher(os.getpid(), address)


def begin(address: str, folders: Sequence[str] = (), said: object = None) -> None:
    """From here on the candidate at `address` is sealed in this process, and its own process can be asked (`sealing.seal`)."""
    sealing.stand_in = stand_in
    sealing.seal(address, said, folders)
    jails.start_of(address, folders)  # its zygotes import while this process does
