"""Processes that a SIGINT ends or cancels, also where the tests were started in the background, which ignores it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def answering(disposition: signal.Handlers | None = None) -> Iterator[None]:
    """What is started in here has `disposition` for SIGINT from its start; by default that of a process in the foreground."""
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler if disposition is None else disposition)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
