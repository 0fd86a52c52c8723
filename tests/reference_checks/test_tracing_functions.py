"""Contract under test: the table of errors of functions is that of its sources, and an implementation that uses it up is inside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from bitverdict.harness.lab import libdevice_errors
from bitverdict.reference.formats import FP32, decode, encode
from bitverdict.reference.special_functions import sequences
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from bitverdict.reference.tracing import function_errors, trace
from bitverdict.reference.tracing.function_errors import FUNCTIONS, Function
from tests.reference_checks.test_tracing_bounds import keys

ALLOWED = {"sqrt": 1, "divide": 2, "exp": 2, "exp2": 2}
"""Units in the last place where PTX says more than libdevice's table, or the table has no such function."""
DOMAINS = {
    "log": (1e-3, 50), "log2": (1e-3, 50), "log10": (1e-3, 50), "log1p": (-0.9, 50), "sqrt": (1e-3, 50), "acosh": (1.01, 50),
    "asin": (-0.99, 0.99), "acos": (-0.99, 0.99), "atanh": (-0.99, 0.99), "tan": (-1.5, 1.5),
}  # fmt: skip
ONE = [name for name in FUNCTIONS if name not in ("divide", "pow", "atan2", "hypot")]


def operands(name: str) -> np.ndarray:
    low, high = DOMAINS.get(name, (-8, 8))
    return np.random.default_rng(len(name)).uniform(low, high, 200).astype(np.float32)


def exactly(name: str, x: np.ndarray) -> np.ndarray:
    function = libdevice_errors.FUNCTIONS[name].exact
    with mpmath.workprec(200):
        return np.array([float(function(mpmath.mpf(float(each)))) for each in x])


def units_for(name: str) -> int:
    documented = libdevice_errors.FUNCTIONS[name].fp32 if name in libdevice_errors.FUNCTIONS else 0
    assert isinstance(documented, int)
    return max(documented, ALLOWED.get(name, 0))


def outside(name: str, x: np.ndarray, found: np.ndarray) -> np.ndarray:
    (output,) = trace(lambda xp, x: getattr(xp, name)(x), [("fp32", x.view(np.uint32))])
    low, high, _, open_ = output.interval("fp32")
    got = keys(encode(FP32, found))
    return ((got < keys(low)) | (got > keys(high))) & ~open_


def moved(values: np.ndarray, units: int) -> np.ndarray:
    """The rounded `values`, so many units in the last place further from zero."""
    return (encode(FP32, values).astype(np.int64) + units).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("name", ONE)
def test_an_implementation_that_uses_its_error_up_is_inside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And outside of a table without it; and one of 64 units more is outside."""
    x = operands(name)
    exact = exactly(name, x)
    away, back = moved(exact, units_for(name)), moved(exact, -units_for(name))
    assert not outside(name, x, away).any() and not outside(name, x, back).any()
    far = np.abs(exact) > 0.5 if name == "tanh" else np.abs(x) < 1 if name == "exp" else np.ones(x.shape, bool)
    assert outside(name, x, moved(exact, units_for(name) + 64))[far].all()
    monkeypatch.setitem(FUNCTIONS, name, Function(0, 0))
    assert outside(name, x, away).any()


def test_every_row_covers_what_its_sources_promise() -> None:
    for name, row in FUNCTIONS.items():
        assert row.relative >= 2 * units_for(name) + (name != "sqrt"), name
        if name in libdevice_errors.FUNCTIONS and name not in ("sqrt", "exp", "exp2"):
            wide = libdevice_errors.FUNCTIONS[name].fp64
            assert isinstance(wide, int) and row.relative_fp64 >= 2 * wide + 1, name
        assert row.source


WORDS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "tl.exp": ("exp", sequences.exp),
    "tl.exp2": ("exp2", sequences.exp2),
    "tl.log": ("log", sequences.log),
    "tl.sqrt": ("sqrt", INSTRUCTIONS["sqrt.approx.ftz.f32"]),
    "lg2.approx beyond [0.5, 2]": ("log2", INSTRUCTIONS["lg2.approx.f32"]),
}


@pytest.mark.parametrize("name", WORDS)
def test_emulated_functions_lie_in_the_interval(name: str) -> None:
    """Over the whole range of the argument, subnormals and infinities too."""
    function, words = WORDS[name]
    rng = np.random.default_rng(3)
    x = rng.integers(0, 1 << 32, 4000, dtype=np.uint64).astype(np.uint32).view(np.float32)
    x = np.concatenate(
        [x, rng.uniform(-104, 89, 3000).astype(np.float32), np.float32([0, -0.0, 1, np.inf, -np.inf, 1e-45, 128, -150])]
    )
    if function == "log2":
        x = np.abs(x[(np.abs(x) > 2) | (np.abs(x) < 0.5)])
    x = x[~np.isnan(x)]
    found = words(x.view(np.uint32)).view(np.float32)
    (output,) = trace(lambda xp, x: getattr(xp, function)(x), [("fp32", x.view(np.uint32))])
    low, high, _, open_ = output.interval("fp32")
    nan = np.isnan(found)
    got = keys(found.view(np.uint32))
    wrong = np.where(nan, low != FP32.nan_code, (got < keys(low)) | (got > keys(high))) & ~open_
    assert not wrong.any(), x[wrong][:5]
    assert open_.mean() < 0.01


def test_exp_admits_a_folded_logarithm_of_two_and_a_rescaling() -> None:
    """exp2(a l - b l) of rounded products, and exp(a - m) exp(m - b), each exponential off by 2 units."""
    rng = np.random.default_rng(4)
    a = rng.uniform(-60, 60, 3000).astype(np.float32)
    b = (a + rng.uniform(0, 20, 3000)).astype(np.float32)
    m = (a + (b - a) * rng.uniform(0, 1, 3000).astype(np.float32)).astype(np.float32)
    log2e = np.float32(np.log2(np.e))
    operands = [("fp32", a.view(np.uint32)), ("fp32", b.view(np.uint32))]
    (output,) = trace(lambda xp, a, b: xp.exp(a - b), operands)

    def inside(found: np.ndarray) -> bool:
        low, high, _, _ = output.interval("fp32")
        return bool(((keys(low) <= keys(found.view(np.uint32))) & (keys(found.view(np.uint32)) <= keys(high))).all())

    folded = sequences.exp2((a * log2e - b * log2e).astype(np.float32).view(np.uint32)).view(np.float32)
    assert inside(folded)
    for units in (2, -2):
        parts = [moved(np.exp((one - other).astype(np.float64)), units) for one, other in ((a, m), (m, b))]
        assert inside(parts[0] * parts[1])


def test_the_table_without_folding_or_rescaling_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for change in ({"argument": 0.0}, {"relative": 0.0}):
        monkeypatch.setitem(FUNCTIONS, "exp", replace(function_errors.FUNCTIONS["exp"], **change))
        monkeypatch.setattr("bitverdict.reference.tracing.functions.RESCALING_UNITS", 0.0)
        with pytest.raises(AssertionError):
            test_exp_admits_a_folded_logarithm_of_two_and_a_rescaling()
        monkeypatch.undo()


def test_float64_functions_are_as_near_as_is_said() -> None:
    """NumPy's and the C library's, against mpmath: within half of what the running error says."""
    for name in ONE:
        x = operands(name)
        (output,) = trace(lambda xp, x: getattr(xp, name)(x), [("fp32", x.view(np.uint32))])
        function = libdevice_errors.FUNCTIONS[name].exact
        with mpmath.workprec(200):
            off = [abs(mpmath.mpf(float(v)) - function(mpmath.mpf(float(each)))) for v, each in zip(output.value, x, strict=True)]
        used = np.array([float(each) for each in off]) / output.error
        assert used.max() < 0.5, name
        assert decode(FP32, output.interval("fp32")[0]).shape == x.shape
