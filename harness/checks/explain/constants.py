"""The hypotheses that a number in the reference is another one: half a mask, a shift that is one off, or one that follows from a
wrong element and has to hold for all others. With them the other forms of a GELU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text
from bitverdict.harness.checks.explain.evidence import Evidence
from bitverdict.harness.model.verdict import CONSTANT_CAUSE
from bitverdict.reference.tracing.functions import erf_value

WITH_NUMBERS = ("add", "subtract", "multiply", "divide", "true_divide", "power", "maximum", "minimum")
MASKS = ("bitwise_and", "remainder")
SHIFTS = ("right_shift", "left_shift")
STEPS = 12  # of the secant rule
DIGITS = (1, 2, 3, 4, 6)
NEAR_TOLERANCE = 2.0**-40  # how near, of its size, the rounded number must be to the one that was solved for
_NUMBERS = (int, float, np.integer, np.floating)


def number_in(operation: Operation) -> int | None:
    """The place of the Python number among the arguments, if there is one."""
    numbers = [at for at, each in enumerate(operation.arguments) if isinstance(each, _NUMBERS) and not isinstance(each, bool)]
    arrays = [each for each in operation.arguments if isinstance(each, np.ndarray)]
    return numbers[0] if len(numbers) == 1 == len(arrays) and len(operation.arguments) == 2 else None


def other_whole_numbers(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    """(kind, sentence, change) of a mask that is one bit narrower or wider, and of a shift that is one off."""
    if operation.name not in (*MASKS, *SHIFTS) or (place := number_in(operation)) is None:
        return
    number = int(operation.arguments[place])
    others = (number >> 1, number << 1 | 1) if operation.name in MASKS else (number + 1, number - 1)
    for other in (other for other in others if other >= 0 or number < 0):
        yield _kind(other), _sentence(operation, str(other), str(number)), with_number(place, other)


def solve_number(
    operation: Operation, evidence: Evidence, evaluate: Callable[[Change], np.ndarray | None]
) -> tuple[str, str, Change] | None:
    """(kind, sentence, change) with the number that explains the wrong element furthest off; None where there is none."""
    if operation.name not in WITH_NUMBERS or (place := number_in(operation)) is None:
        return None
    if not np.issubdtype(np.asarray(operation.result).dtype, np.floating):
        return None
    with np.errstate(invalid="ignore"):  # of two infinities
        distance = np.abs(evidence.observed_values - evidence.exact)
    distances = np.where(evidence.differs & np.isfinite(distance), distance, -1)
    index = np.unravel_index(int(distances.argmax()), distances.shape)
    if distances[index] <= 0:
        return None
    before = float(operation.arguments[place])
    number = _secant(
        before,
        float(evidence.exact[index]) - float(evidence.observed_values[index]),
        lambda number: _miss_at(evidence, index, evaluate(with_number(place, number))),
    )
    if number is None:
        return None
    nice = _nice(number, evidence.sharp)
    return _kind(nice), _sentence(operation, f"{nice:g}", f"{before:g}"), with_number(place, nice)


def _kind(number: float) -> str:
    return f"{CONSTANT_CAUSE} {number:.3g}"


def with_number(place: int, number: float) -> Change:
    return lambda function, args, kwargs: function(*(number if at == place else each for at, each in enumerate(args)), **kwargs)


def _sentence(operation: Operation, number: str, before: str) -> str:
    return f"equals the reference with {number} in the place of {before} in {operation_text(operation)}"


def _miss_at(evidence: Evidence, at: tuple, made: np.ndarray | None) -> float:
    return (
        float("nan")
        if made is None or made.shape != evidence.observed_values.shape
        else float(made[at] - evidence.observed_values[at])
    )


def _secant(start: float, missed: float, f: Callable[[float], float]) -> float | None:
    point, value = start, missed
    next_point = start * 1.5 if start else 1e-3
    for _ in range(STEPS):
        next_value = f(next_point)
        if not np.isfinite(next_value) or next_value == value:
            return next_point if next_value == 0 else None
        following = next_point - next_value * (next_point - point) / (next_value - value)
        if abs(following - next_point) <= abs(next_point) * 2.0**-50:
            return following
        point, value, next_point = next_point, next_value, following
    return None


def _nice(number: float, sharp: bool) -> float:
    """The number of few digits that is as good."""
    for digits in DIGITS:
        short = float(f"{number:.{digits - 1}e}")
        if abs(short - number) <= abs(number) * (NEAR_TOLERANCE if sharp else 2.0**-12):
            return short
    return number


def other_function(operation: Operation, done: list[Operation]) -> Iterator[tuple[str, str, Change]]:
    """(kind, sentence, change) of the other forms of a GELU: by erf, by tanh, by a sigmoid."""
    template = "equals the reference with the GELU by {} in the place of that by {}"
    if operation.name == "tanh" and any(abs(_number(each) - 0.044715) < 1e-5 for each in done):
        for z in _arguments_of_cube(done):
            if np.shape(z) == np.shape(operation.result):
                yield "function", template.format("erf", "tanh"), lambda function, args, kwargs, z=z: erf_value(z / np.sqrt(2))  # type: ignore[misc]
                yield "function", template.format("a sigmoid", "tanh"), lambda function, args, kwargs, z=z: np.tanh(0.851 * z)  # type: ignore[misc]
    if operation.name == "erf":
        yield "function", template.format("tanh", "erf"), lambda function, args, kwargs: np.tanh(_inner(args[0] * np.sqrt(2)))
        yield "function", template.format("a sigmoid", "erf"), lambda function, args, kwargs: np.tanh(0.851 * args[0] * np.sqrt(2))


def _number(operation: Operation) -> float:
    place = number_in(operation) if operation.name == "multiply" else None
    return float("nan") if place is None else float(operation.arguments[place])


def _arguments_of_cube(done: list[Operation]) -> Iterator[np.ndarray]:
    """z of 0.044715 z ...: what the number multiplies, and what a sum with it starts from."""
    for each in done:
        if abs(_number(each) - 0.044715) < 1e-5:
            yield np.asarray(each.arguments[1 - (number_in(each) or 0)])
        if each.name == "add" and all(isinstance(one, np.ndarray) and one.ndim for one in each.arguments):
            yield from each.arguments


def _inner(z: Any) -> Any:
    return np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)
