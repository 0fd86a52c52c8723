"""Processes that a SIGINT ends or cancels, also where the tests were started in the background, which ignores it; and the cases
that a journal says were being judged when its process ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bitverdict.harness.workers.journal import records


@contextmanager
def answering(disposition: signal.Handlers | None = None) -> Iterator[None]:
    """What is started in here has `disposition` for SIGINT from its start; by default that of a process in the foreground."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler if disposition is None else disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)


def unfinished_records(path: Path) -> list[dict]:
    """The begin records of cases that never came to an end, in order. A torn last line is left out."""
    open_cases: dict[int, dict] = {}
    for record in records(path):
        if record["event"] == "begin":
            open_cases[record["number"]] = record
        elif record["event"] == "end":
            open_cases.pop(record["number"], None)
    return list(open_cases.values())
