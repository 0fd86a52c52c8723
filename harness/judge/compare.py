"""What came out against what should: how many words differ, the first of them, how far, and where they cluster.

Three modes, chosen by the `Expected`: word for word, between a lowest and a highest word by value, or |got - value| <= bound per
element in float64. A NaN is owed where NaN is expected and nowhere else; of words its payload is owed too, unless `any_nan`.
Interval and bound see neither the sign of a zero nor a NaN's payload. Elements marked `undecided` convict and acquit nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.model.contract import Expected
from bitverdict.harness.model.verdict import Outcome

SHOWN = 8  # words printed in full
HEAT_ROWS, HEAT_COLUMNS = 24, 48  # cells of the picture


@dataclass(frozen=True)
class Comparison:
    """What one output shows. `words` counts the elements that were decided."""

    outcome: Outcome
    words: int
    undecided: int = 0
    message: str = ""
    bound_used: float | None = None
    details: dict = field(default_factory=dict)


def compare(expected: Expected, got: np.ndarray, *, poison: int | None = None, dtypes: tuple[str, str] | None = None) -> Comparison:
    """Hold `got`, the output's words (unsigned, any shape), against `expected`; `poison` is the word of an unwritten element.
    `dtypes`: the names of the dtype that came and of the one that is due, where known: words of equal width may be of two types."""
    if tuple(got.shape) != tuple(expected.shape):
        return Comparison(
            Outcome.WRONG_SHAPE, 0, message=f"{expected.name}: shape {tuple(got.shape)}, expected {tuple(expected.shape)}"
        )
    if dtypes is not None and dtypes[0] != dtypes[1]:
        message = f"{expected.name}: dtype {dtypes[0]}, expected {dtypes[1]} ({expected.format})"
        return Comparison(Outcome.WRONG_SHAPE, 0, message=message)
    due = _itemsize(expected)
    if got.dtype.itemsize != due:
        message = f"{expected.name}: words of {8 * got.dtype.itemsize} bits, expected {8 * due} ({expected.format})"
        return Comparison(Outcome.WRONG_SHAPE, 0, message=message)
    decided = np.ones(got.shape, bool) if expected.undecided is None else ~expected.undecided
    used = None
    by_bound = _by_bound(expected, got)
    differs = np.zeros(got.shape, bool)
    if expected.words is not None:
        differs = _words_differ(expected, got) & ~by_bound
    if by_bound.any() or expected.words is None:
        outside, used, decidable = _outside_bound(expected, got, by_bound & decided)
        decided = decided & (decidable | ~by_bound)
        differs = differs | (outside & by_bound)
    differs = differs & decided
    count, undecided = int(decided.sum()), int(got.size - decided.sum())
    if not differs.any():
        return Comparison(Outcome.RIGHT if count or not got.size else Outcome.UNDECIDED, count, undecided, bound_used=used)
    outcome = Outcome.OUTSIDE_BOUND if by_bound[differs].all() else Outcome.WRONG_WORDS
    unwritten = differs & (got == got.dtype.type(poison)) if poison is not None else np.zeros_like(differs)
    details = {
        "output": expected.name,
        "wrong": int(differs.sum()),
        "of": count,
        "never_written": int(unwritten.sum()),
        "first": first_words(expected, got, differs),
        "clusters": clusters(expected, got, differs),
        "heat": heat(expected, differs),
    }
    return Comparison(outcome, count, undecided, _message(outcome, expected, details), used, details)


def _by_bound(expected: Expected, got: np.ndarray) -> np.ndarray:
    """Which elements (of got's shape) a bound or an interval decides, and no word."""
    if expected.words is None:
        return np.ones(got.shape, bool)
    return np.zeros(got.shape, bool) if expected.bounded is None else expected.bounded


def _itemsize(expected: Expected) -> int:
    """Bytes of an output's word; a format that is no floating-point one is named as NumPy names it."""
    if expected.words is not None:
        return expected.words.dtype.itemsize
    from bitverdict.reference.formats import FORMATS

    fmt = FORMATS.get(expected.format)
    return np.dtype(fmt.storage if fmt else expected.format).itemsize


def _message(outcome: Outcome, expected: Expected, details: dict) -> str:
    """The first line names the bug (it is the signature once its numbers are out), the second gives the first word."""
    what = "words differ" if outcome is Outcome.WRONG_WORDS else "elements lie outside the bound"
    head = f"{expected.name}: {details['wrong']} of {details['of']} {what}"
    if 10 * details["never_written"] >= details["wrong"]:  # fewer hold the poison's value by chance
        head += f", {details['never_written']} of them never written (they hold the poison)"
    first = details["first"][0]
    distance = f", {first['ulp']} ulp" if first.get("ulp") is not None else ""
    return f"{head}\nfirst at {first['at']}: got {first['got']}, expected {first['expected']}{distance}"


def _words_differ(expected: Expected, got: np.ndarray) -> np.ndarray:
    assert expected.words is not None
    differs = got != expected.words.view(got.dtype)
    if expected.any_nan and differs.any():
        both_nan = np.isnan(values(expected.format, got)) & np.isnan(values(expected.format, expected.words.view(got.dtype)))
        differs &= ~both_nan
    return differs


def _outside_bound(expected: Expected, got: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, float | None, np.ndarray]:
    """(outside, largest used share of the bound where `asked`, decidable). A bound that is not finite decides nothing about a
    finite value; an interval of words always decides."""
    if expected.value is None or expected.bound is None:
        raise ValueError(f"expected {expected.name!r}: gives neither words nor value and bound; a contract must give one of them")
    value, bound, out = expected.value, expected.bound, values(expected.format, got)
    finite = np.isfinite(value)
    bounded = finite & np.isfinite(bound)
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(out - value)
        if expected.low is not None and expected.high is not None:
            outside, decidable = _outside_interval(expected, out), np.ones(got.shape, bool)
        else:
            outside = np.where(finite, ~(distance <= bound), ~((out == value) | (np.isnan(out) & np.isnan(value))))
            decidable = ~finite | bounded
        share = np.where(distance == 0, 0.0, distance / np.where(bound == 0, np.finfo(float).tiny, bound))
    shares = share[asked & bounded & np.isfinite(share)]
    return outside & decidable, float(shares.max()) if shares.size else None, decidable


def _outside_interval(expected: Expected, out: np.ndarray) -> np.ndarray:
    """Which values `out` of the result are below the lowest word or above the highest; NaN only where both are, or `or_nan`."""
    low, high = (values(expected.format, end.view(f"u{end.dtype.itemsize}")) for end in (expected.low, expected.high))  # type: ignore[union-attr]
    inside = ((low <= out) & (out <= high)) | (np.isnan(out) & np.isnan(low))
    return ~inside if expected.or_nan is None else ~(inside | (np.isnan(out) & expected.or_nan))


def values(format_name: str, codes: np.ndarray) -> np.ndarray:
    """float64 values of unsigned words in `format_name` (a reference format, or intN)."""
    if format_name.startswith(("int", "uint")):
        return codes.view(np.dtype(format_name)).astype(np.float64)
    from bitverdict.reference.formats import FORMATS, decode

    found = FORMATS[format_name]
    return decode(found, codes.astype(found.storage, copy=False))


def ulp_distance(format_name: str, got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Steps between two words on the format's own ladder (int64); integers: their difference. NaN counts by its code."""
    if format_name.startswith(("int", "uint")):
        kind = np.dtype(format_name)
        return np.abs(got.view(kind).astype(np.int64) - expected.view(kind).astype(np.int64))
    sign = np.int64(1) << (8 * got.dtype.itemsize - 1)

    def ladder(codes: np.ndarray) -> np.ndarray:
        signed = codes.astype(np.int64)
        return np.where(signed >= sign, sign - signed, signed)

    return np.abs(ladder(got) - ladder(expected))


def first_words(expected: Expected, got: np.ndarray, differs: np.ndarray) -> list[dict]:
    """The first `SHOWN` differing elements: index, both words in hexadecimal with their values, distance in ulp where one word is
    due. Of an interval both ends are shown, of a bound the value and the bound."""
    by_bound = _by_bound(expected, got)
    return [
        {"at": at.tolist(), "got": _shown(expected, got[tuple(at)]), **_due(expected, got, tuple(at), bool(by_bound[tuple(at)]))}
        for at in np.argwhere(differs)[:SHOWN]
    ]


def _due(expected: Expected, got: np.ndarray, at: tuple, by_bound: bool) -> dict:
    """What is due at `at`, as text, and how many ulp off the one word is."""
    low, high = (expected.low, expected.high) if by_bound else (expected.words, expected.words)
    if low is None or high is None:
        assert expected.value is not None and expected.bound is not None
        return {"expected": f"{float(expected.value[at]):.9g} +- {float(expected.bound[at]):.3g}", "ulp": None}
    ends = [_shown(expected, end[at].view(got.dtype)) for end in (low, high)]
    if expected.or_nan is not None and expected.or_nan[at]:
        ends[1] += " or NaN"
    if ends[0] != ends[1]:
        return {"expected": " to ".join(ends), "ulp": None}
    steps = ulp_distance(expected.format, got[at].reshape(1), low[at].view(got.dtype).reshape(1))
    return {"expected": ends[0], "ulp": int(steps[0])}


def _shown(expected: Expected, word: np.unsignedinteger) -> str:
    """A word in hexadecimal, with its value."""
    value = float(values(expected.format, np.asarray(word).reshape(1))[0])
    return f"0x{int(word):0{2 * word.dtype.itemsize}x} ({value:.9g})"


def clusters(expected: Expected, got: np.ndarray, differs: np.ndarray) -> list[str]:
    """Sentences that say where the wrong words lie and what they look like; only those that hold for all of them."""
    said: list[str] = []
    wrong = int(differs.sum())
    if wrong == differs.size:
        said.append("every word of the output differs")
    if differs.ndim == 2:
        said += _by_tile(expected, differs)
    if expected.words is None or wrong < 2:
        return said
    due = expected.words.view(got.dtype)
    if expected.format.startswith("int"):
        return said + _shifted(got, due, differs)
    sign = got.dtype.type(1 << (8 * got.dtype.itemsize - 1))
    if np.array_equal(got[differs] ^ sign, due[differs]):
        said.append("each wrong word is the expected one with the other sign")
    steps = ulp_distance(expected.format, got[differs], due[differs])
    if steps.max() <= 4:
        said.append(f"each is within {int(steps.max())} ulp: rounding, precision or order of accumulation, not movement")
    return said + _shifted(got, due, differs)


def _by_tile(expected: Expected, differs: np.ndarray) -> list[str]:
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    m, n = differs.shape
    said = [f"rows {rows[0]}..{rows[-1]} of {m}, columns {columns[0]}..{columns[-1]} of {n}"]
    if len(rows) == 1 and m > 1:
        said.append(f"one row only: {rows[0]}")
    if len(columns) == 1 and n > 1:
        said.append(f"one column only: {columns[0]}")
    if expected.tile is None:
        return said
    block_m, block_n = expected.tile
    tiles = _tile_counts(differs, block_m, block_n)
    hit = np.argwhere(tiles)
    said.append(f"{len(hit)} of {tiles.size} tiles of {block_m}x{block_n}, the first at tile {hit[0].tolist()}")
    if tiles.size > 1 and len(hit) < tiles.size:
        for axis, name in ((0, "row"), (1, "column")):
            if tiles.shape[axis] > 1 and (hit[:, axis] == tiles.shape[axis] - 1).all():
                said.append(
                    f"only in the last {name} of tiles"
                    + (", which is ragged" if differs.shape[axis] % (block_m, block_n)[axis] else "")
                )
    for places, block, name in ((rows, block_m, "row"), (columns, block_n, "column")):
        residues = np.unique(places % block)
        if len(places) > 1 and len(residues) <= max(1, block // 8):
            said.append(f"{name}s modulo {block}: only {residues[:8].tolist()}")
    return said


def _shifted(got: np.ndarray, due: np.ndarray, differs: np.ndarray) -> list[str]:
    """Whether the words that came are the expected ones of another place: transposed, or a whole row or column over."""
    if got.ndim != 2:
        return []
    if got.shape[0] == got.shape[1] > 1 and np.array_equal(got[differs], due.T[differs]):
        return ["each wrong word is the expected one of the transposed place"]
    for axis, name in ((0, "row"), (1, "column")):
        for step in (-1, 1):
            if got.shape[axis] > 2 and np.array_equal(got[differs], np.roll(due, step, axis)[differs]):
                return [f"each wrong word is the expected one of the {name} {'before' if step == 1 else 'after'}"]
    return []


def heat(expected: Expected, differs: np.ndarray) -> dict | None:
    """The picture: share of wrong words per tile (tiles merged to fit), as rows of percentages. None unless 2-D."""
    if differs.ndim != 2 or not differs.size:
        return None
    block_m, block_n = expected.tile or (max(1, -(-differs.shape[0] // HEAT_ROWS)), max(1, -(-differs.shape[1] // HEAT_COLUMNS)))
    cell_m, cell_n = block_m, block_n
    if -(-differs.shape[0] // block_m) <= 2 and -(-differs.shape[1] // block_n) <= 2:  # few tiles: look inside them
        cell_m, cell_n = max(1, block_m // 8), max(1, block_n // 16)
    while -(-differs.shape[0] // cell_m) > HEAT_ROWS:
        cell_m *= 2
    while -(-differs.shape[1] // cell_n) > HEAT_COLUMNS:
        cell_n *= 2
    wrong, size = _tile_counts(differs, cell_m, cell_n), _tile_counts(np.ones_like(differs), cell_m, cell_n)
    percent = np.where(wrong == size, 100, np.minimum(np.ceil(100 * wrong / size), 99))
    return {
        "cell": [cell_m, cell_n],
        "tile": list(expected.tile) if expected.tile else None,
        "percent": percent.astype(int).tolist(),  # 0 only where none is wrong, 100 only where all are
    }


def _tile_counts(mask: np.ndarray, block_m: int, block_n: int) -> np.ndarray:
    starts_m, starts_n = np.arange(0, mask.shape[0], block_m), np.arange(0, mask.shape[1], block_n)
    return np.add.reduceat(np.add.reduceat(mask.astype(np.int64), starts_m, 0), starts_n, 1)  # (tiles_m, tiles_n)
