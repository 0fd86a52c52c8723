"""One wrong output as hypotheses see it: what was seen, how near a prediction must come, and how much it tells if it does.

A hypothesis predicts every element. It holds where each wrong element is as predicted, and each right one too: of the whole output,
or of a part of it that has a name (a tile, rows, columns). What it tells is counted in bits: a prediction that comes within a
slack s of an element that is d off would do so by chance once in d / s.

The numbers below were picked, not derived: they say when an explanation is worth a sentence. None of them decides a verdict or a
status; a cause is told beside a failure that `compare` has decided (docs/causes.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.reference.formats import FORMATS

ENOUGH = 26.0  # bits: of the few hundred hypotheses that are tested none holds by chance
MOST_BITS = 40.0  # that one element counts
EPSILON = 2.0**-47  # 64 roundings of float64, of their magnitude: what a prediction may be off itself
SAMPLE_SIZE = 8  # wrong elements that a prediction is tried on first
WILD_BITS = 2.0  # that each NaN or infinity counts, where others are none
MOST_LISTED = 4  # rows, columns or tiles that are named one by one


@dataclass(frozen=True)
class Fit:
    """That a prediction holds `where` ("" for everywhere, else "in tile (1, 0)"), and what it tells."""

    bits: float
    where: str
    region: np.ndarray  # bool, of the output's shape


@dataclass(frozen=True)
class CauseFinding:
    """A hypothesis that holds. Findings of one `kind` mean the same, the first of them says it best. `outputs`: all that it
    predicts, where it is one on the mathematics; `place`: the operation that is another, where it is one. Findings of one place
    that predict one result are one."""

    kind: str
    sentence: str
    fit: Fit
    prediction: np.ndarray | None = None
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    place: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One output: arrays of its shape, float64. `observed_values` are real values where `sharp`, else the values of its words."""

    name: str
    format: str
    exact: np.ndarray
    observed_values: np.ndarray
    words: np.ndarray  # values of the words that came
    differs: np.ndarray  # bool: elements that failed
    decided_elements: np.ndarray  # bool: elements that can be told
    written_elements: np.ndarray  # bool: elements that were written
    magnitude: np.ndarray  # of the sums behind an element
    noise: float | np.ndarray  # of `seen`: a share of the magnitude; where `sharp`, absolute
    sharp: bool
    tile: tuple[int, int] | None = None
    k_block: int | None = None
    launches: tuple[Mapping, ...] = ()
    products: frozenset[tuple[str, ...]] = field(default_factory=frozenset)  # (family, kind, a, b, d) of launched instructions

    def slack(self, prediction: np.ndarray, at: Any = ...) -> np.ndarray:
        """How far an element may be from `prediction` for what is known to round; of the elements `at` (an index) alone."""
        noise = self.noise[at] if isinstance(self.noise, np.ndarray) else self.noise
        with np.errstate(invalid="ignore", over="ignore"):
            larger = np.maximum(self.magnitude[at], np.abs(prediction))
            if self.sharp:
                return noise + EPSILON * larger
            return (noise + EPSILON) * larger + half_ulp(self.format, prediction)

    def close_elements(self, prediction: np.ndarray, index: Any = ...) -> np.ndarray:
        """Which elements are as predicted; NaN and infinities alike, and what a format may make of a value beyond it."""
        observed_values = self.observed_values[index]
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(observed_values - prediction) <= self.slack(prediction, index)
            matches = close | (observed_values == prediction) | (np.isnan(observed_values) & np.isnan(prediction))
            if not self.sharp and self.format in FORMATS:
                largest = FORMATS[self.format].largest
                beyond = np.abs(prediction) + self.slack(prediction, index) >= largest
                kept = (np.sign(observed_values) == np.sign(prediction)) & (np.abs(observed_values) >= largest)
                matches |= beyond & (kept | np.isnan(observed_values))
        return matches

    @cached_property
    def sample(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns (2-D outputs) of a few wrong elements: what a prediction is tried on first."""
        wrong = np.argwhere(self.differs)
        chosen = wrong[np.unique(np.linspace(0, len(wrong) - 1, SAMPLE_SIZE).astype(int))]
        return np.unique(chosen[:, 0]), np.unique(chosen[:, 1])

    def fit(self, prediction: np.ndarray, *, wild: bool = False) -> Fit | None:
        """Where `prediction` holds, if it does; None where a wrong element is not as predicted, or where it tells too little.
        `wild`: NaN and infinities tell too, of a hypothesis on them; of others they tell nothing, since many changes give them."""
        if prediction.shape != self.exact.shape:
            return None
        close = self.close_elements(prediction)
        if (self.differs & ~close).any():
            return None
        region, where = self.written_elements, ""
        if (self.decided_elements & ~close).any():
            found = next(((part, said) for part, said in self.parts if not (part & self.decided_elements & ~close).any()), None)
            if found is None:
                return None
            region, where = found[0] & self.written_elements, found[1]
        bits = self.tells(prediction, close & region & self.decided_elements, wild=wild)
        return Fit(bits, where, region) if bits >= ENOUGH else None

    def tells(self, prediction: np.ndarray, where: np.ndarray, *, wild: bool) -> float:
        """Bits that the elements `where`, which are as predicted, tell of the prediction; equal ones count once."""
        strange = where & ~np.isfinite(prediction)
        bits = 0.0
        if wild and not strange[where].all():
            bits = min(WILD_BITS * int((strange & np.isfinite(self.exact)).sum()), MOST_BITS)
        finite_elements = where & np.isfinite(prediction) & np.isfinite(self.exact) & np.isfinite(self.observed_values)
        rows = np.stack(
            [prediction[finite_elements], self.exact[finite_elements], self.observed_values[finite_elements]], axis=1
        )  # (elements, 3)
        slack = self.slack(prediction)[finite_elements]
        deviation = np.abs(rows[:, 0] - rows[:, 1])
        telling = deviation > 2 * slack
        if not telling.any():
            return bits
        rows, slack, deviation = rows[telling], slack[telling], deviation[telling]
        _, first = np.unique(_coarse(rows[:, :2]), axis=0, return_index=True)
        step = _lattice(rows[first])
        scale = deviation[first]
        if self.format not in FORMATS:  # integers: what another number would be off
            scale = np.maximum(scale, self.exact[finite_elements].std())
        chance = np.clip(np.maximum(slack[first], step) / scale, 2.0**-MOST_BITS, 0.5)
        return bits + float(-np.log2(chance).sum())

    @property
    def parts(self) -> Iterator[tuple[np.ndarray, str]]:
        """Parts of the output that have a name and hold all wrong elements: tiles, rows, columns. The smallest come first."""
        if self.differs.ndim == 1:
            held = self.differs
            if phrase := places_named(np.flatnonzero(held), held.size, "element"):
                yield held, phrase
            return
        if self.differs.ndim != 2:
            return
        rows, columns = np.asarray(self.differs.any(axis=1)), np.asarray(self.differs.any(axis=0))
        named_rows = places_named(np.flatnonzero(rows), rows.size, "row")
        named_columns = places_named(np.flatnonzero(columns), columns.size, "column")
        if self.tile is not None:
            tiles = tiles_hit(self.differs, self.tile)
            part = np.kron(tiles, np.ones(self.tile, bool))[: rows.size, : columns.size].astype(bool)
            if tiles.size > 1 and (phrase := _tiles_named(tiles)):
                yield part, phrase
        if named_rows and named_columns and not (rows.all() or columns.all()):
            yield np.logical_and.outer(rows, columns), f"{named_rows}, {named_columns}"
        if named_rows:
            yield np.broadcast_to(rows[:, None], self.differs.shape), named_rows
        if named_columns:
            yield np.broadcast_to(columns[None, :], self.differs.shape), named_columns


def half_ulp(format_name: str, value: np.ndarray) -> np.ndarray:
    """Half the distance of neighbours of `format_name` at `value`; 0 for integers."""
    found = FORMATS.get(format_name)
    if found is None:
        return np.zeros(value.shape)
    magnitude = np.where(np.isfinite(value), np.abs(value), 0.0)
    exponent = np.maximum(np.frexp(np.maximum(magnitude, found.smallest_normal))[1] - 1, -1000)
    return np.ldexp(1.0, exponent - found.mantissa_bits - 1)


def _coarse(given: np.ndarray) -> np.ndarray:
    """`given` to three digits: elements that are nearly equal tell nothing new."""
    mantissa, exponent = np.frexp(given)
    return np.ldexp(np.rint(mantissa * 1024), exponent - 10)


def _lattice(given: np.ndarray) -> float:
    """The largest power of two that all of `given` are multiples of: predictions on a coarse lattice meet by chance."""
    flat = given[np.isfinite(given) & (given != 0)]
    if not flat.size:
        return 0.0
    mantissa, exponent = np.frexp(flat)
    whole = np.abs(mantissa * 2.0**53).astype(np.int64)
    low = np.log2((whole & -whole).astype(np.float64)) + exponent - 53
    return float(2.0 ** low.min())


def tiles_hit(mask: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """(tiles_m, tiles_n): which tiles of (M, N) `mask` have an element."""
    starts = [np.arange(0, size, step) for size, step in zip(mask.shape, tile, strict=True)]
    return np.logical_or.reduceat(np.logical_or.reduceat(mask, starts[0], 0), starts[1], 1)


def _tiles_named(tiles: np.ndarray) -> str:
    hit = np.argwhere(tiles)
    if len(hit) <= MOST_LISTED:
        return f"in tile{'s' if len(hit) > 1 else ''} " + ", ".join(str(tuple(map(int, at))) for at in hit)
    if tiles[-1].all() and not tiles[:-1].any():
        return "in the last row of tiles"
    if tiles[:, -1].all() and not tiles[:, :-1].any():
        return "in the last column of tiles"
    return ""


def places_named(indices: np.ndarray, of: int, name: str) -> str:
    """ "in row 5", "in rows 64 to 69"; empty where they do not lie together, or are all there are."""
    if not indices.size or indices.size == of:
        return ""
    if indices.size == 1:
        return f"in {name} {indices[0]}"
    if indices.size == indices[-1] - indices[0] + 1:
        return f"in {name}s {indices[0]} to {indices[-1]}"
    return f"in {name}s " + ", ".join(map(str, indices)) if indices.size <= MOST_LISTED else ""


def learned_noise(expected: ExpectedOutput, exact: np.ndarray, magnitude: np.ndarray, floor: float) -> float:
    """The share of its magnitude, `floor` at least, that a right element may be off before it is stored: from the bound, or from
    expected words."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if expected.bound is not None and expected.words is None:
            deviation = expected.bound - half_ulp(expected.format, exact)
        elif expected.words is not None:
            deviation = np.abs(values(expected.format, expected.words.view(f"u{expected.words.dtype.itemsize}")) - exact)
            deviation = 2 * (deviation - half_ulp(expected.format, exact))
        else:
            assert expected.low is not None and expected.high is not None
            ends = [values(expected.format, end.view(f"u{end.dtype.itemsize}")) for end in (expected.low, expected.high)]
            deviation = np.maximum(*(np.abs(end - exact) for end in ends))
        share = deviation / magnitude
    if expected.inconclusive is not None:
        share = share[~expected.inconclusive]
    share = share[np.isfinite(share)]
    return max(float(share.max(initial=0.0)), floor)
