"""What moves elements moves their real values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.execution.threads import moved_places
from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.frontend.lowerings.shapes import catenation
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, union_of_taints, with_taint


def move_elements(carried_value: Real | Taint, function: Callable[..., np.ndarray], *arguments: object) -> Real | Taint:
    """`carried_value` after `function(array)`, which only moves elements."""
    if carried_value is None:
        return None
    if isinstance(carried_value, Real):
        return Real(
            function(carried_value.value, *arguments),
            None if carried_value.error is None else function(carried_value.error, *arguments),
        )
    return function(carried_value, *arguments)


def move(r: CarriedReals, op: Operation, function: Callable[..., np.ndarray], *given: object) -> None:
    r.hold(op, r.t.apply(move_elements, r.real_of(op.operands[0]), function, *given))


def differs(r: CarriedReals, op: Operation) -> bool:
    """Whether the values of `op` have a row for each of several programs."""
    return r.t.batches is not None and r.t.batches.differs(op)


def broadcast_from_rows(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """(count,) -> (count, *shape)."""
    return np.broadcast_to(array.reshape(-1, *[1] * len(shape)), (len(array), *shape))


def broadcast_rows(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(array, (len(array), *shape))


def reshape_array(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(shape)


def transpose_array(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
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
    move(r, op, reshape_array, (-1, *shape) if differs(r, op) else shape)


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
        move(r, op, reorder, places, target.shape)


def taken_of_rows(array: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(len(array), -1)[:, places].reshape(shape)


def reorder(array: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(-1)[places].reshape(shape)


@carries("tt.unsplat")
def unsplat(r: CarriedReals, op: Operation) -> None:
    move(r, op, first_of_rows if differs(r, op) else first_element)


def first_element(array: np.ndarray) -> np.ndarray:
    return array.reshape(-1)[0]


def first_of_rows(array: np.ndarray) -> np.ndarray:
    return array.reshape(len(array), -1)[:, 0]


@carries("tt.trans")
def transpose(r: CarriedReals, op: Operation) -> None:
    order = tuple(op.integers("order"))
    move(r, op, transpose_array, (0, *(axis + 1 for axis in order)) if differs(r, op) else order)


@carries("tt.join")
def join(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.t.apply(join_elements, stack_last_axis, r.reals_of(op)))


@carries("tt.cat")
def cat(r: CarriedReals, op: Operation) -> None:
    order, shape = catenation(r.t, op)
    r.hold(op, r.t.apply(join_elements, concatenate_ordered, r.reals_of(op), order, shape))


def join_elements(function: Callable[..., np.ndarray], carried_pair: tuple[Real | Taint, ...], *arguments: object) -> Real | Taint:
    """What two values carry, joined by `function(arrays, *given)`."""
    reals = [part for part in carried_pair if isinstance(part, Real)]
    if reals:
        values = [np.asarray(part.value) for part in reals]
        if all(part.error is None for part in reals):
            return Real(function(_broadcast_alike(values), *arguments))
        errors = [np.zeros(np.shape(part.value)) if part.error is None else np.asarray(part.error) for part in reals]
        return Real(function(_broadcast_alike(values), *arguments), function(_broadcast_alike(errors), *arguments))
    taints = [part for part in carried_pair if part is not None and not isinstance(part, Real)]
    if not taints:
        return None
    none = np.zeros(taints[0].shape, np.bool_)
    return function(_broadcast_alike([part if isinstance(part, np.ndarray) else none for part in carried_pair]), *arguments)


def _broadcast_alike(arrays: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    return tuple(np.broadcast_arrays(*arrays))


def stack_last_axis(arrays: tuple[np.ndarray, ...]) -> np.ndarray:
    return np.stack(arrays, axis=-1)


def concatenate_ordered(arrays: tuple[np.ndarray, ...], order: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.concatenate([each.reshape(-1) for each in arrays])[order].reshape(shape)


@carries("tt.split")
def split(r: CarriedReals, op: Operation) -> None:
    given = r.real_of(op.operands[0])
    r.hold(op, tuple(r.t.apply(move_elements, given, side, number) for number in range(2)))


def side(array: np.ndarray, number: int) -> np.ndarray:
    return array[..., number]


@carries("tt.gather")
def gather(r: CarriedReals, op: Operation) -> None:
    """An element whose index hangs on a rounding is unknown; so is poison, where an index lies outside."""
    source, indices = op.operands
    given = r.t.value(indices), op.integer("axis") + differs(r, op), r.real_of(indices)
    r.hold(op, r.t.apply(gather_reals, r.real_of(source), *given))


def gather_reals(carried_value: Real | Taint, indices: np.ndarray, axis: int, hangs: Taint) -> Real | Taint:
    """What `carried_value` carries at `indices` along `axis`."""
    if carried_value is None:
        return hangs
    whole = carried_value.value if isinstance(carried_value, Real) else carried_value
    if whole.ndim < indices.ndim:
        carried_value = move_elements(carried_value, np.broadcast_to, (len(indices), *whole.shape))
    elif indices.ndim < whole.ndim:
        indices = np.broadcast_to(indices, (len(whole), *indices.shape))
    count = (carried_value.value if isinstance(carried_value, Real) else carried_value).shape[axis]  # type: ignore[union-attr]
    places = indices.astype(np.int64) & (0xFFFFFFFF if indices.itemsize >= 4 else (1 << 8 * indices.itemsize) - 1)
    outside = places >= count
    found = move_elements(carried_value, np.take_along_axis, np.where(outside, 0, places), axis)
    unknown = union_of_taints(hangs, outside if outside.any() else None)
    return with_taint(found, unknown) if isinstance(found, Real) else union_of_taints(found, unknown)


@carries("ttg.convert_layout")
def carry_unchanged(r: CarriedReals, op: Operation) -> None:
    r.hold(op, r.real_of(op.operands[0]))


__all__ = ["differs", "move_elements"]


@carries("tt.call", "ttg.warp_specialize")
def results_of_regions(r: CarriedReals, op: Operation) -> None:
    """What functions and regions give back: the code of the operation has taken its real values (`Translator.received`)."""
