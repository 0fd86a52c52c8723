"""Operands of `tl.dot_scaled` on AMD's chips without an instruction for it: widened to bf16, times scales that are bf16 already."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.reference import packing
from bitverdict.reference.tensor_core.upcast import cut_product

_ELEMENTS = {"i8": "e2m1", "f8E4M3FN": "e4m3"}


@lowers("amdg.scaled_upcast_fp4", "amdg.scaled_upcast_fp8")
def scaled_upcast(t: Translator, op: Operation) -> None:
    """An fp32 product of each element and its scale, cut to bf16 (its LLVM IR: tests/emulator/test_amd_fp8.py)."""
    source, scale, target = t.operand(op, 0), t.operand(op, 1), t.result(op)
    element = _ELEMENTS.get(source.element)
    if element is None or (scale.element, target.element) != ("bf16", "bf16") or t.arch not in ("gfx90a", "gfx942"):
        raise NotModelled(op, f"of {source.element} times {scale.element} to {target.element} on {t.arch}")
    axis = op.integer("axis", 0)

    def run(held: np.ndarray, scales: np.ndarray) -> np.ndarray:
        codes = packing.unpack(held.view(np.uint8), axis) if element == "e2m1" else held.view(np.uint8)
        return cut_product(element, codes, scales)

    t.call(op, run)
