"""Matrix products of registers, and what widens their operands. Those whose operands all lie in memory are the tensor cores' own
(`execution.tensor_core_pipes`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.real_products import product, scale_operand
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries, gives
from bitverdict.harness.emulator.frontend.lowerings.block_scaled import ELEMENTS as SCALED_ELEMENTS
from bitverdict.harness.emulator.memory.real_access import note_decision
from bitverdict.harness.emulator.memory.real_shadows import value_of
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, with_taint


@carries("tt.dot")
def dot(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(product, *r.reals_of(op)[:3]))


@carries("tt.dot_scaled")
def dot_scaled(r: CarriedReals, op: Operation) -> None:
    """As `tt.dot`, of elements times their scales. Those must be words whose numbers are not followed: bytes, or fp8 as loaded."""
    elements = tuple(SCALED_ELEMENTS[op.integer(name)] for name in ("a_elem_type", "b_elem_type"))
    scales = tuple({"i8": "e8m0"}.get(r.t.operand(op, at).element, "ue4m3") for at in (3, 4))
    words = tuple(r.t.value(op.operands[at]) for at in (0, 1, 3, 4))
    r.hold(op, r.t.apply(scaled_registers, elements, scales, *words, *r.reals_of(op)))


def scaled_registers(
    elements: tuple[str, str], scales: tuple[str, str], a: np.ndarray, b: np.ndarray, rows: np.ndarray, columns: np.ndarray,
    held_a: object, held_b: object, before: Any, hang_a: object, hang_b: object,
) -> Real | Taint:  # fmt: skip
    """Real values of a block-scaled product of registers: a (M, K), b (K, N), scales (M, blocks) and (N, blocks)."""
    k = a.shape[1] * (2 if elements[0] == "e2m1" else 1)
    block = k // rows.shape[1]
    hangs = tuple(each if isinstance(each, np.ndarray) else None for each in (hang_a, hang_b))
    left = scale_operand(elements[0], a, 1, held_a, scales[0], rows, block, hangs[0])  # (M, K)
    right = scale_operand(elements[1], b, 0, held_b, scales[1], columns, block, hangs[1])  # (K, N)
    return product(left, right, before)


@gives("ttng.warp_group_dot")
def before_wgmma(r: CarriedReals, op: Operation) -> None:
    if (use := r.taints(op.operands[3:])) is not None:
        r.t.emit("{}", r.t.calls(note_decision, op, use))
    r.t.emit("{}", r.t.calls(TensorCore.give, r.real_of(op.operands[0]), r.real_of(op.operands[2])))


@carries("ttng.warp_group_dot")
def wgmma(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.calls(TensorCore.real_of, r.t.value(op.results[0]), None))


@carries("ttng.warp_group_dot_wait")
def wait(r: CarriedReals, op: Operation) -> None:
    found = tuple(r.t.calls(TensorCore.real_of, r.t.value(name), r.real_of(name)) for name in op.operands)
    r.hold(op, found[0] if len(found) == 1 else found)


@carries("ttg.fp4_to_fp")
def widen(r: CarriedReals, op: Operation) -> None:
    t, kind = r.t, r.t.result(op)
    r.hold(op, t.apply(widen_fp4, t.value(op.results[0]), kind.element, r.real_of(op.operands[0]), op.integer("axis")))


def widen_fp4(words: np.ndarray, element: str, taint: Taint, axis: int) -> Real:
    """Pairs of fp4 along `axis` as `words` of a wider type, exactly."""
    given: Any = None if taint is None else np.repeat(taint, 2, axis)
    return with_taint(Real(value_of(words, element)), given)
