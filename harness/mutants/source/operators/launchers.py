"""The launcher: the grid, the arguments, the strides, and what it allocates."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import libcst as cst

from bitverdict.harness.mutants.source.operators.record import Change, argument, operator
from bitverdict.harness.mutants.source.places import Place, callee_name

TYPES = {"float32": "float16", "float16": "bfloat16", "bfloat16": "float16", "int32": "int16", "int64": "int32", "uint8": "int8"}
ALLOCATES = ("empty", "zeros", "full", "empty_like", "zeros_like", "new_empty", "new_zeros", "empty_strided")


def launches(node: cst.CSTNode) -> bool:
    """Whether it is ``kernel[grid](...)``."""
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Subscript)


@operator("grid too small", "grid", device=False, host=True)
def grid_too_small(place: Place) -> Iterator[Change]:
    """The last program along an axis is not launched."""
    for each in _axes(place):
        yield Change(each, f"({place.code(each)}) - 1")


@operator("grid too large", "grid", device=False, host=True)
def grid_too_large(place: Place) -> Iterator[Change]:
    """One program too many is launched along an axis."""
    for each in _axes(place):
        yield Change(each, f"({place.code(each)}) + 1")


def _axes(place: Place) -> Iterator[cst.BaseExpression]:
    """The sizes of a grid that is written here."""
    node = place.node
    if launches(node):
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Subscript)
        for element in node.func.slice:
            if isinstance(element.slice, cst.Index):
                yield from _sizes(element.slice.value)
    elif isinstance(node, cst.Assign) and re.search(r"grid", place.code(node.targets[0].target)):
        yield from _sizes(node.value)


def _sizes(node: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    if isinstance(node, cst.Lambda):
        node = node.body
    if isinstance(node, cst.Tuple | cst.List):
        yield from (each.value for each in node.elements if not isinstance(each.value, cst.Integer))


@operator("arguments swapped", "arguments", device=False, host=True)
def arguments_swapped(place: Place) -> Iterator[Change]:
    """Two arguments of one kind stand for each other."""
    node = place.node
    if not launches(node):
        return
    assert isinstance(node, cst.Call)
    given = [each for each in node.args if not each.star and not isinstance(each.value, cst.Integer | cst.Float)]
    start, end = place.file.span(node)
    text = place.file.text
    for first, second in itertools.pairwise(given):
        if _kind(place, first) == _kind(place, second) and place.code(first.value) != place.code(second.value):
            one, two = place.file.span(first.value), place.file.span(second.value)
            by = text[start : one[0]] + text[slice(*two)] + text[one[1] : two[0]] + text[slice(*one)] + text[two[1] : end]
            yield Change(node, by)


def _kind(place: Place, given: cst.Arg) -> str:
    code = place.code(given.value)
    if "stride" in code:
        return "stride"
    if given.keyword is not None:
        return "block" if re.match(r"block", given.keyword.value, re.IGNORECASE) else f"keyword {given.keyword.value}"
    if re.search(r"shape|size|numel|^[mnk]$|rows|columns|length|count", code):
        return "size"
    return "other"


@operator("argument off by one", "arguments", device=False, host=True)
def argument_off_by_one(place: Place) -> Iterator[Change]:
    """A size that is passed to a kernel is one less."""
    if launches(place.node):
        assert isinstance(place.node, cst.Call)
        for each in place.node.args:
            if not each.star and _kind(place, each) in ("size", "stride"):
                yield Change(each.value, f"{place.code(each.value)} - 1")


@operator("output of another type", "allocation", device=False, host=True)
def another_type(place: Place) -> Iterator[Change]:
    """A tensor is allocated for other elements."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ALLOCATES:
        if (dtype := argument(node, None, "dtype")) is not None:
            name = place.code(dtype.value).rpartition(".")[2]
            yield Change(dtype.value, f"torch.{TYPES.get(name, 'float32' if name != 'float32' else 'float16')}")


@operator("initialisation of an output dropped", "allocation", device=False, host=True)
def not_initialised(place: Place) -> Iterator[Change]:
    """What a kernel adds to holds what was there before."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) in ("zeros", "zeros_like", "new_zeros"):
        yield Change(node.func, place.code(node.func).replace("zeros", "empty"))
    elif isinstance(node, cst.Expr) and callee_name(node.value) in ("zero_", "fill_"):
        yield Change(node, "pass")


@operator("contiguous dropped", "arguments", device=False, host=True)
def contiguous_dropped(place: Place) -> Iterator[Change]:
    """An operand is taken as it lies."""
    if isinstance(node := place.node, cst.Call) and callee_name(node) == "contiguous" and isinstance(node.func, cst.Attribute):
        yield Change(node, place.code(node.func.value))


@operator("block of another size", "arguments", device=False, host=True)
def another_block(place: Place) -> Iterator[Change]:
    """A descriptor's block has its dimensions exchanged, or a block is half as large."""
    node = place.node
    if isinstance(node, cst.Call) and callee_name(node) in ("from_tensor", "TensorDescriptor", "TensorDescriptorIm2Col"):
        for each in node.args:
            if isinstance(each.value, cst.List) and len(each.value.elements) == 2:
                one, other = (place.code(element.value) for element in each.value.elements)
                if one != other:
                    yield Change(each.value, f"[{other}, {one}]")
    if isinstance(node, cst.Call) and callee_name(node) == "next_power_of_2":
        yield Change(node, f"({place.code(node)} // 2)")
