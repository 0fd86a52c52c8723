"""Runs without processes: a clock that a test moves."""

from __future__ import annotations


class FakeClock:
    """Seconds that go by when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
