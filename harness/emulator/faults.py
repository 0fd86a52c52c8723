"""What an emulated GPU has to say: the one exception its launches raise, and nothing else."""

from __future__ import annotations


class EmulatedFault(Exception):
    """A launch that the emulated GPU convicts, or declines to judge.

    `outcome` is the word of `harness.verdict.Outcome` ("race", "stray write", "not modelled", ...), `location` is ``file:line`` of
    the operation at fault, `details` what a person reads next: both ends of a race, the executed IR, the state of barriers, the
    schedule.
    """

    def __init__(self, outcome: str, message: str, location: str = "", details: dict | None = None) -> None:
        super().__init__(f"{outcome}: {message}" + (f" [{location}]" if location else ""))
        self.outcome, self.message, self.location, self.details = outcome, message, location, details or {}

    def __reduce__(self) -> tuple:
        return type(self), (self.outcome, self.message, self.location, self.details)
