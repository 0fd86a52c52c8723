"""Instructions of PTX on floats by their definition: exact rational arithmetic, one rounding an instruction (PTX ISA, 9.7.3
and 9.7.4)."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import reduce
from math import ceil, floor, isqrt, trunc

import numpy as np

FORMS = {"f16": (16, 11, -14), "bf16": (16, 8, -126), "f32": (32, 24, -126), "f64": (64, 53, -1022)}
"""Bits, bits of significand, exponent of the smallest normal number."""


NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FF8000000000000}


def value(word: int, form: str) -> Fraction | float:
    """What `word` stands for: a Fraction, or a float for infinities, NaN and -0."""
    bits, precision, low = FORMS[form]
    sign = -1 if word >> (bits - 1) else 1
    magnitude = word & ((1 << (bits - 1)) - 1)
    exponent, fraction = magnitude >> (precision - 1), magnitude & ((1 << (precision - 1)) - 1)
    if exponent == (1 << (bits - precision)) - 1:
        return float("nan") if fraction else sign * float("inf")
    if magnitude == 0:
        return Fraction(0) if sign > 0 else -0.0
    hidden = (1 << (precision - 1)) if exponent else 0
    return sign * Fraction(hidden + fraction) * Fraction(2) ** (max(exponent, 1) - 1 + low - precision + 1)


def rounded(exact: Fraction, form: str, *, negative_zero: bool = False, nearest: bool = True) -> int:
    """The word nearest to `exact`, ties to the even one; beyond the largest an infinity. Toward zero where not `nearest`."""
    bits, precision, low = FORMS[form]
    if exact == 0:
        return 1 << (bits - 1) if negative_zero else 0
    sign, size = (1 << (bits - 1) if exact < 0 else 0), abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if Fraction(2) ** exponent > size:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, low) - precision + 1)
    units = round(size / unit) if nearest else size // unit  # Python rounds a Fraction's half to even
    field = (max(exponent, low) - low) * (1 << (precision - 1)) + units  # a carry moves on into the exponent
    infinity = ((1 << (bits - precision)) - 1) << (precision - 1)
    return sign | min(field, infinity if nearest else infinity - 1)


def flushed(word: int, form: str) -> int:
    """A subnormal `word` as a zero of its sign (.ftz)."""
    bits, precision, _ = FORMS[form]
    magnitude = word & ((1 << (bits - 1)) - 1)
    return word - magnitude if magnitude < 1 << (precision - 1) else word


def _special(a: Fraction | float) -> bool:
    return isinstance(a, float) and a != 0


def _below(a: Fraction | float) -> bool:
    """Whether the sign of `a` is set."""
    return bool(np.signbit(a)) if isinstance(a, float) else a < 0


def _size(a: Fraction | float) -> np.float64:
    """`a` where it is special, else a number of its sign that is zero where it is."""
    return np.float64(a) if _special(a) else np.float64((a > 0) - (a < 0))


def multiply_add(a: int, b: int | None, c: int | None, form: str, *, nearest: bool = True) -> int:
    """a * b + c, rounded once; without b the sum a + c, without c the product."""
    x, y, z = value(a, form), 1 if b is None else value(b, form), None if c is None else value(c, form)
    if any(_special(each) for each in (x, y, z)):
        with np.errstate(all="ignore"):
            found = _size(x) * _size(y) + (np.float64(0) if z is None or not _special(z) else np.float64(z))
        if np.isnan(found):
            return NAN[form]
        bits, precision, _ = FORMS[form]
        return (1 << (bits - 1) if found < 0 else 0) | ((1 << (bits - precision)) - 1) << (precision - 1)
    exact = Fraction(x) * Fraction(y) + Fraction(0 if z is None else z)
    if exact:
        return rounded(exact, form, nearest=nearest)
    both_below = _below(x) != _below(y) and (z is None or (z == 0 and _below(z)))  # a zero keeps the sign that all of it has
    return rounded(exact, form, negative_zero=both_below)


def narrowed_nan(word: int) -> int:
    """cvt.f32.f64 of a NaN: quiet, with its sign and what fits of its payload (words of an H100)."""
    return word >> 32 & 1 << 31 | 0x7FC00000 | word >> 29 & (1 << 22) - 1


def quotient(a: int, b: int, form: str, *, nearest: bool = True) -> int:
    """a / b, rounded once."""
    x, y = value(a, form), value(b, form)
    negative = _below(x) != _below(y)
    infinite = [_special(each) and each == each for each in (x, y)]
    if any(each != each for each in (x, y)) or all(infinite) or (x == 0 and y == 0):
        return NAN[form]
    bits, precision, _ = FORMS[form]
    if infinite[0] or y == 0:
        return negative << (bits - 1) | ((1 << (bits - precision)) - 1) << (precision - 1)
    if infinite[1] or x == 0:
        return negative << (bits - 1)
    return rounded(Fraction(x) / Fraction(y), form, negative_zero=negative, nearest=nearest)


def root(a: int, form: str, *, nearest: bool = True) -> int:
    """The square root of a, rounded once."""
    x = value(a, form)
    if x == 0 or (_special(x) and x > 0):
        return a
    if x != x or x < 0:
        return NAN[form]
    scaled = Fraction(x) * Fraction(4) ** 700  # at least 2^300: its root has far more bits than any form
    low = isqrt(scaled.numerator // scaled.denominator)
    exact = low * low == scaled
    return rounded(Fraction(2 * low + (0 if exact else 1), 2) / 2**700, form, nearest=nearest)


def whole(word: int, form: str, mode: str) -> int:
    """A float of no fraction: downward (rmi), upward (rpi), toward zero (rzi), to nearest even (rni)."""
    x = value(word, form)
    if x != x:
        return NAN[form]
    if _special(x) or x == 0:
        return word
    found = {"rmi": floor, "rpi": ceil, "rzi": trunc, "rni": round}[mode](Fraction(x))
    return rounded(Fraction(found), form, negative_zero=_below(x))


def to_integer(word: int, form: str, bits: int, *, signed: bool, mode: str = "rzi") -> int:
    """cvt to an integer of `bits`: clamped to its range, NaN to zero, as a word."""
    x = value(word, form)
    least, most = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if x != x:
        return 0
    if _special(x):
        found = most if x > 0 else least
    else:
        found = min(max({"rmi": floor, "rpi": ceil, "rzi": trunc, "rni": round}[mode](Fraction(x)), least), most)
    return found & ((1 << bits) - 1)


def least_or_most(a: int, b: int, form: str, *, most: bool, keep_nan: bool) -> int:
    """min and max: -0 lies below +0; a NaN is left out, or kept (.NaN)."""
    x, y = value(a, form), value(b, form)
    lost = [isinstance(each, float) and each != each for each in (x, y)]
    if any(lost):
        return NAN[form] if keep_nan or all(lost) else (b if lost[0] else a)
    if x == y:
        negative = [bool(word >> (FORMS[form][0] - 1)) for word in (a, b)]
        return a if negative[0] != most else b
    return a if (x > y) == most else b


def conversion(parts: list[str]) -> Callable[[int], int]:
    """What a cvt that is no plain move computes on a word. NotImplementedError for one that is not known."""
    into, source, modifiers = parts[-2], parts[-1], set(parts[1:-2])
    mode = next((m for m in ("rmi", "rpi", "rzi", "rni") if m in modifiers), None)
    flush = "ftz" in modifiers
    if modifiers - {"rn", "rz", "ftz", mode}:
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    if source in FORMS and into == source and mode:
        return lambda w: whole(flushed(w, source) if flush else w, source, mode)
    if source in FORMS and into in FORMS and not mode and (modifiers or FORMS[into][1] > FORMS[source][1]):
        return lambda w: converted(flushed(w, source) if flush else w, source, into, nearest="rz" not in modifiers)
    if source in FORMS and into not in FORMS and mode:
        return lambda w: to_integer(flushed(w, source) if flush else w, source, bits_of(into), signed=into[0] == "s", mode=mode)
    if source not in FORMS and into in FORMS and modifiers & {"rn", "rz"}:
        top = 1 << (bits_of(source) - 1) if source[0] == "s" else 0
        return lambda w: rounded(Fraction((w ^ top) - top), into, nearest="rn" in modifiers)
    raise NotImplementedError(f"PTX: {'.'.join(parts)}")


def converted(word: int, source: str, into: str, *, nearest: bool = True) -> int:
    """cvt between floats."""
    held = value(word, source)
    if isinstance(held, float) and held != held:
        return narrowed_nan(word) if (source, into) == ("f64", "f32") else NAN[into]
    bits, precision, _ = FORMS[into]
    if _special(held):
        return (1 << (bits - 1) if held < 0 else 0) | ((1 << (bits - precision)) - 1) << (precision - 1)
    return rounded(Fraction(held), into, negative_zero=_below(held), nearest=nearest)


def instruction(parts: list[str], form: str) -> Callable[..., int]:
    """What the float instruction whose opcode has `parts` computes on words of `form`. NotImplementedError for a modifier or an
    opcode that is not known."""
    kind, modifiers = parts[0], [m for m in parts[1:] if m not in (form, f"{form}x2")]
    known = {"ftz", "NaN"} if kind in ("min", "max") else {"rn", "rz", "ftz"}
    if set(modifiers) - known:
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    top, nearest = 1 << (FORMS[form][0] - 1), "rz" not in modifiers
    table: dict[str, Callable[..., int]] = {
        "add": lambda a, b: multiply_add(a, None, b, form, nearest=nearest),
        "sub": lambda a, b: multiply_add(a, None, b ^ top, form, nearest=nearest),
        "mul": lambda a, b: multiply_add(a, b, None, form, nearest=nearest),
        "fma": lambda a, b, c: multiply_add(a, b, c, form, nearest=nearest),
        "div": lambda a, b: quotient(a, b, form, nearest=nearest),
        "sqrt": lambda a: root(a, form, nearest=nearest),
        "neg": lambda a: a ^ top,
        "abs": lambda a: a & ~top,
        "min": lambda *words: reduce(lambda a, b: least_or_most(a, b, form, most=False, keep_nan="NaN" in modifiers), words),
        "max": lambda *words: reduce(lambda a, b: least_or_most(a, b, form, most=True, keep_nan="NaN" in modifiers), words),
    }
    if kind not in table or (kind in ("div", "sqrt") and not {"rn", "rz"} & set(modifiers)):
        raise NotImplementedError(f"PTX: {'.'.join(parts)}")
    run = table[kind]
    if "ftz" not in modifiers:
        return run
    return lambda *words: flushed(run(*(flushed(w, form) for w in words)), form)


def bits_of(typed: str) -> int:
    return 1 if typed == "pred" else int(re.sub(r"\D", "", typed.removesuffix("x2"))) * (2 if typed.endswith("x2") else 1)


def compare(x: Fraction | float, y: Fraction | float, how: str) -> bool:
    lost = any(isinstance(each, float) and each != each for each in (x, y))
    if how in ("num", "nan"):
        return lost == (how == "nan")
    if lost:
        return how.endswith("u")
    plain = how.removesuffix("u")
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[plain]
