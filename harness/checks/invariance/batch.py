"""Batch invariance: the same row, the same bits, whatever the batch and wherever in it the row lies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import lcm

import numpy as np

from bitverdict.harness.checks.invariance.calls import ROWS, Call, Caller, Promises
from bitverdict.harness.checks.invariance.cause import NO_DIFFERENCE
from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.checks.invariance.relation import NOT_IMPLIED, Map, Relation, compare_calls
from bitverdict.harness.checks.invariance.sizes import Axes, cut, drawn, following_axes, resize_case, sizes_of_operands

BY_PLACE = "both launch the same program on the same grid: the place of a row in its tile decides, or that of what is summed"
LADDER = (1, 2, 3, 8, 15, 16, 17, 32, 33, 64, 65, 127, 128, 129, 255, 256, 257)
"""Sizes of smaller batches: those at which launchers take another path."""


@dataclass(frozen=True)
class Part:
    """`size` rows of a batch, from `begin`."""

    begin: int
    size: int


def parts(batch: int, unit: int, limit: int = 0) -> list[Part]:
    """Smaller batches of one of `batch` rows: each size of the ladder from the begin, middle or end by turns, a multiple of `unit`
    rows from the begin. `limit`: at most so many of them."""
    sizes = [size for size in (*LADDER, batch - 1) if 0 < size < batch]
    sizes = list(dict.fromkeys(sizes))
    if limit and len(sizes) > limit:
        sizes = [sizes[round(place)] for place in np.linspace(0, len(sizes) - 1, limit)]
    begins = (
        (batch - size) // unit * unit if turn % 3 == 1 else (batch - size) // 2 // unit * unit for turn, size in enumerate(sizes)
    )
    return [Part(0 if turn % 3 == 2 else begin, size) for turn, (size, begin) in enumerate(zip(sizes, begins, strict=True))]


@dataclass(frozen=True)
class Batch:
    """A size of the first call's case: `operands` and `outputs` are the axes that follow it."""

    name: str
    size: int
    operands: Axes
    outputs: Axes

    def is_promised(self, promises: Promises) -> bool:
        """Whether `promises` say that the kernel is invariant along this size."""
        of_rows = ROWS in promises.batch_invariant and any(axis.place == 0 for axis in self.outputs.values())
        return of_rows or self.name in promises.batch_invariant


def batches(caller: Caller, first_call: Call) -> tuple[list[Batch], list[Batch]]:
    """The sizes of the first call that outputs follow, and those that operands alone follow: what is summed up, or looked up."""
    followed_sizes: list[Batch] = []
    others: list[Batch] = []
    for name, axes in sizes_of_operands(caller.contract, first_call.case, first_call.operands).items():
        size = caller.contract.sizes(first_call.case)[name]
        batch = Batch(name, size, axes, _outputs_of(caller, first_call, name, size))
        (followed_sizes if batch.outputs else others).append(batch)
    return followed_sizes, others


def _outputs_of(caller: Caller, first: Call, name: str, size: int) -> Axes:
    """The axis of each output that follows the size `name`, by calls of less."""
    shapes = [(size, _shapes(first))]
    for less in dict.fromkeys((size - 1, size - 16, size - 32, size - 128, size // 2, 1)):
        case = resize_case(caller.contract, first.case, name, less) if 0 < less < size else None
        if case is None or not caller.takes(case) or not caller.contract.expected_outcome(case, caller.target).result:
            continue
        call = caller.call(case)
        if call.launch_result.outcome is None:
            shapes.append((less, _shapes(call)))
        if len(shapes) == 3:
            break
    return (following_axes(shapes) or {}) if len(shapes) > 1 else {}


def batch_findings(caller: Caller, first: Call, batch: Batch, limit: int = 0) -> Iterator[InvarianceFinding]:
    """A finding for each smaller batch of the call `first` along the size `batch`."""
    unit = lcm(*(axis.unit for axis in (*batch.operands.values(), *batch.outputs.values())))
    for part in parts(batch.size, unit, limit):
        found = of_a_part(caller, first, batch, part)
        yield found
        if found.end is End.NOT_APPLICABLE and found.reason.startswith(NOT_IMPLIED):
            return


def of_a_part(caller: Caller, first_call: Call, batch: Batch, part: Part) -> InvarianceFinding:
    """What a call of the rows of `part` alone shows against the call of all."""
    name = batch.name
    changed = f"{name} = {part.size} for {batch.size}, from {part.begin}"
    maps = {output: _rows(axis.place, axis.cut(part.begin, part.size)) for output, axis in batch.outputs.items()}
    relation = Relation(f"batch {name}", changed, maps, is_promised=batch.is_promised(caller.promises))
    case = resize_case(caller.contract, first_call.case, name, part.size)
    if case is None:
        return relation.not_applicable_finding("the contract has no such case")
    if not caller.takes(case):
        return relation.not_applicable_finding("the launcher's requires does not take it")
    outcome = caller.contract.expected_outcome(case, caller.target)
    if not outcome.result:
        return relation.not_applicable_finding(f"a refusal is expected: {outcome.reason or outcome.message}")
    operands = cut(first_call.operands, drawn(caller.contract, case), batch.operands, part.begin, part.size)
    return compare_calls(relation, caller, first_call, caller.call(case, operands))


def permutation_finding(caller: Caller, first_call: Call, batch: Batch, seed: int = 1) -> InvarianceFinding:
    """What a call with the rows along the size `batch` in another order shows."""
    order = np.random.default_rng(seed).permutation(batch.size)
    maps = {output: _order(axis.place, order) for output, axis in batch.outputs.items()}
    promised = batch.is_promised(caller.promises)
    relation = Relation(f"position {batch.name}", f"the rows along {batch.name} in another order", maps, is_promised=promised)
    if any(axis.unit > 1 for axis in (*batch.operands.values(), *batch.outputs.values())):
        return relation.not_applicable_finding(f"several of {batch.name} share an element")
    operands = {
        name: replace(each, codes=_take_rows(each.codes, batch.operands, name, order)) for name, each in first_call.operands.items()
    }
    found = compare_calls(relation, caller, first_call, caller.call(first_call.case, operands))
    return replace(found, cause=BY_PLACE) if found.cause == NO_DIFFERENCE else found


def _shapes(call: Call) -> Mapping[str, tuple[int, ...]]:
    return {name: tuple(words.shape) for name, words in call.outputs().items()}


def _rows(axis: int, taken: slice) -> Map:
    return lambda array: array[(slice(None),) * axis + (taken,)]


def _order(axis: int, order: np.ndarray) -> Map:
    return lambda array: np.take(array, order, axis=axis)


def _take_rows(codes: np.ndarray, axes: Axes, name: str, order: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.take(codes, order, axis=axes[name].place)) if name in axes else codes
