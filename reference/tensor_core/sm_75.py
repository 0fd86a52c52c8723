"""Turing (T4): fp16 alone, in one block of 8 as on Ampere. No words of it are at hand: a model's numbers."""

from __future__ import annotations

from bitverdict.reference.tensor_core import sm_80
from bitverdict.reference.tensor_core.constructors import integers
from bitverdict.reference.tensor_core.evidence import model_only

ARCH = "sm_75"
INSTRUCTIONS = (
    *(sm_80.mma(ARCH, "fp16", d, model_only("MS")) for d in ("fp32", "fp16")),  # [MS]
    integers(ARCH, "mma.sync", "mma.sync", block=16),
)
