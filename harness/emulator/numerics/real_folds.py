"""Reductions and scans of real values.

Sums and extremes are those of the whole array. Other combine functions run the program's code on words and real values together, in
compiled order. Branches follow the words.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from bitverdict.harness.emulator.numerics.real_values import UNIT, Real, Taint, exactly, grid, special
from bitverdict.reference.reduction_order import ReductionOrder, ScanOrder, reduce_parts, scan_parts

CarriedValue = Real | Taint
Combine = Callable[[tuple, tuple, tuple, tuple], tuple[tuple, tuple]]
"""(words, what they carry) of one side, then of the other -> those of the combination."""


def largest(real: Real, axis: int, ufunc: np.ufunc) -> Real:
    """The extreme along `axis`: off by no more than the worst of its elements."""
    return Real(ufunc.reduce(real.value, axis), None if real.error is None else np.maximum.reduce(real.error, axis))


def prefix_extremes(real: Real, axis: int, ufunc: np.ufunc, reverse: bool) -> Real:
    value = _run_from_end(real.value, axis, reverse, ufunc.accumulate)
    return Real(value, None if real.error is None else _run_from_end(real.error, axis, reverse, np.maximum.accumulate))


def prefix_sums(real: Real, axis: int, reverse: bool) -> Real:
    """The sum of each prefix along `axis`."""
    value = _run_from_end(real.value, axis, reverse, np.add.accumulate)
    magnitude = _run_from_end(np.abs(real.value), axis, reverse, np.add.accumulate)
    if real.error is None and exactly(magnitude, grid(real.value)):
        return Real(value)
    error = magnitude * (UNIT * real.value.shape[axis])
    if real.error is not None:
        error = error + _run_from_end(real.error, axis, reverse, np.add.accumulate)
    if isfinite(np.add.reduce(error, None)):
        return Real(value, error)
    unknown = np.zeros(value.shape, np.bool_) if real.error is None else ~np.isfinite(real.error)
    return special(value, error, ~_run_from_end(unknown, axis, reverse, np.logical_or.accumulate))


def _run_from_end(array: np.ndarray, axis: int, reverse: bool, run: Callable[..., np.ndarray]) -> np.ndarray:
    return np.flip(run(np.flip(array, axis), axis), axis) if reverse else run(array, axis)


def any_along(taint: Taint, axis: int) -> Taint:
    """Of integers that are combined along `axis`: one that hangs on a rounding hangs all of it."""
    return None if taint is None else np.logical_or.reduce(taint, axis)


def any_before(taint: Taint, axis: int, reverse: bool) -> Taint:
    return None if taint is None else _run_from_end(taint, axis, reverse, np.logical_or.accumulate)


def reduction(
    combine: Combine,
    words: tuple,
    carried_values: tuple[CarriedValue, ...],
    floats: tuple[bool, ...],
    axis: int,
    order: ReductionOrder,
    found: tuple,
) -> Any:
    """What the results `found` of a reduction of `words` carry."""
    parts = reduce_parts(_parts(words, carried_values, floats), axis, order, _of_parts(combine, floats))
    return _carried_results(parts, floats, found)


def scan(
    combine: Combine,
    words: tuple,
    carried_values: tuple[CarriedValue, ...],
    floats: tuple[bool, ...],
    axis: int,
    order: ScanOrder,
    found: tuple,
    reverse: bool,
) -> Any:
    """What the results `found` of a scan of `words` carry."""
    parts = scan_parts(_parts(words, carried_values, floats), axis, order, _of_parts(combine, floats), reverse=reverse)
    return _carried_results(parts, floats, found)


def results_without_fold(held: tuple[CarriedValue, ...], axis: int) -> Any:
    """What results carry where nothing is combined."""
    return _single_or_tuple(tuple(_first_element(each, axis) for each in held))


def _first_element(held: CarriedValue, axis: int) -> CarriedValue:
    if held is None:
        return None
    if isinstance(held, Real):
        return Real(*(None if part is None else np.take(part, 0, axis) for part in held))
    return np.take(held, 0, axis)


def _single_or_tuple(held: tuple) -> Any:
    return held[0] if len(held) == 1 else held


def _parts(words: tuple, held: tuple[CarriedValue, ...], floats: tuple[bool, ...]) -> tuple[np.ndarray, ...]:
    """Arrays of one shape: of each operand its words, then the value and the error of a float, or the Taint of an integer."""
    arrays: list[Any] = []
    for word, carried_value, is_float in zip(words, held, floats, strict=True):
        arrays.append(word)
        if is_float:
            assert isinstance(carried_value, Real)
            arrays += [carried_value.value, 0.0 if carried_value.error is None else carried_value.error]
        else:
            arrays.append(False if carried_value is None else carried_value)
    return tuple(np.broadcast_arrays(*arrays))


def _split_parts(parts: tuple, floats: tuple[bool, ...]) -> tuple[tuple, tuple]:
    """The words of `parts`, and what they carry."""
    words, held, at = [], [], 0
    for is_float in floats:
        words.append(parts[at])
        held.append(Real(parts[at + 1], parts[at + 2]) if is_float else parts[at + 1])
        at += 3 if is_float else 2
    return tuple(words), tuple(held)


def _of_parts(combine: Combine, floats: tuple[bool, ...]) -> Callable[..., tuple]:
    """`combine` on the parts of two sides."""

    def run(*both: np.ndarray) -> tuple:
        half = len(both) // 2
        found = combine(*_split_parts(both[:half], floats), *_split_parts(both[half:], floats))
        shape = both[0].shape
        return tuple(np.broadcast_to(part, shape) for part in _parts(*found, floats))

    return run


def _carried_results(parts: tuple, floats: tuple[bool, ...], found: tuple) -> Any:
    """What is carried, of results in `parts`. An integer that is another word than the program `found` hangs on the order."""
    words, held = _split_parts(parts, floats)
    carried_values: list[CarriedValue] = []
    for word, each, is_float, actual in zip(words, held, floats, found, strict=True):
        if is_float:
            carried_values.append(each)
        else:
            wrong = each | np.not_equal(word, actual)
            carried_values.append(wrong if wrong.any() else None)
    return _single_or_tuple(tuple(carried_values))


__all__ = ["any_along", "any_before", "largest", "prefix_extremes", "prefix_sums", "reduction", "results_without_fold", "scan"]
