"""Values that a reference itself asks for, besides the regimes of every described kernel.

Large ones where it takes an exponential, so that one without its maximum overflows. Multiples of 2^-3 where it has a product, whose
sums fp32 holds and fp16 does not. NaN in what it does not read: behind a mask, in rows past a length, in pages of no sequence.
What it does not read is found by evaluating it with NaN there: nothing may change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bitverdict.harness.contracts.described.dtypes import FLOATS
from bitverdict.harness.contracts.described.record import OPERANDS, Entry
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Operand
from bitverdict.reference.formats import FORMATS, encode

EXPONENTIALS = frozenset({"exp", "exp2", "expm1"})
PRODUCTS = frozenset({"matmul", "vecdot", "tensordot"})
MOST_LINES = 64  # lines of an axis that are looked at one by one
MOST_TRIED = 16  # required cases in which something unread is looked for

Evaluator = Callable[[Mapping[str, Operand]], list[np.ndarray]]
"""The outputs of a reference, in float64, of these operands."""


def large_regime(operations: frozenset[str]) -> str:
    """Of a reference with these operations; empty where it has no exponential. A product of tens is a hundred."""
    if not operations & EXPONENTIALS:
        return ""
    return regimes.TENS if operations & PRODUCTS else regimes.HUNDREDS


def exact_regime(operations: frozenset[str]) -> str:
    """Of a reference with these operations; empty where it has no product."""
    return regimes.EIGHTHS if operations & PRODUCTS else ""


def follow_the_regime(entries: Sequence[Entry]) -> bool:
    """Whether some tensor of floats has no values of its own."""
    return any(entry.kind == "tensor" and entry.asked[0] is None and entry.dtype in FLOATS for entry in entries)


def may_leave_some_unread(entries: Sequence[Entry], by_name: Mapping[str, int]) -> bool:
    """Whether a reference is handed anything by which it could choose: masks, integers, sizes and flags by their names."""
    chooses = any(entry.kind in OPERANDS and entry.kind not in ("tensor", "scales") for entry in entries)
    return chooses or any(entries[place].kind not in OPERANDS for place in by_name.values())


def with_nan_unread(operands: Sequence[Operand], evaluate: Evaluator) -> list[Operand]:
    """`operands` with NaN wherever the reference reads nothing: behind masks of one shape, and in whole lines of the first two
    axes."""
    operands_by_name = {operand.name: operand for operand in operands}
    reference_outputs = evaluate(operands_by_name)
    for operand in operands:
        if operand.format not in FLOATS or not operand.codes.size:
            continue
        for where in _candidates(operand, operands):
            planted = _plant_nan(operands_by_name[operand.name], where)
            if _equal_outputs(evaluate(operands_by_name | {operand.name: planted}), reference_outputs):
                operands_by_name[operand.name] = planted
    return [operands_by_name[operand.name] for operand in operands]


def plants_nan(before: Sequence[Operand], after: Sequence[Operand]) -> bool:
    return any(one.codes is not other.codes for one, other in zip(before, after, strict=True))


def _candidates(operand: Operand, operands: Sequence[Operand]) -> Iterator[np.ndarray]:
    """Masks of the operand's shape: complements of the masks beside it, then line after line."""
    shape = operand.codes.shape
    for mask in operands:
        if mask.format == "bool" and mask.codes.shape == shape:
            truths = mask.codes.astype(bool)  # (*shape,)
            yield ~truths
            yield truths
    for axis in range(min(len(shape), 2)):
        for line in range(shape[axis] if 1 < shape[axis] <= MOST_LINES else 0):
            where = np.zeros(shape, bool)  # (*shape,)
            where[(slice(None),) * axis + (line,)] = True
            yield where


def _plant_nan(operand: Operand, where: np.ndarray) -> Operand:
    nan = encode(FORMATS[operand.format], np.array(np.nan)).astype(operand.codes.dtype)
    return replace(operand, codes=np.where(where, nan, operand.codes)) if where.any() else operand


def _equal_outputs(found: Sequence[np.ndarray], due: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(one, other, equal_nan=True) for one, other in zip(found, due, strict=True))


def of_plain_values(case: Case) -> Case:
    """`case` as it is before NaN is planted."""
    return replace(case, regime="normal")


def is_decided(outputs: Sequence[Any]) -> bool:
    """Whether a trace of the reference leaves no element of its `outputs` open."""
    for output in outputs:
        if np.any(output.unknown):
            return False
        if output.kind == "float" and np.any(output.interval("fp32")[3]):
            return False
    return True
