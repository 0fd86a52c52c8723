"""Ada (L40S, RTX 40): Ampere's mma.sync, and fp8 in two blocks of 16 with 13 fraction bits, also in the result.

Instructions only: there is no emulated GPU of this architecture, and none of its kernels was judged."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core import sm_80
from bitverdict.reference.tensor_core.record import Basis, Instruction

ARCH = "sm_89"
FP8 = ("e4m3", "e5m2")


def _mma_fp8(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    words = "hardware words (Ada" + ("" if nearest else ", L40S") + "), chain of two included"
    return Instruction(
        arch=ARCH, family="mma.sync", kind="mma.sync", a=a, b=b, d=d, block=16, fraction_bits=13,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 13,
        basis=Basis.HARDWARE if a == b else Basis.MODEL, evidence=words if a == b else "model only (MMA-Sim): mixed operands",
    )  # fmt: skip


INSTRUCTIONS = tuple(
    replace(known, arch=ARCH, evidence=known.evidence.replace("A100", "Ada, L40S").replace(sm_80.F_ONE_SIDED, "F not settled"))
    for known in sm_80.INSTRUCTIONS
) + tuple(_mma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8)
