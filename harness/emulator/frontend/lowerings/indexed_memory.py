"""Elements of shared memory that an index tensor picks: local_gather, local_scatter, local_atomic_scatter_rmw.

The compiled program takes an index modulo the size of its axis, which is a power of two (`and.b32` in its PTX). The language knows
no such index, so one outside the axis is an illegal address.
"""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.lowerings.atomics import ADDS_FLOATS, EXCHANGES, UPDATES
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.scalar_ops import binary


@lowers("ttg.local_gather")
def gather(t: Translator, op: Operation) -> None:
    view, indices, _token = t.operands(op, "view", "indices", "token?")
    t.machine(op, OnChipMemory.gather, view, indices, op.integer("axis"))


@lowers("ttg.local_scatter")
def scatter(t: Translator, op: Operation) -> None:
    view, values, indices, _token = t.operands(op, "view", "values", "indices", "token?")
    t.machine(op, OnChipMemory.scatter, view, values, indices, op.integer("axis"))


@lowers("ttg.local_atomic_scatter_rmw")
def update(t: Translator, op: Operation) -> None:
    """Floats are added as `atom.shared.add` does: to nearest even, subnormals kept (PTX ISA, atom)."""
    kind, update_kind = t.result(op), op.integer("atomic_rmw_op")
    if kind.bits < 32 and not (update_kind == ADDS_FLOATS and kind.format in ("fp16", "bf16")):
        said = f"{op.name} on {kind.bits}-bit {kind.element}: atom.shared takes no such operand; use 32 or 64 bits"
        raise EmulatedFault("refused", said, op.location, {"operation": op.brief, "layer": "ptxas"})
    if update_kind == ADDS_FLOATS and kind.is_float:
        function = binary(np.add, kind.format)
        t.emit("{}", t.calls(_rounds, op))
    elif update_kind in UPDATES and not kind.is_float:
        function = UPDATES[update_kind]
    elif update_kind == EXCHANGES:
        function = None
    else:
        raise NotModelled(op, f"update {update_kind} on {kind.element}")
    view, values, indices, mask = t.operands(op, "view", "values", "indices", "mask?")
    t.machine(op, OnChipMemory.update, view, values, indices, mask, op.integer("axis"), function)


def _rounds(m: Cta, op: Operation) -> None:
    m.notes.add(Note(Advice.ATOMIC_SUM, op.location))
