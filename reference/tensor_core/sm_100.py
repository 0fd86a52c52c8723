"""Blackwell data center (B200): tcgen05 with 25 fraction bits throughout, block scales inside the sum, mma.sync as on Hopper."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import dense, emulated_fp8, integers
from bitverdict.reference.tensor_core.evidence import ALL_CONSTANTS, Evidence, EvidenceKind, analogy, hardware, model_only
from bitverdict.reference.tensor_core.record import Choices, ExponentFloor, Instruction

ARCH = "sm_100"
FP8 = ("e4m3", "e5m2")
NO_FLOOR = Choices(exponent_floor=ExponentFloor.NONE)  # tcgen05, as its random words say [SF]
NARROW = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")

# What [TB]'s words of mma.sync leave open, by operand and result: they are near 1, and K is one instruction's.
_MMA_OPEN = {
    ("fp16", "fp32"): {"chain", "specials"},
    ("bf16", "fp32"): {"chain", "specials", "floor"},
    ("fp16", "fp16"): {"chain", "specials", "floor", "F from below", "F from above"},
    ("tf32", "fp32"): {"chain", "specials", "floor", "n"},  # K = 4
}
_EMULATED_OPEN = {
    ("e4m3", "fp32"): {"F from below", "F from above", "n", "chain", "output bits", "rounding", "specials"},
    ("e4m3", "fp16"): {"F from below", "F from above", "specials"},
    ("e5m2", "fp32"): {"F from below", "F from above", "chain", "rounding", "specials"},
    ("e5m2", "fp16"): {"F from below", "F from above", "specials"},
}
# What [SF]'s words of tcgen05 settle, by kind; how many there are of it.
_TCGEN05_SETTLED = {
    "f16": (15, {"specials"}),
    "tf32": (8, {"F from below", "rounding", "place of c", "specials"}),
    "f8f6f4": (20, {"F from above", "output bits", "rounding", "specials"}),
    "mxf8f6f4": (7, {"specials"}),
    "mxf4": (2, {"rounding"}),
    "mxf4nvf4": (9, {"output bits", "rounding", "specials"}),
}


def _mma(operand: str, d: str) -> Evidence:
    note = "F is at least 23" if d == "fp16" else ""
    return hardware(f"b200_{operand}", open=_MMA_OPEN[operand, d], read_from="sm_90", note=note)


def _mma_fp8(a: str, b: str, d: str) -> Instruction:
    if a != b:
        return emulated_fp8(ARCH, a, b, d, analogy("sm_90 e5m2 x e4m3", "mixed operands", "H200"))
    return emulated_fp8(ARCH, a, b, d, hardware(f"b200_{a}", open=_EMULATED_OPEN[a, d], read_from="sm_90"))


def _tcgen05(kind: str, *, measured: bool = True, note: str = "") -> Evidence:
    """[MS] and [SF] agree but in the corners that `Choices` names; [SF] has a few words of each kind."""
    if not measured:
        return model_only("MS", "SF", note=note)
    words, settled = _TCGEN05_SETTLED[kind]
    rows = ("b200_tcgen05_words",)
    return Evidence(
        kind=EvidenceKind.MODEL_ONLY, sources=("MS", "SF"), rows=rows, open=ALL_CONSTANTS - settled, words=words, note=note
    )


def _dense(operand: str, d: str) -> Instruction:
    kind = "tf32" if operand == "tf32" else "f16"
    return replace(dense(ARCH, "tcgen05", kind, operand, d, _tcgen05(kind, measured=d == "fp32")), choices=NO_FLOOR)


def _narrow(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    return Instruction(
        arch=ARCH,
        family="tcgen05",
        kind="f8f6f4",
        a=a,
        b=b,
        d=d,
        block=32,  # [MS] [SF]
        fraction_bits=25,  # [MS] [SF]; words: b200_tcgen05_words, not above
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,  # [MS] [SF]; words: b200_tcgen05_words
        output_fraction_bits=10 if nearest else 23,  # [MS] [SF]; words: b200_tcgen05_words
        evidence=_tcgen05("f8f6f4", measured=a == b and not nearest),
        choices=NO_FLOOR,
    )


def _mx(a: str, b: str) -> Instruction:
    return Instruction(
        arch=ARCH,
        family="tcgen05",
        kind="mxf8f6f4",
        a=a,
        b=b,
        d="fp32",
        block=32,  # [MS] [SF]
        fraction_bits=25,  # [MS] [SF]
        rounding=Rounding.TOWARD_ZERO,  # [MS] [SF]
        output_fraction_bits=23,  # [MS] [SF]
        scale="e8m0",
        scale_block=32,
        evidence=_tcgen05("mxf8f6f4"),
        choices=NO_FLOOR,
    )


def _fp4(kind: str, scale: str, scale_block: int) -> Instruction:
    return Instruction(
        arch=ARCH,
        family="tcgen05",
        kind=kind,
        a="e2m1",
        b="e2m1",
        d="fp32",
        block=64,  # [MS] [SF]
        fraction_bits=35,  # [SF], where [MS] differs: `ScaledWindow`
        rounding=Rounding.TOWARD_ZERO,  # [MS] [SF]; words: b200_tcgen05_words
        output_fraction_bits=23,  # [MS] [SF]; words: b200_tcgen05_words, of mxf4nvf4
        scale=scale,
        scale_block=scale_block,
        evidence=_tcgen05(kind, note="F, window and groups from sf-tensor, MMA-Sim differs in corners"),
        choices=NO_FLOOR,
    )


INSTRUCTIONS = (
    *(dense(ARCH, "mma.sync", "mma.sync", *key, _mma(*key)) for key in _MMA_OPEN),
    *(_mma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
    *(_dense(*key) for key in (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("tf32", "fp32"))),
    *(_narrow(a, b, d) for d in ("fp32", "fp16") for a in NARROW for b in NARROW),
    *(_mx(a, b) for a in NARROW for b in NARROW),
    _fp4("mxf4", "e8m0", 32),
    _fp4("mxf4nvf4", "e8m0", 32),
    _fp4("mxf4nvf4", "e8m0", 16),
    _fp4("mxf4nvf4", "ue4m3", 16),
    integers(ARCH, "mma.sync", "mma.sync"),
    integers(ARCH, "tcgen05", "i8"),
)
