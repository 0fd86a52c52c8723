"""Hopper (H100, H200): one block over the instruction's K. fp8 is real in wgmma (13 fraction bits) and emulated in mma.sync."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.record import Accumulator, Basis, Instruction

ARCH = "sm_90"
FP8 = ("e4m3", "e5m2")
BLOCKS = {"fp16": 16, "bf16": 16, "tf32": 8}


def register_halves(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The k that each of the two fp16 blocks takes into which ptxas expands an fp8 mma.sync of this k (32 or 16).

    First the low half of each 4-byte register, then the high halves.
    """
    low, high = (tuple(i for i in range(k) if i % 4 in half) for half in ((0, 1), (2, 3)))
    return low, high


PUBLIC = "hardware words (H100, H200)"
OWN = "hardware words (H200, our own)"
DENSE = (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("tf32", "fp32"))


def dense(arch: str, family: str, kind: str, operand: str, d: str, evidence: str, basis: Basis = Basis.HARDWARE) -> Instruction:
    """fp16, bf16 or tf32: the same step in mma.sync, wgmma and tcgen05 from sm_90 on."""
    nearest = d == "fp16"
    return Instruction(
        arch=arch, family=family, kind=kind, a=operand, b=operand, d=d, block=BLOCKS[operand], fraction_bits=25,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 23,
        basis=basis, evidence=evidence,
    )  # fmt: skip


def emulated_fp8(arch: str, a: str, b: str, d: str, evidence: str) -> Instruction:
    """fp8 through mma.sync where the chip has none: fp16 blocks started from zero, c added after them."""
    nearest = d == "fp16"
    return Instruction(
        arch=arch, family="mma.sync", kind="mma.sync", a=a, b=b, d=d, block=16, fraction_bits=25,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 23,
        passes=register_halves(32), accumulator=Accumulator.ADDED_AFTER, widened="fp16",
        basis=Basis.ANALOGY if evidence.startswith("by analogy") else Basis.HARDWARE, evidence=evidence,
    )  # fmt: skip


def integers(arch: str, family: str, kind: str) -> Instruction:
    """int8: exact, modulo 2^32."""
    return Instruction(
        arch=arch, family=family, kind=kind, a="int8", b="int8", d="int32", block=32, fraction_bits=0,
        rounding=Rounding.TOWARD_ZERO, output_fraction_bits=31, basis=Basis.SPECIFICATION, evidence="exact integers (PTX ISA)",
    )  # fmt: skip


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
