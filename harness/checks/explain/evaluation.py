"""A reference evaluated in float64, operation by operation: as it stands, or with one operation changed.

The arrays are NumPy's, of a class that sees each operation and keeps the text of its expression, so that a change can be named as
the user wrote it: "without the division by sum(e)"."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.formats import FORMATS, Overflow, decode, encode
from bitverdict.reference.philox import philox, uniform
from bitverdict.reference.tracing.dtypes import BY_FORMAT, BY_NAME
from bitverdict.reference.tracing.functions import erf_value, erfc_value

LONGEST = 48  # characters of an expression's text
INFIX = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/", "true_divide": "/", "matmul": "@", "power": "**",
         "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
         "logical_and": "&", "logical_or": "|", "bitwise_and": "&", "bitwise_or": "|", "floor_divide": "//",
         "remainder": "%", "left_shift": "<<", "right_shift": ">>"}  # fmt: skip
MOST_NAMED = 4  # arrays of a list that are named
PRODUCTS = 8  # that count as one element: a matrix product is done in blocks
OVERHEAD = 4000  # elements that NumPy works through in the time of one call from Python
LARGEST = FORMATS["fp32"].largest  # beyond it a changed reference overflows, as the kernel's fp32 does
_LOW, _SEED = np.uint64(0xFFFFFFFF), 0xFFFFFFFFFFFFFFFF
_NUMPY = str(np.__file__).removesuffix("__init__.py")
_WITHOUT_NUMPY = {"erf": erf_value, "erfc": erfc_value}
_TYPES_WITHOUT_NUMPY = {name for name, dtype in (BY_NAME | BY_FORMAT).items() if dtype.kind == "float" and not hasattr(np, name)}
_CREATION_FUNCTIONS = ("arange", "asarray", "empty", "eye", "full", "linspace", "ones", "zeros")


Change = Callable[[Callable, tuple, dict], Any]
"""(function, arguments, keywords) -> what an operation gives instead."""


@dataclass(frozen=True)
class Operation:
    """One operation of a run: its `number`, NumPy's `name`, the texts of its arguments, arguments and result.

    `site`: the place in the function that asks for it; in a loop each turn has an operation of one site. `origins`: the numbers of
    the operations that gave the arguments; -1 where none did. `parents`: those, and of the arrays in lists."""

    number: int
    name: str
    texts: tuple[str, ...]
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    result: Any
    site: tuple = ()
    origins: tuple[int, ...] = ()
    parents: frozenset[int] = frozenset()


@dataclass
class _Run:
    """What is changed (operation number -> what is done instead), and what was seen. `before`: the operations of a run without
    changes, whose results stand up to the first change."""

    changes: Mapping[int, Change] = field(default_factory=dict)
    before: Sequence[Operation] = ()
    keep: bool = False
    count: int = 0
    operations: list[Operation] = field(default_factory=list)

    def operate(self, name: str, function: Callable, arguments: tuple, keywords: dict) -> Any:
        plain_arguments, plain_keywords = (
            tuple(_plain_value(value) for value in arguments),
            {name: _plain_value(value) for name, value in keywords.items()},
        )
        number, self.count = self.count, self.count + 1
        if number < len(self.before) and number < min(self.changes, default=0):
            result = self.before[number].result
        elif (change := self.changes.get(number)) is not None:
            result = change(function, plain_arguments, plain_keywords)
        else:
            result = function(*plain_arguments, **plain_keywords)
        if self.changes and isinstance(result, np.ndarray) and result.dtype == np.float64:
            beyond = np.abs(result) > LARGEST
            result = np.where(beyond, np.copysign(np.inf, result), result) if beyond.any() else result
        text = ""
        if self.keep:
            texts, parents = tuple(_text(value) for value in arguments), frozenset(_origins((*arguments, *keywords.values())))
            origins, text = tuple(getattr(value, "origin", -1) for value in arguments), _expression_text(name, texts)
            self.operations.append(
                Operation(number, name, texts, plain_arguments, plain_keywords, result, _site(), origins, parents)
            )
        format = _format_of(arguments)
        if isinstance(result, tuple):
            return tuple(_trace_value(value, text, format) for value in result)
        return _trace_value(result, text, format, number)


def _origins(given: Iterable) -> Iterator[int]:
    for one in given:
        if isinstance(one, EvaluatedArray) and one.origin >= 0:
            yield one.origin
        elif isinstance(one, tuple | list):
            yield from _origins(one)


def _site() -> tuple:
    """The place in the user's function that is at work."""
    frame = sys._getframe(2)
    while frame.f_back is not None and (frame.f_code.co_filename == __file__ or _NUMPY in frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


_active_run: ContextVar[_Run] = ContextVar("running")


class EvaluatedArray(np.ndarray):
    """A float64, integer or bool array of a reference that is being evaluated."""

    text: str
    format: str  # of the words that the number has; empty where it is not known
    origin: int  # the operation that gave it

    def __array_finalize__(self, made_from: object) -> None:
        self.text = getattr(made_from, "text", "")
        self.format = getattr(made_from, "format", "")
        self.origin = getattr(made_from, "origin", -1)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        keywords.pop("out", None)
        return _active_run.get().operate(ufunc.__name__, getattr(ufunc, method), inputs, keywords)

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        return _active_run.get().operate(function.__name__, function, tuple(args), dict(kwargs))

    def __getitem__(self, key: object) -> Any:
        return _with_format(_active_run.get().operate("getitem", lambda x, key: np.asarray(x)[key], (self, key), {}), self.format)

    def __bool__(self) -> bool:
        return bool(np.asarray(self))


class Namespace:
    """NumPy as an array API namespace whose float types do not round, with the extensions of the project's references."""

    unchanged = float("nan")

    def __getattr__(self, name: str) -> Any:
        if name in _WITHOUT_NUMPY:
            return lambda x: _active_run.get().operate(name, _WITHOUT_NUMPY[name], (x,), {})
        member = np.float64 if name in _TYPES_WITHOUT_NUMPY else getattr(np, name)
        if name == "arange":
            return lambda *args, **kwargs: _active_run.get().operate("arange", member, args, _exact(kwargs))
        if name in _CREATION_FUNCTIONS:
            return lambda *args, **kwargs: _trace_value(np.asarray(member(*map(_plain_value, args), **_exact(kwargs))), name)
        if not callable(member) or isinstance(member, np.ufunc) or isinstance(member, type):
            return member
        return lambda *args, **kwargs: member(*args, **_exact(kwargs))

    def astype(self, x: object, dtype: Any, /, **_: object) -> Any:
        if np.issubdtype(np.dtype(dtype), np.floating):
            return _active_run.get().operate("astype", lambda x: np.asarray(x, np.float64), (x,), {})
        return _active_run.get().operate("astype", lambda x: np.trunc(x).astype(dtype) if dtype != np.bool_ else x != 0, (x,), {})

    def round_to(self, x: object, format: str, **how: object) -> Any:
        """`x` as `format` holds it, rounded to nearest, ties to even; where it is asked otherwise nothing is explained."""
        if how.get("rounding", "nearest_even") != "nearest_even":
            raise ValueError(f"rounding {how['rounding']!r}: references are evaluated with nearest_even alone")
        overflow = Overflow.SATURATE if how.get("saturate") else Overflow.INFINITY
        made = _active_run.get().operate("round_to", lambda x, format: _round_to(x, format, overflow), (x, format), {})
        return _with_format(made, format)

    def bits(self, x: Any, dtype: Any) -> Any:
        """The words of `x`; where the format that holds it is not known nothing is explained."""
        fmt = FORMATS[x.format]

        def words(x: np.ndarray, dtype: Any) -> np.ndarray:
            return encode(fmt, np.ascontiguousarray(x)).view(np.dtype(dtype)).reshape(np.shape(x))

        return _active_run.get().operate("bits", words, (x, dtype), {})

    def from_bits(self, x: Any, format: str) -> Any:
        """The numbers of `format` that integers are words of."""
        fmt = FORMATS[format]

        def numbers(x: np.ndarray, format: str) -> np.ndarray:
            return decode(fmt, np.ascontiguousarray(x).astype(np.int64).astype(fmt.storage)).reshape(np.shape(x))

        return _with_format(_active_run.get().operate("from_bits", numbers, (x, format), {}), format)

    def philox(self, seed: Any, offsets: object) -> Any:
        """The four words of `tl.randint4x(seed, offsets)`."""

        def words(seed: Any, offsets: np.ndarray) -> tuple[np.ndarray, ...]:
            index = np.asarray(offsets, np.int64).view(np.uint64)
            zero = np.zeros_like(index)
            return tuple(np.asarray(word) for word in philox((index & _LOW, index >> np.uint64(32), zero, zero), int(seed) & _SEED))

        return _active_run.get().operate("philox", words, (seed, offsets), {})

    def random_uniform(self, seed: Any, offsets: Any) -> Any:
        """The numbers of `tl.rand(seed, offsets)`."""

        def numbers(seed: Any, offsets: np.ndarray) -> np.ndarray:
            return np.asarray(uniform(int(seed) & _SEED, np.asarray(offsets, np.int64).view(np.uint64)), np.float64)

        return _with_format(_active_run.get().operate("random_uniform", numbers, (seed, offsets), {}), "fp32")

    def kept_in(self, x: object, format: str) -> Any:
        return x

    def sort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return np.flip(np.sort(x, axis=axis), axis) if descending else np.sort(x, axis=axis)

    def argsort(self, x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
        return np.argsort(-x if descending else x, axis=axis, kind="stable")

    def matmul(self, a: Any, b: Any, **_: object) -> Any:
        return np.matmul(a, b)


def round_to_format(x: np.ndarray, to: str) -> np.ndarray:
    """float64 `x` rounded once to the format `to`; formats of 8 bits and fewer saturate."""
    return _round_to(x, to, Overflow.SATURATE if FORMATS[to].width <= 8 else Overflow.INFINITY)


def _round_to(x: np.ndarray, to: str, overflow: Overflow) -> np.ndarray:
    found = FORMATS[to]
    return decode(found, encode(found, np.asarray(x, np.float64), overflow=overflow))


def evaluate_reference(mathematics: Mathematics, operands: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
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
    return evaluate_reference(mathematics, cut)[name]


def operations(mathematics: Mathematics) -> list[Operation]:
    """What the function does with its operands, in order."""
    run = _Run(keep=True)
    _outputs(mathematics, None, run)
    return run.operations


def evaluate_with_changes(
    mathematics: Mathematics, changes: Mapping[int, Change], before: Sequence[Operation] = ()
) -> dict[str, np.ndarray]:
    """The outputs where each operation of a number in `changes` is another; `before`: `operations(mathematics)`."""
    return _outputs(mathematics, None, _Run(changes, before))


def changed_operations_of(mathematics: Mathematics, changes: Mapping[int, Change], before: Sequence[Operation]) -> list[Operation]:
    """What the function does where the operations in `changes` are others."""
    run = _Run(changes, before, keep=True)
    _outputs(mathematics, None, run)
    return run.operations


def changed_with_operands(
    mathematics: Mathematics, operands: Mapping[str, np.ndarray], changes: Mapping[int, Change]
) -> dict[str, np.ndarray]:
    """The outputs of other operands where the operations in `changes` are others."""
    return _outputs(mathematics, operands, _Run(changes))


def cost(done: Sequence[Operation]) -> float:
    """About how much one evaluation takes, in elements: what an operation takes beside its own is as many as `OVERHEAD`."""
    elements = sum(OVERHEAD + _elements((operation.result, *operation.arguments)) for operation in done)
    products = sum(np.size(each.result) * np.shape(each.arguments[0])[-1] for each in done if each.name == "matmul")
    return OVERHEAD + elements + products / PRODUCTS


def _elements(given: Iterable) -> int:
    return sum(_elements(one) if isinstance(one, tuple | list) else np.size(one) for one in given)


def operation_text(operation: Operation) -> str:
    """An operation as a person writes it."""
    return _expression_text(operation.name, operation.texts)


def _outputs(mathematics: Mathematics, operands: Mapping[str, np.ndarray] | None, run: _Run) -> dict[str, np.ndarray]:
    token = _active_run.set(run)
    try:
        given = mathematics.operands if operands is None else operands
        with np.errstate(all="ignore"):
            arrays = [
                _trace_value(given[name], name, mathematics.formats.get(name, ""))
                if isinstance(given[name], np.ndarray)
                else given[name]
                for name in mathematics.operands
            ]
            made = mathematics.function(Namespace(), *arrays, **mathematics.keyword_values)
    finally:
        _active_run.reset(token)
    each = made if isinstance(made, tuple | list) else (made,)
    return {name: np.asarray(_plain_value(one), np.float64) for name, one in zip(mathematics.outputs, each, strict=True)}


def _operand(given: object, name: str, mathematics: Mathematics) -> Any:
    return _trace_value(given, name, mathematics.formats.get(name, "")) if isinstance(given, np.ndarray) else given


def _trace_value(given: object, text: str, format: str = "", origin: int = -1) -> Any:
    if not isinstance(given, np.ndarray | np.generic):
        return given
    found = np.asarray(given).view(EvaluatedArray)
    found.text, found.format, found.origin = text, format, origin
    return found


def _with_format(given: object, format: str) -> Any:
    return _trace_value(given, getattr(given, "text", ""), format, getattr(given, "origin", -1))


def _format_of(arguments: Iterable) -> str:
    """The format that all floats among `arguments` have; empty where they differ."""
    formats = {
        each.format
        for argument in arguments
        for each in (argument if isinstance(argument, tuple | list) else (argument,))
        if isinstance(each, EvaluatedArray) and each.dtype == np.float64
    }
    return formats.pop() if len(formats) == 1 else ""


def _plain_value(given: object) -> Any:
    if isinstance(given, EvaluatedArray):
        return given.view(np.ndarray)
    if isinstance(given, tuple | list):
        return type(given)(_plain_value(each) for each in given)
    return given


def _exact(keywords: dict) -> dict:
    """`keywords` without float types, which would round."""
    dtype = keywords.get("dtype")
    if dtype is not None and np.issubdtype(np.dtype(dtype), np.floating):
        return keywords | {"dtype": np.float64}
    return keywords


def _text(value: object) -> str:
    if isinstance(value, EvaluatedArray):
        return value.text or "a value"
    if isinstance(value, np.ndarray):
        return "a value"
    if isinstance(value, tuple | list) and any(isinstance(one, np.ndarray) for one in value):
        return ", ".join(_text(one) for one in value[:MOST_NAMED])[:LONGEST]
    return f"{value:g}" if isinstance(value, float) else str(value)[:LONGEST]


def _expression_text(name: str, texts: tuple[str, ...]) -> str:
    """An operation as a person writes it."""
    if name in INFIX and len(texts) == 2:
        left, right = (f"({text})" if " " in text and not text.endswith(")") else text for text in texts)
        expression = f"{left} {INFIX[name]} {right}"
    elif name == "square":
        expression = f"{texts[0]} ** 2"
    elif name == "negative":
        expression = f"-{texts[0]}"
    elif name == "getitem":
        expression = texts[0] if texts[0].endswith("[...]") else f"{texts[0]}[...]"
    elif name == "arange":
        expression = name
    else:
        expression = f"{name}({texts[0] if texts else ''})"
    return expression if len(expression) <= LONGEST else f"{name}(...)"
