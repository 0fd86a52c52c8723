"""Kernels whose reductions and scans combine floats in an order that shows in the words."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@triton.jit
def _multiply(a, b):
    return a * b


@triton.jit
def _decayed(decay_a, value_a, decay_b, value_b):
    return decay_a * decay_b, value_a * decay_b + value_b


@triton.jit
def _welford(mean_a, square_a, weight_a, mean_b, square_b, weight_b):
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, tl.div_rn(weight_b, weight))
    return mean_a + delta * share, square_a + square_b + delta * delta * weight_a * share, weight


@triton.jit
def folds(x, y, rows, columns, products, decayed, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A sum along each axis, a sum of products, all elements in one sum, and a scan of two operands from the end."""
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a, b = tl.load(x + places), tl.load(y + places)
    tl.store(rows + tl.arange(0, ROWS), tl.sum(a, 1))
    tl.store(columns + tl.arange(0, COLUMNS), tl.sum(a, 0))
    tl.store(products + tl.arange(0, ROWS), tl.sum(a * b, 1))
    tl.store(products + ROWS, tl.sum(b))
    _found, ran = tl.associative_scan((b, a), 1, _decayed, reverse=True)
    tl.store(decayed + places, ran)


@triton.jit
def fold(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    """One reduction or scan of the kind `KIND`; each program has a tile of its own."""
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :] + tl.program_id(0) * (ROWS * COLUMNS)
    values = tl.load(x + places)
    if KIND == "sum":
        found = tl.sum(values, AXIS)
    elif KIND == "product":
        found = tl.reduce(values, AXIS, _multiply)
    elif KIND == "dot":
        found = tl.sum(values * tl.load(y + places), AXIS)
    elif KIND == "less":
        found = tl.sum(-(values * tl.load(y + places)), AXIS)
    elif KIND == "largest":
        found = tl.max(values, AXIS)
    elif KIND == "normalised":
        weights = tl.load(y + places)
        mean, square, weight = tl.reduce((values, weights, weights), AXIS, _welford, keep_dims=True)
        found = (values - mean) * tl.div_rn(1.0, tl.sqrt_rn(tl.div_rn(square, weight) + 0.125))
    elif KIND == "counted":  # each weight is one: the compiler doubles where it multiplies by a thread's second
        mean, square, _ = tl.reduce(
            (values, tl.zeros(values.shape, tl.float32), tl.full(values.shape, 1.0, tl.float32)), AXIS, _welford, keep_dims=True
        )
        found = (values - mean) * square
    elif KIND == "less dot":
        found = values - tl.sum(values * tl.load(y + places), AXIS, keep_dims=True)
    elif KIND == "cumsum":
        found = tl.cumsum(values, AXIS)
    elif KIND == "reverse":
        found = tl.cumsum(values, AXIS, reverse=True)
    elif KIND == "cumprod":
        found = tl.cumprod(values, AXIS)
    elif KIND == "decayed":
        _decay, found = tl.associative_scan((tl.load(y + places), values), AXIS, _decayed)
    if found.shape == values.shape:
        tl.store(out + places, found)
    else:
        LEFT: tl.constexpr = COLUMNS if AXIS == 0 else ROWS
        tl.store(out + tl.program_id(0) * LEFT + tl.arange(0, LEFT), found)


@gluon.jit
def fold_layout(x, out, ROWS: gl.constexpr, COLUMNS: gl.constexpr, AXIS: gl.constexpr, LAYOUT: gl.constexpr):
    """The sum along `AXIS` of a tile in the layout `LAYOUT`."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))[None, :]
    found = gl.sum(gl.load(x + rows * COLUMNS + columns), AXIS)
    gl.store(out + gl.arange(0, COLUMNS if AXIS == 0 else ROWS, gl.SliceLayout(AXIS, LAYOUT)), found)


@triton.jit
def fold_further(x, y, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, AXIS: tl.constexpr, KIND: tl.constexpr):
    """A sum of products, used further in the way `KIND`; each program has a tile of its own, and stores one of that shape."""
    places = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :] + tl.program_id(0) * (ROWS * COLUMNS)
    a, b = tl.load(x + places), tl.load(y + places)
    total = tl.sum(a * b, AXIS, keep_dims=True)
    if KIND == "squared":
        left = a - total
        found = left * tl.sum(left * left, AXIS, keep_dims=True)
    elif KIND == "chosen":
        found = tl.where(total > 0, total * 0.5, 1.0 - total) + b
    elif KIND == "behind":
        found = total * 0.75 + a
    elif KIND == "carried":
        carried = total
        for i in range(3):
            carried = carried * 0.5 + tl.sum((a + i) * b, AXIS, keep_dims=True)
        found = b - carried
    elif KIND == "turned":
        found = a + tl.sum(total) * 0.125
    elif KIND == "single":
        found = a - tl.sum(tl.sum(a * b, 1, keep_dims=True), 0, keep_dims=True).item()
    elif KIND == "rounded":
        found = a - total.to(tl.bfloat16).to(tl.float32)
    elif KIND == "other axis":
        found = tl.sum(a - total, 1 - AXIS, keep_dims=True) + b
    elif KIND == "scaled":
        found = b - tl.max(a * total, AXIS, keep_dims=True)
    elif KIND == "all":
        found = b - tl.sum(tl.reshape(a - total, [ROWS * COLUMNS]))
    tl.store(out + places, found)
