"""The journal: each case is on disk before it is launched, and its verdict after. A kill of anything loses no case.

One file a run, one JSON record a line: ``{"event": "begin", "number", "time", "target", "case"}``, then ``{"event": "end",
"number", "time", "verdict"}``. A begin without an end is a case that was out when the run died. A line is one `write`.
"""

from __future__ import annotations

import itertools
import json
import os
import threading
import time
from pathlib import Path

from harness.contract import Case
from harness.verdict import Verdict

CHECKOUT = Path(__file__).resolve().parent.parent


def state_directory() -> Path:
    """Where runs leave what git ignores: `HARNESS_STATE`, or ``.harness`` in the checkout. Not created here."""
    return Path(os.environ.get("HARNESS_STATE") or CHECKOUT / ".harness")


class Journal:
    """Append-only; the file appears with the first case. Safe for the threads of one process."""

    def __init__(self, path: Path | None = None) -> None:
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
        self.path = path or state_directory() / "journal" / f"{stamp}-{os.getpid()}.jsonl"
        self._numbers = itertools.count()
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def begin(self, case: Case, target: str) -> int:
        """Write the case; returns its number in this journal."""
        number = next(self._numbers)
        self._write({"event": "begin", "number": number, "time": time.time(), "target": target, "case": case.to_json()})
        return number

    def end(self, number: int, verdict: Verdict) -> None:
        short = {"ruling": verdict.ruling, "outcome": verdict.outcome, "message": verdict.message, "seconds": verdict.seconds}
        self._write({"event": "end", "number": number, "time": time.time(), "verdict": short})

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, record: dict) -> None:
        with self._lock:
            if self._descriptor is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.write(self._descriptor, (json.dumps(record, separators=(",", ":")) + "\n").encode())


def unfinished(path: Path) -> list[dict]:
    """The begin records of cases that never came to an end, in order. A torn last line is left out."""
    open_cases: dict[int, dict] = {}
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["event"] == "begin":
            open_cases[record["number"]] = record
        else:
            open_cases.pop(record["number"], None)
    return list(open_cases.values())
