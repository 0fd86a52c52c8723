"""The journal: each case is on disk before it is launched, and its verdict after. A kill of anything loses no case.

One file a run, one JSON record a line, one `write` a line: ``{"event": "begin", "number", "time", "target", "case"}``, then
``{"event": "end", "number", "time", "verdict"}``. A begin without an end is a case that was out when the run died. A task
(`bitverdict.harness.workers.task`) stands under "task", where a case stands under "case". A run of the command line writes what it
was asked before them, and what its clock decided between them (`bitverdict.harness.session.resume`). A sealed run writes
``committed`` before them and ``revealed`` after them (`bitverdict.harness.sealed.secret_draws`).
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bitverdict.harness.judge.machine_faults import writing
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import make_state, state_directory
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.harness.workers.task import Task

_journals = itertools.count()


class Journal:
    """Append-only; the file appears with the first record and is locked while it is written. Safe for the threads of a process."""

    def __init__(self, path: Path | None = None, *, first: int = 0) -> None:
        """`first` is the number of the next case: not 0 in a journal that is taken up again."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.path = path or state_directory() / "journal" / f"{stamp}-{os.getpid()}-{next(_journals)}.jsonl"
        self._numbers = itertools.count(first)
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def begin(self, work: Case | Task, target: str) -> int:
        """Write the case or the task; returns its number in this journal."""
        number = next(self._numbers)
        self.note("begin", number=number, target=target, **{"task" if isinstance(work, Task) else "case": work.to_json()})
        return number

    def end(self, number: int, verdict: Verdict) -> None:
        self.note("end", number=number, verdict=verdict_record(verdict))

    def note(self, event: str, **what: object) -> None:
        """One record of any kind."""
        record = {"event": event, "time": time.time()} | what
        line = (json.dumps(record, separators=(",", ":"), default=str) + "\n").encode()
        with self._lock:
            if self._descriptor is None:
                self._open()
            assert self._descriptor is not None
            with writing("journal", self.path):
                while line:  # on a disk that is nearly full a part of it
                    line = line[os.write(self._descriptor, line) :]

    def make_folder(self) -> None:
        """Have the folder, in which workers' logs lie too."""
        with writing("journal", self.path):
            make_state(self.path.parent)

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _open(self) -> None:
        self.make_folder()
        with writing("journal", self.path):
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            self._descriptor = None
            raise UsageError(f"journal {self.path}: another run is writing it; wait for its end, or end it") from None
        size = os.fstat(self._descriptor).st_size
        if size and os.pread(self._descriptor, 1, size - 1) != b"\n":  # a line that a kill tore: what follows is a line of its own
            os.write(self._descriptor, b"\n")


def verdict_record(verdict: Verdict) -> dict:
    """The verdict as JSON, for journals, reproducers and results; of one that passes without what is empty and without details."""
    record = verdict.to_json()
    if verdict.decision is not Decision.PASS:
        return record
    return {name: value for name, value in record.items() if name != "details" and value not in ([], {}, None, "")}


def records(path: Path) -> Iterator[dict]:
    """The records of a journal, in order. A torn line, which a kill may leave, is left out: its case counts as not judged."""
    with path.open(errors="replace") as lines:
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and "event" in record:
                yield record


def in_use(path: Path) -> bool:
    """Whether a living run writes this journal. One that was killed a moment ago may still hold its lock, and is given a second."""
    end = time.monotonic() + 1.0
    with path.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except OSError:
                if time.monotonic() > end:
                    return True
                time.sleep(0.02)
