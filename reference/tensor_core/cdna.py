"""AMD's MFMA, of CDNA2 (MI200), CDNA3 (MI300) and CDNA4 (MI350). No GPU of AMD's was run: every number is a model's.

The shapes 32x32, 16x16 and 4x4 differ in K alone: `lookup.instruction(k=)`.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import integers
from bitverdict.reference.tensor_core.evidence import Evidence, analogy, model_only
from bitverdict.reference.tensor_core.record import Choices, ExponentFloor, Instruction, Step

BLOCKS = {"fp16": 8, "bf16": 8, "tf32": 4}  # of CDNA3 [MS]; tf32 is AMD's xf32
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
CDNA2 = (
    *(replace(mfma("gfx90a", name, name, 16, Step.PAIRWISE, BY_MODEL), tree=4) for name in ("fp16", "bf16")),  # [MS]
    mfma("gfx90a", "fp32", "fp32", 1, Step.MULTIPLY_ADD, BY_MODEL),
    exact_integers("gfx90a", 16),
)
"""fp16 and bf16 by fp32 operations, four products as a tree, each subnormal flushed; fp32 as on CDNA3.

`block` is the K of the instruction, at whose begin a c that is subnormal or -0 becomes +0. The older bf16 forms (without `_1k`),
which Triton does not emit, are left out.
"""
CDNA3 = (
    *(mfma("gfx942", name, name, block, Step.PRODUCTS_FIRST, BY_MODEL) for name, block in BLOCKS.items()),
    *(mfma("gfx942", a, b, 16, Step.EVEN_AND_ODD, BY_MODEL) for a in ("e4m3fnuz", "e5m2fnuz") for b in ("e4m3fnuz", "e5m2fnuz")),
    mfma("gfx942", "fp32", "fp32", 1, Step.MULTIPLY_ADD, BY_MODEL),
    exact_integers("gfx942", 32),
)
"""A block's products are added first, then c. fp8 adds even and odd k apart, fp32 is a chain of multiply-adds."""
LIKE_CDNA3 = analogy("gfx942", NO_GPU, "MS")
CDNA4 = (
    *(mfma("gfx950", name, name, BLOCKS[name], Step.PRODUCTS_FIRST, LIKE_CDNA3) for name in ("fp16", "bf16")),
    *(mfma("gfx950", a, b, 16, Step.EVEN_AND_ODD, LIKE_CDNA3) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    mfma("gfx950", "fp32", "fp32", 1, Step.MULTIPLY_ADD, LIKE_CDNA3),
    exact_integers("gfx950", 64),
)
"""As CDNA3, by analogy: no public model of it was found.

fp8 is OCP's here. It has no xf32. Its K are twice CDNA3's; the blocks are taken from CDNA3, which nothing settles. Block-scaled
MFMA has no model here.
"""
INSTRUCTIONS = CDNA2 + CDNA3 + CDNA4
