"""Which instruction a chip has for given operands."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core import analogues, cdna, sm_80, sm_89, sm_90, sm_100
from bitverdict.reference.tensor_core.constructors import register_halves
from bitverdict.reference.tensor_core.evidence import analogy, hardware
from bitverdict.reference.tensor_core.record import Accumulator, Choices, Instruction
from bitverdict.reference.tensor_core.sides import apply_choices

INSTRUCTIONS: tuple[Instruction, ...] = (
    *sm_80.INSTRUCTIONS,
    *sm_89.INSTRUCTIONS,
    *sm_90.INSTRUCTIONS,
    *sm_100.INSTRUCTIONS,
)
"""NVIDIA's whose numbers rest on words of the chip or on two models."""
ANALOGUES: tuple[Instruction, ...] = analogues.INSTRUCTIONS
"""NVIDIA's that rest on one model or on an analogy: `instruction` finds them. A launch on such a chip is held to a bound."""
MFMA: tuple[Instruction, ...] = cdna.INSTRUCTIONS
"""AMD's. They are apart, because a derived bound of NVIDIA's (`block`, `fraction_bits`) does not hold for them."""
ALL_INSTRUCTIONS = INSTRUCTIONS + ANALOGUES + MFMA


def instruction(
    arch: str,
    family: str,
    a: str,
    b: str,
    d: str,
    *,
    scale: str | None = None,
    scale_block: int | None = None,
    kind: str | None = None,
    k: int | None = None,
    choices: Choices | None = None,
) -> Instruction:
    """The record for `arch` ("sm_90"), `family` ("mma.sync", "wgmma", "tcgen05", "mfma") and format names of a, b and d.

    Block-scaled kinds need `scale` ("e8m0", "ue4m3"), and `scale_block` or `kind` where several have it. `k` is the K of the
    instruction's shape where it is one of the short ones (mma.sync fp16 k8, tf32 k4, fp8 k16): its block is then no longer than
    that. Raises ValueError with what there is when there is none, or more than one.
    """
    same_chip = [candidate for candidate in ALL_INSTRUCTIONS if (candidate.arch, candidate.family) == (arch, family)]
    if not same_chip:
        available = sorted({f"{candidate.arch} {candidate.family}" for candidate in ALL_INSTRUCTIONS})
        raise ValueError(f"no tensor core {arch} {family} is modelled; there are: {', '.join(available)}")
    matches = [candidate for candidate in same_chip if (candidate.a, candidate.b, candidate.d, candidate.scale) == (a, b, d, scale)]
    matches = [
        candidate for candidate in matches if scale_block in (None, candidate.scale_block) and kind in (None, candidate.kind)
    ]
    if len(matches) > 1:
        raise ValueError(f"{len(matches)} instructions fit; name `kind` and `scale_block`: {'; '.join(f.name for f in matches)}")
    if not matches:
        available = sorted(
            {f"{candidate.a} x {candidate.b} -> {candidate.d}" for candidate in same_chip if candidate.scale == scale}
        )
        raise ValueError(f"{arch} {family} has no {a} x {b} -> {d} with scale {scale}; there are: {', '.join(available) or 'none'}")
    rule = matches[0] if choices is None else apply_choices(matches[0], choices)
    if k is None or k >= rule.span:
        return rule
    if rule.accumulator is Accumulator.ADDED_AFTER:
        measured = arch == "sm_90" and a == b
        evidence = hardware(f"h200_own_mmasync_k{k}_{a}") if measured else analogy(f"sm_90 k{k}", "this shape", "H200")
        return replace(rule, block=k // 2, passes=register_halves(k), evidence=evidence)
    return replace(rule, block=min(k, rule.block), passes=None)
