"""Seconds of a case by bucket."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bitverdict.harness.model.verdict import PROCESSOR

WAIT_BUCKET = "compiled elsewhere"  # the bucket of seconds in which another process compiled the kernel


class Clock:
    """Seconds by bucket; what no bucket claims is the harness's own. A launch contains its compilation, and that its wait."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.processor_begun = _processor()
        self.buckets: dict[str, float] = {}

    @contextmanager
    def measure(self, bucket: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.buckets[bucket] = self.buckets.get(bucket, 0.0) + time.perf_counter() - begun

    def seconds(self) -> dict[str, float]:
        total = time.perf_counter() - self.begun
        compiling = min(self.buckets.get("compile", 0.0), self.buckets.get("launch", 0.0))
        waited = min(self.buckets.get(WAIT_BUCKET, 0.0), compiling)
        shown = dict(self.buckets, compile=compiling - waited, launch=self.buckets.get("launch", 0.0) - compiling)
        shown |= {WAIT_BUCKET: waited} if WAIT_BUCKET in self.buckets else {}
        shown["harness"] = total - sum(shown.values())
        return {name: round(spent, 6) for name, spent in shown.items()} | {
            "total": round(total, 6),
            PROCESSOR: round(_processor() - self.processor_begun, 6),
        }


def _processor() -> float:
    """Seconds of the processor that this process had, and those that it started and that ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + ended.ru_utime + ended.ru_stime
