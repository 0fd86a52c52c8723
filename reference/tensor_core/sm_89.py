"""Ada (L40S, RTX 40): Ampere's mma.sync, and fp8 in two blocks of 16 with 13 fraction bits, also in the result.

Words of others' Ada and L40S settle one block; the chain and specials follow MMA-Sim. No kernel was judged on such a GPU here."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core import sm_80
from bitverdict.reference.tensor_core.constructors import integers
from bitverdict.reference.tensor_core.evidence import hardware, model_only
from bitverdict.reference.tensor_core.record import Instruction

ARCH = "sm_89"
FP8 = ("e4m3", "e5m2")


def _mma_fp8(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    words = hardware(f"ada_{a}", *(() if nearest else (f"l40s_{a}",)), open={"specials"}, sources=("MS",))
    return Instruction(
        arch=ARCH,
        family="mma.sync",
        kind="mma.sync",
        a=a,
        b=b,
        d=d,
        block=16,  # [MS]; words: ada_e4m3, a chain of two
        fraction_bits=13,  # [TB] [MS] [ME]; words: ada_e4m3
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,  # [TB]; words: ada_e4m3
        output_fraction_bits=10 if nearest else 13,  # [TB] [ME]; words: ada_e4m3
        evidence=words if a == b else model_only("MS", note="mixed operands"),
    )


INSTRUCTIONS = (
    *(sm_80.mma(ARCH, *key, sm_80.words_of(("ada", "l40s"), *key)) for key in sm_80.OPERANDS),
    integers(ARCH, "mma.sync", "mma.sync", block=16),
    *(_mma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
)
