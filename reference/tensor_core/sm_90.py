"""Hopper (H100, H200): one block over the instruction's K. fp8 is real in wgmma (13 fraction bits) and emulated in mma.sync."""

from __future__ import annotations

from bitverdict.reference.formats import Rounding
from bitverdict.reference.tensor_core.constructors import dense, emulated_fp8, integers
from bitverdict.reference.tensor_core.evidence import Evidence, analogy, hardware
from bitverdict.reference.tensor_core.record import Instruction

ARCH = "sm_90"
FP8 = ("e4m3", "e5m2")
DENSE = (("fp16", "fp32"), ("bf16", "fp32"), ("fp16", "fp16"), ("tf32", "fp32"))
MIXED_FORMATS = ("e5m2", "e4m3")  # the one mix of operands that was measured


def _own(family: str, k: int, operand: str, *, chained: bool) -> tuple[str, ...]:
    """Our own words of an H200."""
    row = f"h200_own_{family.replace('.', '')}_k{k}_{operand}"
    return (row, f"{row}_chain2") if chained else (row,)


def _dense(family: str, operand: str) -> Evidence:
    chained = operand == "fp16"
    public = (f"h100_{operand}", f"h200_{operand}") if family == "mma.sync" else ()
    rows = (*public, *_own(family, 8 if operand == "tf32" else 16, operand, chained=chained))
    return hardware(*rows) if chained else hardware(*rows, open={"chain"}, read_from=f"{ARCH} fp16")


def _wgmma_fp8(a: str, b: str, d: str) -> Instruction:
    nearest = d == "fp16"
    return Instruction(
        arch=ARCH,
        family="wgmma",
        kind="wgmma",
        a=a,
        b=b,
        d=d,
        block=32,  # [TB] [MS] [ME]; words: h100_e4m3, h200_own_wgmma_k32_e4m3_chain2
        fraction_bits=13,  # [TB] [MS] [ME]; words: h100_e4m3, h200_own_wgmma_k32_e4m3
        rounding=Rounding.NEAREST_EVEN if nearest else Rounding.TOWARD_ZERO,  # [TB]; words: h100_e4m3
        output_fraction_bits=10 if nearest else 13,  # [TB] [ME]; words: h100_e4m3
        evidence=_of_wgmma_fp8(a, b, d),
    )


def _of_wgmma_fp8(a: str, b: str, d: str) -> Evidence:
    if a != b and (a, b) != MIXED_FORMATS:
        return analogy(f"{ARCH} e5m2 x e4m3", "this mix of operands", "H200")
    public = (f"h100_{a}", f"h200_{a}") if a == b and d == "fp32" else ()
    rows = (*public, *_own("wgmma", 32, a if a == b else f"{a}x{b}", chained=a == b == "e4m3"))
    return hardware(*rows) if a == b == "e4m3" else hardware(*rows, open={"chain"}, read_from=f"{ARCH} e4m3")


def _mma_fp8(a: str, b: str, d: str) -> Instruction:
    if a != b and (a, b) != MIXED_FORMATS:
        return emulated_fp8(ARCH, a, b, d, analogy(f"{ARCH} e5m2 x e4m3", "this mix of operands", "H200"))
    public = (f"h100_{a}", f"h200_{a}") if a == b and d == "fp16" else ()
    own = _own("mma.sync", 32, a if a == b else f"{a}x{b}", chained=a == b == "e5m2")
    return emulated_fp8(ARCH, a, b, d, hardware(*public, *own))


INSTRUCTIONS = (
    *(dense(ARCH, "mma.sync", "mma.sync", *key, _dense("mma.sync", key[0])) for key in DENSE),
    *(dense(ARCH, "wgmma", "wgmma", *key, _dense("wgmma", key[0])) for key in DENSE),
    *(_mma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
    *(_wgmma_fp8(a, b, d) for d in ("fp32", "fp16") for a in FP8 for b in FP8),
    *(integers(ARCH, family, family) for family in ("mma.sync", "wgmma")),
)
