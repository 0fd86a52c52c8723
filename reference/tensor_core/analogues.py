"""Chips of which no words are at hand: Turing and consumer Blackwell by a model's numbers, others by another chip's rules whole."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core import sm_80, sm_90, sm_100
from bitverdict.reference.tensor_core.constructors import dense, integers
from bitverdict.reference.tensor_core.evidence import EvidenceKind, analogy, model_only
from bitverdict.reference.tensor_core.record import Choices, Instruction

BY_MODEL = model_only("MS")
TURING = (
    *(sm_80.mma("sm_75", "fp16", d, BY_MODEL) for d in ("fp32", "fp16")),  # [MS]
    integers("sm_75", "mma.sync", "mma.sync", block=16),
)
"""T4: fp16 alone, in one block of 8 as on Ampere."""
OF_TCGEN05 = analogy("sm_100", "MMA-Sim differs in corners, as there", "SF")
CONSUMER_BLACKWELL = (
    *(dense("sm_120", "mma.sync", "mma.sync", *key, BY_MODEL) for key in sm_90.DENSE),  # [MS]
    *(
        replace(rule, arch="sm_120", family="mma.sync", evidence=BY_MODEL, choices=Choices())  # [MS]
        for rule in sm_100.INSTRUCTIONS
        if rule.kind in ("f8f6f4", "mxf8f6f4")
    ),
    *(
        replace(rule, arch="sm_120", family="mma.sync", evidence=OF_TCGEN05)
        for rule in sm_100.INSTRUCTIONS
        if rule.kind in ("mxf4", "mxf4nvf4")
    ),
    integers("sm_120", "mma.sync", "mma.sync"),
)
"""RTX 50: mma.sync as on Hopper; fp8, fp6 and fp4 with 25 fraction bits, and block scales as tcgen05 has them."""
LIKE = {
    "sm_86": sm_80.INSTRUCTIONS,
    "sm_87": sm_80.INSTRUCTIONS,
    "sm_103": sm_100.INSTRUCTIONS,
    "sm_110": sm_100.INSTRUCTIONS,
    "sm_121": CONSUMER_BLACKWELL,
}


def _like(arch: str, rule: Instruction) -> Instruction:
    exact = rule.evidence.kind is EvidenceKind.SPECIFICATION
    return replace(
        rule, arch=arch, evidence=rule.evidence if exact else analogy(rule.arch, "no words of this chip", *rule.evidence.sources)
    )


INSTRUCTIONS = (*TURING, *CONSUMER_BLACKWELL, *(_like(arch, rule) for arch, rules in LIKE.items() for rule in rules))
