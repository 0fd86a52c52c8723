"""Accumulators, products and reductions."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, call_without, integer, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

REDUCTIONS = {
    "max": "min",
    "min": "max",
    "sum": "max",
    "argmax": "argmin",
    "argmin": "argmax",
    "cumsum": "cumprod",
    "xor_sum": "sum",
}


@operator("accumulator not added", "accumulator")
def not_added(place: Place) -> Iterator[Change]:
    """A sum keeps its last term alone."""
    if isinstance(node := place.node, cst.AugAssign) and isinstance(node.operator, cst.AddAssign | cst.SubtractAssign):
        yield Change(node.operator, " = ")


@operator("accumulator not scaled", "accumulator")
def not_scaled(place: Place) -> Iterator[Change]:
    """A running sum or product is left as it was."""
    if isinstance(node := place.node, cst.AugAssign) and isinstance(node.operator, cst.MultiplyAssign | cst.DivideAssign):
        yield Change(node, "pass")


@operator("accumulator dropped", "accumulator")
def accumulator_dropped(place: Place) -> Iterator[Change]:
    """A product begins at zero in each step."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("dot", "dot_scaled"):
        acc = argument(node, 2 if callee_name(node) == "dot" else None, "acc")
        if acc is not None:
            yield Change(node, call_without(place, node, acc))


@operator("accumulator kept", "accumulator")
def accumulator_kept(place: Place) -> Iterator[Change]:
    """What a product begins with is decided wrongly."""
    if isinstance(node := place.node, cst.Call) and (use := argument(node, None, "use_acc")) is not None:
        for each in ("True", "False"):
            if place.code(use.value) != each:
                yield Change(use.value, each)


@operator("accumulator starts elsewhere", "accumulator")
def starts_elsewhere(place: Place) -> Iterator[Change]:
    """A sum begins at one."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("zeros", "zeros_like"):
        yield Change(node, f"({place.code(node)} + 1)")


@operator("another reduction", "reduction")
def another_reduction(place: Place) -> Iterator[Change]:
    """A reduction finds something else."""
    if isinstance(node := place.node, cst.Call) and isinstance(node.func, cst.Attribute) and node.args:
        if (other := REDUCTIONS.get(callee_name(node))) is not None:
            yield Change(node.func.attr, other)


@operator("another axis", "reduction")
def another_axis(place: Place) -> Iterator[Change]:
    """A reduction runs along another axis."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in (*REDUCTIONS, "expand_dims", "reduce", "associative_scan"):
        axis = argument(node, 1, "axis")
        if axis is not None and (value := integer(axis.value)) is not None:
            yield Change(axis.value, str(1 - value if value < 2 else value - 1))


@operator("minimum for maximum", "reduction", host=True)
def minimum_for_maximum(place: Place) -> Iterator[Change]:
    """Of two values the other one is taken."""
    swapped = {"minimum": "maximum", "maximum": "minimum", "min": "max", "max": "min"}
    if isinstance(node := place.node, cst.Call) and (other := swapped.get(callee_name(node))) is not None and len(node.args) > 1:
        if not isinstance(node.func, cst.Name) and callee_name(node) in ("min", "max"):  # a reduction
            return
        yield Change(node.func, place.code(node.func).removesuffix(callee_name(node)) + other)
        yield Change(node, f"({place.code(node.args[0].value)})")


@operator("precision of the product", "accumulator")
def precision_of_the_product(place: Place) -> Iterator[Change]:
    """Operands of a product are rounded otherwise."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "dot":
        if (asked := argument(node, None, "input_precision")) is not None:
            yield Change(asked.value, '"tf32"' if "ieee" in place.code(asked.value) else '"ieee"')
