"""Arrays of constants."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, constant
from bitverdict.reference.tracing.dtypes import BOOL, BY_FORMAT, BY_NAME, DType, DTypeLike, Shape, Untraceable, dtype_of
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation


def _dtype_or_default(trace: Trace, dtype: DTypeLike | None) -> DType:
    return BY_FORMAT[trace.accumulation.format] if dtype is None else dtype_of(dtype)


def _constants(trace: Trace, values: np.ndarray, dtype: DType) -> TracedArray:
    """Constants: floats that the accumulation type does not hold are rounded in an implementation, as `constant` has it."""
    if dtype.kind != "float":
        return TracedArray(trace, dtype, values.astype(dtype.storage_type))
    values = values.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        held = trace.accumulation.round(values)
    if np.array_equal(held, values, equal_nan=True):
        return TracedArray(trace, dtype, values)
    return TracedArray(trace, dtype, values, None, np.minimum(held, values), np.maximum(held, values))


@operation("asarray")
def asarray(
    trace: Trace, obj: object, /, *, dtype: DTypeLike | None = None, device: object = None, copy: bool | None = None
) -> TracedArray:
    """Constants from numbers, nested lists of them, or a NumPy array; of a traced array itself."""
    if isinstance(obj, TracedArray):
        return obj if dtype is None else OPERATIONS["astype"](trace, obj, dtype)
    if isinstance(obj, (bool, int, float)):
        found = constant(trace, obj)
        return found if dtype is None else full(trace, (), obj, dtype=dtype)
    if isinstance(obj, (list, tuple)) and any(isinstance(each, TracedArray) for each in obj):
        return OPERATIONS["stack"](trace, [asarray(trace, each, dtype=dtype) for each in obj])
    values = np.asarray(obj)
    if values.dtype.kind not in "biuf":
        raise Untraceable("asarray", f"of {values.dtype}")
    kind = BOOL if values.dtype.kind == "b" else BY_NAME[str(values.dtype)] if values.dtype.kind in "iu" else None
    return _constants(trace, values, dtype_of(dtype) if dtype is not None else kind or _dtype_or_default(trace, None))


@operation("full")
def full(trace: Trace, shape: Shape, fill_value: Operand, *, dtype: DTypeLike | None = None, device: object = None) -> TracedArray:
    """One number everywhere."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if isinstance(fill_value, TracedArray):
        return OPERATIONS["broadcast_to"](trace, asarray(trace, fill_value, dtype=dtype), shape)
    kind = constant(trace, fill_value).dtype if dtype is None else dtype_of(dtype)
    return _constants(trace, np.full(shape, fill_value), kind)


@operation("zeros")
def zeros(trace: Trace, shape: Shape, *, dtype: DTypeLike | None = None, device: object = None) -> TracedArray:
    """0 everywhere."""
    return full(trace, shape, 0, dtype=_dtype_or_default(trace, dtype))


@operation("ones")
def ones(trace: Trace, shape: Shape, *, dtype: DTypeLike | None = None, device: object = None) -> TracedArray:
    """1 everywhere."""
    return full(trace, shape, 1, dtype=_dtype_or_default(trace, dtype))


@operation("zeros_like", "empty_like")
def zeros_like(trace: Trace, x: Operand, /, *, dtype: DTypeLike | None = None, device: object = None) -> TracedArray:
    """0 everywhere, in the shape of x."""
    return full(trace, array(trace, x).shape, 0, dtype=array(trace, x).dtype if dtype is None else dtype)


@operation("ones_like")
def ones_like(trace: Trace, x: Operand, /, *, dtype: DTypeLike | None = None, device: object = None) -> TracedArray:
    """1 everywhere, in the shape of x."""
    return full(trace, array(trace, x).shape, 1, dtype=array(trace, x).dtype if dtype is None else dtype)


@operation("full_like")
def full_like(
    trace: Trace, x: Operand, /, fill_value: Operand, *, dtype: DTypeLike | None = None, device: object = None
) -> TracedArray:
    """One number everywhere, in the shape of x."""
    return full(trace, array(trace, x).shape, fill_value, dtype=array(trace, x).dtype if dtype is None else dtype)


OPERATIONS["empty"] = zeros


@operation("arange")
def arange(
    trace: Trace,
    start: int | float,
    /,
    stop: int | float | None = None,
    step: int | float = 1,
    *,
    dtype: DTypeLike | None = None,
    device: object = None,
) -> TracedArray:
    """Numbers at equal steps; stop excluded."""
    start, stop = (0, start) if stop is None else (start, stop)
    values: np.ndarray = np.arange(start, stop, step)
    kind = BY_FORMAT["int64"] if values.dtype.kind in "iu" else _dtype_or_default(trace, None)
    return _constants(trace, values, kind if dtype is None else dtype_of(dtype))


@operation("linspace")
def linspace(
    trace: Trace,
    start: Operand,
    stop: Operand,
    /,
    num: int,
    *,
    dtype: DTypeLike | None = None,
    device: object = None,
    endpoint: bool = True,
) -> TracedArray:
    """`num` numbers from start to stop."""
    return _constants(trace, np.linspace(float(start), float(stop), num, endpoint=endpoint), _dtype_or_default(trace, dtype))


@operation("eye")
def eye(
    trace: Trace, n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DTypeLike | None = None, device: object = None
) -> TracedArray:
    """1 on a diagonal, else 0."""
    return _constants(trace, np.eye(n_rows, n_cols, k), _dtype_or_default(trace, dtype))
