"""Functions of real values: NumPy's in float64, to within the bound on them, and how far an error of the argument spreads.

NumPy computes float64 functions by the C library or by its own vector code, to within 4 units in the last place (NEP 38; Intel SVML
"LA"; glibc's manual, "Errors in Math Functions", lists 1 to 2 for those used here). The error functions are PyTorch's, of
Sleef's "u10" and "u15" (1.0 and 1.5 units).
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, log, pi, sqrt
from typing import Any

import numpy as np

from bitverdict.harness.emulator.numerics.real_values import (
    EXTREMES,
    LEAST,
    UNIT,
    Real,
    TileValue,
    absolute,
    add,
    divide,
    errors_of,
    fma,
    multiply,
    special,
    square_root,
    subtract,
)

ULPS = 8  # units of roundoff, of which one in the last place has two
Spread = Callable[[Any, Any, Any], Any]  # (value, argument, its error) -> by how much the value may move


def _function(
    f: Callable[..., Any], spread: Spread, near_pole: Callable[[Any, Any], Any] | None = None, *, fades: bool = False
) -> Callable[[Real], Real]:
    """`f` as a function of Reals. `near_pole` (argument, error): where the argument may lie on both sides of a pole or an end.
    `fades`: its zeros are underflow, but that of an infinity."""

    def run(a: Real) -> Real:
        value = f(a.value)
        error = np.abs(value) * (ULPS * UNIT)
        if (low := np.abs(value) < 2.0**-1000).any():
            error = error + np.where(low & np.isfinite(a.value) & ((value != 0) | fades), LEAST, 0.0)
        if a.error is not None:
            error = error + spread(value, a.value, a.error)
        if isfinite(np.add.reduce(error, None)):
            return Real(value, error)
        known = np.isfinite(errors_of(a))
        if a.error is not None and near_pole is not None:
            known = known & ((a.error == 0) | ~near_pole(a.value, a.error))
            error = np.where(known | np.isnan(error), error, np.inf)
        error = error if a.error is None else np.where((a.error == 0) & np.isnan(error), np.abs(value) * (ULPS * UNIT), error)
        return special(value, error, known)

    return run


def _at_zero(x: np.ndarray, e: np.ndarray) -> Any:
    return np.abs(x) <= e


def _reaches_one(x: np.ndarray, e: np.ndarray) -> Any:
    return np.abs(1 - np.abs(x)) <= e


def _circular(value: TileValue, x: np.ndarray, e: np.ndarray) -> Any:
    return e / np.sqrt(1 - (np.abs(x) + e) ** 2)


def _torch(name: str) -> Callable[[Any], np.ndarray]:
    def run(values: TileValue) -> np.ndarray:
        import torch

        array = np.asarray(values, np.float64)
        return getattr(torch.special, name)(torch.from_numpy(np.array(array))).numpy()

    return run


def _cube_root(x: np.ndarray, e: np.ndarray) -> Any:
    return e / (3 * np.cbrt(np.maximum(np.abs(x) - e, 0)) ** 2)


def _logarithm(scale: float, offset: float = 0.0) -> Spread:
    return lambda value, x, e: -np.log1p(-e / (x + offset)) * scale


def _lipschitz(most: float) -> Spread:
    return lambda value, x, e: e * most


def _tangent(value: np.ndarray, x: np.ndarray, e: np.ndarray) -> Any:
    """sec^2 at most doubles while e sec^2 (1 + |tan|) is below 1/8."""
    slope = 1 + value * value
    return np.where(e * slope * (1 + np.abs(value)) < 0.125, 2 * slope * e, np.inf)


_LN2, _LN10 = log(2), log(10)

_FUNCTIONS: dict[str, Callable[[Real], Real]] = {
    "exp": _function(np.exp, lambda value, x, e: value * np.expm1(e), fades=True),
    "exp2": _function(np.exp2, lambda value, x, e: value * np.expm1(e * _LN2), fades=True),
    "exp10": _function(lambda x: np.power(10.0, x), lambda value, x, e: value * np.expm1(e * _LN10), fades=True),
    "expm1": _function(np.expm1, lambda value, x, e: (value + 1) * np.expm1(e)),
    "log": _function(np.log, _logarithm(1.0), _at_zero),
    "log2": _function(np.log2, _logarithm(1 / _LN2), _at_zero),
    "log10": _function(np.log10, _logarithm(1 / _LN10), _at_zero),
    "log1p": _function(np.log1p, _logarithm(1.0, 1.0), lambda x, e: _at_zero(x + 1, e)),
    "sin": _function(np.sin, _lipschitz(1.0)),
    "cos": _function(np.cos, _lipschitz(1.0)),
    "tan": _function(np.tan, _tangent),
    "atan": _function(np.arctan, _lipschitz(1.0)),
    "asin": _function(np.arcsin, _circular, _reaches_one),
    "acos": _function(np.arccos, _circular, _reaches_one),
    "sinh": _function(np.sinh, lambda value, x, e: e * np.cosh(np.abs(x) + e)),
    "cosh": _function(np.cosh, lambda value, x, e: e * np.cosh(np.abs(x) + e)),
    "tanh": _function(np.tanh, _lipschitz(1.0)),
    "asinh": _function(np.arcsinh, _lipschitz(1.0)),
    "acosh": _function(np.arccosh, lambda value, x, e: e / np.sqrt((x - e) ** 2 - 1), lambda x, e: np.abs(x - 1) <= e),
    "atanh": _function(np.arctanh, lambda value, x, e: e / (1 - (np.abs(x) + e) ** 2), _reaches_one),
    "rsqrt": _function(lambda x: 1 / np.sqrt(x), lambda value, x, e: 0.5 * e / np.sqrt(x - e) ** 3, _at_zero),
    "cbrt": _function(np.cbrt, lambda value, x, e: _cube_root(x, e), _at_zero),
    "erf": _function(_torch("erf"), _lipschitz(2 / sqrt(pi))),
    "erfc": _function(_torch("erfc"), _lipschitz(2 / sqrt(pi)), fades=True),
    "normcdf": _function(_torch("ndtr"), _lipschitz(1 / sqrt(2 * pi)), fades=True),
}  # fmt: skip


def _step_function(step: Callable[[Any], Any]) -> Callable[[Real], Real]:
    """A function that is constant but for its steps: exact where the error of its argument reaches no step."""

    def run(a: Real) -> Real:
        value = step(a.value)
        if a.error is None:
            return Real(value)
        same = (step(a.value - a.error) == value) & (step(a.value + a.error) == value) | ((a.error == 0) & ~np.isfinite(value))
        return Real(value) if same.all() else Real(value, np.where(same & np.isfinite(a.error), 0.0, np.inf))

    return run


def _round_half_away(x: np.ndarray) -> Any:
    """Halves go away from zero."""
    return np.trunc(x + np.copysign(0.5, x))


def power(a: Real, b: Real) -> Real:
    """a^b (1 + d), |d| <= exp(|b| |log(1 - ea / a)| + |log a| eb + ...) - 1, of an `a` whose sign is known."""
    value = np.power(a.value, b.value)
    error = np.abs(value) * (ULPS * UNIT) + LEAST
    if a.error is None and b.error is None:
        return special(value, error, np.ones(np.shape(value), np.bool_))
    off, by = (0.0 if each.error is None else each.error for each in (a, b))
    base, exponent = np.abs(a.value), np.abs(b.value) + by
    moved = -np.log1p(-np.divide(off, base, out=np.zeros(np.shape(value)), where=np.not_equal(off, 0)))
    spread = exponent * moved + np.where(np.equal(by, 0), 0.0, (np.abs(np.log(base)) + moved) * by)
    error = error + np.where(spread == 0, 0.0, np.abs(value) * np.expm1(spread))
    known = np.isfinite(errors_of(a, b)) & ((base > off) | np.equal(off, 0)) & ((a.value > 0) | np.equal(by, 0))
    return special(value, error, known)


def remainder(a: Real, b: Real) -> Real:
    """a - b trunc(a / b), where the quotient is surely between two whole numbers."""
    value, quotient = np.fmod(a.value, b.value), divide(a, b)
    whole_quotient = np.trunc(quotient.value)
    error = np.abs(value) * UNIT
    if a.error is None and b.error is None:
        return special(value, error, np.ones(np.shape(value), np.bool_))
    off, by = (0.0 if each.error is None else each.error for each in (a, b))
    bound = errors_of(quotient)
    sure = (np.trunc(quotient.value - bound) == whole_quotient) & (np.trunc(quotient.value + bound) == whole_quotient)
    return special(value, error + off + np.abs(whole_quotient) * by, sure & np.isfinite(errors_of(a, b)))


def _with_sign(a: Real, b: Real) -> Real:
    known = np.equal(errors_of(b), 0) | (np.abs(b.value) > errors_of(b))
    error = np.broadcast_to(errors_of(a), np.shape(known))
    return Real(np.copysign(a.value, b.value), np.where(known, error, np.inf))


def _reciprocal(a: Real) -> Real:
    return divide(Real(np.float64(1)), a)


def _hypotenuse(a: Real, b: Real) -> Real:
    value = np.hypot(a.value, b.value)
    error = np.abs(value) * (ULPS * UNIT) + LEAST + errors_of(a, b)
    return special(value, error, np.isfinite(errors_of(a, b)))


FUNCTIONS: dict[str, Callable[..., Real]] = {
    **_FUNCTIONS,
    "sqrt": square_root, "fabs": absolute, "abs": absolute, "fmax": EXTREMES["arith.maxnumf"], "fmin": EXTREMES["arith.minnumf"],
    "floor": _step_function(np.floor), "ceil": _step_function(np.ceil), "trunc": _step_function(np.trunc),
    "rint": _step_function(np.rint),
    "nearbyint": _step_function(np.rint), "round": _step_function(_round_half_away), "pow": power,
    "fmod": remainder, "copysign": _with_sign,
    "hypot": _hypotenuse, "fma": fma, "rcp": _reciprocal, "fdividef": divide,
    "add": add, "sub": subtract, "mul": multiply, "div": divide,
}  # fmt: skip
"""By the name of libdevice's function, without its prefix, its suffix of the type, and its way of rounding."""


def libdevice_function(symbol: str) -> Callable[..., Real] | None:
    """The function of libdevice's `symbol` (`__nv_fast_expf`, `__nv_fsqrt_rn`, `__nv_tanh`); None for one without a rule."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    for ending in ("_rn", "_rz", "_ru", "_rd"):
        if name.endswith(ending):
            name = name.removesuffix(ending).removeprefix("f").removeprefix("d")
            return FUNCTIONS.get({"ma": "fma", "iv": "div"}.get(name, name))
    return FUNCTIONS.get(name) or (FUNCTIONS.get(name[:-1]) if name.endswith("f") else None)


__all__ = ["FUNCTIONS", "libdevice_function", "power", "remainder"]
