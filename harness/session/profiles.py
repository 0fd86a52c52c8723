"""How far a run goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How far a run goes. Required cases are judged whole whatever the profile; `seconds` ends the drawn cases of a run,
    `node_seconds` those of one pytest node (there are as many nodes as contracts times targets)."""

    name: str
    draws: int  # per contract and target
    seconds: float | None
    node_seconds: float | None
    shrink_seconds: float  # per bug


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", draws=40, seconds=45, node_seconds=8, shrink_seconds=20),
        Profile("ci", draws=300, seconds=240, node_seconds=25, shrink_seconds=60),
        Profile("exhaustive", draws=10_000, seconds=None, node_seconds=None, shrink_seconds=300),
    )
}
