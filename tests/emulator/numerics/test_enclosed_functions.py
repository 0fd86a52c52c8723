"""Contract under test: functions and integers of an enclosed value hold what each of its words gives, or are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.frontend.enclosure_code import SMOOTH
from bitverdict.harness.emulator.numerics.enclosures import keys, words_of
from bitverdict.reference.special_functions.constant_division import divide as divide_by_constant
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS
from bitverdict.reference.special_functions.sequences import divide
from bitverdict.reference.special_functions.sequences import exp as exp_words
from bitverdict.reference.special_functions.sequences import log as log_words
from tests.support.enclosed_kernels import N, choices, converted, decided, functions, holds, integers, open_sums, operands  # noqa: F401

FUNCTIONS: dict[str, Callable] = {
    "exp": exp_words,
    "exp2": INSTRUCTIONS["ex2.approx.ftz.f32"],
    "log": log_words,
    "sqrt": INSTRUCTIONS["sqrt.approx.ftz.f32"],
    "rsqrt": INSTRUCTIONS["rsqrt.approx.ftz.f32"],
    "over": lambda s: divide(np.float32([-5, 1, 3, 7] * (N // 4)).view(np.uint32), s),
    "under": lambda s: divide(s, np.float32([-5, 1, 3, 7] * (N // 4)).view(np.uint32)),
    "third": lambda s: divide_by_constant(s, np.array(3, np.float32).view(np.uint32)),
    "square": lambda s: np.square(s.view(np.float32) + np.float32(1e-9)).view(np.uint32),
    "size": lambda s: np.abs(s.view(np.float32) + np.float32(1e-9)).view(np.uint32),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_function_of_an_enclosure_holds_that_of_each_of_its_words(kind: str) -> None:
    """Half of the sums cancel where the function lets them: their enclosures are wide."""
    x, y, z = operands()
    if kind in ("exp", "exp2", "square", "size", "under", "third"):
        z[::2] = torch.from_numpy(-(x * y).numpy()[::2])
    elif kind in ("log", "sqrt", "rsqrt"):
        z = z.abs() + (x * y).abs() * 2
        z[::2] = torch.nextafter(torch.from_numpy(-(x * y).numpy()), torch.tensor(3.0))[::2] + 1e-3
    out, scale = torch.zeros(N), torch.tensor([-5.0, 1, 3, 7] * (N // 4))
    with emulated("sm_90") as device:
        functions[(1,)](x, y, z, scale, out, KIND=kind, N=N, num_warps=1)
        low, high = map(keys, device.enclosure(out))
        functions[(1,)](x, y, z, scale, out, KIND="plain", N=N, num_warps=1)
        first, last = map(keys, device.enclosure(out))
    assert (first != last).sum() > N // 2
    for share in np.linspace(0, 1, 41):  # words inside of the operand's enclosure, its ends included
        at = first + np.floor((last - first) * share).astype(np.int64)
        word = FUNCTIONS[kind](words_of(at, np.dtype(np.float32)).view(np.uint32)).view(np.float32)
        assert holds(low, high, word), share
    assert ((high - low)[(last - first) < 8] < 1 << 10).all()


WORDS = "of a value whose enclosure has [0-9]+ words: at most"


@pytest.mark.parametrize(
    ("kind", "why"),
    [("over", WORDS), ("rsqrt", WORDS), ("sqrt", "of a value whose enclosure leads to a NaN"),
     ("times", "that is enclosed and may be zero, times an infinity")],
)  # fmt: skip
def test_a_function_with_a_pole_or_no_value_inside_is_refused(kind: str, why: str) -> None:
    x, y, _ = operands()
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=f"not modelled: .*{why}"):
        functions[(1,)](x, y, -(x * y), torch.ones(N), torch.zeros(N), KIND=kind, N=N, num_warps=1)


@pytest.mark.share(4)
def test_the_functions_of_units_fall_by_no_more_words_than_is_said() -> None:
    """A binade, or two where the table's half hangs on the exponent: all others have the same mantissas."""
    ranges = {"ex2": (1.0, 2.0, 1), "sqrt": (1.0, 4.0, 1), "rsqrt": (1.0, 4.0, -1), "rcp": (1.0, 2.0, -1)}
    for name, (first, last, sign) in ranges.items():
        at = np.arange(*(int(keys(np.float32(end))) for end in (first, last)), dtype=np.int64)
        words = INSTRUCTIONS[f"{name}.approx.ftz.f32"](words_of(at, np.dtype(np.float32)).view(np.uint32))
        values = sign * keys(words.view(np.float32))
        assert (np.maximum.accumulate(values) - values).max() == SMOOTH.get(f"math.{name.replace('ex2', 'exp2')}", 0), name


@pytest.mark.parametrize(("kind", "dtype"), [("int8", torch.int8), ("int32", torch.int32), ("uint8", torch.uint8)])
def test_an_integer_of_an_enclosed_value_holds_that_of_each_choice(kind: str, dtype: torch.dtype) -> None:
    x, y, z = operands()
    sums = choices()
    steps = 60 if kind == "uint8" else 30
    scale = np.round(sums[0] * steps) / sums[0]  # near integers, so that the choice decides
    out = torch.zeros(N, dtype=dtype)
    with emulated("sm_90") as device:
        decided[(1,)](x, y, z, torch.from_numpy(scale.astype(np.float32)), out, KIND=kind, N=N, num_warps=1)
        low, high = (each.view(f"i{each.itemsize}").astype(np.int64) for each in device.enclosure(out))
        twice = torch.zeros(N)
        converted[(1,)](out, twice, N=N, num_warps=1)
        doubled = [each.view(np.float32) for each in device.enclosure(twice)]
    integers = [np.trunc(each * scale.astype(np.float32)) for each in sums]
    integers = [np.abs(each) if kind == "uint8" else each for each in integers]
    assert (integers[0] != integers[1]).any()
    for number in integers:
        word = number.astype(np.uint8).view(np.int8) if kind == "uint8" else number
        assert ((low <= word) & (word <= high)).all()
        assert ((doubled[0] <= 2 * number) & (2 * number <= doubled[1])).all()
    wide = high - low
    assert ((wide <= 1) | ((kind == "uint8") & (wide == 255))).all()  # signed words, where 127 and 128 are both possible: any


LAST = 2**31 - 1


def last_terms(kind: str, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The terms by which integers of `low` to `high` (both above zero) just reach an end of 32 bits, and by 1 more leave it."""
    first = np.arange(N) == 0
    return {"plus": LAST - high, "minus": high - LAST, "times": LAST // high, "total": np.where(first, LAST - high.sum(), 0)}[kind]


@pytest.mark.parametrize(("kind", "step"), [("plus", 1), ("minus", -1), ("times", 1), ("total", 1)])
def test_integers_of_an_enclosure_reach_the_end_of_their_type_unwrapped(kind: str, step: int) -> None:
    x, y, z = operands()
    sums = choices()
    scale = ((np.round(np.abs(sums[0]) * 30) + 2) / sums[0]).astype(np.float32)  # near integers, so that the choice decides
    numbers = [np.trunc(each * scale).astype(np.int64) for each in sums]

    def ends(term: np.ndarray, kind: str) -> tuple[np.ndarray, ...]:
        out = torch.zeros(N, dtype=torch.int32)
        with emulated("sm_90") as device:
            given = (torch.from_numpy(each) for each in (scale, term.astype(np.int32)))
            integers[(1,)](x, y, z, *given, out, KIND=kind, N=N, num_warps=1)
            return tuple(each.view(np.int32).astype(np.int64) for each in device.enclosure(out))

    low, high = ends(np.zeros(N), "plus")
    assert (low < high).any() and low.min() > 0
    term = last_terms(kind, low, high)
    run = {"plus": np.add, "minus": lambda a, b: b - a, "times": np.multiply, "total": lambda a, b: (a + b).sum()}[kind]
    reached = ends(term, kind)
    for number in numbers:
        there = slice(0, 1) if kind == "total" else slice(None)
        assert ((reached[0][there] <= run(number, term)) & (run(number, term) <= reached[1][there])).all()
    place = int(np.flatnonzero(low < high)[0]) if kind != "total" else 0
    term[place] += step
    with pytest.raises(EmulatedFault, match=r"not modelled: .*of integers that are enclosed, and may leave"):
        ends(term, kind)
