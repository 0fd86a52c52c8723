"""How far a run goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Profile:
    """How far a run goes. Every required case is judged whatever the profile; `seconds` ends the drawn cases of a run,
    `node_seconds` those of one pytest node (as many nodes as contracts times targets), each once it has dealt `node_least`
    of each contract and target. They deal fewer only where these took more than `node_processor_seconds` of the processor, which
    other work on the machine does not change. `case_seconds`: a case that takes longer is a timeout. `whole`: the cases at the
    tutorials' own sizes are judged too (`Contract.whole`)."""

    name: str
    draws: int  # per contract and target
    seconds: float | None
    node_seconds: float | None
    shrink_seconds: float  # per bug
    case_seconds: float = 120.0
    full_sizes: bool = False
    node_least: int = 0
    node_processor_seconds: float = 0.0


PROFILES = {
    profile.name: profile
    for profile in (
        Profile("quick", draws=40, seconds=45, node_seconds=0.25, shrink_seconds=20, node_least=10, node_processor_seconds=10.0),
        Profile("ci", draws=300, seconds=240, node_seconds=0.5, shrink_seconds=60, node_least=40, node_processor_seconds=40.0),
        Profile("exhaustive", draws=10_000, seconds=None, node_seconds=None, shrink_seconds=300),
        Profile("whole", draws=0, seconds=None, node_seconds=None, shrink_seconds=300, case_seconds=7200, full_sizes=True),
    )
}
