"""Operands that tell two models of a tensor core apart, with as few terms as can be."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.formats import FORMATS, Format, Overflow, decode, encode
from bitverdict.reference.tensor_core import Instruction, elements

ROWS = 3000


def settling_row(rule: Instruction, other: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """a (1, K), b (1, K), c (1,) for which the two models differ, with as few terms as can be; None where none was found."""
    for round_ in range(4):
        rng = np.random.default_rng(round_)
        for draw in (powers, dense, tiny):
            a, b, c = draw(rng, rule)  # (R, K), (R, K), (R,)
            differ = np.nonzero(elements(rule, a, b, c) != elements(other, a, b, c))[0]  # (found,)
            if differ.size:
                terms = ((a[differ] & _magnitude(rule.a)) != 0) & ((b[differ] & _magnitude(rule.b)) != 0)  # (found, K)
                row = differ[np.argmin(terms.sum(axis=1))]
                return _pruned(rule, other, a[row : row + 1], b[row : row + 1], c[row : row + 1])
    return None


def _magnitude(name: str) -> np.unsignedinteger:
    fmt = FORMATS[name]
    return fmt.storage(fmt.sign_bit - 1)


def _pruned(rule: Instruction, other: Instruction, *row: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row without the terms that do not matter."""
    a, b, c = row
    for k in range(a.shape[1]):
        fewer = a.copy(), b.copy()
        for side in fewer:
            side[0, k] = 0
        if elements(rule, *fewer, c) != elements(other, *fewer, c):
            a, b = fewer
    return a, b, c


def powers(rng: np.random.Generator, rule: Instruction, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A few powers of two at the distances where something is cut or tied, c among them; the first `rows` of what is drawn."""
    k = 2 * rule.span
    p, f = rule.output_fraction_bits, rule.fraction_bits
    menu = np.array([0, 0, -1, -p, -p - 1, -f, -f - 1, 1 - f])
    drop = rng.choice(menu, (ROWS, k))  # (R, K)
    highest = _highest(FORMATS[rule.a]) + _highest(FORMATS[rule.b])
    top = rng.integers(0, min(max(highest - 3, 1), 30), (ROWS, 1))  # (R, 1) c stays finite
    exponent = top + drop  # (R, K)
    present = rng.random((ROWS, k)) < 3 / k  # (R, K)
    half = exponent // 2  # (R, K)
    a = _power_codes(FORMATS[rule.a], half[:rows], (rng.choice([-1.0, 1.0], (ROWS, k)) * present)[:rows])  # (rows, K)
    b = _power_codes(FORMATS[rule.b], (exponent - half)[:rows], np.ones((rows, k)))  # (rows, K)
    c_value = np.ldexp(rng.choice([-1.0, 1.0, 0.0], ROWS), top[:, 0] + rng.choice(menu, ROWS))  # (R,)
    return a, b, encode(rule.output, c_value[:rows], overflow=Overflow.SATURATE)


def tiny(rng: np.random.Generator, rule: Instruction, rows: int = ROWS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Powers of two around the smallest result and around the lowest cut there is; c zero or the smallest number. The first `rows`
    of what is drawn."""
    k = 2 * rule.span
    smallest, cut = rule.output.smallest_exponent - rule.output.mantissa_bits, rule.floor - rule.fraction_bits
    menu = np.array([smallest, smallest - 1, cut - 1, cut, cut + 1])
    exponent = rng.choice(menu, (ROWS, k))  # (R, K)
    half = exponent // 2  # (R, K)
    sign = rng.choice([-1.0, 1.0], (ROWS, k)) * (rng.random((ROWS, k)) < 3 / k)  # (R, K)
    a = _power_codes(FORMATS[rule.a], half[:rows], sign[:rows])  # (rows, K)
    b = _power_codes(FORMATS[rule.b], (exponent - half)[:rows], np.ones((rows, k)))  # (rows, K)
    return a, b, encode(rule.output, np.ldexp(rng.choice([-1.0, 1.0, 0.0], ROWS)[:rows], smallest))


def _power_codes(fmt: Format, exponent: np.ndarray, sign: np.ndarray) -> np.ndarray:
    return encode(fmt, np.ldexp(sign, np.clip(exponent, fmt.smallest_exponent - fmt.mantissa_bits, _highest(fmt))))


def _highest(fmt: Format) -> int:
    return int(np.frexp(fmt.largest)[1]) - 1


def dense(rng: np.random.Generator, rule: Instruction) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random codes, finite and not far apart, with a random c."""
    k = 2 * rule.span
    sides = []
    for name in (rule.a, rule.b):
        fmt = FORMATS[name]
        spread = min(6, _highest(fmt))
        values = rng.standard_normal((ROWS, k)) * 2.0 ** rng.integers(-spread, 2, (ROWS, k))  # (R, K)
        sides.append(encode(fmt, values))
    c = encode(rule.output, rng.standard_normal(ROWS) * 2.0 ** rng.integers(-6, 6, ROWS))  # (R,)
    return sides[0], sides[1], c


def written(rule: Instruction, other: Instruction, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> str:
    """The pair as a reader can repeat it: terms that are not zero, c, and the two results."""
    present = np.nonzero((decode(FORMATS[rule.a], a[0]) != 0) & (decode(FORMATS[rule.b], b[0]) != 0))[0]  # (terms,)
    terms = " ".join(f"k{k}:{a[0, k]:#x}*{b[0, k]:#x}" for k in present)
    ours, theirs = elements(rule, a, b, c)[0], elements(other, a, b, c)[0]
    return f"{terms or 'no product'} + {c[0]:#x} = {ours:#x}, moved: {theirs:#x}"
