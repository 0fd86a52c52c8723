"""Conversions."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, call_without, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

OTHER_TYPES = {
    "float32": "float16",
    "float16": "bfloat16",
    "bfloat16": "float16",
    "float64": "float32",
    "float8e4nv": "float8e5",
    "float8e5": "float8e4nv",
    "int64": "int32",
    "int32": "int16",
    "int16": "int8",
    "int8": "uint8",
    "uint8": "int8",
    "uint16": "int16",
    "uint32": "int32",
}


@operator("cast dropped", "cast", host=True)
def cast_dropped(place: Place) -> Iterator[Change]:
    """A value keeps its type."""
    if isinstance(node := place.node, cst.Call) and isinstance(node.func, cst.Attribute) and callee_name(node) in ("to", "cast"):
        if place.device and not (callee_name(node) == "cast" and place.code(node.func.value) in ("tl", "gl")):
            yield Change(node, place.code(node.func.value))
        elif place.device:
            yield Change(node, f"({place.code(node.args[0].value)})")


@operator("cast to another type", "cast")
def another_type(place: Place) -> Iterator[Change]:
    """A value is converted to a type near the right one."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("to", "cast", "zeros", "full", "allocate_shared_memory"):
        for each in node.args:
            if isinstance(each.value, cst.Attribute) and (other := OTHER_TYPES.get(each.value.attr.value)) is not None:
                yield Change(each.value.attr, other)


@operator("converted, not reinterpreted", "cast")
def convert_bits(place: Place) -> Iterator[Change]:
    """Bits are converted that are to be taken as they are."""
    if isinstance(node := place.node, cst.Call) and (bitcast := argument(node, None, "bitcast")) is not None:
        yield Change(node, call_without(place, node, bitcast))


@operator("another format", "cast", host=True)
def another_format(place: Place) -> Iterator[Change]:
    """Packed operands are read as another format."""
    other = {'"e2m1"': '"e4m3"', '"e4m3"': '"e5m2"', '"e5m2"': '"e4m3"'}
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("dot_scaled", "tcgen05_mma_scaled"):
        for each in node.args:
            if (by := other.get(place.code(each.value))) is not None:
                yield Change(each.value, by)
