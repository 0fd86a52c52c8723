"""What moves elements moves their real values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.threads import moved_places
from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, taken


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


@carries("ttg.convert_layout")
def same(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.of(op.operands[0]))


__all__ = ["differs", "moved", "taken"]
