"""`tt.dot` on AMD's matrix units: chains of MFMA instructions, whose shape and order of K the layouts say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics.matrix_products import Dot, codes, integer_product, layout_number
from bitverdict.reference import tensor_core
from bitverdict.reference.k_order import mfma_order

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import Translator
    from bitverdict.harness.emulator.mlir_reader import Operation

LANES = 64
_SHAPE = re.compile(r"\binstrShape = \[(\d+), (\d+), (\d+)\]")
_TF32 = "0"  # of inputPrecision (TritonAttrDefs)


def mfma(t: Translator, op: Operation, formats: tuple[str, str, str]) -> Dot:
    """The product of `op` on operands in `formats`: one chain, instruction by instruction. NotModelled where the layouts do not say
    the shape of the instruction, or `bitverdict.reference.tensor_core` does not know it."""
    a, d = t.operand(op, 0), t.result(op)
    shape = _SHAPE.search(t.program.expand(d.layout))
    width = layout_number(t.program.expand(a.layout), "kWidth")
    if shape is None or width is None:
        raise NotModelled(op, f"with the layouts {t.program.expand(d.layout)[:80]} and {t.program.expand(a.layout)[:80]}")
    m, n, k = map(int, shape.groups())
    groups = LANES // min(m, n)
    if formats[:2] == ("tf32", "tf32") and op.attributes.get("inputPrecision", _TF32).split(" ")[0] != _TF32:
        formats = "fp32", "fp32", formats[2]
    t.products[("mfma", *formats, a.shape[-2], t.operand(op, 1).shape[-1], a.shape[-1])] += 1
    if formats[2] == "int32":
        return integer_product
    try:
        order = mfma_order(a.shape[-1], groups, width, k // groups)
        rule = tensor_core.instruction(t.arch, "mfma", *formats, k=k)
    except (KeyError, ValueError) as error:
        raise NotModelled(op, f"by an MFMA of {m}x{n}x{k} on {formats[0]} and {formats[1]} ({error})") from error
    parts = order.reshape(-1, k)

    def run(left: np.ndarray, right: np.ndarray, c: np.ndarray) -> np.ndarray:
        found = codes(c, formats[2])
        one, other = codes(left, formats[0]), codes(right, formats[1])
        for part in parts:
            found = tensor_core.product(rule, np.ascontiguousarray(one[:, part]), np.ascontiguousarray(other[part]), found)
        return found.view(np.float32)

    return run


__all__ = ["mfma"]
