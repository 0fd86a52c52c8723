"""Contract under test: `xp` has the names of the array API standard, each with NumPy's result, or says why it has not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.philox import philox
from bitverdict.reference.tracing import Untraceable, trace
from bitverdict.reference.tracing.namespace import ABSENT, Namespace
from bitverdict.reference.tracing.state import Trace

STANDARD = """
e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like
tril triu zeros zeros_like astype can_cast finfo iinfo isdtype result_type abs acos acosh add asin asinh atan atan2
atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign
cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less less_equal
log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative
nextafter not_equal positive pow real reciprocal remainder round sign signbit sin sinh square sqrt subtract tan tanh
trunc take take_along_axis __array_namespace_info__ matmul matrix_transpose tensordot vecdot broadcast_arrays
broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin
count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort
cumulative_prod cumulative_sum max mean min prod std sum var all any diff bool int8 int16 int32 int64 uint8 uint16
uint32 uint64 float32 float64 linalg fft
""".split()
"""Names of the main namespace, version 2024.12; complex types left out."""
LINALG = """
cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank matrix_transpose outer pinv qr
slogdet solve svd svdvals tensordot trace vecdot vector_norm
""".split()

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((4, 6)).astype(np.float32)
WHOLE, OTHER = np.random.default_rng(2).integers(-9, 9, (2, 4, 6)).astype(np.int32)
B = X > 0.2

CALLS: dict[str, Callable[..., Any]] = {
    **{name: (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(x)) for name in (
        "asinh", "atan", "cos", "cosh", "exp", "expm1", "floor", "ceil", "trunc", "round", "sign", "sin", "sinh", "square", "tan",
        "tanh", "abs", "negative", "positive", "reciprocal", "isnan", "isinf", "isfinite", "signbit", "max", "min", "sum", "prod",
        "mean", "std", "var", "sort", "argsort", "argmax", "argmin", "count_nonzero", "matrix_transpose", "ones_like", "zeros_like",
        "tril", "triu", "flip", "unstack", "diff", "any", "all")},
    **{name: (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(xp.abs(x) + 1)) for name in (
        "log", "log2", "log10", "log1p", "sqrt", "acosh")},
    **{name: (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(x / 5)) for name in ("asin", "acos", "atanh")},
    **{name: (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(x, y)) for name in (
        "add", "subtract", "multiply", "divide", "atan2", "copysign", "equal", "not_equal", "less", "less_equal", "greater",
        "greater_equal", "hypot", "logaddexp", "maximum", "minimum", "remainder", "floor_divide", "vecdot")},
    **{f"integers {name}": (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(i, j)) for name in (
        "add", "subtract", "multiply", "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "less", "maximum", "minimum")},
    **{f"integers by {name}": (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(i, xp.abs(j) + 1)) for name in (
        "remainder", "floor_divide", "bitwise_left_shift", "bitwise_right_shift", "pow")},
    **{f"integers {name}": (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(i)) for name in (
        "sum", "prod", "max", "argmin", "abs", "sign", "bitwise_invert", "sort", "argsort")},
    **{f"bools {name}": (lambda xp, x, y, i, j, b, name=name: getattr(xp, name)(b, i > 0)) for name in (
        "logical_and", "logical_or", "logical_xor", "bitwise_and")},
    "logical_not": lambda xp, x, y, i, j, b: xp.logical_not(b),
    "pow": lambda xp, x, y, i, j, b: xp.pow(xp.abs(x) + 0.1, y),
    "pow 3": lambda xp, x, y, i, j, b: x**3,
    "pow -0.5": lambda xp, x, y, i, j, b: xp.abs(x) ** -0.5,
    "clip": lambda xp, x, y, i, j, b: xp.clip(x, -0.5, 0.5),
    "where": lambda xp, x, y, i, j, b: xp.where(b, x, y),
    "where scalar": lambda xp, x, y, i, j, b: xp.where(i > 0, i, 0),
    "reshape": lambda xp, x, y, i, j, b: xp.reshape(x, (2, -1)),
    "permute_dims": lambda xp, x, y, i, j, b: xp.permute_dims(x, (1, 0)),
    "moveaxis": lambda xp, x, y, i, j, b: xp.moveaxis(x, 0, 1),
    "expand_dims": lambda xp, x, y, i, j, b: xp.expand_dims(x, axis=1),
    "squeeze": lambda xp, x, y, i, j, b: xp.squeeze(xp.expand_dims(x, axis=1), axis=1),
    "broadcast_to": lambda xp, x, y, i, j, b: xp.broadcast_to(x, (3, 4, 6)),
    "broadcast_arrays": lambda xp, x, y, i, j, b: xp.broadcast_arrays(x[:, :1], y[:1])[0],
    "concat": lambda xp, x, y, i, j, b: xp.concat([x, y], axis=1),
    "concat flat": lambda xp, x, y, i, j, b: xp.concat([x, y], axis=None),
    "stack": lambda xp, x, y, i, j, b: xp.stack([x, y], axis=1),
    "roll": lambda xp, x, y, i, j, b: xp.roll(x, 2, axis=1),
    "repeat": lambda xp, x, y, i, j, b: xp.repeat(x, 2, axis=1),
    "tile": lambda xp, x, y, i, j, b: xp.tile(x, (2, 1)),
    "meshgrid": lambda xp, x, y, i, j, b: xp.meshgrid(x[0], y[0, :3])[1],
    "take": lambda xp, x, y, i, j, b: xp.take(x, xp.remainder(i[0], 6), axis=1),
    "take_along_axis": lambda xp, x, y, i, j, b: xp.take_along_axis(x, xp.remainder(i, 6), axis=1),
    "getitem": lambda xp, x, y, i, j, b: x[1:3, ::-2],
    "getitem places": lambda xp, x, y, i, j, b: x[..., None, xp.remainder(i[0], 6)],
    "getitem element": lambda xp, x, y, i, j, b: x[2, 3],
    "searchsorted": lambda xp, x, y, i, j, b: xp.searchsorted(xp.sort(x[0]), y[0]),
    "cumulative_sum": lambda xp, x, y, i, j, b: xp.cumulative_sum(x, axis=1),
    "cumulative_sum initial": lambda xp, x, y, i, j, b: xp.cumulative_sum(i, axis=0, include_initial=True),
    "cumulative_prod": lambda xp, x, y, i, j, b: xp.cumulative_prod(x, axis=1),
    "matmul": lambda xp, x, y, i, j, b: x @ xp.matrix_transpose(y),
    "matmul integers": lambda xp, x, y, i, j, b: i @ j.T,
    "matmul vector": lambda xp, x, y, i, j, b: x @ y[0],
    "tensordot": lambda xp, x, y, i, j, b: xp.tensordot(x, y, axes=([1], [1])),
    "linalg.outer": lambda xp, x, y, i, j, b: xp.linalg.outer(x[0], y[0]),
    "linalg.diagonal": lambda xp, x, y, i, j, b: xp.linalg.diagonal(x[:, :4]),
    "linalg.trace": lambda xp, x, y, i, j, b: xp.linalg.trace(x[:, :4]),
    "linalg.vector_norm": lambda xp, x, y, i, j, b: xp.linalg.vector_norm(x, axis=1),
    "sum axes": lambda xp, x, y, i, j, b: xp.sum(x, axis=(0, 1), keepdims=True),
    "argsort descending": lambda xp, x, y, i, j, b: xp.take_along_axis(i, xp.argsort(i, axis=1), axis=1),
    "arange": lambda xp, x, y, i, j, b: i + xp.arange(6),
    "full": lambda xp, x, y, i, j, b: x * xp.full((4, 6), 2.0),
    "eye": lambda xp, x, y, i, j, b: xp.eye(4, 6) * x,
    "linspace": lambda xp, x, y, i, j, b: x + xp.linspace(0, 1, 6),
    "asarray": lambda xp, x, y, i, j, b: x + xp.asarray([1, 2, 3, 4, 5, 6]),
    "astype": lambda xp, x, y, i, j, b: xp.astype(x * 3, xp.int32),
    "astype wraps": lambda xp, x, y, i, j, b: xp.astype(i * 100, xp.int8),
    "operators": lambda xp, x, y, i, j, b: -(+x) + abs(y) // 0.3 % 2 - (1 - x) / (2 + abs(y)) * (i & j) + (i | 3) + (i ^ j) + (~i),
    "shifts": lambda xp, x, y, i, j, b: ((i << 2) >> 1) + (2 ** abs(j)),
    "isdtype": lambda xp, x, y, i, j, b: x * (2.0 if xp.isdtype(x.dtype, "real floating") else 0.0),
    "finfo": lambda xp, x, y, i, j, b: x * float(xp.finfo(xp.float32).eps),
    "iinfo": lambda xp, x, y, i, j, b: i * 0 + xp.iinfo(i.dtype).max,
    "result_type": lambda xp, x, y, i, j, b: xp.astype(i, xp.result_type(i, xp.int64)),
}  # fmt: skip


def test_each_name_of_the_standard_is_there_or_says_why_not() -> None:
    xp = Namespace(Trace())
    for name in [*STANDARD, *(f"linalg.{name}" for name in LINALG)]:
        place, last = (xp.linalg, name.removeprefix("linalg.")) if name.startswith("linalg.") else (xp, name)
        if name not in ABSENT:
            getattr(place, last)
            continue
        with pytest.raises(Untraceable) as raised:
            getattr(place, last)
        assert raised.value.operator == name and ABSENT[name] in str(raised.value)
    assert set(ABSENT) <= {*STANDARD, *(f"linalg.{name}" for name in LINALG)}


def test_each_name_that_is_there_is_compared_with_numpy() -> None:
    compared = {word for name in CALLS for word in name.split()} | {
        "e",
        "inf",
        "nan",
        "newaxis",
        "pi",
        "bool",
        "linalg",
        "can_cast",
    }
    compared |= {"empty", "empty_like", "full_like", "zeros", "ones", "__array_namespace_info__", "float32", "float64"}
    compared |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    assert {name for name in STANDARD if name not in ABSENT} <= compared


@pytest.mark.parametrize("name", CALLS)
def test_values_and_types_are_numpys(name: str) -> None:
    """NumPy 2 has the standard's names; float64 there, as here."""
    function = CALLS[name]
    operands = [("fp32", X.view(np.uint32)), ("fp32", Y.view(np.uint32)), ("int32", WHOLE), ("int32", OTHER), ("bool", B)]
    found = trace(function, operands)
    with np.errstate(all="ignore"):
        due = function(np, X.astype(np.float64), Y.astype(np.float64), WHOLE, OTHER, B)
    due = due if isinstance(due, tuple) else (due,)
    assert len(found) == len(due)
    for output, expected in zip(found, due, strict=True):
        expected = np.asarray(expected)
        assert output.value.shape == expected.shape
        assert output.kind == {"f": "float", "i": "integer", "b": "bool"}[expected.dtype.kind]
        if expected.dtype.kind == "f":
            slack = 2.0**-45 if name in ("prod", "cumulative_prod") else 2.0**-47
            np.testing.assert_allclose(output.value, expected, rtol=slack, atol=2.0**-50)
            assert not output.unknown.any() and (output.error <= 2.0**-44 * (1 + np.abs(expected))).all()
            low, high, _, open_ = output.interval("fp32")
            assert not open_.any()
            with np.errstate(all="ignore"):
                near = decode(FORMATS["fp32"], low), decode(FORMATS["fp32"], high)
            rounded = expected.astype(np.float32).astype(np.float64)
            assert (near[0] <= rounded).all() and (rounded <= near[1]).all()
            width = 2.0**-7 if name in ("matmul", "matmul vector", "tensordot") else 2.0**-17  # tf32, as nothing says otherwise
            assert (near[1] - near[0] <= width * (1 + np.abs(expected))).all()
        else:
            np.testing.assert_array_equal(output.value, expected)
            assert output.value.dtype == expected.dtype


def test_random_bits_are_those_of_philox() -> None:
    places = np.arange(40, dtype=np.int64).reshape(4, 10)
    zero = np.zeros(places.shape, np.uint64)
    due = philox((places.astype(np.uint64), zero, zero, zero), 77)
    found = trace(lambda xp, places, seed: xp.philox(seed, places), [("int64", places), 77])
    for output, expected in zip(found, due, strict=True):
        np.testing.assert_array_equal(output.value, expected)
        assert output.value.dtype == np.uint32
