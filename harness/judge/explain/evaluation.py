"""A reference evaluated in float64, operation by operation: as it stands, or with one operation changed.

The arrays are NumPy's, of a class that sees each operation and keeps the text of its expression, so that a change can be named as
the user wrote it: "without the division by sum(e)"."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode

LONGEST = 48  # characters of an expression's text
INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "matmul": "@", "power": "**",
         "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
         "logical_and": "&", "logical_or": "|", "bitwise_and": "&", "bitwise_or": "|", "floor_divide": "//",
         "remainder": "%"}  # fmt: skip
LARGEST = FORMATS["fp32"].largest  # beyond it a changed reference overflows, as the kernel's fp32 does
_CREATED = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")


@dataclass(frozen=True)
class Operation:
    """One operation of a run: its `number`, NumPy's `name`, the texts of its arguments, arguments and result."""

    number: int
    name: str
    texts: tuple[str, ...]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any


@dataclass
class _Run:
    """What is changed (`number`, `change`), and what was seen."""

    number: int = -1
    change: Callable[..., Any] | None = None
    keep: bool = False
    count: int = 0
    seen: list[Operation] = field(default_factory=list)

    def operate(self, name: str, function: Callable, arguments: tuple, keywords: dict) -> Any:
        texts = tuple(_text(each) for each in arguments)
        plain, kept = tuple(_plain(each) for each in arguments), {name: _plain(each) for name, each in keywords.items()}
        number, self.count = self.count, self.count + 1
        with np.errstate(all="ignore"):
            if number == self.number and self.change is not None:
                result = self.change(function, plain, kept)
            else:
                result = function(*plain, **kept)
            if self.change is not None and isinstance(result, np.ndarray) and result.dtype == np.float64:
                result = np.where(np.abs(result) > LARGEST, np.copysign(np.inf, result), result)
        if self.keep:
            self.seen.append(Operation(number, name, texts, plain, kept, result))
        text = _written(name, texts)
        return tuple(_watched(each, text) for each in result) if isinstance(result, tuple) else _watched(result, text)


_running: ContextVar[_Run] = ContextVar("running")


class Watched(np.ndarray):
    """A float64, integer or bool array of a reference that is being evaluated."""

    text: str

    def __array_finalize__(self, made_from: Any) -> None:
        self.text = getattr(made_from, "text", "")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        keywords.pop("out", None)
        return _running.get().operate(ufunc.__name__, getattr(ufunc, method), inputs, keywords)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _running.get().operate(function.__name__, function, tuple(args), dict(kwargs))

    def __getitem__(self, key: Any) -> Any:
        return _watched(np.asarray(self)[_plain(key)], f"{self.text}[...]")

    def __bool__(self) -> bool:
        return bool(np.asarray(self))


class Namespace:
    """NumPy as an array API namespace whose float types do not round, with the extensions of the project's references."""

    unchanged = float("nan")

    def __getattr__(self, name: str) -> Any:
        found = getattr(np, name)
        if name in _CREATED:
            return lambda *args, **kwargs: _watched(np.asarray(found(*map(_plain, args), **_exact(kwargs))), name)
        if not callable(found) or isinstance(found, np.ufunc) or isinstance(found, type):
            return found
        return lambda *args, **kwargs: found(*args, **_exact(kwargs))

    def astype(self, x: Any, dtype: Any, /, **_: Any) -> Any:
        if np.issubdtype(np.dtype(dtype), np.floating):
            return _running.get().operate("astype", lambda x: np.asarray(x, np.float64), (x,), {})
        return _running.get().operate("astype", lambda x: np.trunc(x).astype(dtype) if dtype != np.bool_ else x != 0, (x,), {})

    def round_to(self, x: Any, format: str, **how: Any) -> Any:
        """`x` as `format` holds it, rounded to nearest, ties to even; where it is asked otherwise nothing is explained."""
        if how.get("rounding", "nearest_even") != "nearest_even":
            raise ValueError(f"rounding {how['rounding']!r}: references are evaluated with nearest_even alone")
        overflow = Overflow.SATURATE if how.get("saturate") else Overflow.INFINITY
        return _running.get().operate("round_to", lambda x, format: _round_to(x, format, overflow), (x, format), {})

    def kept_in(self, x: Any, format: str) -> Any:
        return x

    def sort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return np.flip(np.sort(x, axis=axis), axis) if descending else np.sort(x, axis=axis)

    def argsort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return np.argsort(-x if descending else x, axis=axis, kind="stable")

    def matmul(self, a: Any, b: Any, **_: Any) -> Any:
        return np.matmul(a, b)


def rounded(x: np.ndarray, to: str) -> np.ndarray:
    """float64 `x` rounded once to the format `to`; formats of 8 bits and fewer saturate."""
    return _round_to(x, to, Overflow.SATURATE if FORMATS[to].width <= 8 else Overflow.INFINITY)


def _round_to(x: np.ndarray, to: str, overflow: Overflow) -> np.ndarray:
    found = FORMATS[to]
    return decode(found, encode(found, np.asarray(x, np.float64), overflow=overflow))


def evaluated(mathematics: Mathematics, operands: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
    """The outputs of `mathematics` for `operands` (None: its own). What the function raises goes through."""
    return _outputs(mathematics, operands, _Run())


def on_sample(
    mathematics: Mathematics, operands: Mapping[str, np.ndarray], name: str, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray | None:
    """Output `name` at `rows` and `columns` alone, where the axes of its operands are known; None where they are not."""
    if not mathematics.linear or len(axes := mathematics.axes.get(name, ())) != 2:
        return None
    places = dict(zip(axes, (rows, columns), strict=True))
    cut = {}
    for each, values in operands.items():
        cut[each] = values
        for axis, label in enumerate(mathematics.axes[each]):
            if label in places:
                cut[each] = np.take(cut[each], places[label], axis=axis)
    return evaluated(mathematics, cut)[name]


def operations(mathematics: Mathematics) -> list[Operation]:
    """What the function does with its operands, in order."""
    run = _Run(keep=True)
    _outputs(mathematics, None, run)
    return run.seen


def changed(mathematics: Mathematics, number: int, change: Callable[..., Any]) -> dict[str, np.ndarray]:
    """The outputs where the operation `number` is `change(function, arguments, keywords)` instead."""
    return _outputs(mathematics, None, _Run(number, change))


def written(operation: Operation) -> str:
    """An operation as a person writes it."""
    return _written(operation.name, operation.texts)


def _outputs(mathematics: Mathematics, operands: Mapping[str, np.ndarray] | None, run: _Run) -> dict[str, np.ndarray]:
    token = _running.set(run)
    try:
        given = mathematics.operands if operands is None else operands
        with np.errstate(all="ignore"):
            arrays = [
                _watched(given[name], name) if isinstance(given[name], np.ndarray) else given[name] for name in mathematics.operands
            ]
            made = mathematics.function(Namespace(), *arrays, **mathematics.named)
    finally:
        _running.reset(token)
    each = made if isinstance(made, tuple | list) else (made,)
    return {name: np.asarray(_plain(one), np.float64) for name, one in zip(mathematics.outputs, each, strict=True)}


def _watched(given: Any, text: str) -> Any:
    if not isinstance(given, np.ndarray | np.generic):
        return given
    found = np.asarray(given).view(Watched)
    found.text = text
    return found


def _plain(given: Any) -> Any:
    if isinstance(given, Watched):
        return given.view(np.ndarray)
    if isinstance(given, tuple | list):
        return type(given)(_plain(each) for each in given)
    return given


def _exact(keywords: dict) -> dict:
    """`keywords` without float types, which would round."""
    dtype = keywords.get("dtype")
    if dtype is not None and np.issubdtype(np.dtype(dtype), np.floating):
        return keywords | {"dtype": np.float64}
    return keywords


def _text(given: Any) -> str:
    if isinstance(given, Watched):
        return given.text or "a value"
    if isinstance(given, np.ndarray):
        return "a value"
    return f"{given:g}" if isinstance(given, float) else str(given)[:LONGEST]


def _written(name: str, texts: tuple[str, ...]) -> str:
    """An operation as a person writes it."""
    if name in INFIX and len(texts) == 2:
        left, right = (f"({text})" if " " in text and not text.endswith(")") else text for text in texts)
        found = f"{left} {INFIX[name]} {right}"
    elif name == "square":
        found = f"{texts[0]} ** 2"
    elif name == "negative":
        found = f"-{texts[0]}"
    else:
        found = f"{name}({texts[0] if texts else ''})"
    return found if len(found) <= LONGEST else f"{name}(...)"
