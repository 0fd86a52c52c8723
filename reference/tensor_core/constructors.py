"""Instructions by what they have in common; the files of architectures hold numbers only."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.record import Accumulator, Basis, Instruction

BLOCKS = {"fp16": 16, "bf16": 16, "tf32": 8}


def register_halves(k: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The k that each of the two fp16 blocks takes into which ptxas expands an fp8 mma.sync of this k (32 or 16).

    First the low half of each 4-byte register, then the high halves.
    """
    low, high = (tuple(i for i in range(k) if i % 4 in half) for half in ((0, 1), (2, 3)))
    return low, high


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
