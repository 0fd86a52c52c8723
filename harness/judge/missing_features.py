"""Which feature a target lacks, by what the compiler says of a kernel that uses it: nobody declares what a user's kernel needs."""

from __future__ import annotations

import re
from collections.abc import Collection

from bitverdict.harness.model.architectures import Feature
from bitverdict.harness.model.verdict import Verdict

_SAID = (
    (r"fp8e4nv", Feature.FP8_E4M3),  # front end: "type fp8e4nv not supported in this architecture"
    (r"tcgen05|tensor.?memory|tmem", Feature.TCGEN05),
    (r"wgmma|warp.?group.?dot", Feature.WGMMA),
    (r"gather4|async_tma_gather", Feature.TMA_GATHER),
    (r"scatter4|async_tma_scatter", Feature.TMA_SCATTER),
    (r"\btma\b|async_tma|tensor.?desc|bulk.?tensor", Feature.TMA),
    (r"mbarrier", Feature.MBARRIER),
    (r"clusters?\b|num_ctas", Feature.CLUSTERS),
)
"""A pattern of a refusal -> the feature that it means, where the target lacks it; the first that fits counts."""


def missing_feature(refused: Verdict, has: Collection[Feature]) -> Feature | None:
    """The feature that a refusal is about, where it is not one of `has`; None where the refusal is about something else."""
    said = f"{refused.message}\n{refused.details.get('text', '')}"
    return next((feature for pattern, feature in _SAID if feature not in has and re.search(pattern, said, re.IGNORECASE)), None)
