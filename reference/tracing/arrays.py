"""A traced array: what the mathematics says, how far float64 is from it, and where the words of right implementations lie.

A float array has a value, its running error, and an interval of words. Where both are exact, `error`, `low` and `high` are None:
the value is then a number of the accumulation type, which every implementation holds. Integer and bool arrays are exact, but where
a mask says that they hang on a rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends
from bitverdict.reference.tracing.dtypes import BOOL, BY_FORMAT, DType, Untraceable
from bitverdict.reference.tracing.state import OPERATIONS, Trace

Masks = Any  # a bool array, or None


@dataclass(eq=False)
class Chain:
    """A sum, or a product, as its terms: an implementation may add or multiply them in any order.

    `count` of terms; the interval that they give without any rounding between them; the operands of its last operation."""

    kind: str  # "sum" or "product"
    count: int
    low: np.ndarray
    high: np.ndarray
    operands: tuple[TracedArray, TracedArray]
    known_magnitude: np.ndarray | None = None

    @property
    def magnitude(self) -> np.ndarray:
        """Of a sum: the sum of the largest magnitudes of its terms."""
        if self.known_magnitude is None:
            self.known_magnitude = self.operands[0].magnitude + self.operands[1].magnitude
        return self.known_magnitude

    def extent(self, beyond: bool) -> np.ndarray:
        """Of a product: those of its factors that are larger than one in magnitude, multiplied; of `beyond` false, the smaller."""
        factor_extents = []
        for factor in self.operands:
            if factor.chain is not None and factor.chain.kind == "product":
                factor_extents.append(factor.chain.extent(beyond))
                continue
            low, high = (np.abs(end) for end in factor.ends)
            if beyond:
                factor_extents.append(np.maximum(np.maximum(low, high), 1.0))
            else:
                least = np.where(low == 0, high, np.where(high == 0, low, np.minimum(low, high)))
                factor_extents.append(np.where(least == 0, 1.0, np.minimum(least, 1.0)))
        result: np.ndarray = factor_extents[0] * factor_extents[1]
        return result


_OF_NUMPY = {"true_divide": "divide", "power": "pow", "left_shift": "bitwise_left_shift", "right_shift": "bitwise_right_shift"}
"""Names of NumPy's operators -> the standard's, where they differ."""

Operator = Callable[["TracedArray", "Operand"], "TracedArray"]


def _operator(name: str) -> tuple[Operator, Operator]:
    """The operator and its reflection."""

    def forward(self: TracedArray, other: Operand) -> TracedArray:
        return OPERATIONS[name](self.trace, self, other)

    def reverse_operator(self: TracedArray, other: Operand) -> TracedArray:
        return OPERATIONS[name](self.trace, other, self)

    return forward, reverse_operator


def _sign(name: str) -> Callable[[TracedArray], TracedArray]:
    return lambda self: OPERATIONS[name](self.trace, self)


@dataclass(eq=False, slots=True)
class TracedArray:
    """An array of a reference. All arrays have one shape, `shape`."""

    trace: Trace
    dtype: DType
    value: np.ndarray  # float64, or the integers and bools themselves
    error: np.ndarray | None = None  # |value - mathematics| at most; inf: not known; None: exact
    low: np.ndarray | None = None  # the words lie between `low` and `high`; None: they are the value
    high: np.ndarray | None = None
    open: Masks = None  # floats: the words may be anything, NaN too
    hangs: Masks = None  # integers and bools: the mathematics is not known
    words_differ: Masks = None  # integers and bools: the words may differ
    no_write_mask: Masks = None  # elements that no implementation may write
    chain: Chain | None = None
    scalar: bool = False  # a Python number of the reference
    operand_formats: frozenset[str] = frozenset()  # formats in which a matrix product may take it; empty: its own
    has_scales: bool = False  # a narrow operand and its scales, which may be put on sums instead
    __array_priority__ = 1000

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.value.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self.value.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.value.size

    @property
    def device(self) -> str:
        """The standard's attribute: there is one."""
        return "cpu"

    @property
    def is_float(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype.kind == "float"

    @property
    def T(self) -> TracedArray:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise Untraceable("array.T", f"of an array of {self.ndim} axes; use matrix_transpose or permute_dims")
        return self.map_elements(lambda each: each.T)

    @property
    def mT(self) -> TracedArray:
        """The transpose of the last two axes."""
        return self("matrix_transpose", self)

    @property
    def ends(self) -> Ends:
        """(low, high), of exact words the value twice."""
        if self.low is None or self.high is None:
            return self.value, self.value
        return self.low, self.high

    @property
    def magnitude(self) -> np.ndarray:
        """The largest magnitude of each element; of a sum the sum of those of its terms."""
        if self.chain is not None and self.chain.kind == "sum":
            return self.chain.magnitude
        low, high = self.ends
        return np.abs(low) if low is high else np.maximum(np.abs(low), np.abs(high))

    def map_elements(self, function: Callable[[np.ndarray], np.ndarray]) -> TracedArray:
        """The array whose elements `function` only moves, copies or drops."""

        def map_field(array: np.ndarray | None) -> np.ndarray | None:
            return None if array is None else function(array)

        return TracedArray(
            self.trace, self.dtype, function(self.value), map_field(self.error), map_field(self.low), map_field(self.high),
            map_field(self.open),
            map_field(self.hangs), map_field(self.words_differ), map_field(self.no_write_mask),
            operand_formats=self.operand_formats, has_scales=self.has_scales,
        )  # fmt: skip

    def __call__(self, name: str, *operands: object, **named: object) -> TracedArray:
        return OPERATIONS[name](self.trace, *operands, **named)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from bitverdict.reference.tracing.namespace import Namespace

        return Namespace(self.trace)

    def to_device(self, device: object, /, **_: object) -> TracedArray:
        """The array itself."""
        return self

    def constant(self) -> Any:
        """The one element, where control flow may hang on it: an exact scalar that came from no operand."""
        if self.size != 1 or not self.scalar:
            raise Untraceable("control flow on an array", "a reference must take the same way for all values; use where")
        return self.value.reshape(-1)[0].item()

    def __bool__(self) -> bool:
        return bool(self.constant())

    def __float__(self) -> float:
        return float(self.constant())

    def __int__(self) -> int:
        return int(self.constant())

    def __index__(self) -> int:
        return int(self.constant())

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[place] for place in range(len(self)))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: object, **named: object) -> Any:
        """An operator between a NumPy scalar and an array is ours; any other function of NumPy is named."""
        name = _OF_NUMPY.get(ufunc.__name__, ufunc.__name__)
        plain = all(isinstance(each, (TracedArray, np.generic)) or np.ndim(each) == 0 for each in operands)  # type: ignore[arg-type]  # anything has a number of axes
        if method != "__call__" or named or not plain or len(operands) != 2 or name not in OPERATIONS:
            raise Untraceable(f"numpy.{ufunc.__name__}", "use the function of xp")
        return OPERATIONS[name](self.trace, *operands)

    def __array_function__(self, function: Callable[..., np.ndarray], types: object, operands: object, named: object) -> Any:
        raise Untraceable(f"{function.__module__}.{function.__name__}", "use the function of xp")

    def __array__(self, *_: object, **__: object) -> Any:
        raise Untraceable("numpy of a traced array", "use the functions of xp")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise Untraceable(f"array.{name}", "the standard has functions: xp.sum(x, axis=1), not x.sum(1)")

    def __getitem__(self, key: object) -> TracedArray:
        return self("__getitem__", self, key)

    def __setitem__(self, key: object, value: object) -> None:
        raise Untraceable("array.__setitem__", "a reference changes no array; use where or concat")

    def __repr__(self) -> str:
        return f"Traced(shape={self.shape}, dtype={self.dtype})"

    __add__, __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("subtract")
    __mul__, __rmul__ = _operator("multiply")
    __truediv__, __rtruediv__ = _operator("divide")
    __floordiv__, __rfloordiv__ = _operator("floor_divide")
    __mod__, __rmod__ = _operator("remainder")
    __pow__, __rpow__ = _operator("pow")
    __matmul__, __rmatmul__ = _operator("matmul")
    __and__, __rand__ = _operator("bitwise_and")
    __or__, __ror__ = _operator("bitwise_or")
    __xor__, __rxor__ = _operator("bitwise_xor")
    __lshift__, __rlshift__ = _operator("bitwise_left_shift")
    __rshift__, __rrshift__ = _operator("bitwise_right_shift")
    __lt__, __gt__ = _operator("less")[0], _operator("greater")[0]
    __le__, __ge__ = _operator("less_equal")[0], _operator("greater_equal")[0]
    __eq__, __ne__ = _operator("equal")[0], _operator("not_equal")[0]  # type: ignore[assignment]
    __neg__, __pos__, __abs__, __invert__ = map(_sign, ("negative", "positive", "abs", "bitwise_invert"))

    def __hash__(self) -> int:
        return id(self)


Operand: TypeAlias = TracedArray | bool | int | float | np.generic
"""What an operation takes: an array, or a number that takes the type of the array beside it."""


def constant(trace: Trace, number: bool | int | float | np.generic, like: DType | None = None) -> TracedArray:
    """A Python number: an integer beside integers, else a float. The mathematics means the number that is written; an
    implementation may hold it rounded to the accumulation type, or as it is where a compiler folds it."""
    if isinstance(number, (bool, np.bool_)) and (like is None or like.kind == "bool"):
        return TracedArray(trace, BOOL, np.asarray(bool(number)), scalar=True)
    whole = isinstance(number, (int, np.integer))
    if whole and (like is None or like.kind != "float"):
        dtype = BY_FORMAT["int64"] if like is None or like.kind == "bool" else like
        limits = np.iinfo(np.dtype(dtype.storage_type))
        if not limits.min <= int(number) <= limits.max:
            raise Untraceable("integer constant", f"{number} is no {dtype}")
        return TracedArray(trace, dtype, np.asarray(number, dtype.storage_type), scalar=True)
    value = np.asarray(float(number))
    with np.errstate(over="ignore"):
        held = trace.accumulation.round(value)
    dtype = BY_FORMAT[trace.accumulation.format]
    if held == value or np.isnan(value):
        return TracedArray(trace, dtype, value, scalar=True)
    return TracedArray(trace, dtype, value, None, np.minimum(held, value), np.maximum(held, value), scalar=True)


def array(trace: Trace, operand: object, like: DType | None = None) -> TracedArray:
    """`operand` as a traced array: one already, a Python number, or a NumPy array of constants."""
    if isinstance(operand, TracedArray):
        return operand
    if isinstance(operand, (bool, int, float, np.generic)):
        return constant(trace, operand, like)
    raise Untraceable(f"operand of type {type(operand).__name__}", "use xp.asarray for constants")


def pair(trace: Trace, left: Operand, right: Operand) -> tuple[TracedArray, TracedArray]:
    """Two operands, of which one may be a Python number."""
    if isinstance(left, TracedArray):
        return left, array(trace, right, left.dtype)
    if isinstance(right, TracedArray):
        return array(trace, left, right.dtype), right
    return array(trace, left), array(trace, right)


def union_masks(*masks: Masks) -> Masks:
    """The union of masks that broadcast together; None where there is none."""
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found | mask
    return found
