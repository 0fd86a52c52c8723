"""Operands made ready for the block step: values, exponent fields, lowest bits, and what is not finite, k first.

Equal to the definition because `decode` is exact in float64, and tables hold what `definition.factors` computes for each code.
float32 stands in for float64 only where `fits_float32` proves products exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, decode
from bitverdict.reference.tensor_core.fused_sum import NO_EXPONENT, exponents
from bitverdict.reference.tensor_core.record import Instruction, Step, ZeroTerms

OF_ZERO_THAT_TAKES_PART = -126
LOWEST_BIT_OF_ZERO = 8192  # a zero is a multiple of every power of two
OF_SPECIAL = 16384  # in a table of exponents: NaN or infinity
LARGEST_TABLE_WIDTH = 16


@dataclass(frozen=True)
class Terms:
    """One side of a product, ready for `fused_sum`; k first, so that a block is a slice."""

    values: np.ndarray  # (K, L) float64, finite: NaN and infinities replaced by zero
    exponents: np.ndarray  # (K, L) int16
    narrow: np.ndarray | None  # (K, L) float32, the values again, where products may be formed in float32
    lowest_bits: np.ndarray  # (K, L) int16: the value is a multiple of 2^this
    specials: np.ndarray | None  # (K, L) the NaN and infinities, the sign of what is finite elsewhere; None when all are finite
    scale_exponents: np.ndarray | None  # (K, L) int16: the part of `exponents` that the block scale brought; None without scales

    def take(self, lanes: slice | np.ndarray) -> Terms:
        """The same for some of the L."""
        specials = None if self.specials is None else self.specials[:, lanes]  # (K, l)
        scales = None if self.scale_exponents is None else self.scale_exponents[:, lanes]  # (K, l)
        narrow = None if self.narrow is None else self.narrow[:, lanes]  # (K, l)
        return Terms(self.values[:, lanes], self.exponents[:, lanes], narrow, self.lowest_bits[:, lanes], specials, scales)

    def with_shape(self, *shape: int) -> Terms:
        """The same with L taken apart: (K, L / shape, *shape)."""
        parts: dict[str, Any] = {name: part.reshape(len(part), -1, *shape) for name, part in vars(self).items() if part is not None}
        return replace(self, **parts)


def operand(rule: Instruction, name: str, codes: np.ndarray) -> Terms:
    """`codes` (K, L) of format `name` as `rule` reads them, K padded with zeros to whole spans."""
    codes = _pad_k(rule, codes)  # (K', L)
    fmt, aligned_as = FORMATS[name], FORMATS[rule.widened or name]
    if rule.step is Step.PAIRWISE:
        codes = without_subnormals(fmt, codes)  # (K', L)
    if fmt.width > LARGEST_TABLE_WIDTH:
        return _terms(decode(fmt, codes), aligned_as, _of_zero(rule))
    table = _table(name, aligned_as.name, _of_zero(rule))
    exponents = np.take(table.exponents, codes)  # (K', L)
    if exponents.size and int(exponents.max()) == OF_SPECIAL:
        return _terms(decode(fmt, codes), aligned_as, _of_zero(rule))
    values, low = np.take(table.values, codes), np.take(table.lowest_bits, codes)  # (K', L)
    if table.narrow is not None:
        return Terms(values, exponents, np.take(table.narrow, codes), low, None, None)
    fits = fits_float32(values, fmt.mantissa_bits + 1)
    return Terms(values, exponents, values.astype(np.float32) if fits else None, low, None, None)


def _pad_k(rule: Instruction, array: np.ndarray) -> np.ndarray:
    """`array` (K, L), K padded with zeros to whole spans; itself where there is nothing to pad."""
    missing = -array.shape[0] % rule.span
    return np.pad(array, ((0, missing), (0, 0))) if missing else array


def without_subnormals(fmt: Format, codes: np.ndarray) -> np.ndarray:
    """`codes` with +0 for each subnormal and each zero, as an operand of `Step.PAIRWISE` is read."""
    return np.where(codes & fmt.storage(fmt.sign_bit - 1) < 1 << fmt.mantissa_bits, fmt.storage(0), codes)


def scaled_operand(rule: Instruction, name: str, values: np.ndarray, scales: np.ndarray, scale_exponents: np.ndarray) -> Terms:
    """`values` (K, L): elements of format `name` times `scales` (K, L), whose exponents are `scale_exponents` (K, L) int16."""
    values, divisor, scaling = (_pad_k(rule, each) for each in (values, scales, scale_exponents))  # (K', L)
    plain = _terms(values, FORMATS[name], _of_zero(rule))
    present = plain.values != 0  # (K', L)
    elements = np.divide(plain.values, divisor, out=np.zeros(values.shape), where=present)  # (K', L) exact: the element itself
    found = exponents(elements, FORMATS[name].smallest_exponent, _of_zero(rule))  # (K', L)
    np.add(found, scaling, out=found, where=found > NO_EXPONENT)
    return Terms(plain.values, found, None, plain.lowest_bits, plain.specials, scaling)


def _terms(values: np.ndarray, aligned_as: Format, of_zero: int) -> Terms:
    """Any `values` (K, L) float64 that are aligned as numbers of `aligned_as` are."""
    finite = np.isfinite(values)  # (K, L)
    specials = None
    if not finite.all():
        specials = np.where(finite, np.sign(values), values)  # (K, L)
        values = np.where(finite, values, 0.0)  # (K, L)
    narrow = values.astype(np.float32) if fits_float32(values, aligned_as.mantissa_bits + 1) else None  # (K, L)
    found = exponents(values, aligned_as.smallest_exponent, of_zero)  # (K, L)
    return Terms(values, found, narrow, lowest_bits(values), specials, None)


def _of_zero(rule: Instruction) -> int:
    return NO_EXPONENT if rule.choices.zero_terms is ZeroTerms.LEFT_OUT else OF_ZERO_THAT_TAKES_PART


@cache
def _table(name: str, aligned_as: str, of_zero: int) -> Terms:
    """`operand` of every code of a format of at most 16 bits, (codes,); OF_SPECIAL marks what is not finite."""
    fmt = FORMATS[name]
    values = decode(fmt, np.arange(1 << (fmt.width + fmt.ignored_high_bits)).astype(fmt.storage))  # (codes,)
    found = _terms(values, FORMATS[aligned_as], of_zero)
    marked = np.where(np.isfinite(values), found.exponents, OF_SPECIAL).astype(np.int16)  # (codes,)
    return Terms(found.values, marked, found.narrow, found.lowest_bits, None, None)


def fits_float32(values: np.ndarray, significand_bits: int) -> bool:
    """Whether products of two such operands, and the products cut at any E they can have, are exact and normal in float32.

    Two significands of 12 bits make 24; magnitudes within 2^-50 and 2^40 keep products within 2^-100 and 2^80, and a cut product
    is an integer with no more bits than the product had.
    """
    magnitude = np.abs(values)
    smallest = float(np.min(magnitude, where=magnitude > 0, initial=1.0))
    return significand_bits <= 12 and smallest >= 2.0**-50 and float(magnitude.max(initial=0.0)) <= 2.0**40


def lowest_bits(values: np.ndarray) -> np.ndarray:
    """Exponent of the last bit that is set: a value is a multiple of 2^this."""
    words = values.view(np.int64)  # (K, L)
    significand = (words & ((1 << 52) - 1)) | (1 << 52)  # (K, L)
    last = np.frexp((significand & -significand).astype(np.float64))[1] - 1  # (K, L) trailing zeros
    field = (words >> 52) & 0x7FF  # (K, L)
    return np.where(values == 0, LOWEST_BIT_OF_ZERO, field - 1075 + last).astype(np.int16)  # (K, L)
