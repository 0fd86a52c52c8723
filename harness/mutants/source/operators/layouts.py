"""Layouts of registers, shared and tensor memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.indices import _is_assigned, _names
from bitverdict.harness.mutants.source.operators.record import Change, argument, integer, operator
from bitverdict.harness.mutants.source.places import Place, callee_name


@operator("layout exchanged", "layout")
def layout_exchanged(place: Place) -> Iterator[Change]:
    """Another layout of the function is taken."""
    if isinstance(node := place.node, cst.Name) and "layout" in node.value.lower() and not _is_assigned(place):
        others = sorted(each for each in _names(place) if "layout" in each.lower() and each != node.value)
        yield from (Change(node, each) for each in others[:2])


@operator("layout turned", "layout")
def layout_turned(place: Place) -> Iterator[Change]:
    """The dimensions of a layout have another order."""
    if isinstance(node := place.node, cst.Call) and re.search(r"Layout$", callee_name(node)):
        for each in node.args:
            if isinstance(each.value, cst.List) and len(each.value.elements) == 2:
                one, other = (place.code(element.value) for element in each.value.elements)
                if one != other:
                    yield Change(each.value, f"[{other}, {one}]")
        if callee_name(node) == "SliceLayout" and (dim := argument(node, 0, "dim")) is not None and integer(dim.value) is not None:
            yield Change(dim.value, str(1 - (integer(dim.value) or 0)))


@operator("layout conversion dropped", "layout")
def conversion_dropped(place: Place) -> Iterator[Change]:
    """A tensor keeps its layout."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("convert_layout", "set_auto_layout") and node.args:
        yield Change(node, f"({place.code(node.args[0].value)})")


@operator("swizzle changed", "layout", host=True)
def swizzle_changed(place: Place) -> Iterator[Change]:
    """Shared memory is swizzled otherwise than its other user thinks."""
    if isinstance(node := place.node, cst.Call):
        swizzle = argument(node, 0 if callee_name(node) == "NVMMASharedLayout" else None, "swizzle_byte_width")
        if swizzle is not None and (value := integer(swizzle.value)) is not None:
            yield Change(swizzle.value, str(value // 2 if value > 32 else 64))
        if (turned := argument(node, None, "transposed", "fp4_padded")) is not None:
            yield Change(turned.value, "False" if place.code(turned.value) == "True" else "True")
