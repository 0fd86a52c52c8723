"""Which instruction of MMA-Sim is which of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.reference.formats import decode
from bitverdict.reference.tensor_core import Instruction, instruction
from bitverdict.reference.tensor_core.record import Step
from bitverdict.reference.tensor_core.sm_100 import NARROW


@dataclass(frozen=True)
class Counterpart:
    """One instruction in both: our rule, its K, and how MMA-Sim's is made."""

    rule: Instruction
    k: int
    kind: str  # the class of MMA-Sim
    arguments: tuple[str, str]

    @property
    def name(self) -> str:
        return f"{self.rule.name} k{self.k}"

    @property
    def in_snapshot(self) -> bool:
        """Whether the tests hold words of it: one mix of the narrow operands, not twenty."""
        return self.rule.a == self.rule.b or self.rule.kind not in ("f8f6f4", "mxf8f6f4") or self.rule.a == "e5m2"

    @property
    def packed(self) -> bool:
        """Two e2m1 in a byte."""
        return self.rule.grouped

    @property
    def host_nan(self) -> bool:
        """Whether MMA-Sim's NaN is that of the machine it runs on."""
        return self.rule.step in (Step.PAIRWISE, Step.MULTIPLY_ADD)

    def differing(self, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Where the words differ, (rows,) bool. Where MMA-Sim's NaN is the host's, any NaN equals any."""
        if not self.host_nan:
            return theirs != ours
        nan = [np.isnan(decode(self.rule.output, each)) for each in (theirs, ours)]
        return (theirs != ours) & ~(nan[0] & nan[1])

    def intended(self, theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
        """Where a difference is meant, (rows,) bool.

        EVEN_AND_ODD: a c that is infinite or NaN is kept. MMA-Sim takes the exponent that `torch.frexp` gives it, -1, and drops it
        as far below a large product; nothing says that a chip loses a NaN.
        """
        if self.rule.step is not Step.EVEN_AND_ODD:
            return np.zeros(theirs.shape, bool)
        return np.isfinite(decode(self.rule.output, theirs)) & ~np.isfinite(decode(self.rule.output, ours))

    def operation(self) -> Any:
        """MMA-Sim's. ImportError where `mmasim` is not installed."""
        from mmasim import amd, nv_ptx

        return getattr(amd if self.kind == "MFMA" else nv_ptx, self.kind)(*self.arguments)


def counterparts() -> list[Counterpart]:
    """Every instruction that both claim."""
    return [*_amd(), *_nvidia()]


_THEIR_NAMES = {"fp16": "f16", "fp32": "f32", "e8m0": "ue8m0"}


def _nvidia() -> Iterator[Counterpart]:
    dense = [("fp16", "fp32", 16), ("fp16", "fp32", 8), ("fp16", "fp16", 16), ("fp16", "fp16", 8)]
    wide = [*dense, ("bf16", "fp32", 16), ("bf16", "fp32", 8), ("tf32", "fp32", 8), ("tf32", "fp32", 4)]
    chips = {
        "sm_75": ("Turing", [each for each in dense if each[2] == 8]),
        "sm_80": ("Ampere", wide),
        "sm_89": ("Ada Lovelace", wide),
        "sm_90": ("Hopper", wide),
        "sm_100": ("Blackwell", wide),
        "sm_120": ("RTX Blackwell", wide),
    }
    for arch, (theirs, rules) in chips.items():
        for operand, d, k in rules:
            yield _mma(arch, theirs, operand, operand, d, k)
    fp8 = ("e4m3", "e5m2")
    for d in ("fp32", "fp16"):
        for a in fp8:
            for b in fp8:
                yield _mma("sm_89", "Ada Lovelace", a, b, d, 32)
        for a in NARROW:
            for b in NARROW:
                yield _mma("sm_120", "RTX Blackwell", a, b, d, 32, kind="f8f6f4")
    for a in NARROW:
        for b in NARROW:
            rule = instruction("sm_120", "mma.sync", a, b, "fp32", scale="e8m0", kind="mxf8f6f4")
            yield Counterpart(
                rule, 32, "MMABlockScale", ("RTX Blackwell", f"m16n8k32.kind::mxf8f6f4.block32.f32.{a}.{b}.f32.ue8m0")
            )


def _mma(arch: str, theirs: str, a: str, b: str, d: str, k: int, kind: str | None = None) -> Counterpart:
    rule = instruction(arch, "mma.sync", a, b, d, k=k, kind=kind)
    short = [_THEIR_NAMES.get(name, name) for name in (d, a, b, d)]
    return Counterpart(rule, k, "MMA", (theirs, ".".join([f"m16n8k{k}", *([f"kind::{kind}"] if kind else []), *short])))


def _amd() -> Iterator[Counterpart]:
    for name, ours in (("f16", "fp16"), ("bf16", "bf16")):
        for k, shape in ((4, "4x4x4_16b"), (8, "32x32x8"), (16, "16x16x16")):
            yield _mfma("gfx942", "CDNA3", ours, ours, k, f"f32_{shape}_{name}")
    for k, shape in ((4, "32x32x4"), (8, "16x16x8")):
        yield _mfma("gfx942", "CDNA3", "tf32", "tf32", k, f"f32_{shape}_xf32")
    names = {"e4m3fnuz": "fp8", "e5m2fnuz": "bf8"}
    for a in names:
        for b in names:
            for k, shape in ((16, "32x32x16"), (32, "16x16x32")):
                yield _mfma("gfx942", "CDNA3", a, b, k, f"f32_{shape}_{names[a]}_{names[b]}")
    for k, shape in ((1, "4x4x1_16b"), (2, "32x32x2"), (4, "16x16x4")):
        yield _mfma("gfx942", "CDNA3", "fp32", "fp32", k, f"f32_{shape}_f32")
    for name, ours in (("f16", "fp16"), ("bf16_1k", "bf16")):
        for k, shape in ((4, "4x4x4"), (8, "32x32x8"), (16, "16x16x16")):
            yield _mfma("gfx90a", "CDNA2", ours, ours, k, f"f32_{shape}{name}")
    for k, shape in ((1, "4x4x1"), (2, "32x32x2"), (4, "16x16x4")):
        yield _mfma("gfx90a", "CDNA2", "fp32", "fp32", k, f"f32_{shape}f32")


def _mfma(arch: str, theirs: str, a: str, b: str, k: int, suffix: str) -> Counterpart:
    return Counterpart(instruction(arch, "mfma", a, b, "fp32", k=k), k, "MFMA", (theirs, suffix))
