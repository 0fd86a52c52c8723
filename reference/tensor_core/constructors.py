"""Instructions by what they have in common; the files of architectures hold numbers only."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.evidence import Evidence, EvidenceKind
from bitverdict.reference.tensor_core.record import Accumulator, Instruction

BLOCKS = {"fp16": 16, "bf16": 16, "tf32": 8}  # [TB] [MS] one block over the K of wgmma; words: h200_own_*_chain2
EXACT = Evidence(kind=EvidenceKind.SPECIFICATION, sources=("PTX ISA",), note="exact integers")


def register_halves(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The k that each of the two fp16 blocks takes into which ptxas expands an fp8 mma.sync of this k (32 or 16).

    First the low half of each 4-byte register, then the high halves. Words: h200_own_mmasync_k32_e4m3, h200_own_mmasync_k16_e4m3.
    """
    low, high = (tuple(i for i in range(k) if i % 4 in half) for half in ((0, 1), (2, 3)))
    return low, high


def dense(arch: str, family: str, kind: str, operand: str, d: str, evidence: Evidence) -> Instruction:
    """fp16, bf16 or tf32: the same step in mma.sync, wgmma and tcgen05 from sm_90 on."""
    nearest = d == "fp16"
    return Instruction(
        arch=arch,
        family=family,
        kind=kind,
        a=operand,
        b=operand,
        d=d,
        block=BLOCKS[operand],
        fraction_bits=25,  # [TB] [MS] [SF]; words: h100_fp16, h200_own_wgmma_k16_fp16
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,  # [TB] [MS]; words: h100_fp16
        output_fraction_bits=10 if nearest else 23,  # [TB]; words: h100_fp16
        evidence=evidence,
    )


def emulated_fp8(arch: str, a: str, b: str, d: str, evidence: Evidence) -> Instruction:
    """fp8 through mma.sync where the chip has none: fp16 blocks started from zero, c added after them."""
    nearest = d == "fp16"
    return Instruction(
        arch=arch,
        family="mma.sync",
        kind="mma.sync",
        a=a,
        b=b,
        d=d,
        block=16,  # [MS]; words: h200_own_mmasync_k32_e4m3
        fraction_bits=25,  # as fp16; words: h200_own_mmasync_k32_e4m3
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,
        output_fraction_bits=10 if nearest else 23,
        passes=register_halves(32),
        accumulator=Accumulator.ADDED_AFTER,  # [MS]; words: h200_own_mmasync_k32_e4m3
        widened="fp16",
        evidence=evidence,
    )


def integers(arch: str, family: str, kind: str, block: int = 32) -> Instruction:
    """int8: exact, modulo 2^32."""
    return Instruction(
        arch=arch, family=family, kind=kind, a="int8", b="int8", d="int32", block=block, fraction_bits=0,
        rounding=Rounding.TOWARD_ZERO, output_fraction_bits=31, evidence=EXACT,
    )  # fmt: skip
