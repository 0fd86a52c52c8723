"""What the end of a process over a case is called, by its exit status."""

from __future__ import annotations

import signal

from bitverdict.harness.model.verdict import Outcome

_DEATHS = {
    signal.SIGSEGV: Outcome.SEGMENTATION_FAULT,
    signal.SIGBUS: Outcome.SEGMENTATION_FAULT,
    signal.SIGABRT: Outcome.COMPILER_ABORT,
    signal.SIGKILL: Outcome.KILLED,
    signal.SIGTERM: Outcome.KILLED,
}


def of_status(status: int | None, process: str = "the process") -> tuple[Outcome, str]:
    """The outcome and one sentence for the exit `status` of `process`: -N for signal N."""
    if status is not None and status < 0:
        died = signal.Signals(-status)
        return _DEATHS.get(died, Outcome.KILLED), f"{process} died of {died.name}"
    return Outcome.LAUNCHER_ERROR, f"{process} left by exit"
