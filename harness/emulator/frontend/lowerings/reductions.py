"""Reductions and scans. What is exact is combined in any order; all else in the order that the layout implies
(`bitverdict.reference.reduction_order`), with the products that LLVM takes into the first sums."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import bases
from bitverdict.harness.emulator.frontend.lowerings.regions import lifted, seen_inside
from bitverdict.harness.emulator.frontend.lowerings.sums import fused_leaves, sums_in_doubt
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Block, Operation
from bitverdict.harness.emulator.numerics.scalar_ops import canonical
from bitverdict.reference.reduction_order import (
    Layout,
    ReductionOrder,
    ScanOrder,
    agree,
    copies,
    copy_at,
    reduced,
    reduction_order,
    scan_order,
    scanned,
    vectorised,
)

_EXACT = re.compile(r"arith\.(addi|muli|minsi|maxsi|minui|maxui|andi|ori|xori|maximumf|minimumf|maxnumf|minnumf)$")
_PACKED = ("arith.addf", "arith.mulf")
STORED_LANE = -1
"""Of the lanes of a warp that store different words to one place of shared memory the one whose word is taken to stay: the last."""
Combine = Callable[..., tuple[np.ndarray, ...]]


@lowers("tt.reduce", "tt.scan")
def fold(t: Translator, op: Operation) -> None:
    if "reduction_ordering" in op.attributes:
        raise NotModelled(op, "in a given order: no release of Triton 3.9 has this attribute")
    operands, axis = tuple(t.value(each) for each in op.operands), op.integer("axis") + t.leading
    if t.operand(op, 0).shape[op.integer("axis")] == 1:  # nothing is combined
        found = t.code("{}", operands) if op.name == "tt.scan" else t.apply(_alone, operands, axis, _single(t, op))
        _assign(t, op, found)
        return
    name = _combination(t, op, op.regions[0])
    if op.name == "tt.scan":
        _assign(t, op, t.apply(_scan, name, operands, axis, _scanning(t, op), op.flag("reverse")))
    else:
        _reduction(t, op, name, operands)
    if t.scratch(op):
        t.meet()  # values go from warp to warp behind a barrier
    else:
        t.meet(warps=True)


def _assign(t: Translator, op: Operation, found: Any, *more: str) -> None:
    """The results of `op`, and the values `more`, are the tuple `found`."""
    names = [*op.results, *more]
    t.emit("{}, = {}" if len(names) == 1 else "{} = {}", t.values(names), found)


def _single(t: Translator, op: Operation) -> bool:
    return t.typed(op, op.outputs[0]).kind == "scalar" and not t.leading


def _reduction(t: Translator, op: Operation, name: Any, operands: tuple[Any, ...]) -> None:
    axis, alone, single = op.integer("axis"), _only(op), _single(t, op)
    along = axis + t.leading  # of the arrays
    if alone is not None and _EXACT.match(alone.name):
        _assign(t, op, t.apply(_reduce_exactly, name, operands, along, single))
        return
    kind, layout = t.operand(op, 0), _layout(t, op)
    pairs = alone is not None and alone.name in _PACKED and vectorised(layout, axis, str(kind.format), sm=_sm(t))
    order = reduction_order(layout, axis, pairs=pairs)
    first = None
    if alone is not None and alone.name == "arith.addf" and (order.thread or order.lanes):
        if leaves := fused_leaves(t, op, alone, bool(order.thread)):
            first, operands = leaves
            if t.leading:  # some of the factors may be the same for all programs
                operands = t.apply(np.broadcast_arrays, *operands)
    if alone is not None and alone.name in _PACKED and (order.thread or not first):
        _assign(t, op, t.apply(_reduce, name, operands, along, order, first, single))
        return
    where = copy_at(layout, axis, order) if any(map(t.lane_words.wanted, op.results)) else None
    if where is not None and t.leading:
        raise NotModelled(op, "of several programs at once, whose copies are followed")
    if where is not None:
        wide = [f"{result}~lanes" for result in op.results]
        _assign(t, op, t.calls(_reduce_lanes, op, name, operands, axis, order, first, single, True, where), *wide)
        for result, each, found in zip(op.results, wide, op.inputs, strict=True):
            t.lane_words.hold(result, each, t.typed(op, found), axis)
        return
    free = sum(1 for basis in layout.lanes if not any(step for i, step in enumerate(basis) if i != axis))
    stays = free >= len(order.warps) and not t.facts.leaves_its_thread(op)
    _assign(t, op, t.calls(_reduce_lanes, op, name, operands, along, order, first, single, stays))


def _only(op: Operation) -> Operation | None:
    """The one operation that the region of `op` combines its two arguments by, in either order; None where it does more."""
    (block,) = op.regions[0]
    body = block.operations
    if len(body) == 2 and len(op.operands) == 1 and sorted(body[0].operands) == sorted(argument for argument, _ in block.arguments):
        return body[0] if body[1].operands == body[0].results else None
    return None


def _layout(t: Translator, op: Operation) -> Layout:
    kind = t.operand(op, 0)
    return _layout_of(kind.shape, t.program.expand(kind.layout))


@cache
def _layout_of(shape: tuple[int, ...], layout: str) -> Layout:
    return Layout.of(*bases(shape, layout))


def _sm(t: Translator) -> int:
    return int(t.arch.removeprefix("sm_"))


def _combination(t: Translator, op: Operation, region: list[Block]) -> Any:
    """The name of a function of the generated code that combines whole arrays as the region combines two elements."""
    (block,) = region
    *body, last = block.operations

    if len(body) > 1 and sums_in_doubt(t, body):
        raise NotModelled(op, "with a sum that takes a product, where the compiler packs some sums with other operations")
    name = t.name("combine")
    t.emit("def {}({}):", name, t.values(argument for argument, _ in block.arguments))
    with t.indented(), seen_inside(t, region):
        for inner in body:
            t.operation(lifted(inner), [], {})
        t.emit("return {}", tuple(t.value(each) for each in last.operands))
    if len(body) == 1 and (whole_array := _of_whole_arrays(body[0])) is not None:
        t.emit("{}.whole = {}", name, whole_array)
    return name


def _of_whole_arrays(op: Operation) -> Callable | None:
    """For `op` that combines two elements: what NumPy has for a whole array, with the same words. (array, axis) -> the reduction of
    an operation whose order does not show, None where these elements want the tree; of a sum the step before NaNs are made one."""
    kind = op.outputs[0]
    if kind is None or len(set(op.operands)) != 2:
        return None
    if op.name in _INTEGERS and kind.element in ("i8", "i16", "i32", "i64"):
        return partial(_folded, _INTEGERS[op.name])
    if op.name in _FLOATS and kind.element == "f32":
        return partial(_extreme, _FLOATS[op.name])
    return _added if op.name == "arith.addf" and kind.element == "f32" else None


_INTEGERS = {
    "arith.addi": np.add, "arith.muli": np.multiply, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
}  # fmt: skip
_FLOATS = {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip


def _folded(operation: np.ufunc, array: np.ndarray, axis: int) -> np.ndarray:
    return operation.reduce(array, axis, array.dtype, keepdims=True)


def _extreme(operation: np.ufunc, array: np.ndarray, axis: int) -> np.ndarray | None:
    found = operation.reduce(array, axis, keepdims=True)
    return None if (found == 0).any() else canonical(found)  # NumPy leaves the sign of zero open


def _added(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
    return (a + b,)


def _given(found: tuple, single: bool) -> tuple:
    return tuple(f.item() if f.dtype.kind in "ib" else np.asarray(f) for f in found) if single else found


def _alone(arrays: tuple[np.ndarray, ...], axis: int, single: bool) -> tuple:
    return _given(tuple(np.take(array, 0, axis) for array in arrays), single)


def _reduce_exactly(combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, single: bool) -> tuple:
    whole = getattr(combine, "whole", None)
    if whole is not None and (found := whole(arrays[0], axis)) is not None:
        return _given((found.take(0, axis),), single)
    parts = tuple(np.moveaxis(a, axis, 0) for a in arrays)
    while (n := parts[0].shape[0]) > 1:
        half = (n + 1) // 2
        low, high = tuple(p[: n // 2] for p in parts), tuple(p[half:] for p in parts)
        joined = combine(*low, *high)
        parts = tuple(np.concatenate([j, p[n // 2 : half]]) for j, p in zip(joined, parts, strict=True)) if n % 2 else joined
    return _given(tuple(p[0] for p in parts), single)


def _reduce(
    combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, order: ReductionOrder, first: Combine | None, single: bool
) -> tuple:
    if getattr(combine, "whole", None) is _added:  # a NaN stays one, whatever its word, until all is summed
        return _given(tuple(map(canonical, reduced(arrays, axis, order, _added, first))), single)
    return _given(reduced(arrays, axis, order, combine, first), single)


def _reduce_lanes(
    m: Cta,
    op: Operation,
    combine: Combine,
    arrays: tuple[np.ndarray, ...],
    axis: int,
    order: ReductionOrder,
    first: Combine | None,
    single: bool,
    stays: bool,
    where: np.ndarray | None = None,
) -> tuple:
    """A reduction whose two sides may not be exchanged: each lane that has the result may have another word of it. `stays`: no
    thread uses another's, or the copies are followed. With `where`, behind the results, their copies: the one in the thread that
    holds each position along `axis`."""
    found, clash = copies(arrays, axis, order, combine, first, stored=STORED_LANE)
    if clash:
        m.notes.add(Note(Advice.LANES_DIFFER, op.location))
    if not stays and not agree(found, axis):
        raise NotModelled(op, "whose words differ from lane to lane, and are used by other lanes than the one that stores them")
    wide = () if where is None else tuple(np.take(part, where, axis) for part in found)
    return _given(tuple(np.take(part, 0, axis) for part in found), single) + wide


def _scanning(t: Translator, op: Operation) -> ScanOrder:
    kind = t.operand(op, 0)
    if "#ttg.blocked" not in t.program.expand(kind.layout).split("<")[0]:
        raise NotModelled(op, f"over {t.program.expand(kind.layout)[:60]}: the compiler scans blocked layouts only")
    return scan_order(_layout(t, op), kind.shape, op.integer("axis"))


def _scan(combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, order: ScanOrder, reverse: bool) -> tuple:
    return scanned(arrays, axis, order, combine, reverse=reverse)
