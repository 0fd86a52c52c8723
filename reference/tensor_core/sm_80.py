"""Ampere data center (A100): mma.sync only. The k16 shapes run as two blocks of 8, tf32 k8 as two of 4."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import integers
from bitverdict.reference.tensor_core.evidence import Evidence, hardware
from bitverdict.reference.tensor_core.record import Instruction

ARCH = "sm_80"
ONE_BLOCK = frozenset({"chain", "specials"})  # K of the words is one block, their operands are near 1
F_OF_HALVES = frozenset({"F from below", "F from above", "floor"})
LEAST_F = "F is at least 22"  # rounding straight to fp16 hides the rest
OPERANDS = (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("tf32", "fp32"))


def mma(arch: str, operand: str, d: str, evidence: Evidence) -> Instruction:
    """fp16, bf16 or tf32 as Ampere and Ada run it."""
    nearest = d == "fp16"
    return Instruction(
        arch=arch,
        family="mma.sync",
        kind="mma.sync",
        a=operand,
        b=operand,
        d=d,
        block=4 if operand == "tf32" else 8,  # [TB] [MS]; words: a100_*, ada_*, not below
        fraction_bits=24,  # [TB] [MS]; words: a100_*, ada_*, of fp32 results
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,  # [TB]; words: a100_*, ada_*
        output_fraction_bits=10 if nearest else 23,  # [TB]; words: a100_*, ada_*
        evidence=evidence,
    )


def words_of(gpus: tuple[str, ...], operand: str, d: str) -> Evidence:
    """[TB] has one block of each; the chain of two, specials and the floor are a model's [MS]."""
    floor = {"floor"} if operand != "fp16" else set()
    opened = ONE_BLOCK | floor | (F_OF_HALVES if d == "fp16" else set())
    rows = (f"{gpu}_{operand}" for gpu in gpus)
    return hardware(*rows, open=opened, note=LEAST_F if d == "fp16" else "", sources=("MS",))


INSTRUCTIONS = (*(mma(ARCH, *key, words_of(("a100",), *key)) for key in OPERANDS), integers(ARCH, "mma.sync", "mma.sync", block=16))
