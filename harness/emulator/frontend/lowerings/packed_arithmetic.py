"""`ttng.packed_arith`: two lanes by one instruction (`add.f32x2`, `fma.rn.bf16x2`), each rounded as the plain instruction rounds.

The PTX has no rounding modifier on these additions and multiplications, so ptxas contracts a product and the sum that takes it
(`FFMA2` in its machine code) where `enable_fp_fusion` lets it. A product that only the sum beside it uses is fused; of any other
form the machine code is not read, and it is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.frontend.lowerings.floats import extremum
from bitverdict.harness.emulator.frontend.lowerings.sums import PACKED_PRODUCT, may_be_product
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.scalar_ops import binary, fma, narrow_fma, negative

ADD, SUBTRACT, MULTIPLY, FMA, LEAST, LARGEST = 0, 1, PACKED_PRODUCT, 3, 4, 5  # PackedArithKind


@lowers("ttng.packed_arith")
def lower_packed(t: Translator, op: Operation) -> None:
    kind, packed_kind = t.result(op), op.integer("op_kind")
    if kind.format not in ("fp32", "fp16", "bf16") or any(
        t.operand(op, i).element != kind.element for i in range(len(op.operands))
    ):
        raise NotModelled(op, f"on {', '.join(op.operand_types)}")
    run = {ADD: binary(np.add, kind.format), SUBTRACT: binary(np.subtract, kind.format), MULTIPLY: binary(np.multiply, kind.format)}
    multiply_add: Callable = fma if kind.format == "fp32" else narrow_fma(kind.format)
    if packed_kind == FMA:
        t.call(op, multiply_add)
    elif packed_kind in (LEAST, LARGEST):
        t.call(op, extremum(kind.format, keep_nan=False, largest=packed_kind == LARGEST))
    elif (
        packed_kind == MULTIPLY
        or not t.fuses_sums
        or not any(may_be_product(t, name, includes_divisions=True) for name in op.operands)
    ):
        t.call(op, run[packed_kind])
    else:
        _fused_sum(t, op, multiply_add, subtracts=packed_kind == SUBTRACT)


def _fused_sum(t: Translator, op: Operation, multiply_add: Callable, *, subtracts: bool) -> None:
    reached = [may_be_product(t, name, includes_divisions=True) for name in op.operands]
    product_side = reached.index(True)
    product = t.defined.get(op.operands[product_side])
    if all(reached) or product is None or not _multiplies(product) or len(t.users.get(product.results[0], [])) != 1:
        raise NotModelled(
            op,
            "a packed sum of more than one product, or of one that something else uses too: ptxas decides what it fuses; compile "
            "with enable_fp_fusion=False",
        )
    left, right = (t.value(name) for name in product.operands)
    addend = t.value(op.operands[1 - product_side])
    minus = negative(t.result(op).format)
    if subtracts and product_side == 1:
        left = t.apply(minus, left)
    elif subtracts:
        addend = t.apply(minus, addend)
    t.assign(op, t.apply(multiply_add, left, right, addend))


def _multiplies(op: Operation) -> bool:
    return op.name == "arith.mulf" or (op.name == "ttng.packed_arith" and op.integer("op_kind") == MULTIPLY)
