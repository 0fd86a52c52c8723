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
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.scalar_ops import binary, fma, narrow_fma, negative

ADD, SUBTRACT, MULTIPLY, FUSED, LEAST, LARGEST = 0, 1, PACKED_PRODUCT, 3, 4, 5  # PackedArithKind


@lowers("ttng.packed_arith")
def packed(t: Translator, op: Operation) -> None:
    kind, what = t.result(op), op.integer("op_kind")
    if kind.format not in ("fp32", "fp16", "bf16") or any(
        t.operand(op, i).element != kind.element for i in range(len(op.operands))
    ):
        raise NotModelled(op, f"on {', '.join(op.operand_types)}")
    run = {ADD: binary(np.add, kind.format), SUBTRACT: binary(np.subtract, kind.format), MULTIPLY: binary(np.multiply, kind.format)}
    joined: Callable = fma if kind.format == "fp32" else narrow_fma(kind.format)
    if what == FUSED:
        t.call(op, joined)
    elif what in (LEAST, LARGEST):
        t.call(op, extremum(kind.format, keep_nan=False, largest=what == LARGEST))
    elif what == MULTIPLY or not t.fused or not any(may_be_product(t, name, divided=True) for name in op.operands):
        t.call(op, run[what])
    else:
        _fused_sum(t, op, joined, subtracts=what == SUBTRACT)


def _fused_sum(t: Translator, op: Operation, joined: Callable, *, subtracts: bool) -> None:
    reached = [may_be_product(t, name, divided=True) for name in op.operands]
    which = reached.index(True)
    product = t.defined.get(op.operands[which])
    if all(reached) or product is None or not _multiplies(product) or len(t.users.get(product.results[0], [])) != 1:
        raise NotModelled(
            op,
            "a packed sum of more than one product, or of one that something else uses too: ptxas decides what it fuses; compile "
            "with enable_fp_fusion=False",
        )
    left, right = (t.value(name) for name in product.operands)
    other = t.value(op.operands[1 - which])
    minus = negative(t.result(op).format)
    if subtracts and which == 1:
        left = t.apply(minus, left)
    elif subtracts:
        other = t.apply(minus, other)
    t.assign(op, t.apply(joined, left, right, other))


def _multiplies(op: Operation) -> bool:
    return op.name == "arith.mulf" or (op.name == "ttng.packed_arith" and op.integer("op_kind") == MULTIPLY)
