"""Outcomes that several contracts expect in place of an output, each said in one place."""

from __future__ import annotations

from bitverdict.harness.model.contract import ExpectedOutcome


def beyond_shared_memory(needed: int, limit: int, arch: str) -> ExpectedOutcome | None:
    """Out of resources where a launch needs `needed` bytes of shared memory and `arch` has but `limit`; None if they fit."""
    if needed <= limit:
        return None
    reason = f"{needed} bytes of shared memory, {arch} has {limit}"
    return ExpectedOutcome(result=False, outcome="out of resources", layer="capacity", message="shared memory", reason=reason)


def without_e4m3(arch: str) -> ExpectedOutcome:
    """Triton's front end refuses the type e4m3 (fp8e4nv) on `arch`, which has none."""
    return ExpectedOutcome(result=False, outcome="refused", layer="front end", message="fp8e4nv", reason=f"{arch} has no e4m3")
