"""Functions of one real number: value, running error, and the words of implementations.

A monotone function takes the ends of an interval to the ends of its image; float64 evaluates it to within `ACCURACY` of the result
(NumPy's and the C library's functions: 4 units in the last place at most), which is added to both the running error and the words.
Then comes the error of the implementation (`function_errors.py`). Functions that are not monotone are Lipschitz or have a rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends, widen_ends
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array
from bitverdict.reference.tracing.choices import absolute
from bitverdict.reference.tracing.function_errors import RESCALING_UNITS, function_error
from bitverdict.reference.tracing.results import all_finite, around, real, settle_result, underflow
from bitverdict.reference.tracing.state import Trace, operation

ACCURACY = 2.0**-50
_ERF, _ERFC = (np.frompyfunc(function, 1, 1) for function in (math.erf, math.erfc))


def erf_value(x: np.ndarray) -> np.ndarray:
    """The C library's erf."""
    return np.asarray(_ERF(x), np.float64)


def erfc_value(x: np.ndarray) -> np.ndarray:
    """The C library's erfc."""
    return np.asarray(_ERFC(x), np.float64)


RISING_FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "exp": (np.exp, -np.inf, np.inf),
    "exp2": (np.exp2, -np.inf, np.inf),
    "expm1": (np.expm1, -np.inf, np.inf),
    "log": (np.log, 0.0, np.inf),
    "log2": (np.log2, 0.0, np.inf),
    "log10": (np.log10, 0.0, np.inf),
    "log1p": (np.log1p, -1.0, np.inf),
    "sqrt": (np.sqrt, 0.0, np.inf),
    "tanh": (np.tanh, -np.inf, np.inf),
    "sinh": (np.sinh, -np.inf, np.inf),
    "asinh": (np.arcsinh, -np.inf, np.inf),
    "acosh": (np.arccosh, 1.0, np.inf),
    "atanh": (np.arctanh, -1.0, 1.0),
    "atan": (np.arctan, -np.inf, np.inf),
    "asin": (np.arcsin, -1.0, 1.0),
    "erf": (erf_value, -np.inf, np.inf),
}
"""Rising functions: value, and the ends of the domain."""
FALLING_FUNCTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], float, float]] = {
    "acos": (np.arccos, -1.0, 1.0),
    "erfc": (erfc_value, -np.inf, np.inf),
}
"""Falling functions."""


def image(
    function: Callable[..., np.ndarray], domain: tuple[float, float], low: np.ndarray, high: np.ndarray, falls: bool
) -> tuple[Ends, Any]:
    """((low, high), mask of where a part of the interval lies outside the domain, or None) of a monotone function, to ACCURACY."""
    outside = (low < domain[0]) | (high > domain[1])
    if outside.any():
        inside = outside & (high >= domain[0]) & (low <= domain[1])
        low = np.where(inside, np.clip(low, *domain), low)
        high = np.where(inside, np.clip(high, *domain), high)
    else:
        inside = None
    one = function(low)
    other = one if low is high else function(high)
    return widen_ends(*((other, one) if falls else (one, other)), ACCURACY), inside


def monotone(trace: Trace, name: str, x: TracedArray) -> TracedArray:
    """A function of RISING or FALLING."""
    falls = name in FALLING_FUNCTIONS
    function, *domain = (FALLING_FUNCTIONS if falls else RISING_FUNCTIONS)[name]
    rule = function_error(name, trace.arch)
    with np.errstate(all="ignore"):
        value = function(x.value)
        exact = _powers_of_two(name, x, value)
        error = ACCURACY * np.abs(value) if exact is None else np.where(exact, 0.0, ACCURACY * np.abs(value))
        vanishes = name in ("exp", "exp2", "erfc")  # of large arguments; others of zero
        error = error + underflow(value, np.where(np.isinf(x.value), 0.0, 1.0) if vanishes else x.value)
        unknown = None
        if x.error is not None:
            (low, high), inside = image(function, tuple(domain), *around(x.value, x.error), falls)  # type: ignore[arg-type]
            error = error + np.maximum(high - value, value - low)
            if inside is not None:
                error = np.where(inside, np.inf, error)
            error = np.where(np.isnan(error) & ~np.isnan(value), np.inf, error)
        low, high = x.ends
        if rule.takes_flushed and trace.accumulation.format != "fp64":
            low, high = _flushed_pair(trace, low, high)
        ends, unknown = image(function, tuple(domain), low, high, falls)  # type: ignore[arg-type]
        trace.note(name)
        ends = rule.apply(trace, *ends, extra=_of_argument(name, rule.argument, x))
        if name in ("exp", "exp2"):
            ends = np.maximum(ends[0], 0.0), ends[1]
        if exact is not None and name == "exp2":
            ends = np.where(exact, value, ends[0]), np.where(exact, value, ends[1])
        given = np.isinf(value) & ((x.value == domain[0]) | (x.value == domain[1])) if not all_finite(value) else None
        return settle_result(trace, value, error, ends, (x,), meets=unknown, infinite_operands=given)


def _powers_of_two(name: str, x: TracedArray, value: np.ndarray) -> np.ndarray | None:
    """Where exp2 is taken of an exact whole number, or log2 of an exact power of two; None for nowhere.

    float64 is exact there, and so is ex2.approx, by the words of all arguments (docs/special_functions.md)."""
    if x.error is not None or x.low is not None or name not in ("exp2", "log2"):
        return None
    whole = (np.floor(x.value) == x.value) & (np.abs(x.value) <= 126) if name == "exp2" else np.frexp(x.value)[0] == 0.5
    return whole if whole.any() else None


def _flushed_pair(trace: Trace, low: np.ndarray, high: np.ndarray) -> Ends:
    """Of one array one array: exact operands stay so where none is subnormal."""
    down, up = trace.accumulation.flush_ends(low, high)
    return (low, low) if down is low and up is high and low is high else (down, up)


def _of_argument(name: str, argument: float, x: TracedArray) -> np.ndarray | float:
    """Relative error, in units, that grows with the argument; `function_errors.py` derives that of exp."""
    if name not in ("exp", "exp2"):
        return 0.0
    size = exponent_magnitude(x)
    folded = np.where(np.isfinite(size), size, 0.0) * (argument if name == "exp" else 0.0)
    return folded + (RESCALING_UNITS if _is_difference(x) else 0.0)


def _is_difference(x: TracedArray) -> bool:
    if x.chain is None:
        return False
    return x.chain.kind == "sum" or any(_is_difference(factor) for factor in x.chain.operands)


def exponent_magnitude(x: TracedArray) -> np.ndarray:
    """Sum of the magnitudes of the terms of `x`, into which a factor of the exponent may be folded; (...) of its shape."""
    if x.chain is not None and x.chain.kind == "product" and _is_difference(x):
        left, right = x.chain.operands
        result: np.ndarray = exponent_magnitude(left) * exponent_magnitude(right)
        return result
    return x.magnitude


def _put(name: str) -> None:
    @operation(name)
    def function(trace: Trace, x: Operand) -> TracedArray:
        return monotone(trace, name, real(array(trace, x)))

    function.__doc__ = f"{name}(x), element by element."


for _name in (*RISING_FUNCTIONS, *FALLING_FUNCTIONS):
    _put(_name)


@operation("sin")
def sin(trace: Trace, x: Operand) -> TracedArray:
    """sin(x): its slope is at most one."""
    return _wave(trace, "sin", np.sin, x)


@operation("cos")
def cos(trace: Trace, x: Operand) -> TracedArray:
    """cos(x): its slope is at most one."""
    return _wave(trace, "cos", np.cos, x)


def _wave(trace: Trace, name: str, function: Callable[..., np.ndarray], x: Operand) -> TracedArray:
    x = real(array(trace, x))
    with np.errstate(all="ignore"):
        value = function(x.value)
        error = ACCURACY * np.abs(value) + underflow(value, x.value) + (0.0 if x.error is None else np.minimum(x.error, 2.0))
        low, high = x.ends
        reach = np.maximum(high - x.value, x.value - low) + ACCURACY if x.low is not None else ACCURACY * np.abs(value)
        ends: Ends = np.maximum(value - reach, -1.0), np.minimum(value + reach, 1.0)
        trace.note(name)
        ends = function_error(name, trace.arch).apply(trace, *ends)
        endless = np.isinf(low) | np.isinf(high)
        return settle_result(trace, value, error, ends, (x,), meets=endless if endless.any() else None)


@operation("cosh")
def cosh(trace: Trace, x: Operand) -> TracedArray:
    """cosh(x), rising with |x|."""
    return _rising_from_zero(trace, "cosh", np.cosh, absolute(trace, x))


def _rising_from_zero(trace: Trace, name: str, function: Callable[..., np.ndarray], x: TracedArray) -> TracedArray:
    with np.errstate(all="ignore"):
        value = function(x.value)
        error = ACCURACY * np.abs(value)
        if x.error is not None:
            error = error + function(around(x.value, x.error)[1]) - value
        ends, _ = image(function, (0.0, np.inf), *x.ends, False)
        trace.note(name)
        ends = function_error(name, trace.arch).apply(trace, *ends)
        return settle_result(trace, value, error, ends, (x,))


@operation("tan")
def tan(trace: Trace, x: Operand) -> TracedArray:
    """tan(x), as a quotient would have it: rising between its poles."""
    x = real(array(trace, x))
    with np.errstate(all="ignore"):
        value = np.tan(x.value)
        low, high = x.ends
        endless = np.isinf(low) | np.isinf(high)
        pole = endless | (np.floor(low / np.pi + 0.5) != np.floor(high / np.pi + 0.5))
        ends: Ends = widen_ends(np.where(pole, -np.inf, np.tan(low)), np.where(pole, np.inf, np.tan(high)), ACCURACY)
        spread = 0.0 if x.error is None else x.error * (1 + value * value) * 2
        error = ACCURACY * np.abs(value) + spread
        trace.note("tan")
        ends = function_error("tan", trace.arch).apply(trace, *ends)
        return settle_result(trace, value, error, ends, (x,), meets=endless if endless.any() else None)
