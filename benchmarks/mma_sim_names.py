"""Which instruction of MMA-Sim is which of ours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bitverdict.reference.formats import decode
from bitverdict.reference.tensor_core import Instruction, instruction
from bitverdict.reference.tensor_core.record import Choices, ScaledGroups, ScaledWindow, Step
from bitverdict.reference.tensor_core.sm_100 import NARROW

THEIR_CHOICES = Choices(scaled_groups=ScaledGroups.OF_SIXTEEN, scaled_window=ScaledWindow.BY_SCALE)
"""MMA-Sim's side of each disagreement of NVIDIA's, in 2.1.1."""
THEIR_GROUPED_FLOOR = -139  # mxf4, mxf4nvf4: the exponent of a zero c and of a group of zeros


@dataclass(frozen=True)
class Counterpart:
    """One instruction in both: our rule, its K, and how MMA-Sim's is made."""

    rule: Instruction
    k: int
    kind: str  # the class of MMA-Sim
    arguments: tuple[str, str]

    @property
    def name(self) -> str:
        plain = self.rule.kind == "f8f6f4" and "kind::" not in self.arguments[1]  # sm_120: the form of sm_89, without a kind
        return f"{self.rule.name}{' plain' if plain else ''} k{self.k}"

    @property
    def their_rule(self) -> Instruction:
        """Our rule under MMA-Sim's side of each choice: its words must be MMA-Sim's."""
        if self.rule.step is not Step.FUSED:
            return self.rule
        return replace(
            self.rule,
            choices=THEIR_CHOICES,
            exponent_floor=THEIR_GROUPED_FLOOR if self.rule.sums_groups_exactly else self.rule.exponent_floor,
        )

    @property
    def takes_another_side(self) -> bool:
        """Whether our rule differs from `their_rule` in what decides its words."""
        return self.rule.sums_groups_exactly or self.rule.choices.exponent_floor is not self.their_rule.choices.exponent_floor

    @property
    def in_snapshot(self) -> bool:
        """Whether the tests hold words of it: one mix of the narrow operands, not twenty; of tcgen05 the block-scaled alone."""
        narrow = self.rule.kind in ("f8f6f4", "mxf8f6f4")
        if self.rule.family == "tcgen05":
            return not narrow or self.rule.a == self.rule.b == "e3m2"
        return self.rule.a == self.rule.b or not narrow or self.rule.a == "e5m2"

    @property
    def packed(self) -> bool:
        """Two e2m1 in a byte."""
        return self.rule.sums_groups_exactly

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
    for a in fp8:
        for b in fp8:
            for d in ("fp32", "fp16"):
                yield _mma("sm_89", "Ada Lovelace", a, b, d, 16)
                for k in (32, 16):
                    yield _mma("sm_120", "RTX Blackwell", a, b, d, k)
    for kind, scale, block in _FP4:
        rule = instruction("sm_120", "mma.sync", "e2m1", "e2m1", "fp32", scale=scale, scale_block=block, kind=kind)
        form = f"m16n8k64.kind::{kind}.block{block}.f32.e2m1.e2m1.f32.{_THEIR_NAMES.get(scale, scale)}"
        yield Counterpart(rule, 64, "MMABlockScale", ("RTX Blackwell", form))
    yield from _wgmma()
    yield from _tcgen05()


_FP4 = (("mxf4", "e8m0", 32), ("mxf4nvf4", "e8m0", 32), ("mxf4nvf4", "e8m0", 16), ("mxf4nvf4", "ue4m3", 16))
_DENSE = (("fp16", "fp32", 16), ("fp16", "fp16", 16), ("bf16", "fp32", 16), ("tf32", "fp32", 8))


def _wgmma() -> Iterator[Counterpart]:
    fp8 = ("e4m3", "e5m2")
    forms = [(each, each, d, k) for each, d, k in _DENSE] + [(a, b, d, 32) for d in ("fp32", "fp16") for a in fp8 for b in fp8]
    for a, b, d, k in forms:
        names = ".".join(_THEIR_NAMES.get(name, name) for name in (d, a, b))
        yield Counterpart(instruction("sm_90", "wgmma", a, b, d), k, "WGMMA", ("Hopper", f"m64n8k{k}.{names}"))


def _tcgen05() -> Iterator[Counterpart]:
    forms = [("tf32" if each == "tf32" else "f16", each, each, d, k) for each, d, k in _DENSE]
    forms += [("f8f6f4", a, b, d, 32) for d in ("fp32", "fp16") for a in NARROW for b in NARROW]
    for kind, a, b, d, k in forms:
        names = ".".join(_THEIR_NAMES.get(name, name) for name in (d, a, b))
        rule = instruction("sm_100", "tcgen05", a, b, d, kind=kind)
        yield Counterpart(rule, k, "TCGen05MMA", ("Blackwell", f"m64n8k{k}.kind::{kind}.{names}"))
    scaled = [("mxf8f6f4", a, b, "e8m0", 32, 32) for a in NARROW for b in NARROW]
    scaled += [(kind, "e2m1", "e2m1", scale, block, 64) for kind, scale, block in _FP4]
    for kind, a, b, scale, block, k in scaled:
        rule = instruction("sm_100", "tcgen05", a, b, "fp32", scale=scale, scale_block=block, kind=kind)
        form = f"m128n8k{k}.kind::{kind}.block{block}.f32.{a}.{b}.{_THEIR_NAMES.get(scale, scale)}"
        yield Counterpart(rule, k, "TCGen05MMABlockScale", ("Blackwell", form))


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
