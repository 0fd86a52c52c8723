"""Seconds of a case by bucket."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Seconds by bucket; what no bucket claims is the harness's own."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.buckets: dict[str, float] = {}

    @contextmanager
    def on(self, bucket: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.buckets[bucket] = self.buckets.get(bucket, 0.0) + time.perf_counter() - begun

    def seconds(self) -> dict[str, float]:
        total = time.perf_counter() - self.begun
        compiling = min(self.buckets.get("compile", 0.0), self.buckets.get("launch", 0.0))
        shown = dict(self.buckets, compile=compiling, launch=self.buckets.get("launch", 0.0) - compiling)
        shown["harness"] = total - sum(shown.values())
        return {name: round(spent, 6) for name, spent in shown.items()} | {"total": round(total, 6)}
