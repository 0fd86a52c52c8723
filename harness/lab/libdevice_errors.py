"""How near each function of libdevice comes on the emulated GPU, beside what NVIDIA documents.

`python -m bitverdict.harness.lab.libdevice_errors` takes every symbol of Triton's module on drawn operands. The exact results
are mpmath's, of 400 bits, rounded once. An error is the difference in units in the last place to the correctly rounded result, as
in the tables of the CUDA C++ Programming Guide ("Mathematical Functions"). Exit status 1 where one is larger than documented.
`None` says that nothing is documented for the function: its error is shown and nothing is claimed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

from bitverdict.harness.emulator.frontend.compiled_operations import compile_operation
from bitverdict.harness.lab.libdevice_words import _VALUES, _WORDS, Symbol, symbols

_DIGITS = {"f32": 24, "f64": 53}
_SMALLEST = {"f32": mpf(2) ** -126, "f64": mpf(2) ** -1022}
_LARGEST = {"f32": mpf(2) ** 128, "f64": mpf(2) ** 1024}
_ROUNDING_NAMES = {"rn": "n", "rz": "d", "rd": "f", "ru": "c"}  # libdevice's names -> mpmath's
Bound = int | None | Callable[..., float]


@dataclass(frozen=True)
class Function:
    """A function of libdevice: its exact value, what is documented of fp32 and fp64 (units in the last place, or a rule on the
    operands), and which operands it is asked for."""

    exact: Callable[..., Any]
    fp32: Bound
    fp64: Bound
    draw: str = "real"


def _cbrt(x: mpf) -> mpf:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


def _norm(*values: mpf) -> mpf:
    return mpmath.sqrt(sum(value * value for value in values))


def _erfinv(x: mpf) -> mpf:
    with mp.workprec(120):
        return mpmath.erfinv(x)


def _bessel(function: Callable, order: int) -> Callable:
    def value(x: mpf) -> mpf:
        with mp.workprec(200):
            return function(order, x)

    return value


def _of_order(function: Callable) -> Callable:
    def value(n: int, x: mpf) -> mpf:
        with mp.workprec(200):
            return function(n, x)

    return value


def _nearest_even(x: mpf) -> int:
    """To the nearest integer, ties to the even one."""
    return int(mpmath.nint(x))


def _round_away(x: mpf) -> int:
    return int(mpmath.sign(x) * mpmath.floor(abs(x) + mpf("0.5")))


def _remainder(x: mpf, y: mpf) -> mpf:
    return x - y * _nearest_even(x / y)


def _modulo(x: mpf, y: mpf) -> mpf:
    return mpmath.sign(x) * mpmath.fmod(abs(x), abs(y))


def _beyond(units: int) -> Bound:
    """So many outside [0.5, 2]; inside only an absolute error is documented."""
    return lambda x: np.inf if 0.5 <= x <= 2 else units


FUNCTIONS = {
    "rsqrt": Function(lambda x: 1 / mpmath.sqrt(x), 2, 1, "positive"), "sqrt": Function(mpmath.sqrt, 1, 0, "positive"),
    "cbrt": Function(_cbrt, 1, 1), "rcbrt": Function(lambda x: 1 / _cbrt(x), 1, 1), "hypot": Function(_norm, 3, 2),
    "rhypot": Function(lambda *v: 1 / _norm(*v), 2, 1), "norm3d": Function(_norm, 3, 2), "norm4d": Function(_norm, 3, 2),
    "rnorm3d": Function(lambda *v: 1 / _norm(*v), 2, 1), "rnorm4d": Function(lambda *v: 1 / _norm(*v), 2, 1),
    "exp": Function(mpmath.exp, 2, 1), "exp2": Function(lambda x: mpf(2) ** x, 2, 1),
    "exp10": Function(lambda x: mpf(10) ** x, 2, 1),
    "expm1": Function(mpmath.expm1, 1, 1), "log": Function(mpmath.log, 1, 1, "positive"),
    "log2": Function(lambda x: mpmath.log(x, 2), 1, 1, "positive"), "log10": Function(mpmath.log10, 2, 1, "positive"),
    "log1p": Function(mpmath.log1p, 1, 1, "positive"), "sin": Function(mpmath.sin, 2, 2, "far"),
    "cos": Function(mpmath.cos, 2, 2, "far"), "tan": Function(mpmath.tan, 4, 2, "far"), "sinpi": Function(mpmath.sinpi, 1, 2),
    "cospi": Function(mpmath.cospi, 1, 2), "asin": Function(mpmath.asin, 2, 2, "unit"), "acos": Function(mpmath.acos, 2, 2, "unit"),
    "atan": Function(mpmath.atan, 2, 2), "atan2": Function(mpmath.atan2, 3, 2), "sinh": Function(mpmath.sinh, 3, 2),
    "cosh": Function(mpmath.cosh, 2, 1), "tanh": Function(mpmath.tanh, 2, 1), "asinh": Function(mpmath.asinh, 3, 3),
    "acosh": Function(mpmath.acosh, 4, 3, "positive"), "atanh": Function(mpmath.atanh, 3, 2, "unit"),
    "pow": Function(lambda x, y: x**y, 4, 2, "positive"), "powi": Function(lambda x, n: x**n, None, None),
    "erf": Function(mpmath.erf, 2, 2), "erfc": Function(mpmath.erfc, 4, 5), "erfinv": Function(_erfinv, 2, 5, "unit"),
    "erfcinv": Function(lambda x: _erfinv(1 - x), 4, 6, "probability"),
    "erfcx": Function(lambda x: mpmath.exp(x * x) * mpmath.erfc(x), 4, 4),
    "normcdf": Function(lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2, 5, 5),
    "normcdfinv": Function(lambda x: mpmath.sqrt(2) * _erfinv(2 * x - 1), 5, 8, "probability"),
    "lgamma": Function(lambda x: mpmath.log(abs(mpmath.gamma(x))), lambda x: 6 if not -10.001 < x < -2.264 else np.inf,
                       lambda x: 4 if not -23.0001 < x < -2.2637 else np.inf),
    "tgamma": Function(mpmath.gamma, 5, 10), "fma": Function(lambda x, y, z: x * y + z, 0, 0),
    "ldexp": Function(lambda x, n: x * mpf(2) ** n, 0, 0), "scalbn": Function(lambda x, n: x * mpf(2) ** n, 0, 0),
    "logb": Function(lambda x: mpmath.floor(mpmath.log(abs(x), 2)), 0, 0),
    "ilogb": Function(lambda x: int(mpmath.floor(mpmath.log(abs(x), 2))), 0, 0),
    "j0": Function(_bessel(mpmath.besselj, 0), 9, 7, "near"), "j1": Function(_bessel(mpmath.besselj, 1), 9, 7, "near"),
    "y0": Function(_bessel(mpmath.bessely, 0), 9, 7, "near"), "y1": Function(_bessel(mpmath.bessely, 1), 9, 7, "near"),
    "jn": Function(_of_order(mpmath.besselj), None, None, "order"),
    "yn": Function(_of_order(mpmath.bessely), lambda n, x: ceil(2 + 2.5 * n) if abs(x) < n else np.inf,
                   lambda n, x: ceil(2 + 2.5 * n) if abs(x) < n else np.inf, "order"),
    "cyl_bessel_i0": Function(_bessel(mpmath.besseli, 0), 6, 6, "near"),
    "cyl_bessel_i1": Function(_bessel(mpmath.besseli, 1), 6, 6, "near"),
    "fmod": Function(_modulo, 0, 0), "remainder": Function(_remainder, 0, 0),
    "fdim": Function(lambda x, y: max(x - y, mpf(0)), 0, 0),
    "floor": Function(mpmath.floor, 0, 0), "ceil": Function(mpmath.ceil, 0, 0), "round": Function(_round_away, 0, 0),
    "trunc": Function(lambda x: int(x), 0, 0), "rint": Function(_nearest_even, 0, 0), "nearbyint": Function(_nearest_even, 0, 0),
    "llrint": Function(_nearest_even, 0, 0), "llround": Function(_round_away, 0, 0),
    "abs": Function(abs, 0, 0), "fabs": Function(abs, 0, 0),
    "fast_sin": Function(mpmath.sin, None, None), "fast_cos": Function(mpmath.cos, None, None),
    "fast_tan": Function(mpmath.tan, None, None),
    "fast_log2": Function(lambda x: mpmath.log(x, 2), _beyond(2), None, "positive"),
    "fast_log": Function(mpmath.log, _beyond(3), None, "positive"),
    "fast_log10": Function(mpmath.log10, _beyond(3), None, "positive"),
    "fast_exp": Function(mpmath.exp, lambda x: 2 + floor(abs(1.173 * x)), None),
    "fast_exp10": Function(lambda x: mpf(10) ** x, lambda x: 2 + floor(abs(2.97 * x)), None),
    "fast_pow": Function(lambda x, y: x**y, None, None, "positive"), "fast_fdivide": Function(lambda x, y: x / y, 2, None),
    "saturate": Function(lambda x: min(max(x, mpf(0)), mpf(1)), 0, 0),
    "copysign": Function(lambda x, y: abs(x) * mpmath.sign(y), 0, 0),
    "frsqrt_rn": Function(lambda x: 1 / mpmath.sqrt(x), 0, 0, "positive"),
}  # fmt: skip
"""By name without `__nv_` and the `f` of fp32. Errors: CUDA C++ Programming Guide, tables of standard and intrinsic functions."""


def _bits(word: int, width: int) -> int:
    return word & (1 << width) - 1


def _permute_bytes(a: int, b: int, selector: int) -> int:
    octets = (_bits(b, 32) << 32 | _bits(a, 32)).to_bytes(8, "little")
    return int.from_bytes(bytes(octets[selector >> 4 * i & 7] for i in range(4)), "little")


INTEGER_FUNCTIONS: dict[str, Callable[..., int]] = {
    "clz": lambda a: 32 - _bits(a, 32).bit_length(), "clzll": lambda a: 64 - _bits(a, 64).bit_length(),
    "popc": lambda a: _bits(a, 32).bit_count(), "popcll": lambda a: _bits(a, 64).bit_count(),
    "brev": lambda a: int(f"{_bits(a, 32):032b}"[::-1], 2), "brevll": lambda a: int(f"{_bits(a, 64):064b}"[::-1], 2),
    "ffs": lambda a: (a & -a).bit_length(), "ffsll": lambda a: (a & -a).bit_length(), "byte_perm": _permute_bytes,
    "mulhi": lambda a, b: a * b >> 32,
    "umulhi": lambda a, b: _bits(a, 32) * _bits(b, 32) >> 32,
    "mul64hi": lambda a, b: a * b >> 64,
    "umul64hi": lambda a, b: _bits(a, 64) * _bits(b, 64) >> 64,
    "mul24": lambda a, b: ((_bits(a, 24) ^ 1 << 23) - (1 << 23)) * ((_bits(b, 24) ^ 1 << 23) - (1 << 23)),
    "umul24": lambda a, b: _bits(a, 24) * _bits(b, 24), "sad": lambda a, b, c: abs(a - b) + c,
    "usad": lambda a, b, c: abs(_bits(a, 32) - _bits(b, 32)) + c, "abs": abs, "llabs": abs, "hadd": lambda a, b: a + b >> 1,
    "uhadd": lambda a, b: _bits(a, 32) + _bits(b, 32) >> 1, "rhadd": lambda a, b: a + b + 1 >> 1,
    "urhadd": lambda a, b: _bits(a, 32) + _bits(b, 32) + 1 >> 1,
}  # fmt: skip
"""Functions of integers alone."""

WORDS: dict[str, Callable[..., Any]] = {
    "int_as_float": lambda a: a, "uint_as_float": lambda a: a, "float_as_int": lambda a: a, "float_as_uint": lambda a: a,
    "longlong_as_double": lambda a: a, "double_as_longlong": lambda a: a, "double2loint": lambda a: a & 0xFFFFFFFF,
    "double2hiint": lambda a: a >> 32, "hiloint2double": lambda a, b: a << 32 | b, "signbitf": lambda a: a >> 31,
    "signbitd": lambda a: a >> 63, "isnanf": lambda a: _bits(a, 31) > 0x7F800000, "isinff": lambda a: _bits(a, 31) == 0x7F800000,
    "isnand": lambda a: _bits(a, 63) > 0x7FF << 52, "isinfd": lambda a: _bits(a, 63) == 0x7FF << 52,
    "finitef": lambda a: _bits(a, 31) < 0x7F800000, "isfinited": lambda a: _bits(a, 63) < 0x7FF << 52,
    "nextafterf": lambda *words: _next_normal(*(word if _bits(word, 31) >= 1 << 23 else word & 1 << 31 for word in words)),
    "nextafter": lambda a, b: _next_after(a, b, 64),
}  # fmt: skip
"""Functions of words, as words."""


def _next_after(a: int, b: int, width: int) -> int:
    dtype: Any = {32: np.float32, 64: np.float64}[width]
    word: Any = {32: np.uint32, 64: np.uint64}[width]
    with np.errstate(invalid="ignore"):
        return int(np.nextafter(word(a).view(dtype), word(b).view(dtype)).view(word))


def _next_normal(a: int, b: int) -> int:
    """Of fp32 the number next to zero is the smallest normal one: libdevice flushes the others."""
    if a << 1 & 0xFFFFFFFF or _bits(b, 31) > 0x7F800000:
        return _next_after(a, b, 32)
    return b & 1 << 31 | (1 << 23 if b << 1 & 0xFFFFFFFF else 0)


_CONVERSION = re.compile(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_(r[nzdu])$")
_DIRECTED_NAME = re.compile(r"[fd]?(fma|fmaf|add|sub|mul|div|rcp|sqrt)_(r[nzdu])$")


_WHOLE_NUMBERS: dict[str, Callable[[mpf], int]] = {
    "rn": _nearest_even,
    "rz": int,
    "rd": lambda x: int(mpmath.floor(x)),
    "ru": lambda x: int(mpmath.ceil(x)),
}


def exact_value(symbol: Symbol, arguments: tuple[Any, ...]) -> tuple[Any, Bound] | None:
    """The exact result of a function of reals, rounded by its name where that says so, and what is documented; None: not here."""
    name = symbol.name.removeprefix("__nv_")
    result = _element(symbol)
    if name_match := _CONVERSION.match(name):
        if name_match[1] in ("uint", "ull"):
            arguments = (_bits(arguments[0], 32 if name_match[1] == "uint" else 64),)
        if result in _DIGITS:
            return mp.fadd(arguments[0], 0, prec=_DIGITS[result], rounding=_ROUNDING_NAMES[name_match[3]]), 0
        return _WHOLE_NUMBERS[name_match[3]](arguments[0]), 0
    if name_match := _DIRECTED_NAME.match(name):
        how = {"prec": _DIGITS[result], "rounding": _ROUNDING_NAMES[name_match[2]]}
        kind = name_match[1]
        if kind.startswith("fma"):
            return mp.fadd(mp.fmul(arguments[0], arguments[1], exact=True), arguments[2], **how), 0
        if kind == "sqrt":
            return mpmath.sqrt(arguments[0], **how), 0
        if kind == "rcp":
            return mp.fdiv(1, arguments[0], **how), 0
        return {"add": mp.fadd, "sub": mp.fsub, "mul": mp.fmul, "div": mp.fdiv}[kind](*arguments, **how), 0
    if (function := _function(name)) is None:
        return None
    fp32 = "f32" in (result, symbol.elements[-1], symbol.elements[0])
    return function.exact(*arguments), function.fp32 if fp32 else function.fp64


def _function(name: str) -> Function | None:
    return FUNCTIONS.get(name) or FUNCTIONS.get(name.removesuffix("f"))


def has_exact_function(symbol: Symbol) -> bool:
    """Whether there is an exact function for `symbol` here."""
    name = symbol.name.removeprefix("__nv_")
    return bool(
        name in INTEGER_FUNCTIONS or name in WORDS or _CONVERSION.match(name) or _DIRECTED_NAME.match(name) or _function(name)
    )


def _element(symbol: Symbol) -> str:
    return {"fp32": "f32", "fp64": "f64", "int32": "i32", "uint32": "i32", "int64": "i64", "uint64": "i64"}[symbol.result]


def operands(symbol: Symbol, count: int) -> list[np.ndarray]:
    """Values [count] of each operand, in the domain of the function."""
    rng = np.random.default_rng(len(symbol.name) + count)
    name = symbol.name.removeprefix("__nv_")
    function = _function(name)
    draw = function.draw if function else "positive" if "sqrt" in name else "real"
    values = []
    for number, element in enumerate(symbol.elements):
        scale = np.exp(rng.uniform(-4, 4, count))  # (count,)
        real = rng.standard_normal(count) * scale  # (count,)
        if element[0] == "i":
            if draw == "order":
                drawn: np.ndarray = rng.integers(0, 12, count)
            elif name.startswith(("ldexp", "scalbn", "pow")):
                drawn = rng.integers(-20, 20, count)
            else:
                drawn = rng.integers(-(1 << 62), 1 << 62, count) >> rng.integers(0, 60, count)
        elif draw == "unit":
            drawn = np.tanh(real)
        elif draw == "probability":
            drawn = 1 / (1 + np.exp(-real.clip(-15, 15)))
        elif draw in ("positive", "order") or draw == "near":
            drawn = np.abs(real) if draw != "near" else np.abs(real) % 8 + 1e-3
            if draw == "positive" and number:
                drawn = real.clip(-20, 20)
        elif draw == "far":
            drawn = real * np.exp(rng.uniform(0, 60, count) * (rng.random(count) < 0.3))
        else:
            drawn = real
        if name.startswith("acosh"):
            drawn = drawn + 1
        if name.startswith(("float2u", "double2u")):
            drawn = np.abs(drawn)
        values.append(np.asarray(drawn).astype(_VALUES[element]))
    return values


@dataclass
class ErrorMeasurement:
    """The greatest error of a symbol (units in the last place; integers: differences), where, and what is documented there."""

    symbol: str
    error: float = 0.0
    documented_error: float | None = None
    operands_text: str = ""
    excess_count: int = 0


def measure(symbol: Symbol, count: int, arch: str) -> ErrorMeasurement:
    """One symbol on `count` operands."""
    with mp.workprec(400):
        return _measure(symbol, count, arch)


def _measure(symbol: Symbol, count: int, arch: str) -> ErrorMeasurement:
    name = symbol.name.removeprefix("__nv_")
    integral = not any(kind[0] == "f" for kind in symbol.elements) and name in INTEGER_FUNCTIONS
    arguments = [words.view(_VALUES[kind]) for words, kind in zip(symbol.words(count), symbol.elements, strict=True)]
    if not integral and name not in WORDS:
        arguments = operands(symbol, count)
    with np.errstate(all="ignore"):
        results = compile_operation(symbol.operation, arch, True)(*arguments)
    measurement = ErrorMeasurement(symbol.name)
    result = _element(symbol)
    for number in range(count):
        row = [operand[number] for operand in arguments]
        bound: Bound = 0
        if integral:
            want: Any = _bits(INTEGER_FUNCTIONS[name](*(int(operand) for operand in row)), 8 * results.itemsize)
            error = abs(want - _bits(int(results[number]), 8 * results.itemsize))
        elif name in WORDS:
            want = int(WORDS[name](*(int(operand.view(_WORDS[kind])) for operand, kind in zip(row, symbol.elements, strict=True))))
            error = (
                0
                if results[number] != results[number] and _is_nan(want, result)
                else abs(want - int(results[number].view(_WORDS[result])))
            )
        else:
            values = tuple(mpf(float(operand)) if operand.dtype.kind == "f" else int(operand) for operand in row)
            found = exact_value(symbol, values)
            if found is None:
                measurement.documented_error, measurement.operands_text = None, "no exact function is known here"
                return measurement
            want, bound = found
            error = _error(results[number], want, result)
        documented = bound(*(float(operand) for operand in row)) if callable(bound) else bound
        if documented is not None and documented != np.inf and error > documented:
            measurement.excess_count += 1
        if error >= measurement.error and documented != np.inf:
            measurement.error, measurement.documented_error = error, documented
            measurement.operands_text = ", ".join(str(operand) for operand in row)
    return measurement


def _is_nan(word: int, result: str) -> bool:
    infinity = {"f32": 0xFF << 23, "f64": 0x7FF << 52}[result]
    return _bits(word, 8 * np.dtype(_WORDS[result]).itemsize - 1) > infinity


def _error(actual: Any, want: Any, result: str) -> float:
    """In units in the last place of the result's format, to the correctly rounded `want`."""
    if result[0] == "i":
        return float(abs(int(actual) - int(want)))
    want = mp.fadd(want, 0, prec=_DIGITS[result], rounding="n")
    if abs(want) < _SMALLEST[result]:
        return 0.0 if abs(mpf(float(actual))) <= _SMALLEST[result] else np.inf  # subnormal: .ftz may have flushed it
    if abs(want) >= _LARGEST[result]:
        return 0.0 if np.isinf(actual) else 1.0
    if not np.isfinite(actual):
        return np.inf
    unit = mpf(2) ** (int(mpmath.floor(mpmath.log(abs(want), 2))) - _DIGITS[result] + 1)
    return float(abs(mpf(float(actual)) - want) / unit)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=300, help="operands of each symbol")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("symbols", nargs="*", help="all unless said")
    given = parser.parse_args(arguments)
    wrong_count, silent = 0, 0
    for name in given.symbols or sorted(symbols()):
        measured = measure(symbols()[name], given.count, given.arch)
        wrong_count += measured.excess_count > 0
        silent += measured.documented_error is None
        note = f"  {measured.excess_count} above what is documented" if measured.excess_count else ""
        print(f"{name:28} {measured.error:10.3g} of {measured.documented_error}{note}  {measured.operands_text[:60]}", flush=True)
    print(f"{wrong_count} symbols above what is documented, {silent} of which nothing is documented")
    return int(wrong_count > 0)


if __name__ == "__main__":
    sys.exit(main())
