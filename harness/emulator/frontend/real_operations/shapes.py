"""What moves elements moves their real values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.threads import moved_places
from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.shapes import catenation
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, either, with_taint


def moved(held: Real | Taint, function: Callable[..., np.ndarray], *given: Any) -> Real | Taint:
    """`held` after `function(array, *given)`, which only moves elements."""
    if held is None:
        return None
    if isinstance(held, Real):
        return Real(function(held.value, *given), None if held.error is None else function(held.error, *given))
    return function(held, *given)


def move(r: CarriedReals, op: Operation, function: Callable[..., np.ndarray], *given: Any) -> None:
    r.hold(op, r.t.apply(moved, r.of(op.operands[0]), function, *given))


def differs(r: CarriedReals, op: Operation) -> bool:
    """Whether the values of `op` have a row for each of several programs."""
    return r.t.batches is not None and r.t.batches.differs(op)


def broadcast_from_rows(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(count,) -> (count, *shape)."""
    return np.broadcast_to(array.reshape(-1, *[1] * len(shape)), (len(array), *shape))


def broadcast_rows(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(array, (len(array), *shape))


def reshaped(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(shape)


def transposed(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    return array.transpose(order)


@carries("tt.splat")
def splat(r: CarriedReals, op: Operation) -> None:
    move(r, op, broadcast_from_rows if differs(r, op) else np.broadcast_to, r.t.result(op).shape)


@carries("tt.broadcast")
def broadcast(r: CarriedReals, op: Operation) -> None:
    move(r, op, broadcast_rows if differs(r, op) else np.broadcast_to, r.t.result(op).shape)


@carries("tt.expand_dims")
def expand(r: CarriedReals, op: Operation) -> None:
    shape = r.t.result(op).shape
    move(r, op, reshaped, (-1, *shape) if differs(r, op) else shape)


@carries("tt.reshape")
def reshape(r: CarriedReals, op: Operation) -> None:
    if "allow_reorder" not in op.attributes or op.operand_types == op.result_types:
        expand(r, op)
        return
    source, target = r.t.operand(op, 0), r.t.result(op)
    places = moved_places(*((kind.shape, r.t.program.expand(kind.layout)) for kind in (source, target)))
    if differs(r, op):
        move(r, op, taken_of_rows, places, (-1, *target.shape))
    else:
        move(r, op, reordered, places, target.shape)


def taken_of_rows(array: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(len(array), -1)[:, places].reshape(shape)


def reordered(array: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(-1)[places].reshape(shape)


@carries("tt.unsplat")
def unsplat(r: CarriedReals, op: Operation) -> None:
    move(r, op, first_of_rows if differs(r, op) else first)


def first(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1)[0]


def first_of_rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), -1)[:, 0]


@carries("tt.trans")
def transpose(r: CarriedReals, op: Operation) -> None:
    order = tuple(op.integers("order"))
    move(r, op, transposed, (0, *(axis + 1 for axis in order)) if differs(r, op) else order)


@carries("tt.join")
def join(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(joined, stacked, r.each(op)))


@carries("tt.cat")
def cat(r: CarriedReals, op: Operation) -> None:
    order, shape = catenation(r.t, op)
    r.hold(op, r.t.apply(joined, catenated, r.each(op), order, shape))


def joined(function: Callable[..., np.ndarray], held: tuple[Real | Taint, ...], *given: Any) -> Real | Taint:
    """What two values carry, joined by `function(arrays, *given)`."""
    reals = [each for each in held if isinstance(each, Real)]
    if reals:
        values = [np.asarray(each.value) for each in reals]
        if all(each.error is None for each in reals):
            return Real(function(_alike(values), *given))
        errors = [np.zeros(np.shape(each.value)) if each.error is None else np.asarray(each.error) for each in reals]
        return Real(function(_alike(values), *given), function(_alike(errors), *given))
    taints = [each for each in held if each is not None and not isinstance(each, Real)]
    if not taints:
        return None
    none = np.zeros(taints[0].shape, np.bool_)
    return function(_alike([each if isinstance(each, np.ndarray) else none for each in held]), *given)


def _alike(arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.broadcast_arrays(*arrays))


def stacked(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(arrays, axis=-1)


def catenated(arrays: tuple[np.ndarray, ...], order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([each.reshape(-1) for each in arrays])[order].reshape(shape)


@carries("tt.split")
def split(r: CarriedReals, op: Operation) -> None:
    given = r.of(op.operands[0])
    r.hold(op, tuple(r.t.apply(moved, given, side, number) for number in range(2)))


def side(array: np.ndarray, number: int) -> np.ndarray:
    return array[..., number]


@carries("tt.gather")
def gather(r: CarriedReals, op: Operation) -> None:
    """An element whose index hangs on a rounding is unknown; so is poison, where an index lies outside."""
    source, indices = op.operands
    given = r.t.value(indices), op.integer("axis") + differs(r, op), r.of(indices)
    r.hold(op, r.t.apply(gathered, r.of(source), *given))


def gathered(held: Real | Taint, indices: np.ndarray, axis: int, hangs: Taint) -> Real | Taint:
    """What `held` carries at `indices` along `axis`."""
    if held is None:
        return hangs
    whole = held.value if isinstance(held, Real) else held
    if whole.ndim < indices.ndim:
        held = moved(held, np.broadcast_to, (len(indices), *whole.shape))
    elif indices.ndim < whole.ndim:
        indices = np.broadcast_to(indices, (len(whole), *indices.shape))
    count = (held.value if isinstance(held, Real) else held).shape[axis]  # type: ignore[union-attr]
    places = indices.astype(np.int64) & (0xFFFFFFFF if indices.itemsize >= 4 else (1 << 8 * indices.itemsize) - 1)
    outside = places >= count
    found = moved(held, np.take_along_axis, np.where(outside, 0, places), axis)
    unknown = either(hangs, outside if outside.any() else None)
    return with_taint(found, unknown) if isinstance(found, Real) else either(found, unknown)


@carries("ttg.convert_layout")
def same(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.of(op.operands[0]))


__all__ = ["differs", "moved"]
