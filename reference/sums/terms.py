"""Which elements of the operands each output of a reference adds up.

`terms_of(function, shapes)` calls a reference with arrays that hold no numbers: each element is a list of terms, each a product of
elements of operands. What is no sum of products raises `NoSum` with the operator's name, so that nobody takes a rounding of
another operation for one of the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from bitverdict.reference.tracing.dtypes import Axes, Shape

Factor = tuple[str, np.ndarray]  # operand, (*shape, T) flat indices of its elements; -1: there is no such term
MOST_TERMS = 1 << 26  # indices held at once: half a GiB


class NoSum(Exception):
    """An output that is not a plain sum of products of operands' elements; the message says which operator makes it more."""


@dataclass(frozen=True)
class Segment:
    """Terms that come from one sum: the factors of each."""

    factors: tuple[Factor, ...]

    @property
    def count(self) -> int:
        """Of terms."""
        return int(self.factors[0][1].shape[-1])

    def map_indices(self, function: Callable[[np.ndarray], np.ndarray]) -> Segment:
        """With each array of indices (*shape, T) as `function` makes it."""
        return Segment(tuple((name, function(index)) for name, index in self.factors))


@dataclass(frozen=True)
class Terms:
    """The terms of every element of one output, of `shape`. Position t of an element counts through the segments in their order.

    `scale` is a power of two that multiplies the sum: exact.
    """

    shape: tuple[int, ...]
    segments: tuple[Segment, ...]
    scale: float = 1.0

    @property
    def count(self) -> int:
        """Positions of terms; an element may have fewer terms."""
        return sum(segment.count for segment in self.segments)

    @property
    def size(self) -> int:
        """Elements of the output."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def factors(self) -> int:
        """The most factors of a term."""
        return max(len(segment.factors) for segment in self.segments)

    def segments_of(self, outputs: np.ndarray) -> list[Segment]:
        """The segments of the elements `outputs` (P,) alone: indices (P, T)."""
        places = np.unravel_index(outputs, self.shape) if self.shape else ()
        return [segment.map_indices(lambda index: index[places] if self.shape else index[None]) for segment in self.segments]

    def present(self, outputs: np.ndarray) -> np.ndarray:
        """(P, T): which terms the elements `outputs` (P,) have."""
        return np.concatenate([segment.factors[0][1] >= 0 for segment in self.segments_of(outputs)], axis=-1)

    def values(self, operands: Mapping[str, np.ndarray], outputs: np.ndarray) -> np.ndarray:
        """(F, P, T): the factors of each term of `outputs` (P,), of operands' values (float64, by name). Where a term has fewer
        factors they are 1; a term that is not there is 0."""
        parts = []
        for segment in self.segments_of(outputs):
            found = np.ones((self.factors, *segment.factors[0][1].shape))  # (F, P, T)
            for place, (name, index) in enumerate(segment.factors):
                found[place] = np.where(index < 0, 0.0, operands[name].reshape(-1)[index])
            parts.append(found)
        return np.concatenate(parts, axis=-1)

    def squares(self) -> bool:
        """Whether some term is a product of an element with itself: it is never negative."""
        for segment in self.segments:
            for place, (name, index) in enumerate(segment.factors):
                for other, again in segment.factors[:place]:
                    if name == other and bool(((index == again) & (index >= 0)).any()):
                        return True
        return False


def terms_of(
    function: Callable[..., object], shapes: Mapping[str, Sequence[int]], named: Mapping[str, object] | None = None
) -> list[Terms]:
    """The terms of each output of `function(xp, *operands, **named)`; `shapes` of the operands in the order of its parameters.

    Raises NoSum for an output that is something else."""
    made = function(_Namespace(), *(_operand(name, shape) for name, shape in shapes.items()), **(named or {}))
    found = list(made) if isinstance(made, tuple | list) else [made]
    sums = [output for output in found if isinstance(output, _Sums)]
    if len(sums) < len(found):
        raise NoSum("an output is no sum of elements of the operands")
    return [Terms(output.shape, output.segments, output.scale) for output in sums]


def _operand(name: str, shape: Sequence[int]) -> _Sums:
    count = int(np.prod(shape, dtype=np.int64))
    return _Sums(tuple(shape), (Segment(((name, np.arange(count).reshape(*shape, 1)),)),))


class _Sums:
    """An array of which each element is a sum of terms. Operations move indices and add no number."""

    __array_priority__ = 1000

    def __init__(self, shape: tuple[int, ...], segments: tuple[Segment, ...], scale: float = 1.0) -> None:
        self.shape, self.segments, self.scale = shape, segments, scale

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def dtype(self) -> str:
        return "float32"

    @property
    def T(self) -> _Sums:
        return _permute_dims(self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> _Sums:
        return _matrix_transpose(self)

    @property
    def is_single_product(self) -> bool:
        """Whether each element is one product."""
        return len(self.segments) == 1 and self.segments[0].count == 1

    def map_indices(self, function: Callable[[np.ndarray], np.ndarray]) -> _Sums:
        """With each (*shape, T) array of indices as `function` makes it; the axis of the terms stays last."""
        segments = tuple(segment.map_indices(function) for segment in self.segments)
        return _Sums(segments[0].factors[0][1].shape[:-1], segments, self.scale)

    def __getitem__(self, key: object) -> _Sums:
        asked = key if isinstance(key, tuple) else (key,)
        whole = asked if any(each is Ellipsis for each in asked) else (*asked, Ellipsis)
        return self.map_indices(lambda index: index[(*whole, slice(None))])

    def __matmul__(self, other: object) -> _Sums:
        return _matmul(self, other)

    def __mul__(self, other: object) -> _Sums:
        return _multiply(self, other)

    def __add__(self, other: object) -> _Sums:
        return _add(self, other)

    def __truediv__(self, other: object) -> _Sums:
        if isinstance(other, int | float) and other and float(np.frexp(other)[0]) == 0.5:
            return _multiply(self, 1.0 / other)
        raise NoSum("the sum is divided")

    __rmul__, __radd__ = __mul__, __add__

    def __getattr__(self, name: str) -> Any:
        if name == "astype":
            return lambda dtype, **_: self
        raise NoSum(f"array.{name} makes it more than a sum")

    def _refuse(self, *_: object) -> Any:
        raise NoSum("an operator makes it more than a sum of products")

    __sub__ = __rsub__ = __neg__ = __pow__ = __rtruediv__ = __gt__ = __lt__ = __ge__ = __le__ = __abs__ = __mod__ = _refuse


def _require_sums(x: object, operation: str) -> _Sums:
    if not isinstance(x, _Sums):
        raise NoSum(f"{operation} takes a constant in")
    return x


def _multiply(x: object, y: object) -> _Sums:
    for one, other in ((x, y), (y, x)):
        if isinstance(one, int | float) and isinstance(other, _Sums):
            if not one or float(np.frexp(abs(one))[0]) != 0.5 or one < 0:
                raise NoSum(f"the sum is multiplied by {one}, no power of two")
            return _Sums(other.shape, other.segments, other.scale * one)
    x, y = _require_sums(x, "multiply"), _require_sums(y, "multiply")
    if not (x.is_single_product and y.is_single_product):
        raise NoSum("a sum is multiplied afterwards")
    shape = np.broadcast_shapes(x.shape, y.shape)
    factors = (*_spread(x, shape).segments[0].factors, *_spread(y, shape).segments[0].factors)
    return _Sums(shape, (Segment(factors),), x.scale * y.scale)


def _add(x: object, y: object) -> _Sums:
    if isinstance(x, int | float) and x == 0:
        return _require_sums(y, "add")
    if isinstance(y, int | float) and y == 0:
        return _require_sums(x, "add")
    x, y = _require_sums(x, "add"), _require_sums(y, "add")
    if x.scale != y.scale:
        raise NoSum("sums of different scales are added")
    shape = np.broadcast_shapes(x.shape, y.shape)
    return _Sums(shape, (*_spread(x, shape).segments, *_spread(y, shape).segments), x.scale)


def _spread(x: _Sums, shape: tuple[int, ...]) -> _Sums:
    return x.map_indices(lambda index: np.broadcast_to(index, (*shape, index.shape[-1])))


def _matmul(x: object, y: object, /, **_: object) -> _Sums:
    x, y = _require_sums(x, "matmul"), _require_sums(y, "matmul")
    if not (x.is_single_product and y.is_single_product):
        raise NoSum("a product of matrices that are sums themselves")
    if x.ndim == 1:
        return _matmul(x[None, :], y)[..., 0, :] if y.ndim > 1 else _matmul(x[None, :], y[:, None])[0, 0]
    if y.ndim == 1:
        return _matmul(x, y[:, None])[..., 0]
    (m, k), n = x.shape[-2:], y.shape[-1]
    shape = (*np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), m, n)
    if int(np.prod(shape, dtype=np.int64)) * k > MOST_TERMS:
        raise NoSum(f"there are more than {MOST_TERMS:,} products; take a smaller case")

    def rows(index: np.ndarray) -> np.ndarray:
        return np.broadcast_to(index[..., 0][..., :, None, :], (*shape, k))

    def columns(index: np.ndarray) -> np.ndarray:
        return np.broadcast_to(np.swapaxes(index[..., 0], -1, -2)[..., None, :, :], (*shape, k))

    factors = [(name, rows(index)) for name, index in x.segments[0].factors]
    factors += [(name, columns(index)) for name, index in y.segments[0].factors]
    return _Sums(shape, (Segment(tuple(factors)),), x.scale * y.scale)


def _sum(x: object, /, *, axis: Axes = None, dtype: object = None, keepdims: bool = False) -> _Sums:
    x = _require_sums(x, "sum")
    axes = range(x.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    summed_axes = sorted(flatten_terms % x.ndim for flatten_terms in axes)
    kept = [flatten_terms for flatten_terms in range(x.ndim) if flatten_terms not in summed_axes]

    def flatten_terms(index: np.ndarray) -> np.ndarray:
        turned = np.transpose(index, (*kept, *summed_axes, x.ndim))
        flat = turned.reshape(*(x.shape[one] for one in kept), -1)
        return flat.reshape(*(1 if one in summed_axes else x.shape[one] for one in range(x.ndim)), -1) if keepdims else flat

    return x.map_indices(flatten_terms)


def _mean(x: object, /, *, axis: Axes = None, keepdims: bool = False) -> _Sums:
    x = _require_sums(x, "mean")
    total = _sum(x, axis=axis, keepdims=keepdims)
    count = x.size // max(total.size, 1)
    if count & (count - 1):
        raise NoSum(f"a mean of {count}: the sum is divided by no power of two")
    return _multiply(total, 1.0 / count)


def _cumulative_sum(x: object, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False) -> _Sums:
    x = _require_sums(x, "cumulative_sum")
    if not x.is_single_product or include_initial:
        raise NoSum("cumulative_sum of sums, or with an initial zero")
    axis = (0 if axis is None else axis) % x.ndim
    n = x.shape[axis]
    earlier = np.tril(np.ones((n, n), bool))  # (place, term)

    def accumulate_terms(index: np.ndarray) -> np.ndarray:
        along = np.moveaxis(index[..., 0], axis, -1)  # (..., n)
        return np.moveaxis(np.where(earlier, along[..., None, :], -1), -2, axis)  # (*shape, n)

    return x.map_indices(accumulate_terms)


def _permute_dims(x: object, axes: Iterable[int]) -> _Sums:
    x = _require_sums(x, "permute_dims")
    order = tuple(each % x.ndim for each in axes)
    return x.map_indices(lambda index: np.transpose(index, (*order, x.ndim)))


def _matrix_transpose(x: object, /) -> _Sums:
    x = _require_sums(x, "matrix_transpose")
    return _permute_dims(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _reshape(x: object, /, shape: Shape, **_: object) -> _Sums:
    x = _require_sums(x, "reshape")
    asked = np.empty(x.shape, bool).reshape(shape).shape
    return x.map_indices(lambda index: index.reshape(*asked, index.shape[-1]))


def _expand_dims(x: object, /, *, axis: int = 0) -> _Sums:
    x = _require_sums(x, "expand_dims")
    place = axis % (x.ndim + 1)
    return _reshape(x, (*x.shape[:place], 1, *x.shape[place:]))


def _squeeze(x: object, /, axis: int | tuple[int, ...]) -> _Sums:
    x = _require_sums(x, "squeeze")
    dropped = {each % x.ndim for each in ((axis,) if isinstance(axis, int) else axis)}
    return _reshape(x, tuple(size for place, size in enumerate(x.shape) if place not in dropped))


def _vecdot(x: object, y: object, /, *, axis: int = -1) -> _Sums:
    return _sum(_multiply(x, y), axis=axis)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "multiply": _multiply,
    "add": _add,
    "sum": _sum,
    "mean": _mean,
    "cumulative_sum": _cumulative_sum,
    "permute_dims": _permute_dims,
    "matrix_transpose": _matrix_transpose,
    "reshape": _reshape,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "vecdot": _vecdot,
    "broadcast_to": lambda x, shape: _spread(_require_sums(x, "broadcast_to"), tuple(shape)),
    "astype": lambda x, dtype, **_: x,
    "asarray": lambda x, **_: x,
}


class _Namespace:
    """The array namespace of sums: its operations, and NoSum by name for any other."""

    newaxis, __array_api_version__ = None, "2024.12"
    linalg = SimpleNamespace(matmul=_matmul, matrix_transpose=_matrix_transpose, vecdot=_vecdot)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _OPERATIONS:
            return _OPERATIONS[name]
        if name in ("float16", "float32", "float64", "bfloat16", "fp16", "bf16", "fp32"):
            return name

        def refuse(*_: object, **__: object) -> Any:
            raise NoSum(f"{name} makes it more than a sum of products")

        return refuse
