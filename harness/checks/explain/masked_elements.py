"""The hypotheses on masks: one sum counts the elements up to the width of a tile, or a softmax misses the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from bitverdict.harness.checks.explain.changed_reductions import REDUCTION_NAMES, parts_of, reduced_axis, widths_of
from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text
from bitverdict.harness.model.mathematics import Mathematics

MOST_WIDTHS = 3
MOST_ELEMENTS = 1 << 18  # of the operands, once they are filled
POWERS = ("exp", "exp2")

WiderReference = tuple[str, Mapping[str, np.ndarray], Mapping[int, Change], int, tuple[int, int]]
"""Sentence, operands, changes, the operation that counts too many, and (width, length) of the axis to cut from the result."""


def counted_in_one(mathematics: Mathematics, done: list[Operation]) -> Iterator[WiderReference]:
    """One sum, mean or maximum of rows that zeros fill up to the width of a tile, where all others stop at their end."""
    reductions = [
        (operation, axis)
        for operation in done
        if operation.name in REDUCTION_NAMES and (axis := reduced_axis(operation)) is not None
    ]
    floats = {name: values for name, values in mathematics.operands.items() if np.asarray(values).dtype == np.float64}
    given = {name: values for name, values in floats.items() if np.ndim(values)}
    for length in sorted({size for values in given.values() for size in values.shape if size > 1}):
        along = [(operation, axis) for operation, axis in reductions if np.shape(operation.arguments[0])[axis] == length]
        for width in list(widths_of(length))[:MOST_WIDTHS] if along else ():
            wider = {name: _wider(values, length, width) for name, values in given.items()}
            if sum(values.size for values in wider.values()) > MOST_ELEMENTS:
                break
            for counting_operation, _ in along:
                if counting_operation.name in ("var", "std"):
                    continue
                changes = {
                    operation.number: _count_all_elements(operation, axis, length)
                    if operation is counting_operation
                    else _cut(axis, length)
                    for operation, axis in along
                }
                said = (
                    f"equals the reference with zeros that fill the operands of "
                    f"{operation_text(counting_operation)} from {length} up to {width}"
                )
                operands = {**mathematics.operands, **wider}
                yield f"{said}: masked elements count there", operands, changes, counting_operation.number, (width, length)


def narrow_result(result: np.ndarray, shape: tuple[int, ...], sizes: tuple[int, int]) -> np.ndarray:
    """`result` without what was filled: of each axis that has the width and should have the length."""
    width, length = sizes
    for axis, (made, due) in enumerate(zip(result.shape, shape, strict=False)):
        if made == width and due == length:
            result = np.take(result, np.arange(length), axis=axis)
    return result


def without_last_powers(trace: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change], int]]:
    """(kind, sentence, changes, place) of powers that count nothing from an element on, wherever they are used."""
    for operation in trace:
        if operation.name not in POWERS:
            continue
        shape = np.shape(operation.result)
        axes = {axis % len(shape) for each in trace if (axis := _axis_of_sum(each, operation)) is not None}
        for axis in sorted(axes):
            for part, said in (*parts_of(shape[axis]), *_all_but_a_part(shape[axis])):
                inside = np.zeros(shape[axis], bool)
                inside[part] = True
                shown = inside.reshape([-1 if at == axis else 1 for at in range(len(shape))])
                sentence = f"equals the reference with {operation_text(operation)} {said}, wherever it is used"
                yield "element left out", sentence, {operation.number: _mask_elements(shown)}, operation.number


def _all_but_a_part(length: int) -> Iterator[tuple[slice, str]]:
    for parts in (2, 4, 8, 16):
        each = -(-length // parts)
        last = (-(-length // each) - 1) * each
        if 0 < last < length - 1:
            yield slice(0, last), f"without its last part, from {last} on"


def _axis_of_sum(reduction: Operation, operation: Operation) -> int | None:
    """The axis along which `reduction` adds what `operation` gives."""
    of_it = reduction.name in ("sum", "add.reduce") and reduction.origins[:1] == (operation.number,)
    return reduced_axis(reduction) if of_it and np.shape(reduction.arguments[0]) == np.shape(operation.result) else None


def _wider(values: np.ndarray, length: int, width: int) -> np.ndarray:
    return np.pad(values, [(0, width - length if size == length else 0) for size in values.shape])


def _cut(axis: int, length: int) -> Change:
    return lambda function, args, kwargs: function(np.take(args[0], np.arange(length), axis=axis), *args[1:], **kwargs)


def _count_all_elements(operation: Operation, axis: int, length: int) -> Change:
    """All elements in the sum; a mean is divided by the true number."""

    def change(function, args: tuple, kwargs: dict):  # type: ignore[no-untyped-def]
        made = function(*args, **kwargs)
        return made * (np.shape(args[0])[axis] / length) if operation.name == "mean" else made

    return change


def _mask_elements(shown: np.ndarray) -> Change:
    return lambda function, args, kwargs: np.where(shown, function(*args, **kwargs), 0.0)
