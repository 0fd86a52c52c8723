"""What a number format is: one frozen record, and the names of its special codes, roundings and overflows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Specials(Enum):
    """Which codes of a format are not plain numbers."""

    FINITE_ONLY = "every code is a finite number"
    IEEE = "the largest exponent holds the infinities and the NaNs"
    NAN_ALL_ONES = "one magnitude, all ones, is NaN; there is no infinity"
    NAN_NEGATIVE_ZERO = "the code of a negative zero is NaN; there is neither infinity nor negative zero"


class Rounding(Enum):
    """Which neighbour a value between two codes goes to. The PTX modifier (PTX ISA, `cvt`) is named after each."""

    NEAREST_EVEN = "nearest, ties to the even significand"  # .rn
    NEAREST_AWAY = "nearest, ties away from zero"  # .rna
    TOWARD_ZERO = "toward zero"  # .rz
    TOWARD_POSITIVE = "toward positive infinity"  # .rp
    TOWARD_NEGATIVE = "toward negative infinity"  # .rm


class Overflow(Enum):
    """What becomes of a value beyond the largest finite one, after rounding with an unbounded exponent.

    INFINITY is OCP OFP8's non-saturating mode: the format's infinity; its NaN where it has none; where it has neither
    (E2M1, E2M3, E3M2) the largest finite value. As in IEEE 754 section 7.4, a directed rounding away from the infinity
    stops at the largest finite value, while an infinite input stays infinite.
    SATURATE is PTX's `.satfinite`: the largest finite value of the sign, for an infinite input too.
    NAN: the NaN for what overflows; an infinite input keeps its infinity where the format has one.
    """

    INFINITY = "the infinity"
    SATURATE = "the largest finite value"
    NAN = "the NaN"


@dataclass(frozen=True, kw_only=True)
class Format:
    """A binary floating-point format, as its specification states it.

    A code is, from the top: the sign (if `has_sign`), `exponent_bits`, `mantissa_bits`, and `low_padding` bits that carry
    nothing (tf32 in its fp32 container: written as zero, ignored when read). `ignored_high_bits` are read as nothing too
    (bit 7 of UE4M3). A code with any other bit set is no code: `decode` refuses it.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    specials: Specials
    storage: type[np.unsignedinteger]
    has_sign: bool = True
    subnormals: bool = True  # False: exponent field 0 is an ordinary exponent, and there is no zero (E8M0)
    low_padding: int = 0
    ignored_high_bits: int = 0

    @property
    def width(self) -> int:
        """Bits of a code that carry something, padding below them included."""
        return int(self.has_sign) + self.exponent_bits + self.mantissa_bits + self.low_padding

    @property
    def sign_bit(self) -> int:
        """The sign as a mask; 0 in an unsigned format."""
        return 1 << (self.width - 1) if self.has_sign else 0

    @property
    def smallest_exponent(self) -> int:
        """Exponent of the smallest normal number, which the subnormals share."""
        return 1 - self.bias if self.subnormals else -self.bias

    @property
    def _largest_code(self) -> int:
        return (1 << (self.exponent_bits + self.mantissa_bits)) - 1

    @property
    def infinity_code(self) -> int | None:
        """Code of +infinity, or None."""
        if self.specials is not Specials.IEEE:
            return None
        return ((1 << self.exponent_bits) - 1) << (self.mantissa_bits + self.low_padding)

    @property
    def nan_code(self) -> int | None:
        """The canonical NaN, or None: sign clear and every other bit set, as NVIDIA's instructions write it; or the only one."""
        if self.specials is Specials.NAN_NEGATIVE_ZERO:
            return self.sign_bit
        return None if self.specials is Specials.FINITE_ONLY else self._largest_code << self.low_padding

    @property
    def largest_code(self) -> int:
        """Code of the largest finite value."""
        if self.specials is Specials.IEEE:
            return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1 << self.low_padding
        return self._largest_code - (self.specials is Specials.NAN_ALL_ONES) << self.low_padding

    @property
    def largest(self) -> float:
        """The largest finite value."""
        return self._finite(self.largest_code >> self.low_padding)

    @property
    def smallest(self) -> float:
        """The smallest positive value."""
        return self._finite(1 if self.subnormals else 0)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive value with a full significand."""
        return 2.0**self.smallest_exponent

    def _finite(self, magnitude: int) -> float:
        exponent, mantissa = magnitude >> self.mantissa_bits, magnitude & ((1 << self.mantissa_bits) - 1)
        hidden = 0 if self.subnormals and exponent == 0 else 1 << self.mantissa_bits
        raised = max(exponent - 1, 0) if self.subnormals else exponent
        return float(hidden + mantissa) * 2.0 ** (raised + self.smallest_exponent - self.mantissa_bits)
