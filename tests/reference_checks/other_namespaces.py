"""Two other evaluations of a reference: in fp32 as implementations may do it, and in mpmath as the mathematics has it.

`Fp32(seed)` draws at every step what an implementation may choose: the order of a sum, whether a product is contracted, which
instruction divides, whether a constant factor is folded. Its approximate instructions are the emulated ones
(reference/special_functions). `Exact()` holds mpmath numbers of 500 bits in object arrays. Both have the names that `REFERENCES`
use.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions import sequences
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

PRECISION = 500  # a term of 2^-400 beside one still counts


class Number:
    """fp32 words (...), and what they were made of, where a compiler may see it: a product, or a root."""

    def __init__(self, xp: Fp32, value: np.ndarray, product: Any = None, root: Any = None) -> None:
        self.xp, self.value, self.product, self.root = xp, np.asarray(value, np.float32), product, root

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    def __getitem__(self, key: Any) -> Number:
        return Number(self.xp, self.value[key])

    def __neg__(self) -> Number:
        return Number(self.xp, -self.value, self.product and (-self.product[0], self.product[1]))

    def __add__(self, other: Any) -> Number:
        return self.xp.plus(self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Number:
        return self.xp.plus(self, -self.xp.number(other))

    def __rsub__(self, other: Any) -> Number:
        return self.xp.plus(-self, other)

    def __mul__(self, other: Any) -> Number:
        other = self.xp.number(other)
        return Number(self.xp, fp32.multiply(self.value, other.value), (self.value, other.value))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Number:
        return self.xp.by(self, self.xp.number(other))

    def __rtruediv__(self, other: Any) -> Number:
        return self.xp.by(self.xp.number(other), self)

    def __matmul__(self, other: Any) -> Number:
        return self.xp.matmul(self, other)

    def __gt__(self, other: Any) -> np.ndarray:
        return self.value > self.xp.number(other).value

    def __pow__(self, power: int) -> Number:
        found = self
        for _ in range(power - 1):
            found = found * self
        return found


def _words(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _floats(words: np.ndarray) -> np.ndarray:
    return words.view(np.float32)


class Fp32:
    """One implementation in fp32, drawn."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, given: Any) -> Number:
        return given if isinstance(given, Number) else Number(self, np.float32(given))

    def chance(self) -> bool:
        return bool(self.rng.integers(2))

    def plus(self, one: Any, other: Any) -> Number:
        one, other = self.number(one), self.number(other)
        for left, right in ((one, other), (other, one)):
            if left.product is not None and self.chance():
                a, b = np.broadcast_arrays(*left.product, right.value)[:2]
                return Number(self, fp32.fma(a, b, np.broadcast_to(right.value, a.shape)))
        return Number(self, fp32.add(one.value, other.value))

    def by(self, one: Number, other: Number) -> Number:
        a, b = (np.array(each) for each in np.broadcast_arrays(one.value, other.value))
        way = int(self.rng.integers(4))
        if other.root is not None and self.chance():
            inverse = _floats(INSTRUCTIONS["rsqrt.approx.ftz.f32"](_words(other.root)))
            return Number(self, fp32.multiply(one.value, inverse), (one.value, inverse))
        if way == 0:
            return Number(self, fp32.divide(a, b))
        if way == 1:
            return Number(self, _floats(INSTRUCTIONS["div.full.f32"](_words(a), _words(b))))
        inverse = fp32.divide(np.ones_like(b), b) if way == 2 else _floats(INSTRUCTIONS["rcp.approx.ftz.f32"](_words(b)))
        return Number(self, fp32.multiply(a, inverse), (a, inverse))

    def total(self, parts: list[np.ndarray]) -> np.ndarray:
        parts = [parts[place] for place in self.rng.permutation(len(parts))]
        while len(parts) > 1:
            step = int(self.rng.choice([2, 3, 8, len(parts)]))
            merged = []
            for start in range(0, len(parts), step):
                found = parts[start]
                for part in parts[start + 1 : start + step]:
                    found = fp32.add(found, part)
                merged.append(found)
            parts = merged
        return parts[0]

    def sum(self, x: Number, axis: int, keepdims: bool = False) -> Number:
        parts = [np.take(x.value, [place], axis) for place in range(x.shape[axis])]
        if x.product is not None and self.chance():  # a chain of fma, in a drawn order
            a, b = np.broadcast_arrays(*x.product)
            found = np.zeros_like(parts[0])
            for place in self.rng.permutation(len(parts)):
                found = fp32.fma(np.take(a, [place], axis), np.take(b, [place], axis), found)
        else:
            found = self.total(parts)
        return Number(self, found if keepdims else np.squeeze(found, axis))

    def mean(self, x: Number, axis: int, keepdims: bool = False) -> Number:
        n = x.shape[axis]
        total = self.sum(x, axis, keepdims)
        return total * np.float32(1 / n) if self.chance() else self.by(total, self.number(n))

    def var(self, x: Number, axis: int, keepdims: bool = False) -> Number:
        apart = x - self.mean(x, axis, True)
        return self.mean(apart * apart, axis, keepdims)

    def max(self, x: Number, axis: int, keepdims: bool = False) -> Number:
        return Number(self, x.value.max(axis=axis, keepdims=keepdims))

    def maximum(self, x: Number, y: Any) -> Number:
        return Number(self, np.maximum(x.value, self.number(y).value))

    def where(self, condition: np.ndarray, x: Any, y: Any) -> Number:
        return Number(self, np.where(condition, self.number(x).value, self.number(y).value))

    def matrix_transpose(self, x: Number) -> Number:
        return Number(self, np.swapaxes(x.value, -1, -2))

    def matmul(self, x: Number, y: Number) -> Number:
        products = [fp32.multiply(x.value[..., :, k, None], y.value[..., None, k, :]) for k in range(x.shape[-1])]
        if self.chance():
            return Number(self, self.total(products))
        found = np.zeros_like(products[0])
        for k in self.rng.permutation(len(products)):
            a, b = np.broadcast_arrays(x.value[..., :, k, None], y.value[..., None, k, :])
            found = fp32.fma(a, b, found)
        return Number(self, found)

    def exp(self, x: Number) -> Number:
        return Number(self, _floats(sequences.exp(_words(x.value))))

    def log(self, x: Number) -> Number:
        return Number(self, _floats(sequences.log(_words(x.value))))

    def sqrt(self, x: Number) -> Number:
        if self.chance():
            return Number(self, np.sqrt(x.value), root=x.value)
        return Number(self, _floats(INSTRUCTIONS["sqrt.approx.ftz.f32"](_words(x.value))), root=x.value)

    def near(self, values: np.ndarray, ulps: int) -> Number:
        """Some fp32 number within `ulps` of the rounded one: what a table of documented errors promises, and no more."""
        words = _words(values.astype(np.float32)).view(np.int32)
        moved = words + self.rng.integers(-ulps, ulps + 1, words.shape).astype(np.int32) * (words & 0x7FFFFFFF > ulps)
        return Number(self, np.where(np.isfinite(values), moved.astype(np.int32).view(np.float32), values))

    def tanh(self, x: Number) -> Number:
        if self.chance():
            return self.near(np.tanh(x.value.astype(np.float64)), 2)
        powers = self.exp(Number(self, -2 * np.abs(x.value)))
        found = self.by(1 - powers, 1 + powers)
        return Number(self, np.copysign(found.value, x.value))

    def erf(self, x: Number) -> Number:
        return self.near(np.vectorize(mpmath.erf, otypes=[float])(x.value), 2)

    def sin(self, x: Number) -> Number:
        return self.near(np.sin(x.value.astype(np.float64)), 2)

    def cos(self, x: Number) -> Number:
        return self.near(np.cos(x.value.astype(np.float64)), 2)

    def abs(self, x: Number) -> Number:
        return Number(self, np.abs(x.value))

    def concat(self, arrays: list[Number], axis: int = 0) -> Number:
        return Number(self, np.concatenate([each.value for each in arrays], axis))


class Exact:
    """The mathematics, in object arrays of mpmath."""

    @staticmethod
    def array(values: np.ndarray) -> np.ndarray:
        return np.vectorize(mpmath.mpf, otypes=[object])(values)

    @staticmethod
    def _each(function: Callable) -> Callable:
        return lambda x: np.frompyfunc(function, 1, 1)(x)

    def __getattr__(self, name: str) -> Callable:
        return self._each(getattr(mpmath, name))

    def sum(self, x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        return np.add.reduce(x, axis=axis, keepdims=keepdims)

    def mean(self, x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        return self.sum(x, axis, keepdims) / x.shape[axis]

    def var(self, x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        return self.mean((x - self.mean(x, axis, True)) ** 2, axis, keepdims)

    def max(self, x: np.ndarray, axis: int, keepdims: bool = False) -> np.ndarray:
        return np.maximum.reduce(x, axis=axis, keepdims=keepdims)

    def maximum(self, x: np.ndarray, y: Any) -> np.ndarray:
        return np.maximum(x, y)

    def where(self, condition: np.ndarray, x: Any, y: Any) -> np.ndarray:
        return np.where(condition.astype(bool), x, y)

    def matrix_transpose(self, x: np.ndarray) -> np.ndarray:
        return np.swapaxes(x, -1, -2)

    def abs(self, x: np.ndarray) -> np.ndarray:
        return np.abs(x)

    def matmul(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return operator.matmul(x, y)

    def concat(self, arrays: list[np.ndarray], axis: int = 0) -> np.ndarray:
        return np.concatenate(arrays, axis)
