"""What can be recorded: each instruction of `instructions.cu` by its PTX name, with the formats it reads and writes.

A `Probe` is one file of words. Where an instruction has an fp32 and an fp16 form with the same operands, both are fed the same
rows, so that the two results can be read side by side.
"""

from __future__ import annotations

from dataclasses import dataclass

MMA, WGMMA = "mma.sync.aligned.", "wgmma.mma_async.sync.aligned."
PTX_NAMES = {"fp16": "f16", "bf16": "bf16", "tf32": "tf32", "e4m3": "e4m3", "e5m2": "e5m2", "int8": "s8"}


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One file: operand formats, one or two instructions of the same K, and how many of them are chained.

    `d32` and `d16` are PTX names, empty where there is no such form; an integer probe keeps its int32 words in `d32`.
    """

    family: str  # "mma.sync" | "wgmma"
    a: str
    b: str
    k: int  # of one instruction
    d32: str = ""
    d16: str = ""
    steps: int = 1
    count: int = 2200
    integer: bool = False
    saturates: bool = False

    @property
    def least(self) -> int:
        """The first chip that has it, as in sm_NN (PTX ISA, "Target ISA notes" of mma and wgmma)."""
        if self.family == "wgmma":
            return 90
        if PTX_NAMES[self.a] in ("e4m3", "e5m2"):
            return 89
        return 75 if (self.a, self.k) == ("fp16", 8) else 80

    @property
    def stem(self) -> str:
        """File name without the GPU and the extension: ``own_<instruction>_<format>``."""
        operands = self.a if self.a == self.b else f"{self.a}x{self.b}"
        tail = ("_saturated" if self.saturates else "") + (f"_chain{self.steps}" if self.steps > 1 else "")
        return f"own_{self.family.replace('.', '')}_k{self.k}_{operands}{tail}"


def _float(family: str, a: str, b: str, k: int, *, half: bool, steps: int = 1, count: int = 2200) -> Probe:
    types = f"{PTX_NAMES[a]}.{PTX_NAMES[b]}"
    if family == "mma.sync":
        d32, d16 = f"{MMA}m16n8k{k}.row.col.f32.{types}.f32", f"{MMA}m16n8k{k}.row.col.f16.{types}.f16"
    else:
        d32, d16 = f"{WGMMA}m64n8k{k}.f32.{types}", f"{WGMMA}m64n8k{k}.f16.{types}"
    return Probe(family=family, a=a, b=b, k=k, d32=d32, d16=d16 if half else "", steps=steps, count=count)


def _int8(family: str, *, saturated: bool) -> Probe:
    mode = "satfinite." if saturated else ""
    name = f"{MMA}m16n8k32.row.col.{mode}s32.s8.s8.s32" if family == "mma.sync" else f"{WGMMA}m64n8k32.{mode}s32.s8.s8"
    return Probe(family=family, a="int8", b="int8", k=32, d32=name, count=200, integer=True, saturates=saturated)


PROBES = (
    _float("mma.sync", "fp16", "fp16", 16, half=True),
    _float("mma.sync", "fp16", "fp16", 8, half=True),
    _float("mma.sync", "bf16", "bf16", 16, half=False),
    _float("mma.sync", "bf16", "bf16", 8, half=False, count=1500),
    _float("mma.sync", "tf32", "tf32", 8, half=False),
    _float("mma.sync", "tf32", "tf32", 4, half=False),
    _float("mma.sync", "e4m3", "e4m3", 32, half=True),
    _float("mma.sync", "e5m2", "e5m2", 32, half=True),
    _float("mma.sync", "e5m2", "e4m3", 32, half=True, count=1400),
    _float("mma.sync", "e4m3", "e4m3", 16, half=True, count=1400),
    _float("mma.sync", "e5m2", "e5m2", 16, half=True, count=1800),
    _float("mma.sync", "fp16", "fp16", 16, half=True, steps=2, count=900),
    _float("mma.sync", "e5m2", "e5m2", 32, half=True, steps=2, count=900),
    _float("wgmma", "fp16", "fp16", 16, half=True),
    _float("wgmma", "bf16", "bf16", 16, half=False),
    _float("wgmma", "tf32", "tf32", 8, half=False),
    _float("wgmma", "e4m3", "e4m3", 32, half=True),
    _float("wgmma", "e5m2", "e5m2", 32, half=True),
    _float("wgmma", "e5m2", "e4m3", 32, half=True, count=1400),
    _float("wgmma", "fp16", "fp16", 16, half=True, steps=2, count=900),
    _float("wgmma", "e4m3", "e4m3", 32, half=True, steps=2, count=900),
    _int8("mma.sync", saturated=False),
    _int8("mma.sync", saturated=True),
    _int8("wgmma", saturated=False),
    _int8("wgmma", saturated=True),
)
