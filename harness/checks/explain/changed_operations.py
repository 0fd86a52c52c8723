"""The hypotheses that one operation of the reference is missing, or is another one: no division, a sum for a mean, < for <=.

Each change is made in the reference itself, which is then evaluated again. What two changes have in common (the same prediction on
the case's own data) is one finding, told by the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain.changed_reductions import (
    REDUCTION_NAMES,
    changes_of_mean,
    changes_of_product,
    changes_of_reduction,
    exclude_own_element,
    last_of_equals,
)
from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text

OPERATION_PHRASES = {"add": "the addition of", "subtract": "the subtraction of", "multiply": "the factor",
"divide": "the division by",
        "true_divide": "the division by"}  # fmt: skip
EQUALITY_SWAPS = {"less": "less_equal", "less_equal": "less", "greater": "greater_equal", "greater_equal": "greater"}
MIRROR_COMPARISONS = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
BASES = {"exp": "exp2", "exp2": "exp", "log": "log2", "log2": "log"}
ELEMENTWISE_FUNCTIONS = (
    "exp", "exp2", "log", "log2", "sqrt", "tanh", "abs", "absolute", "fabs", "negative", "square", "floor", "ceil", "round", "rint",
    "clip",
    "maximum", "minimum", "round_to", "power", "reciprocal", "sign", "cumulative_sum", "cumsum", "sort", "flip", "roll",
)  # fmt: skip
CONDITIONS = {"logical_and": "logical_or", "bitwise_and": "bitwise_or", "logical_or": "logical_and", "bitwise_or": "bitwise_and"}
ROUNDING_FUNCTIONS = ("floor", "ceil", "trunc", "round", "rint")
FLAT = ("reshape",)


def changes_of(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    """(kind, sentence, change) of each thing that a person may get wrong in `operation`."""
    name, texts, arguments = operation.name, operation.texts, operation.arguments
    if name in OPERATION_PHRASES and len(arguments) == 2:
        yield from _of_two(name, texts, arguments, operation)
    if name in EQUALITY_SWAPS:
        sign = _sign(name)
        yield (
            "comparison",
            f"equals the reference with {_sign(EQUALITY_SWAPS[name])} in the place of {sign} in {_infix_text(texts, sign)}",
            _use_function(EQUALITY_SWAPS[name]),
        )
        yield (
            "comparison",
            f"equals the reference with {_sign(MIRROR_COMPARISONS[name])} in the place of {sign} in {_infix_text(texts, sign)}",
            _use_function(MIRROR_COMPARISONS[name]),
        )
        for step in (1, -1):
            if _all_integers(arguments):
                yield (
                    "off by one",
                    f"equals the reference with {_infix_text(texts, sign)} {'+' if step > 0 else '-'} 1",
                    _step_second_argument(step),
                )
    if name in BASES:
        yield "base", f"equals the reference with {BASES[name]} in the place of {name}", _use_function(BASES[name])
    if name in ELEMENTWISE_FUNCTIONS and _same_shape(arguments, operation.result):
        yield "left out", f"equals the reference without {name}({texts[0]})", lambda function, args, _: np.asarray(args[0])
    if name == "sqrt":
        yield (
            "left out",
            f"equals the reference with a square in the place of sqrt({texts[0]})",
            lambda function, args, _: np.square(args[0]),
        )
    if name in ("mean", "var", "std"):
        yield from changes_of_mean(operation)
    if name in REDUCTION_NAMES:
        yield from changes_of_reduction(operation)
    if name == "matmul" and len(arguments) == 2:
        yield from changes_of_product(operation)
    if name == "where" and len(arguments) == 3:
        yield "condition", f"equals the reference with both sides of where({texts[0]}, ...) exchanged", _exchanged_where
        yield (
            "condition",
            f"equals the reference where {texts[0]} always holds",
            lambda function, args, _: _like(args[1], operation.result),
        )
        yield (
            "condition",
            f"equals the reference where {texts[0]} never holds",
            lambda function, args, _: _like(args[2], operation.result),
        )
    if name in EQUALITY_SWAPS:
        for held, phrase in ((True, "always"), (False, "never")):
            sentence = f"equals the reference where {operation_text(operation)} {phrase} holds"
            yield "condition", sentence, lambda function, args, kwargs, held=held: np.full_like(function(*args, **kwargs), held)  # type: ignore[misc]
    if name in CONDITIONS and all(np.asarray(each).dtype == np.bool_ for each in arguments):
        for place in (0, 1):
            sentence = f"equals the reference without the condition {texts[place]} in {operation_text(operation)}"
            yield "condition", sentence, lambda function, args, _, kept=1 - place: _like(args[kept], operation.result)  # type: ignore[misc]
        yield (
            "condition",
            f"equals the reference with {_sign(CONDITIONS[name])} in the place of {_sign(name)} in {operation_text(operation)}",
            _use_function(CONDITIONS[name]),
        )
    if name == "repeat" and isinstance(arguments[1], int | np.integer):
        phrase = (
            f"equals the reference with {texts[0]} one copy after another, where each element of "
            f"it is repeated {arguments[1]} times"
        )
        yield "repetition", phrase, _tile_values
    if name == "tile":
        yield (
            "repetition",
            f"equals the reference with each element of {texts[0]} repeated, not one copy after another",
            _repeat_values,
        )
    if name == "arange" and np.size(operation.result) > 1:
        count = np.size(operation.result)
        yield (
            "order",
            f"equals the reference with arange({count}) in reverse",
            lambda function, args, kwargs: function(*args, **kwargs)[::-1],
        )
    if name == "philox":
        for step in (1, -1):
            phrase = f"equals the reference with the seed {'+' if step > 0 else '-'} 1 in philox"
            yield "seed", phrase, lambda function, args, _, step=step: function(int(args[0]) + step, *args[1:])  # type: ignore[misc]
            phrase = f"equals the reference with {texts[1]} {'+' if step > 0 else '-'} 1 in philox"
            yield "index", phrase, lambda function, args, _, step=step: function(args[0], np.asarray(args[1]) + step)  # type: ignore[misc]
    if name in FLAT and (shape := np.shape(arguments[0]))[-2:] > (1, 1) and len(shape) > 1:
        phrase = f"equals the reference with the last two axes of {texts[0]} exchanged before reshape"
        yield "transposed", phrase, lambda function, args, kwargs: function(np.swapaxes(args[0], -1, -2), *args[1:], **kwargs)
    if name in ROUNDING_FUNCTIONS:
        for other in ROUNDING_FUNCTIONS:
            if other not in (name, "rint" if name == "round" else "round"):
                yield "function", f"equals the reference with {other} in the place of {name}({texts[0]})", _use_unary(other)
    if name in ("take", "take_along_axis") and len(arguments) >= 2:
        for step in (1, -1):
            yield "index", f"takes {texts[0]} at {texts[1]} {'+' if step > 0 else '-'} 1", _take_with_step(step)
    if name in ("cumulative_sum", "cumsum"):
        yield (
            "scan",
            f"equals the reference with a sum that leaves out the element itself in {name}({texts[0]})",
            exclude_own_element,
        )
    if name in ("argmax", "argmin"):
        yield "ties", f"takes the last of equal elements in {name}({texts[0]})", last_of_equals
    if name == "tril":
        yield (
            "comparison",
            f"equals the reference without the diagonal of tril({texts[0]})",
            lambda function, args, kwargs: np.tril(args[0], -1),
        )
    if name in ("concat", "concatenate") and isinstance(arguments[0], tuple | list):
        yield from _of_filled_edges(operation)
    if name in ("concat", "concatenate") and isinstance(arguments[0], tuple | list) and len(arguments[0]) == 2:
        yield "order", "equals the reference with the two halves of concat exchanged", _halves
    if name in ("maximum", "minimum"):
        yield (
            "left out",
            f"equals the reference without {texts[0]} in {name}(...)",
            lambda function, args, _: _like(args[1], operation.result),
        )


def stopped_after(operations: list[Operation], shape: tuple[int, ...]) -> Iterator[tuple[str, str, np.ndarray]]:
    """(kind, sentence, prediction): the value of each operation itself, where what follows it may be missing."""
    for operation in operations[:-1]:
        result = np.asarray(operation.result)
        if result.shape == shape and np.issubdtype(result.dtype, np.floating):
            yield "stopped", f"equals {operation_text(operation)}: what follows it is missing", result


def _of_two(name: str, texts: tuple[str, ...], arguments: tuple, operation: Operation) -> Iterator[tuple[str, str, Change]]:
    first_argument, second = arguments
    phrase = OPERATION_PHRASES[name]
    if _gives(first_argument, operation.result):
        yield (
            "left out",
            f"equals the reference without {phrase} {texts[1]}",
            lambda function, args, _: _like(args[0], operation.result),
        )
    if _gives(second, operation.result) and name in ("add", "multiply"):
        yield (
            "left out",
            f"equals the reference without {phrase} {texts[0]}",
            lambda function, args, _: _like(args[1], operation.result),
        )
    if name == "add":
        yield "sign", f"equals the reference with {texts[1]} subtracted, not added", lambda function, args, _: args[0] - args[1]
        if texts[0] != texts[1]:
            yield "sign", f"equals the reference with {texts[0]} subtracted, not added", lambda function, args, _: args[1] - args[0]
    if name == "subtract":
        yield "sign", f"equals the reference with {texts[1]} added, not subtracted", lambda function, args, _: args[0] + args[1]
        turned = f"equals the reference with {texts[1]} - {texts[0]} in the place of {texts[0]} - {texts[1]}"
        yield "exchanged", turned, lambda function, args, _: args[1] - args[0]
    if name in ("add", "subtract") and np.ndim(first_argument) and np.ndim(second) == 0 and _all_integers(arguments):
        sign, number = _sign(name), int(second)
        for other in (number + 1, number - 1):
            phrase = f"equals the reference with {sign} {other} in the place of {sign} {number} in {_infix_text(texts, sign)}"
            yield "off by one", phrase, _step_second_argument(other - number)
    if name == "multiply" and np.ndim(second):
        yield (
            "exchanged",
            f"equals the reference divided by {texts[1]}, not multiplied",
            lambda function, args, _: args[0] / args[1],
        )
    if name in ("divide", "true_divide") and np.ndim(second):
        yield (
            "exchanged",
            f"equals the reference multiplied by {texts[1]}, not divided",
            lambda function, args, _: args[0] * args[1],
        )
    if name == "multiply" and texts[0] != texts[1]:
        yield (
            "applied twice",
            f"equals the reference with the factor {texts[1]} twice",
            lambda function, args, _: args[0] * args[1] * args[1],
        )
        yield (
            "applied twice",
            f"equals the reference with the factor {texts[0]} twice",
            lambda function, args, _: args[0] * args[0] * args[1],
        )
    if name in ("divide", "true_divide"):
        for size in dict.fromkeys(np.shape(first_argument)):
            if size > 1:
                yield (
                    "divisor",
                    f"equals the reference divided by {size} (the size of an axis), not by {texts[1]}",
                    _divide_by_size(size),
                )
        if np.ndim(first_argument):
            phrase = f"equals the reference with 1 in the place of {texts[0]} above {texts[1]}"
            yield "left out", phrase, lambda function, args, _: np.ones(np.shape(args[0])) / args[1]
        yield (
            "applied twice",
            f"equals the reference divided by {texts[1]} twice",
            lambda function, args, _: args[0] / args[1] / args[1],
        )


def _divide_by_size(size: int) -> Change:
    return lambda function, args, kwargs: args[0] / size


def _use_function(other: str) -> Change:
    return lambda function, args, kwargs: getattr(np, other)(*args, **kwargs)


def _step_second_argument(step: int) -> Change:
    return lambda function, args, kwargs: function(args[0], args[1] + step, **kwargs)


def _take_with_step(step: int) -> Change:
    def change(function: Callable, args: tuple, kwargs: dict) -> Any:
        axis = kwargs.get("axis", args[2] if len(args) > 2 else 0)
        length = np.shape(args[0])[axis if axis is not None else 0]
        return function(args[0], np.clip(np.asarray(args[1]) + step, 0, length - 1), *args[2:], **kwargs)

    return change


def _of_filled_edges(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    """Zeros before or behind an array: its edge, or its other end, in their place."""
    parts = [np.asarray(each) for each in operation.arguments[0]]
    axis = operation.keywords.get("axis", operation.arguments[1] if len(operation.arguments) > 1 else 0)
    filled = [at for at, part in enumerate(parts) if part.size and not part.any()]
    if axis is None or len(filled) != 1 or len(parts) != 2 or not parts[1 - filled[0]].size:
        return
    zeros, before = filled[0], filled[0] == 0
    which = "first" if before else "last"
    sentence = (
        f"equals the reference with the {which} element repeated in the place of the zeros {'before' if before else 'behind'} it"
    )

    def repeat_edge(function: Callable, args: tuple, kwargs: dict) -> Any:
        other = args[0][1 - zeros]
        edge = np.take(other, [0 if before else -1], axis=axis)
        fill = np.broadcast_to(edge, np.shape(args[0][zeros]))
        return function([fill, other] if before else [other, fill], *args[1:], **kwargs)

    yield "fill", sentence, repeat_edge
    around = f"equals the reference with the other end of it in the place of the zeros {'before' if before else 'behind'} it"

    def wrap_around(function: Callable, args: tuple, kwargs: dict) -> Any:
        other = args[0][1 - zeros]
        count, length = np.shape(args[0][zeros])[axis], np.shape(other)[axis]
        fill = np.take(other, (np.arange(count) - count if before else np.arange(count)) % length, axis=axis)
        return function([fill, other] if before else [other, fill], *args[1:], **kwargs)

    yield "fill", around, wrap_around


def _tile_values(function: Callable, args: tuple, kwargs: dict) -> Any:
    axis = kwargs.get("axis", args[2] if len(args) > 2 else None)
    values = np.ravel(args[0]) if axis is None else args[0]
    length = np.shape(values)[axis or 0]
    return np.take(values, np.arange(length * args[1]) % length, axis=axis or 0)


def _repeat_values(function: Callable, args: tuple, kwargs: dict) -> Any:
    made, values = function(*args, **kwargs), np.asarray(args[0])
    for axis, (size, length) in enumerate(zip(made.shape, values.shape, strict=True)):
        values = np.repeat(values, size // length, axis=axis)
    return values


def _use_unary(other: str) -> Change:
    return lambda function, args, kwargs: getattr(np, other)(args[0])


def _halves(function: Callable, args: tuple, kwargs: dict) -> Any:
    return function(type(args[0])(reversed(args[0])), *args[1:], **kwargs)


def _exchanged_where(function: Callable, args: tuple, _: dict) -> Any:
    return np.where(args[0], args[2], args[1])


def _like(given: Any, result: Any) -> np.ndarray:
    return np.broadcast_to(np.asarray(given), np.shape(result))


def _gives(given: Any, result: Any) -> bool:
    """Whether `given` in the place of `result` has its shape, broadcast where it is an array."""
    try:
        return isinstance(given, np.ndarray | np.generic | float | int) and np.broadcast_shapes(
            np.shape(given), np.shape(result)
        ) == np.shape(result)
    except ValueError:
        return False


def _same_shape(given: tuple, result: Any) -> bool:
    return bool(given) and np.shape(given[0]) == np.shape(result)


def _all_integers(given: tuple) -> bool:
    return all(np.issubdtype(np.asarray(each).dtype, np.integer) for each in given)


def _sign(name: str) -> str:
    from bitverdict.harness.checks.explain.evaluation import INFIX

    return INFIX[name]


def _infix_text(texts: tuple[str, ...], sign: str) -> str:
    return f"{texts[0]} {sign} {texts[1]}"
