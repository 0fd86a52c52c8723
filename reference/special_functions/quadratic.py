"""A function table as a GPU's special-function unit holds it: rows of quadratics, and a squarer that drops low columns.

The fraction of the argument is cut in two. Its top bits choose a row of three integers; its low bits X enter a quadratic,
evaluated in fixed point: sum = c0 + c1 X + c2 square(X) (S. F. Oberman and M. Y. Siu, "A High-Performance Area-Efficient
Multifunction Interpolator", 2005). `square` adds the partial products of X * X whose column is at least 19 and drops the others.
Every sum is below 2^53, so that float64 holds it exactly, whatever the order of its terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

SQUARED_BITS = 17
DROPPED_COLUMNS = 19

TANH_FIRST_EXPONENT = -8
TANH_SEGMENTS = (1, 1, 1, 2, 2, 4, 4, 4, 8, 16, 8)
"""tanh has a row for each of so many equal segments of the binades from 2^-8 on. Each segment has 2^17 values of X."""


def truncated_square(x: np.ndarray, dropped_columns: int = DROPPED_COLUMNS) -> np.ndarray:
    """Sum of the partial products of x * x in columns from d = `dropped_columns` up, in units of 2^d; x int64 of any shape below
    2^31.

    Bits i < j of x give one partial product x_i x_j in column i + j + 1, bit i alone gives x_i in column 2 i.
    """
    lost = np.zeros_like(x)
    for i in range((dropped_columns + 1) // 2):
        above = x & ~((2 << i) - 1)  # the bits j > i
        lost += (x >> i & 1) * ((above << (i + 1)) + (1 << 2 * i) & (1 << dropped_columns) - 1)  # (...)
    result: np.ndarray = (x * x - lost) >> dropped_columns  # (...)
    return result


@cache
def squares() -> np.ndarray:
    """`truncated_square` of every X; [2^17] uint16."""
    return truncated_square(np.arange(1 << SQUARED_BITS, dtype=np.int64)).astype(np.uint16)


@dataclass(frozen=True)
class Quadratic:
    """One function's rows: sum = c0 + c1 X + c2 square(X), in units of 2^-weight.

    `rows` are (c0, c1, c2). c0 is counted in units of 2^`constant_shift`, and `bias` is added to every sum. `low_bits` is how many
    bits of the 23-bit fraction X takes; one of 16 bits is squared as the 17-bit number 2 X.
    """

    name: str
    weight: int
    low_bits: int
    constant_shift: int
    bias: int
    rows: tuple[tuple[int, int, int], ...]

    @cached_property
    def columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """c0 with its bias, c1, c2; [rows] float64 each."""
        c0, c1, c2 = np.array(self.rows, dtype=np.float64).T  # (rows,)
        return c0 * 2.0**self.constant_shift + self.bias, c1, c2

    def sums(self, index: np.ndarray, low: np.ndarray) -> np.ndarray:
        """The exact sums, as float64, of row `index` and X = `low`; integers of equal shape."""
        table = squares()[:: 1 << (SQUARED_BITS - self.low_bits)]  # (2^low_bits,)
        c0, c1, c2 = self.columns
        total = c1.take(index)  # (...)
        total *= low
        total += c0.take(index)
        squared = c2.take(index)  # (...)
        squared *= table.take(low)
        total += squared
        return total
