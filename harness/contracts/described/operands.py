"""Words of what a body drew: from the regime and the data seed of the case, the same on every machine."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

from bitverdict.harness.contracts.described.dtypes import INTEGERS, kind_of
from bitverdict.harness.contracts.described.record import Entry, is_far
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.reference.formats import FORMATS, Overflow, encode

PLAIN_REGIMES = ("normal", "integers", regimes.TENTH, regimes.MODERATE)
"""The regimes of every described kernel: no sum of squares leaves fp32, so a right kernel is decided in nearly all words."""
SPECIAL = ("planted", "subnormals", "wide", "largest")
"""With ``specials=True``: NaN, infinities and signed zeros, subnormals, the whole range of exponents, and the largest numbers."""
REFERENCE_REGIMES = (regimes.HUNDREDS, regimes.TENS, regimes.EIGHTHS, regimes.UNREAD)
"""What a reference asks for by its own operations (`described.asked_values`)."""
_REGIMES = (*regimes.REGIMES, regimes.EXACT, regimes.TENTH, regimes.MODERATE, *REFERENCE_REGIMES[:-1])

INDEX_SPREADS = {
    (False, False): ("anywhere", "few", "ends"),
    (True, False): ("in order", "shuffled"),
    (False, True): ("anywhere", "few", "beyond"),
    (True, True): ("in order", "shuffled", "beyond"),
}
"""(distinct, out of bounds) -> where indices lie. few: a third of those there are, over and over. ends: the first and the last.
beyond: half of them inside, the others below 0 or past the end."""
PARTS = ("anywhere", "even", "empty", "one")
"""Where offsets cut. even: parts of one length, but for the last. empty: some parts are. one: the whole is in one part."""
MASKS = ("half", "all", "none", "few")
_WITHIN = 1000  # magnitudes of integers of more than 8 bits that no range is asked of


def check_values(values: object) -> Any:
    """`values` of a tensor as its record holds it. UsageError for no regime and no range."""
    if values is None or values in _REGIMES:
        return values
    if isinstance(values, tuple | list) and len(values) == 2 and all(isinstance(each, Real) for each in values):
        low, high = map(float, values)
        if low <= high:
            return low, high
    raise UsageError(
        f"draw.tensor(values={values!r:.100}): must be a regime ({', '.join(_REGIMES)}) or (low, high), low at most high"
    )


def check_regimes(names: Iterable[str]) -> None:
    """UsageError for a name that is no regime."""
    for name in names:
        if name not in _REGIMES:
            raise UsageError(f"regime {name!r}: unknown{did_you_mean(name, _REGIMES)}; use one of {', '.join(_REGIMES)}")


def limits_of(format_name: str, low: int | None, high: int | None) -> tuple[int, int]:
    """The ends of a range of integers. UsageError where the type does not hold them."""
    ends = np.iinfo(INTEGERS[format_name])
    short = ends.bits == 8
    limits = (
        (int(ends.min) if short else max(int(ends.min), -_WITHIN)) if low is None else low,
        (int(ends.max) if short else _WITHIN) if high is None else high,
    )
    if not ends.min <= limits[0] <= limits[1] <= ends.max:
        raise UsageError(f"draw.integers({low}, {high}): {format_name} holds {ends.min} to {ends.max}, and low is at most high")
    return limits


def operand(case: Case, entry: Entry, place: int, name: str) -> Operand:
    """The operand of the draw at `place`, called `name`."""
    assert entry.shape is not None
    rng = regimes.generator(case.data_seed, f"draw {place}")
    codes = _WORDS[entry.kind](case, entry, rng)
    return Operand(name=name, format=entry.dtype, codes=codes, strides=entry.strides, offset=entry.offset)


def _tensor(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    """Codes of entry.shape."""
    assert entry.shape is not None
    values = entry.asked[0]
    kind = kind_of(entry.dtype)
    if kind == "bool":
        return rng.random(entry.shape) < 0.5
    if kind == "integer" and case.regime == regimes.EIGHTHS and INTEGERS[entry.dtype](0).itemsize == 1:
        high = int(values[1]) if isinstance(values, tuple) else limits_of(entry.dtype, None, None)[1]
        return _near_the_top(entry, high, rng)
    if isinstance(values, tuple):
        drawn = rng.random(entry.shape) * (values[1] - values[0]) + values[0]  # (*shape,) float64
        if kind == "integer":
            return np.rint(drawn).astype(INTEGERS[entry.dtype])
        return encode(FORMATS[entry.dtype], drawn, overflow=Overflow.SATURATE)
    regime = values or case.regime
    if kind == "integer":
        low, high = limits_of(entry.dtype, None, None)
        few = regime in ("integers", regimes.EXACT, regimes.EIGHTHS)
        return rng.integers(max(low, -2) if few else low, 2 if few else high, entry.shape, endpoint=True).astype(
            INTEGERS[entry.dtype]
        )
    return regimes.draw(entry.dtype, entry.shape, regime, rng)


def _integers(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    low, high = entry.asked
    if case.regime == regimes.EIGHTHS and INTEGERS[entry.dtype](0).itemsize == 1:
        return _near_the_top(entry, high, rng)
    return rng.integers(low, high, entry.shape, endpoint=True).astype(INTEGERS[entry.dtype])


def _numbers(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    return np.array(entry.asked[0], INTEGERS[entry.dtype])


def _near_the_top(entry: Entry, high: int, rng: np.random.Generator) -> np.ndarray:
    """Codes of quantised numbers in the regime `EIGHTHS`: of one sign, so that sums grow to what a narrow accumulator loses."""
    return rng.integers(max(high - 1, 0), high, entry.shape, endpoint=True).astype(INTEGERS[entry.dtype])


def _indices(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    assert entry.shape is not None
    if isinstance(entry.value, tuple):
        return np.array(entry.value, INTEGERS[entry.dtype]).reshape(entry.shape)
    below, distinct, _ = entry.asked
    count = int(np.prod(entry.shape, dtype=np.int64))
    if distinct:
        codes = np.arange(count) if entry.value == "in order" else rng.permutation(below)[:count]
    elif entry.value == "few":
        codes = rng.integers(0, below, max(below // 3, 1))[rng.integers(0, max(below // 3, 1), count)]
    elif entry.value == "ends":
        codes = np.array([0, below - 1])[rng.integers(0, 2, count)]
    else:
        codes = rng.integers(0, below, count)
    if entry.value == "beyond":
        outside = np.array([-1, -below - 1, below, below + 1, 2 * below + 7])
        codes = np.where(rng.random(count) < 0.5, codes, outside[rng.integers(0, len(outside), count)])
    if is_far(case.problem.draws):
        codes = _with_last_row(codes, below, distinct)
    return codes.reshape(entry.shape).astype(INTEGERS[entry.dtype])


def _offsets(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    """(parts + 1,) from 0 to the total, none below the one before it."""
    parts, total = entry.asked
    inner = max(parts - 1, 0)
    if entry.value == "even":
        cuts = np.minimum(np.arange(1, inner + 1) * -(-total // parts), total)
    elif entry.value == "one":
        cuts = np.where(np.arange(inner) < rng.integers(0, inner + 1), 0, total)
    elif entry.value == "empty":
        cuts = np.sort(rng.choice(rng.integers(0, total, max(inner // 2, 1), endpoint=True), inner))
    else:
        cuts = np.sort(rng.integers(0, total, inner, endpoint=True))
    if is_far(case.problem.draws) and inner and total:
        cuts = np.minimum(cuts, total - 1)
        cuts[-1] = total - 1  # the last part begins at the last row, which lies past 2^31 elements
    return np.concatenate([[0], cuts, [total]]).astype(INTEGERS[entry.dtype])


def _with_last_row(codes: np.ndarray, below: int, distinct: bool) -> np.ndarray:
    """`codes` (count,) with the last row in it, which of far rows lies past 2^31 elements: every second index, or one."""
    moved = codes.copy()
    if not distinct:
        moved[::2] = below - 1
    elif codes.size and below - 1 not in codes:
        moved[0] = below - 1
    return moved


def _mask(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    share = {"half": 0.5, "all": 1.0, "none": 0.0, "few": 0.1}[str(entry.value)]
    return rng.random(entry.shape) < share


def _scales(case: Case, entry: Entry, rng: np.random.Generator) -> np.ndarray:
    one = 127 if entry.dtype == "e8m0" else 56  # the code of 1
    spread = 8 if entry.dtype == "e8m0" else 24
    return (one + rng.integers(-spread, spread, entry.shape, endpoint=True)).astype(np.uint8)


_WORDS = {
    "tensor": _tensor,
    "integers": _integers,
    "numbers": _numbers,
    "indices": _indices,
    "offsets": _offsets,
    "mask": _mask,
    "scales": _scales,
}
