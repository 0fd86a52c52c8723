"""A launch in another process, and what the judge computes meanwhile: the expected outputs, as far as they do not depend on it.

They follow from the case and its operands. A contract that asks what was recorded of the launch (its instructions, its outputs)
waits there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.clock import Clock

T = TypeVar("T")


class PendingLaunch:
    """A launch that goes on in another process. `answer` waits for its end."""

    def __init__(self, answer: Callable[[], LaunchResult]) -> None:
        self._answer = answer
        self._seen: LaunchResult | None = None
        self.waited = 0.0  # seconds

    def launch_result(self) -> LaunchResult:
        """What the launch came to; waits for its end."""
        if self._seen is None:
            begun = time.perf_counter()
            self._seen = self._answer()
            self.waited = time.perf_counter() - begun
        return self._seen


class PendingRecord(Mapping[str, Any]):
    """`LaunchResult.recorded` of a pending launch: reading a part of it waits for the end."""

    def __init__(self, going: PendingLaunch) -> None:
        self._going = going

    def __getitem__(self, name: str) -> Any:
        return self._going.launch_result().launch_record[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._going.launch_result().launch_record)

    def __len__(self) -> int:
        return len(self._going.launch_result().launch_record)


def compute_meanwhile(
    pending_launch: PendingLaunch, clock: Clock, work: Callable[[Mapping[str, object]], T]
) -> tuple[LaunchResult, Callable[[], T]]:
    """What a launch came to; and what gives what `work` made of its record meanwhile, or raises what that raised.

    The time that both took is the launch's: what `work` took longer goes into the bucket `reference`."""
    start, before = time.perf_counter(), sum(clock.buckets.values())
    results: list[T] = []
    failure: Exception | None = None
    try:
        results.append(work(PendingRecord(pending_launch)))
    except Exception as error:  # told where the launch was no fault: else nobody asks what is expected
        failure = error
    worked = time.perf_counter() - start - pending_launch.waited
    launch_result = pending_launch.launch_result()
    launched = sum(clock.buckets.values()) - before
    clock.buckets["reference"] = clock.buckets.get("reference", 0.0) + max(worked - launched, 0.0)

    def expected_result() -> T:
        if failure is not None:
            raise failure
        return results[0]

    return launch_result, expected_result


__all__ = ["PendingLaunch", "PendingRecord", "compute_meanwhile"]
