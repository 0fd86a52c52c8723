"""The hypotheses on more than one operation of the reference, or on one use of a value that has several: an epsilon outside its
root, a factor that is missing at one place, an operand that is ignored wherever it is used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text
from bitverdict.harness.model.mathematics import Mathematics

FACTORS = ("multiply", "divide", "true_divide")
DIVISIONS = ("divide", "true_divide")


def outside_the_root(trace: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change]]]:
    """(kind, sentence, changes): sqrt(x + c) as sqrt(x) + c, and a division by it as a factor 1 / sqrt(x) + c."""
    for root in trace:
        if root.name != "sqrt":
            continue
        for addition in trace:
            if addition.name != "add" or not _is_result(addition, root, 0):
                continue
            place = next((at for at in (0, 1) if np.ndim(addition.arguments[at]) == 0), None)
            if place is None:
                continue
            number = float(addition.arguments[place])
            said = f"equals the reference with the addition of {addition.texts[place]} outside {operation_text(root)}"
            inside = {addition.number: _argument(1 - place)}
            yield "epsilon", said, inside | {root.number: _plus(number)}
            for user in trace:
                if user.name in DIVISIONS and _is_result(root, user, 1):
                    yield "epsilon", said, inside | {user.number: _times_reciprocal_plus(number)}


def at_one_use(operation_list: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change]]]:
    """(kind, sentence, changes): a product that is used more than once, without one of its factors at one of its uses."""
    for product in operation_list:
        if product.name not in FACTORS:
            continue
        uses = [
            (user, position)
            for user in operation_list
            for position in range(len(user.arguments))
            if user is not product and _is_result(product, user, position)
        ]
        for user, position in uses if len(uses) > 1 else ():
            for kept in (0,) if product.name in DIVISIONS else (0, 1):
                if np.shape(product.arguments[kept]) == np.shape(product.result):
                    what = "division by" if product.name in DIVISIONS else "factor"
                    said = f"equals the reference without the {what} {product.texts[1 - kept]} in {operation_text(user)}"
                    yield "left out", said, {user.number: _with_argument(position, np.asarray(product.arguments[kept]))}


def constants_in_reverse(done: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change]]]:
    """(kind, sentence, changes): what follows from no operand (shifts, places), taken from its end or one off in one use."""
    constant: set[int] = set()
    for operation in done:
        if operation.name == "arange" or (operation.parents <= constant and operation.parents and not _takes_an_operand(operation)):
            constant.add(operation.number)
            continue
        for at, origin in enumerate(operation.origins):
            values = np.asarray(operation.arguments[at]) if origin in constant else np.zeros(0)
            for axis in (axis for axis in range(values.ndim) if values.shape[axis] > 1):
                said = f"equals the reference with {operation.texts[at]} in reverse in {operation_text(operation)}"
                yield "order", said, {operation.number: _with_argument(at, np.flip(values, axis))}


def _takes_an_operand(operation: Operation) -> bool:
    return any(
        isinstance(one, np.ndarray) and origin < 0 for one, origin in zip(operation.arguments, operation.origins, strict=True)
    )


def ignored_operands(mathematics: Mathematics, done: list[Operation]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(kind, sentence, operands): a factor that is used more than once, as if it were 1. Of one use its operation tells."""
    for name, values in mathematics.operands.items():
        if not isinstance(values, np.ndarray) or not np.issubdtype(values.dtype, np.floating) or name in mathematics.blocks:
            continue
        uses = [each for each in done if each.name in FACTORS and name in each.texts]
        if len(uses) > 1:
            ones = {**mathematics.operands, name: np.ones_like(values)}
            yield "left out", f"equals the reference without the factor {name} wherever it is used", ones


def _is_result(made: Operation, user: Operation, at: int) -> bool:
    """Whether argument `at` of `user` is what `made` gave."""
    if user.number <= made.number or at >= len(user.texts) or user.texts[at] != operation_text(made):
        return False
    return np.array_equal(np.asarray(user.arguments[at]), np.asarray(made.result), equal_nan=True)


def _argument(place: int) -> Change:
    return lambda function, args, kwargs: np.asarray(args[place])


def _plus(number: float) -> Change:
    return lambda function, args, kwargs: function(*args, **kwargs) + number


def _times_reciprocal_plus(number: float) -> Change:
    return lambda function, args, kwargs: args[0] * (1 / args[1] + number)


def _with_argument(place: int, other: np.ndarray) -> Change:
    return lambda function, args, kwargs: function(*(other if at == place else each for at, each in enumerate(args)), **kwargs)
