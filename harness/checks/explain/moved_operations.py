"""The hypotheses that an operation of the reference stands at another place: behind one that follows it (a bias behind the
activation, a zero point behind the scale), or that one sum is made of operands to which it was not done (a variance of x, where
that of x + r is due)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from bitverdict.harness.checks.explain.changed_operations import OPERATION_PHRASES
from bitverdict.harness.checks.explain.changed_reductions import REDUCTION_NAMES
from bitverdict.harness.checks.explain.evaluation import Change, Operation, changed_operations_of, operation_text
from bitverdict.harness.model.mathematics import Mathematics

MOST_BEHIND = 16  # operations behind which one is tried
OPERATION_GROUPS = {"add": "sum", "subtract": "sum", "multiply": "product", "divide": "product", "true_divide": "product"}
FOLLOW = ("getitem", "reshape", "astype", "arange")  # what changes no number


def moved_behind(done: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change], int]]:
    """(kind, sentence, changes, place) of each operation with two operands that may be done later."""
    for operation in _single_operations(done):
        users = [user for user in _after(done, operation) if user.name not in FOLLOW][:MOST_BEHIND]
        for place in (0, 1) if operation.name in ("add", "multiply") else (1,):
            operand = np.asarray(operation.arguments[place])
            if np.shape(operation.arguments[1 - place]) != np.shape(operation.result):
                continue
            for user in users:
                if OPERATION_GROUPS.get(user.name) != OPERATION_GROUPS[operation.name] and _fits(operand, user.result):
                    said = (
                        f"equals the reference with {OPERATION_PHRASES[operation.name]} "
                        f"{operation.texts[place]} moved behind {operation_text(user)}"
                    )
                    changes = {operation.number: _argument(1 - place), user.number: _apply_after(operation.name, operand)}
                    yield "moved operation", said, changes, operation.number


def without_in_one_sum(mathematics: Mathematics, trace: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change], int]]:
    """(kind, sentence, changes, place) of each sum, mean or maximum whose operands lack one operation."""
    for operation in _single_operations(trace):
        reductions = [user for user in _after(trace, operation) if user.name in REDUCTION_NAMES]
        if not reductions:
            continue
        for place in (0, 1) if operation.name in ("add", "multiply") else (1,):
            if np.shape(operation.arguments[1 - place]) != np.shape(operation.result):
                continue
            changes_without = changed_operations_of(mathematics, {operation.number: _argument(1 - place)}, trace)
            for reduction in reductions:
                said = (
                    f"equals the reference without {OPERATION_PHRASES[operation.name]} "
                    f"{operation.texts[place]} in {operation_text(reduction)}"
                )
                changes = {reduction.number: _of_arguments(changes_without[reduction.number].arguments)}
                yield "left out in one sum", said, changes, operation.number


def _single_operations(done: list[Operation]) -> Iterator[Operation]:
    """The operations with two operands that stand in no loop."""
    turns = Counter((operation.name, operation.site) for operation in done)
    for operation in done:
        if operation.name in OPERATION_PHRASES and len(operation.arguments) == 2 and turns[operation.name, operation.site] == 1:
            yield operation


def _after(done: list[Operation], operation: Operation) -> list[Operation]:
    """The operations that what `operation` gives goes into, in their order."""
    reached = {operation.number}
    users = []
    for user in done[operation.number + 1 :]:
        if user.parents & reached:
            reached.add(user.number)
            users.append(user)
    return users


def _fits(other: np.ndarray, result: object) -> bool:
    if not isinstance(result, np.ndarray) or result.dtype != np.float64:
        return False
    try:
        return np.broadcast_shapes(other.shape, result.shape) == result.shape
    except ValueError:
        return False


def _argument(place: int) -> Change:
    return lambda function, args, kwargs: np.asarray(args[place])


def _apply_after(name: str, other: np.ndarray) -> Change:
    return lambda function, args, kwargs: getattr(np, name)(function(*args, **kwargs), other)


def _of_arguments(arguments: tuple) -> Change:
    return lambda function, args, kwargs: function(*arguments, **kwargs)
