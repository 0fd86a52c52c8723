"""CDNA3 (MI300): MFMA adds a block's products first, then c. fp8 adds even and odd k apart, fp32 is a chain of multiply-adds.

No GPU of AMD's was run: every number is a model's. The shapes 32x32, 16x16 and 4x4 differ in K alone: `lookup.instruction(k=)`.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import integers
from bitverdict.reference.tensor_core.evidence import Evidence, analogy, model_only
from bitverdict.reference.tensor_core.record import Choices, ExponentFloor, Instruction, Step

ARCH = "gfx942"
FP8 = ("e4m3fnuz", "e5m2fnuz")
BLOCKS = {"fp16": 8, "bf16": 8, "tf32": 4}  # [MS]; tf32 is AMD's xf32
NO_GPU = "no AMD GPU was run"
ZERO_HAS_AN_EXPONENT = Choices(exponent_floor=ExponentFloor.ZERO_ACCUMULATOR)  # [MS]


def mfma(arch: str, a: str, b: str, block: int, step: Step, evidence: Evidence) -> Instruction:
    """An MFMA of `a` and `b` with fp32 sums, by its block and step."""
    products_first = step in (Step.PRODUCTS_FIRST, Step.EVEN_AND_ODD)
    return Instruction(
        arch=arch,
        family="mfma",
        kind="mfma",
        a=a,
        b=b,
        d="fp32",
        block=block,
        fraction_bits=24 if products_first else 23,  # [MS]
        rounding=Rounding.NEAREST_EVEN,  # [MS]
        output_fraction_bits=23,
        step=step,
        sum_fraction_bits=31 if products_first else None,  # [MS]
        evidence=evidence,
        choices=ZERO_HAS_AN_EXPONENT,
    )


def exact_integers(arch: str, block: int) -> Instruction:
    """int8, modulo 2^32. [MS] does not model it, and AMD's manual was not read for it."""
    return replace(integers(arch, "mfma", "mfma", block), evidence=analogy("NVIDIA's int8", NO_GPU, "PTX ISA"))


BY_MODEL = model_only("MS", note=NO_GPU)
INSTRUCTIONS = (
    *(mfma(ARCH, name, name, block, Step.PRODUCTS_FIRST, BY_MODEL) for name, block in BLOCKS.items()),
    *(mfma(ARCH, a, b, 16, Step.EVEN_AND_ODD, BY_MODEL) for a in FP8 for b in FP8),
    mfma(ARCH, "fp32", "fp32", 1, Step.MULTIPLY_ADD, BY_MODEL),
    exact_integers(ARCH, 32),
)
