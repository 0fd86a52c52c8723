"""Inner products from exponents: codes a, b whose products have given exponents and signs, and accumulators to go with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import FP16, FP32, Format, Specials

ABSENT = -100_000  # exponent of a product that is zero


@dataclass(frozen=True)
class ProbeRequest:
    """How many rows of which operands, and where their randomness comes from."""

    rng: np.random.Generator
    a: Format
    b: Format
    k: int
    count: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.count, self.k

    @property
    def lowest(self) -> int:
        """Exponent of the smallest product."""
        return lowest_exponent(self.a) + lowest_exponent(self.b)

    @property
    def highest(self) -> int:
        """Exponent of the largest product of two powers of two."""
        return highest_exponent(self.a) + highest_exponent(self.b)

    def choose(self, menu: list[int] | range, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.choice(np.array(menu), shape)

    def signs(self, shape: tuple[int, ...]) -> np.ndarray:
        return self.rng.integers(0, 2, shape)


def lowest_exponent(format: Format) -> int:
    """Exponent of the smallest positive number."""
    return format.smallest_exponent - format.mantissa_bits


def highest_exponent(format: Format) -> int:
    """Exponent of the largest finite number."""
    top = (1 << format.exponent_bits) - 1 - (format.specials is Specials.IEEE)
    return top - format.bias


def numbers(format: Format, exponent: np.ndarray, sign: np.ndarray, mantissa: np.ndarray) -> np.ndarray:
    """Codes of ``(-1)^sign * 2^exponent * (1 + mantissa / 2^mantissa_bits)``, the mantissa cut where the number is subnormal.

    A number above the largest finite one or below the smallest becomes a zero of its sign. Same shape as `exponent`.
    """
    m = format.mantissa_bits
    full = (1 << m) | mantissa.astype(np.int64)
    shift = np.clip(format.smallest_exponent - exponent, 0, m + 1)
    field = np.clip(exponent + format.bias, 0, None)
    magnitude = np.where(exponent < format.smallest_exponent, full >> shift, (field << m) | mantissa)
    magnitude = np.where(magnitude > format.largest_code >> format.low_padding, 0, magnitude)
    return ((magnitude << format.low_padding) | sign.astype(np.int64) * format.sign_bit).astype(format.storage)


def drawn_mantissas(rng: np.random.Generator, format: Format, plain: np.ndarray) -> np.ndarray:
    """0 where `plain`; else drawn, with runs of ones at either end as likely as anything else."""
    m = format.mantissa_bits
    drawn = rng.integers(0, 1 << m, plain.shape)
    drawn = np.where(rng.random(plain.shape) < 0.15, (1 << m) - 1, drawn)
    return np.where(plain, 0, drawn)


def terms(
    request: ProbeRequest, exponents: np.ndarray, signs: np.ndarray, plain_mask: np.ndarray, *, normal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Codes a, b whose products have these exponents (before a significand product of 2 or more carries) and signs.

    With `normal` no operand is subnormal where that is possible: the instruction reads a subnormal with the exponent of the
    smallest normal number, which raises the alignment exponent above the product's own.

    An absent term is a zero, of either sign, times any finite number, large ones included. Out of range counts as absent.
    """
    rng, low_a, low_b = request.rng, lowest_exponent(request.a), lowest_exponent(request.b)
    high_a, high_b = highest_exponent(request.a), highest_exponent(request.b)
    absent = (exponents < request.lowest) | (exponents > request.highest)
    q = np.where(absent, low_a + high_b, exponents)
    least, most = np.maximum(low_a, q - high_b), np.minimum(high_a, q - low_b)
    if normal:
        above = np.maximum(least, request.a.smallest_exponent), np.minimum(most, q - request.b.smallest_exponent)
        least, most = np.where(above[0] <= above[1], above, (least, most))
    split = rng.integers(least, most + 1)
    sign_a = rng.integers(0, 2, q.shape)
    zero_a = absent & (rng.random(q.shape) < 0.5)
    zero_b = absent & (~zero_a | (rng.random(q.shape) < 0.2))
    a = numbers(request.a, split, sign_a, drawn_mantissas(rng, request.a, plain_mask))
    b = numbers(request.b, q - split, sign_a ^ signs, drawn_mantissas(rng, request.b, plain_mask))
    a = np.where(absent & ~zero_a, any_finite(rng, request.a, q.shape), a)
    b = np.where(absent & ~zero_b, any_finite(rng, request.b, q.shape), b)
    a = np.where(zero_a, a & request.a.sign_bit, a).astype(request.a.storage)
    b = np.where(zero_b, b & request.b.sign_bit, b).astype(request.b.storage)
    return a, b


def any_finite(rng: np.random.Generator, format: Format, shape: tuple[int, ...]) -> np.ndarray:
    magnitude = rng.integers(0, (format.largest_code >> format.low_padding) + 1, shape) << format.low_padding
    return (magnitude | rng.integers(0, 2, shape) * format.sign_bit).astype(format.storage)


def accumulators(
    request: ProbeRequest, exponent: np.ndarray, sign: np.ndarray | None = None, plain: float = 0.3
) -> dict[str, np.ndarray]:
    """c32 and c16 of this exponent, ABSENT (and what fp16 cannot hold) as a zero of either sign."""
    sign = request.signs(exponent.shape) if sign is None else sign
    bare = request.rng.random(exponent.shape) < plain
    return {
        name: numbers(format, exponent, sign, drawn_mantissas(request.rng, format, bare))
        for name, format in (("c32", FP32), ("c16", FP16))
    }


def scatter_columns(asked: ProbeRequest, columns: list[np.ndarray]) -> np.ndarray:
    """[R, K] with these columns [R] first, ABSENT after, each row in an order of its own."""
    table = np.full(asked.shape, ABSENT)
    table[:, : len(columns)] = np.stack(columns, axis=1)[:, : asked.k]
    return asked.rng.permuted(table, axis=1)
