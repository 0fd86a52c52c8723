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
    from bitverdict.harness.model.protocols import Check, Isolation, LaunchObserver

_HARNESS = "bitverdict.harness"
CHECKS = (
    f"{_HARNESS}.checks.second_call:SecondCall",
    f"{_HARNESS}.checks.sums.check:OrderOfSums",
    f"{_HARNESS}.checks.emulated_twin:EmulatedTwin",
    f"{_HARNESS}.checks.kernel_launched:KernelLaunched",
    f"{_HARNESS}.checks.provenance:OriginOfWords",
    f"{_HARNESS}.checks.promised_instructions:PromisedInstructions",
    f"{_HARNESS}.sealed.candidate.twin_comparison:SealedTwin",
    f"{_HARNESS}.checks.certificate.check:CertificateCheck",
    f"{_HARNESS}.checks.explain.check:ExplanationCheck",
    f"{_HARNESS}.checks.invariance.check:KeptPromises",
    f"{_HARNESS}.ptx_machine.check:BelowTheTileProgram",
)
"""Optional questions about a case (`bitverdict.harness.model.protocols.Check`)."""
OBSERVERS = (
    f"{_HARNESS}.checks.provenance:ProvenanceObserver",
    f"{_HARNESS}.checks.promised_instructions:InstructionObserver",
    f"{_HARNESS}.ptx_machine.check:OpenWordsObserver",
)
"""What the judge follows on a launch (`LaunchObserver`)."""
REMOTE_LAUNCHERS = {"sealed": f"{_HARNESS}.sealed.candidate.judge_side:SealedCaseLauncher"}
"""Flag of a case -> the launcher that calls it in another process (`bitverdict.harness.judge.remote_launcher.RemoteLauncher`)."""
OUTCOMES = {"CandidateRaised": f"{_HARNESS}.sealed.candidate.claims:outcome_of_candidate"}
"""Name of an exception's class -> what makes an outcome of it (`bitverdict.harness.judge.classify`)."""
ISOLATION = f"{_HARNESS}.sealed.isolation:ProcessIsolation"
"""How code that is not trusted is kept apart (`Isolation`)."""
LABORATORY = f"{_HARNESS}.lab"
"""What is measured once and written up. It needs a checkout, and no wheel has it."""
LARGE_PRODUCTS = f"{LABORATORY}.pytest_large"
"""Large products as pytest nodes."""


def resolve_feature(address: str) -> Any:
    """What stands at `address`, "module:name"."""
    module, _, name = address.partition(":")
    return getattr(importlib.import_module(module), name)


@functools.cache
def checks() -> tuple[Check[Any, Any], ...]:
    """The checks that are here."""
    return tuple(resolve_feature(address)() for address in CHECKS if _is_here(address))


@functools.cache
def observers() -> tuple[LaunchObserver, ...]:
    """The observers that are here."""
    return tuple(resolve_feature(address)() for address in OBSERVERS if _is_here(address))


@functools.cache
def isolation() -> Isolation | None:
    """How untrusted code is kept apart; None where that feature is not here."""
    return resolve_feature(ISOLATION)() if _is_here(ISOLATION) else None


def has_laboratory() -> bool:
    """Whether this is a checkout: a wheel leaves the laboratory out."""
    return _is_here(LABORATORY)


def _is_here(address: str) -> bool:
    try:
        return importlib.util.find_spec(address.partition(":")[0]) is not None
    except ModuleNotFoundError:  # the folder itself is not here
        return False
