"""Hopper (H100, H200): one block over the instruction's K. fp8 is real in wgmma (13 fraction bits) and emulated in mma.sync."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import dense, emulated_fp8, integers
from bitverdict.reference.tensor_core.record import Basis, Instruction

ARCH = "sm_90"
FP8 = ("e4m3", "e5m2")


PUBLIC = "hardware words (H100, H200)"
OWN = "hardware words (H200, our own)"
DENSE = (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("tf32", "fp32"))


def _wgmma_fp8(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    mixed = a != b and (a, b) != ("e5m2", "e4m3")
    words = "by analogy: this mix of operands" if mixed else OWN if nearest or a != b else f"{PUBLIC}, c = 0; {OWN}"
    return Instruction(
        arch=ARCH, family="wgmma", kind="wgmma", a=a, b=b, d=d, block=32, fraction_bits=13,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 13,
        basis=Basis.ANALOGY if mixed else Basis.HARDWARE, evidence=words,
    )  # fmt: skip


def _mma_fp8(a: str, b: str, d: str) -> Instruction:
    if a != b and (a, b) != ("e5m2", "e4m3"):
        return emulated_fp8(ARCH, a, b, d, "by analogy: this mix of operands")
    return emulated_fp8(ARCH, a, b, d, f"{PUBLIC}; {OWN}" if d == "fp16" and a == b else OWN)


INSTRUCTIONS = (
    *(dense(ARCH, "mma.sync", "mma.sync", *key, f"{PUBLIC}; {OWN}") for key in DENSE),
    *(dense(ARCH, "wgmma", "wgmma", *key, OWN) for key in DENSE),
    *(_mma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
    *(_wgmma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
    *(integers(ARCH, family, family) for family in ("mma.sync", "wgmma")),
)
