"""Ampere data center (A100): mma.sync only. The k16 shapes run as two blocks of 8, tf32 k8 as two of 4."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.record import Basis, Instruction

ARCH = "sm_80"
_SPLIT = "; the 8 + 8 chain, specials and subnormal results: model only (MMA-Sim)"
F_ONE_SIDED = "F one-sided: not below 24"


def _mma(operand: str, d: str, block: int, evidence: str) -> Instruction:
    nearest = d == "fp16"
    return Instruction(
        arch=ARCH, family="mma.sync", kind="mma.sync", a=operand, b=operand, d=d, block=block, fraction_bits=24,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 23,
        basis=Basis.ONE_BLOCK, evidence=evidence,
    )  # fmt: skip


INSTRUCTIONS = (
    _mma("fp16", "fp32", 8, "hardware words (A100), one block" + _SPLIT),
    _mma("bf16", "fp32", 8, "hardware words (A100), one block" + _SPLIT),
    _mma("fp16", "fp16", 8, "hardware words (A100), one block, " + F_ONE_SIDED + _SPLIT),
    _mma("tf32", "fp32", 4, "hardware words (A100), one block" + _SPLIT.replace("8", "4")),
    Instruction(
        arch=ARCH, family="mma.sync", kind="mma.sync", a="int8", b="int8", d="int32", block=16, fraction_bits=0,
        rounding=Rounding.TOWARD_ZERO, output_fraction_bits=31, basis=Basis.SPECIFICATION, evidence="exact integers (PTX ISA)",
    ),
)  # fmt: skip
