"""Reductions and scans, with the program's own combinations."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.reductions import layout_of, only, scan_order_of
from bitverdict.harness.emulator.frontend.lowerings.regions import lift_scalars, seen_inside
from bitverdict.harness.emulator.frontend.real_operations.shapes import differs
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics import real_folds, real_values
from bitverdict.harness.model.triton_release import sums_by_tree
from bitverdict.reference.reduction_order import reduction_order

_EXTREMES = {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip


@carries("tt.reduce", "tt.scan")
def fold(r: CarriedReals, op: Operation) -> None:
    if r.carried.isdisjoint(op.operands):
        return
    t, operand_reals, at, scans, simple = r.t, r.reals_of(op), op.integer("axis"), op.name == "tt.scan", only(op)
    axis, reverse = at + differs(r, op), op.flag("reverse")
    how = (axis, reverse) if scans else (axis,)
    if t.operand(op, 0).shape[at] == 1:
        r.hold(op, t.join_values(operand_reals) if scans else t.apply(real_folds.results_without_fold, operand_reals, axis))
    elif simple is None or (simple.name not in ("arith.addf", *_EXTREMES) and t.operand(op, 0).is_float):
        _general(r, op, axis)
    elif not t.operand(op, 0).is_float:
        r.hold(op, t.apply(real_folds.any_before if scans else real_folds.any_along, operand_reals[0], *how))
    elif simple.name == "arith.addf":
        r.hold(op, t.apply(real_folds.prefix_sums if scans else real_values.sum_along, operand_reals[0], *how))
    else:
        extreme = _EXTREMES[simple.name]
        r.hold(op, t.apply(real_folds.prefix_extremes if scans else real_folds.largest, operand_reals[0], axis, extreme, *how[1:]))


def _general(r: CarriedReals, op: Operation, axis: int) -> None:
    t = r.t
    names = list[Any]()
    run = lambda _, op: names.append(_combination(r, op))
    if t.enclosing is not None:
        t.enclosing.write_lowering(op, run)  # of an open sum the words of no product
    else:
        run(t, op)
    name = names.pop()
    floats = tuple(t.operand(op, i).is_float for i in range(len(op.operands)))
    words, found = (tuple(map(t.value, names)) for names in (op.operands, op.results))
    if op.name == "tt.scan":
        run = t.apply(real_folds.scan, name, words, r.reals_of(op), floats, axis, scan_order_of(t, op), found, op.flag("reverse"))
    else:
        order = reduction_order(layout_of(t, op), op.integer("axis"), pairs=False, chain=not sums_by_tree())
        run = t.apply(real_folds.reduction, name, words, r.reals_of(op), floats, axis, order, found)
    r.hold(op, run)


def _combination(r: CarriedReals, op: Operation) -> Any:
    """The name of a function of the generated code that combines words, and what they carry, as the region does two elements."""
    t, (block,) = r.t, op.regions[0]
    *body, terminator = block.operations
    name, arguments = t.name("combine_real"), [argument for argument, _ in block.arguments]
    half = len(arguments) // 2
    sides = [(tuple(map(t.value, side)), tuple(map(_variable(r), side))) for side in (arguments[:half], arguments[half:])]
    parameters = [t.name(each) for each in ("words", "carried", "more_words", "more_carried")]
    t.emit("def {}({}):", name, t.join_values(parameters))
    with t.indent_block(), seen_inside(t, op.regions[0]), r.enter_region():
        for parameter, variables in zip(parameters, (part for side in sides for part in side), strict=True):
            t.emit("{} = {}", variables, parameter)
        for inner in body:
            t.operation(lift_scalars(inner), [], {})
        t.emit("return {}, {}", tuple(map(t.value, terminator.operands)), r.reals_of(terminator))
    return name


def _variable(r: CarriedReals) -> Any:
    return lambda name: r.real_of(name) if name in r.carried else r.t.name("nothing")
