"""What goes wrong between the candidate's process and the one that executes. Each counts against the candidate, never as ours."""

from __future__ import annotations

from collections.abc import Mapping

CLAIMABLE = frozenset({"refused", "launcher error", "out of resources", "out of memory", "launch failure", "not modelled", "error"})
"""Outcomes that the candidate's process may claim for itself: what is known before anything of a launch has run (a grid too large
is a launch failure). It claims no other fault of a device, no pass and nothing not run."""


class WireError(Exception):
    """A frame that is malformed, too large, or says what no honest process does."""


class ChannelClosed(WireError):
    """The process at the other end closed the channel, or died."""


class CandidateGone(Exception):
    """The candidate's process died, or broke the rules of the channel, in the middle of a call: `reason` says which."""

    def __init__(self, reason: str, died: bool) -> None:
        super().__init__(reason)
        self.reason, self.died = reason, died


class CandidateRaised(Exception):
    """The candidate's code raised: `fields` are the plain ones of a `LaunchResult`, as its own process made them of the
    exception."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        super().__init__(f"{fields['outcome']}: {fields['message']}")
        self.fields = fields


__all__ = ["CLAIMABLE", "CandidateGone", "CandidateRaised", "ChannelClosed", "WireError"]
