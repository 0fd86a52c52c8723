"""What the judge computes while the executor launches: what is expected, as far as that does not hang on the launch.

Of the processes that a sealed case goes through one works at a time, and the judge waits longest. What is expected follows from
the case and its operands. A contract that asks what was recorded of the launch (its instructions, its outputs) waits there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.clock import Clock

T = TypeVar("T")


class Going:
    """A launch that goes on in the executor. `answer` waits for what it comes to."""

    def __init__(self, answer: Callable[[], Seen]) -> None:
        self._answer = answer
        self._seen: Seen | None = None
        self.waited = 0.0  # seconds

    def seen(self) -> Seen:
        """What it came to."""
        if self._seen is None:
            begun = time.perf_counter()
            self._seen = self._answer()
            self.waited = time.perf_counter() - begun
        return self._seen


class Recorded(Mapping[str, Any]):
    """`Seen.recorded` of a launch that goes on: who asks for a part of it waits."""

    def __init__(self, going: Going) -> None:
        self._going = going

    def __getitem__(self, name: str) -> Any:
        return self._going.seen().recorded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._going.seen().recorded)

    def __len__(self) -> int:
        return len(self._going.seen().recorded)


def meanwhile(going: Going, clock: Clock, work: Callable[[Mapping[str, Any]], T]) -> tuple[Seen, Callable[[], T]]:
    """What a launch came to; and what gives what `work` made of its record meanwhile, or raises what that raised.

    The time that both took is the launch's: what `work` took longer goes into the bucket `reference`."""
    begun, before = time.perf_counter(), sum(clock.buckets.values())
    made: list[T] = []
    failed: Exception | None = None
    try:
        made.append(work(Recorded(going)))
    except Exception as error:  # told where the launch was no fault: else nobody asks what is expected
        failed = error
    worked = time.perf_counter() - begun - going.waited
    seen = going.seen()
    launched = sum(clock.buckets.values()) - before
    clock.buckets["reference"] = clock.buckets.get("reference", 0.0) + max(worked - launched, 0.0)

    def told() -> T:
        if failed is not None:
            raise failed
        return made[0]

    return seen, told


__all__ = ["Going", "Recorded", "meanwhile"]
