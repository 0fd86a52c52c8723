"""Which optional features there are: one line each, by address, in the order in which they are taken.

Rooms of the spine ask this table and name no feature. A feature whose module is not here is left out. Nothing is imported before it
is asked for the first time.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bitverdict.harness.model.protocols import Check, Isolation, LaunchProbe

_HARNESS = "bitverdict.harness"
CHECKS = (
    f"{_HARNESS}.judge.called_again:SecondCall",
    f"{_HARNESS}.judge.sums.check:OrderOfSums",
    f"{_HARNESS}.judge.beside_emulated:EmulatedTwin",
    f"{_HARNESS}.judge.kernel_launched:KernelLaunched",
    f"{_HARNESS}.judge.provenance:OriginOfWords",
    f"{_HARNESS}.judge.promised_instructions:PromisedInstructions",
    f"{_HARNESS}.judge.sealed.beside:SealedTwin",
    f"{_HARNESS}.judge.certificate.check:Certified",
    f"{_HARNESS}.judge.explain.check:Explained",
    f"{_HARNESS}.judge.invariance.check:KeptPromises",
)
"""Optional questions about a case (`bitverdict.harness.model.protocols.Check`)."""
PROBES = (
    f"{_HARNESS}.judge.provenance:ProvenanceProbe",
    f"{_HARNESS}.judge.promised_instructions:InstructionProbe",
)
"""What rides on a launch (`LaunchProbe`)."""
REMOTE_LAUNCHERS = {"sealed": f"{_HARNESS}.judge.sealed.asking:Sealed"}
"""Flag of a case -> the launcher that calls it in another process (`bitverdict.harness.judge.remote_launcher.RemoteLauncher`)."""
OUTCOMES = {"CandidateRaised": f"{_HARNESS}.judge.sealed.claims:outcome_of_candidate"}
"""Name of an exception's class -> what makes an outcome of it (`bitverdict.harness.judge.classify`)."""
ISOLATION = f"{_HARNESS}.workers.sealed.isolation:ProcessIsolation"
"""How code that is not trusted is kept apart (`Isolation`)."""


def resolve_feature(address: str) -> Any:
    """What stands at `address`, "module:name"."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def checks() -> tuple[Check, ...]:
    """The checks that are here."""
    return tuple(resolve_feature(address)() for address in CHECKS if _is_here(address))


@functools.cache
def probes() -> tuple[LaunchProbe, ...]:
    """The probes that are here."""
    return tuple(resolve_feature(address)() for address in PROBES if _is_here(address))


@functools.cache
def isolation() -> Isolation | None:
    """How untrusted code is kept apart; None where that feature is not here."""
    return resolve_feature(ISOLATION)() if _is_here(ISOLATION) else None


def _is_here(address: str) -> bool:
    try:
        return importlib.util.find_spec(address.partition(":")[0]) is not None
    except ModuleNotFoundError:  # the folder itself is not here
        return False
