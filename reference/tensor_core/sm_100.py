"""Blackwell data center (B200): tcgen05 with 25 fraction bits throughout, block scales inside the sum, mma.sync as on Hopper."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import dense, emulated_fp8, integers
from bitverdict.reference.tensor_core.record import Basis, Choices, ExponentFloor, Instruction

ARCH = "sm_100"
FP8 = ("e4m3", "e5m2")
NO_FLOOR = Choices(exponent_floor=ExponentFloor.NONE)  # tcgen05, as its random words say [SF]
NARROW = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")

_FINITE = "; finite operands near 1, specials and floor by analogy with sm_90"
_MMA_WORDS = {
    ("fp16", "fp32"): "hardware words (B200)" + _FINITE,
    ("bf16", "fp32"): "hardware words (B200)" + _FINITE,
    ("fp16", "fp16"): "hardware words (B200), F one-sided: not below 25" + _FINITE,
    ("tf32", "fp32"): "hardware words (B200), K = 4: n not settled" + _FINITE,
}
_TWO_MODELS = "MMA-Sim and sf-tensor agree; "
_TCGEN05_WORDS = {
    ("f16", "fp16", "fp32"): _TWO_MODELS + "15 hardware words (B200) settle decoding and specials, no constant",
    ("f16", "bf16", "fp32"): _TWO_MODELS + "15 hardware words (B200) settle decoding and specials, no constant",
    ("f16", "fp16", "fp16"): _TWO_MODELS + "no hardware words",
    ("tf32", "tf32", "fp32"): _TWO_MODELS + "8 hardware words (B200) settle that F is not below 25",
}


def _narrow(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    words = "20 hardware words (B200) settle that F is not above 25, and the output bits"
    return Instruction(
        arch=ARCH, family="tcgen05", kind="f8f6f4", a=a, b=b, d=d, block=32, fraction_bits=25,
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO, output_fraction_bits=10 if nearest else 23,
        basis=Basis.MODELS, evidence=_TWO_MODELS + (words if a == b and not nearest else "no hardware words"), choices=NO_FLOOR,
    )  # fmt: skip


def _mx(a: str, b: str) -> Instruction:
    words = "7 hardware words (B200) settle decoding and NaN, no constant"
    return Instruction(
        arch=ARCH, family="tcgen05", kind="mxf8f6f4", a=a, b=b, d="fp32", block=32, fraction_bits=25,
        rounding=Rounding.TOWARD_ZERO, output_fraction_bits=23, scale="e8m0", scale_block=32,
        basis=Basis.MODELS, evidence=_TWO_MODELS + words, choices=NO_FLOOR,
    )  # fmt: skip


def _fp4(kind: str, scale: str, scale_block: int) -> Instruction:
    words = "11 hardware words (B200) settle decoding, output bits, RZ; F, window and groups: sf-tensor, MMA-Sim differs in corners"
    return Instruction(
        arch=ARCH, family="tcgen05", kind=kind, a="e2m1", b="e2m1", d="fp32", block=64, fraction_bits=35,
        rounding=Rounding.TOWARD_ZERO, output_fraction_bits=23, scale=scale, scale_block=scale_block,
        basis=Basis.MODELS, evidence=words, choices=NO_FLOOR,
    )  # fmt: skip


INSTRUCTIONS = (
    *(dense(ARCH, "mma.sync", "mma.sync", *key, words) for key, words in _MMA_WORDS.items()),
    *(
        emulated_fp8(ARCH, a, b, d, "hardware words (B200)" + _FINITE if a == b else "by analogy: mixed operands")
        for d in ("fp32", "fp16") for a in FP8 for b in FP8
    ),
    *(replace(dense(ARCH, "tcgen05", *key, words, Basis.MODELS), choices=NO_FLOOR) for key, words in _TCGEN05_WORDS.items()),
    *(_narrow(a, b, d) for d in ("fp32", "fp16") for a in NARROW for b in NARROW),
    *(_mx(a, b) for a in NARROW for b in NARROW),
    _fp4("mxf4", "e8m0", 32),
    _fp4("mxf4nvf4", "e8m0", 32),
    _fp4("mxf4nvf4", "e8m0", 16),
    _fp4("mxf4nvf4", "ue4m3", 16),
    integers(ARCH, "mma.sync", "mma.sync"),
    integers(ARCH, "tcgen05", "i8"),
)  # fmt: skip
