"""Which feature a target lacks, by what the compiler says of a kernel that uses it: nobody declares what a user's kernel needs.

A verifier's sentence is printed, not raised, and stands in the worker's log. So a refusal of a user's kernel that says nothing goes
back with `NAMELESS` in its details, and who reads the log asks once more.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from bitverdict.harness.judge.compile_errors import says_nothing
from bitverdict.harness.model.architectures import Feature
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import NAMELESS, REFUSED_BY, Basis, Decision, Outcome, Verdict

COMPILER = ("emulator", "verifier", "ptxas")  # layers that refuse what an architecture does not have

_FEATURE_PATTERNS = (
    (r"fp8e4nv", Feature.FP8_E4M3),  # front end: "type fp8e4nv not supported in this architecture"
    (r"tcgen05|tensor.?memory|tmem", Feature.TCGEN05),
    (r"wgmma|warp.?group.?dot", Feature.WGMMA),
    (r"gather4|async_tma_gather", Feature.TMA_GATHER),
    (r"scatter4|async_tma_scatter", Feature.TMA_SCATTER),
    (r"\btma\b|async_tma|tensor.?desc|bulk.?tensor", Feature.TMA),
    (r"mbarrier", Feature.MBARRIER),
    (r"clusters?\b|num_ctas > 1", Feature.CLUSTERS),
)
"""A pattern of a refusal -> the feature that it means, where the target lacks it; the first that fits counts."""


def missing_feature(refused: Verdict, has: Collection[Feature]) -> Feature | None:
    """The feature that a refusal is about, where it is not one of `has`; None where the refusal is about something else."""
    said = f"{refused.message}\n{refused.details.get('text', '')}"
    return next(
        (feature for pattern, feature in _FEATURE_PATTERNS if feature not in has and re.search(pattern, said, re.IGNORECASE)), None
    )


def held_to_features(verdict: Verdict, target: Target) -> Verdict:
    """The verdict on a user's kernel: *not run* where the compiler refuses it for a feature that `target` lacks."""
    layer = verdict.details.get("layer")
    if not verdict.failed or verdict.outcome is not Outcome.REFUSED or layer not in (*COMPILER, "front end"):
        return verdict
    feature = missing_feature(verdict, target.features)
    if feature is not None:
        return not_run(f"{target.name} lacks {feature}: {verdict.message}", refused_by=layer)
    details = {name: value for name, value in verdict.details.items() if name != NAMELESS}
    return replace(verdict, details=details | ({NAMELESS: True} if says_nothing(verdict) else {}))


def not_run(why: str, *, refused_by: str | None = None) -> Verdict:
    details = {REFUSED_BY: refused_by} if refused_by else {}
    return Verdict(decision=Decision.NOT_RUN, outcome=Outcome.NOT_RUN, basis=Basis.NO_BASIS, message=why, details=details)
