"""Gluon's arithmetic on two lanes at once, and products that a packed sum takes."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import add2, fma2, max2, min2, mul2, sub2

COUNT = gl.constexpr(512)


@gluon.jit
def all_of_them(a, b, c, out):
    """Row i of out: the i-th operation on a, b and c; the last two are no instructions of 32-bit elements."""
    at = gl.arange(0, COUNT, layout=gl.BlockedLayout([4], [32], [4], [0]))
    x, y, z = gl.load(a + at), gl.load(b + at), gl.load(c + at)
    gl.store(out + at, add2(x, y))
    gl.store(out + COUNT + at, sub2(x, y))
    gl.store(out + 2 * COUNT + at, mul2(x, y))
    gl.store(out + 3 * COUNT + at, fma2(x, y, z))
    if x.dtype != gl.float32:
        gl.store(out + 4 * COUNT + at, min2(x, y))
        gl.store(out + 5 * COUNT + at, max2(x, y))


@gluon.jit
def sums_of_products(a, b, c, out, FORM: gl.constexpr):
    at = gl.arange(0, COUNT, layout=gl.BlockedLayout([4], [32], [4], [0]))
    x, y, z = gl.load(a + at), gl.load(b + at), gl.load(c + at)
    product = mul2(x, y)
    if FORM == "p + z":
        found = add2(product, z)
    elif FORM == "z - p":
        found = sub2(z, product)
    elif FORM == "p - z":
        found = sub2(product, z)
    elif FORM == "x * y + z":
        found = add2(x * y, z)
    else:
        found = add2(product, z)
        gl.store(out + COUNT + at, product)
    gl.store(out + at, found)
