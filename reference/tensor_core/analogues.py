"""Chips that take another chip's rules whole, by analogy: no words of them are at hand, and no model names them."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core import sm_75, sm_80, sm_100, sm_120
from bitverdict.reference.tensor_core.evidence import EvidenceKind, analogy
from bitverdict.reference.tensor_core.record import Instruction

LIKE = {"sm_86": sm_80, "sm_87": sm_80, "sm_103": sm_100, "sm_110": sm_100, "sm_121": sm_120}


def _like(arch: str, rule: Instruction) -> Instruction:
    exact = rule.evidence.kind is EvidenceKind.SPECIFICATION
    return replace(
        rule, arch=arch, evidence=rule.evidence if exact else analogy(rule.arch, "no words of this chip", *rule.evidence.sources)
    )


INSTRUCTIONS = (
    *sm_75.INSTRUCTIONS,
    *sm_120.INSTRUCTIONS,
    *(_like(arch, rule) for arch, other in LIKE.items() for rule in other.INSTRUCTIONS),
)
