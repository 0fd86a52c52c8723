"""Coefficients of the special-function unit from recorded words: writes reference/special_functions/coefficients.py.

    python -m bitverdict.harness.lab.hardware_words.function_fit DIRECTORY

DIRECTORY holds `<gpu>_own_functions_words_*.npz` of `bitverdict.harness.lab.hardware_words.function_words`. Each function is
fitted to whole binades, in which every X of every row comes up; that the rest of the 2^32 arguments follow is what the digests are
for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bitverdict.harness.lab.hardware_words.function_words import BINADE, PIECE, Run, unpack
from bitverdict.harness.lab.hardware_words.quadratic_fit import Bounds, DoesNotFit, Form, fit, truncation_bounds
from bitverdict.reference.special_functions.quadratic import TANH_FIRST_EXPONENT, TANH_SEGMENTS, Quadratic

ONE_WORD = 0x3F800000
FRACTION_BITS = 23
TURNS = np.uint32(0x3E22F983).view(np.float32).astype(np.float64)  # the factor before MUFU.SIN and MUFU.COS
LG2_BITS = 36  # fraction bits that lg2 keeps of its sum

HEADER = '''"""Rows of the special-function unit's quadratics (`quadratic`), fitted to words of an {gpu}.

Written by `python -m bitverdict.harness.lab.hardware_words.function_fit`. A row is (c0, c1, c2).
"""

from bitverdict.reference.special_functions.quadratic import Quadratic
'''


class RecordedWords:
    """The words of recorded runs."""

    def __init__(self, directory: Path) -> None:
        self._files = [np.load(path, allow_pickle=False) for path in sorted(directory.glob("*_own_functions_words_*.npz"))]
        if not self._files:
            raise FileNotFoundError(f"{directory} has no *_own_functions_words_*.npz: record them first (function_words --out)")

    def words(self, function: str, first: int, count: int = BINADE) -> np.ndarray:
        """Results [count] uint32 of the arguments from the word `first` on. Raises KeyError where they were not kept."""
        keys = [Run(function, first + at).key for at in range(0, count, PIECE)]
        return np.concatenate([unpack(self._find(key)) for key in keys])

    def _find(self, key: str) -> np.ndarray:
        for held in self._files:
            if key in held.files:
                return held[key]
        raise KeyError(f"{key} was not kept")

    @property
    def gpu(self) -> str:
        """Name of the GPU that wrote them."""
        return json.loads(str(self._files[0]["meta"]))["gpu"]


def binade(exponent: int) -> np.ndarray:
    """All words with this exponent; [2^23] int64."""
    return np.arange(BINADE, dtype=np.int64) + (exponent + 127 << FRACTION_BITS)


def reciprocal(kept: RecordedWords) -> Quadratic:
    form = Form("rcp", weight=39, low_bits=16, constant_shift=13)
    x = binade(0)
    bounds = Bounds.no_bounds(128, 16)
    bounds.narrow(x >> 16 & 0x7F, x & 0xFFFF, *truncation_bounds(kept.words("rcp_approx_ftz_f32", ONE_WORD), form.weight))
    return fit(form, bounds)


def inverse_root(kept: RecordedWords) -> Quadratic:
    """1.0 is left out: powers of 4 do not come from the table."""
    return _root(kept, Form("rsqrt", weight=40, low_bits=17, constant_shift=14, square_step=4), "rsqrt_approx_ftz_f32", 1)


def root(kept: RecordedWords) -> Quadratic:
    return _root(kept, Form("sqrt", weight=40, low_bits=17, constant_shift=15, square_step=2), "sqrt_approx_ftz_f32", 0)


def _root(kept: RecordedWords, form: Form, function: str, left_out: int) -> Quadratic:
    bounds = Bounds.no_bounds(128, 17)
    for exponent in (0, 1):
        x, words = binade(exponent), kept.words(function, ONE_WORD + exponent * BINADE)  # (2^23,)
        some = slice(left_out if exponent == 0 else 0, None)
        bounds.narrow(x[some] >> 17 & 0x7F, x[some] & 0x1FFFF, *truncation_bounds(words[some], form.weight))
    return fit(form, bounds)


def power_of_two(kept: RecordedWords) -> Quadratic:
    form = Form("ex2", weight=38, low_bits=17, constant_shift=13)
    x = binade(0)
    bounds = Bounds.no_bounds(64, 17)
    halved = kept.words("ex2_approx_ftz_f32", ONE_WORD) - np.uint32(1 << FRACTION_BITS)
    bounds.narrow(x >> 17 & 0x3F, x & 0x1FFFF, *truncation_bounds(halved, form.weight))
    return fit(form, bounds)


def logarithm(recorded_words: RecordedWords) -> Quadratic:
    """From both sides of 1, which itself is left out; below 1 the word is cut from 1 - sum."""
    form = Form("lg2", weight=39, low_bits=17, constant_shift=13, linear_step=2, square_step=4)
    unit = 1 << form.weight - LG2_BITS
    bounds = Bounds.no_bounds(64, 17)
    x = binade(0)[1:]
    lower, upper = truncation_bounds(recorded_words.words("lg2_approx_ftz_f32", ONE_WORD)[1:], LG2_BITS)
    bounds.narrow(x >> 17 & 0x3F, x & 0x1FFFF, lower * unit, upper * unit + unit - 1)
    x = binade(-1)
    lower, upper = truncation_bounds(
        recorded_words.words("lg2_approx_ftz_f32", ONE_WORD - BINADE) & np.uint32(0x7FFFFFFF), LG2_BITS
    )
    one = 1 << form.weight
    bounds.narrow(x >> 17 & 0x3F, x & 0x1FFFF, one - (upper * unit + unit - 1), one - lower * unit)
    return fit(form, bounds)


def sine(recorded_words: RecordedWords) -> Quadratic:
    """From sin and cos inside the first quadrant."""
    form = Form("sine", weight=37, low_bits=17, constant_shift=12)
    bounds = Bounds.no_bounds(64, 17)
    for exponent in range(-8, 1):
        x = binade(exponent).astype(np.uint32).view(np.float32)  # (2^23,)
        turns = ((x * TURNS).view(np.int64) >> 29 << 29).view(np.float64)  # (2^23,) toward zero, to 24 bits
        angle = (turns * 2.0**25).astype(np.int64)  # (2^23,) in units of 2^-23 quadrants
        inside = (angle > 0) & (angle < 1 << 23)
        for function, index in (("sin_approx_ftz_f32", angle), ("cos_approx_ftz_f32", (1 << 23) - 1 - angle)):
            words = recorded_words.words(function, int(x[:1].view(np.uint32)[0]))[inside]
            some = index[inside]
            bounds.narrow(some >> 17, some & 0x1FFFF, *truncation_bounds(words, form.weight))
    return fit(form, bounds)


def hyperbolic_tangent(recorded_words: RecordedWords) -> Quadratic:
    """A row for each segment of each binade from 2^-8 to 8; a segment has 2^17 steps, in which the word does not change."""
    form = Form("tanh", weight=39, low_bits=17, constant_shift=0)
    bounds = Bounds.no_bounds(sum(TANH_SEGMENTS), 17)
    first_row = 0
    for exponent, segments in enumerate(TANH_SEGMENTS, TANH_FIRST_EXPONENT):
        steps = recorded_words.words("tanh_approx_f32", ONE_WORD + exponent * BINADE).reshape(
            segments << 17, -1
        )  # (steps, words of a step)
        if (steps != steps[:, :1]).any():
            raise DoesNotFit(f"tanh, exponent {exponent}: a word changes inside a step of {steps.shape[1]} arguments")
        place = np.arange(len(steps))
        bounds.narrow(first_row + (place >> 17), place & 0x1FFFF, *truncation_bounds(steps[:, 0], form.weight))
        first_row += segments
    return fit(form, bounds)


FITS: dict[str, Callable[[RecordedWords], Quadratic]] = {
    "RCP": reciprocal, "RSQRT": inverse_root, "SQRT": root, "EX2": power_of_two, "LG2": logarithm, "SINE": sine,
    "TANH": hyperbolic_tangent,
}  # fmt: skip


def module(found: dict[str, Quadratic], gpu: str) -> str:
    """Source text of coefficients.py."""
    parts = [HEADER.format(gpu=gpu)]
    for name, table in found.items():
        rows = [" ".join(f"({c0}, {c1}, {c2})," for c0, c1, c2 in table.rows[at : at + 3]) for at in range(0, len(table.rows), 3)]
        parts.append(
            f'{name} = Quadratic(\n    "{table.name}", weight={table.weight}, low_bits={table.low_bits}, '
            f"constant_shift={table.constant_shift}, bias={table.bias}, rows=(\n"
            + "".join(f"        {row}\n" for row in rows)
            + "    ),\n)  # fmt: skip\n"
        )
    return "\n".join(parts)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bitverdict.harness.lab.hardware_words.function_fit", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("directory", type=Path, help="folder with *_own_functions_words_*.npz")
    kept = RecordedWords(parser.parse_args(argv).directory)
    found = {}
    for name, make in FITS.items():
        found[name] = make(kept)
        print(f"{name}: {len(found[name].rows)} rows, bias {found[name].bias}", file=sys.stderr)
    print(module(found, kept.gpu), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
