"""What is told of words that differ: the first of them, where they cluster, a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from bitverdict.harness.model.contract import ExpectedOutput

MAX_WORDS = 8  # words printed in full


HEAT_ROWS, HEAT_COLUMNS = 24, 48  # cells of the picture


def _by_bound(expected: ExpectedOutput, got: np.ndarray) -> np.ndarray:
    """Which elements (of got's shape) a bound or an interval decides, and no word."""
    if expected.words is None:
        return np.ones(got.shape, bool)
    return np.zeros(got.shape, bool) if expected.bounded is None else expected.bounded


def values(format_name: str, codes: np.ndarray) -> np.ndarray:
    """float64 values of unsigned words in `format_name` (a reference format, intN or bool)."""
    if format_name.startswith(("int", "uint")):
        return codes.view(np.dtype(format_name)).astype(np.float64)
    if format_name == "bool":
        return codes.astype(np.float64)
    from bitverdict.reference.formats import FORMATS, decode

    found = FORMATS[format_name]
    return decode(found, codes.astype(found.storage, copy=False))


def ulp_distance(format_name: str, words: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Steps between two words on the format's own ladder (int64); integers: their difference. NaN counts by its code."""
    if format_name.startswith(("int", "uint")):
        kind = np.dtype(format_name)
        return np.abs(words.view(kind).astype(np.int64) - expected.view(kind).astype(np.int64))
    sign = np.int64(1) << (8 * words.dtype.itemsize - 1)

    def ladder(codes: np.ndarray) -> np.ndarray:
        signed = codes.astype(np.int64)
        return np.where(signed >= sign, sign - signed, signed)

    result: np.ndarray = np.abs(ladder(words) - ladder(expected))
    return result


def first_words(expected: ExpectedOutput, observed_words: np.ndarray, differs: np.ndarray) -> list[dict[str, Any]]:
    """The first `MAX_WORDS` differing elements: index, both words in hexadecimal with their values, distance in ulp where one word
    is due. Of an interval both ends are shown, of a bound the value and the bound."""
    by_bound = _by_bound(expected, observed_words)
    return [
        {
            "at": at.tolist(),
            "got": _word_text(expected, observed_words[tuple(at)]),
            **_due_text(expected, observed_words, tuple(at), bool(by_bound[tuple(at)])),
        }
        for at in np.argwhere(differs)[:MAX_WORDS]
    ]


def _due_text(expected: ExpectedOutput, words: np.ndarray, index: tuple[int, ...], by_bound: bool) -> dict[str, Any]:
    """What is due at `at`, as text, and how many ulp off the one word is: None where the signs differ, at zero and at a NaN."""
    low, high = (expected.low, expected.high) if by_bound else (expected.words, expected.words)
    if low is None or high is None:
        assert expected.value is not None and expected.bound is not None
        return {"expected": f"{float(expected.value[index]):.9g} +- {float(expected.bound[index]):.3g}", "ulp": None}
    ends = [_word_text(expected, end[index].view(words.dtype)) for end in (low, high)]
    if expected.or_nan is not None and expected.or_nan[index]:
        ends[1] += " or NaN"
    if ends[0] != ends[1]:
        return {"expected": " to ".join(ends), "ulp": None}
    if not by_bound and expected.others is not None:
        at: Any = (slice(None), *index)
        others = np.setdiff1d(expected.others[at].view(words.dtype), low[index].view(words.dtype))
        ends[0] += "".join(f" or {_word_text(expected, word)}" for word in others[:MAX_WORDS]) + (
            " or others" if len(others) > MAX_WORDS else ""
        )
    word, due = words[index].reshape(1), low[index].view(words.dtype).reshape(1)
    both = values(expected.format, np.concatenate([word, due]))
    has_one_sign = expected.format.startswith(("int", "uint")) or word == due or (np.isfinite(both).all() and both.prod() > 0)
    return {"expected": ends[0], "ulp": int(ulp_distance(expected.format, word, due)[0]) if has_one_sign else None}


def _word_text(expected: ExpectedOutput, word: np.unsignedinteger) -> str:
    """A word in hexadecimal, with its value."""
    value = float(values(expected.format, np.asarray(word).reshape(1))[0])
    return f"0x{int(word):0{2 * word.dtype.itemsize}x} ({value:.9g})"


def clusters(expected: ExpectedOutput, words: np.ndarray, differs: np.ndarray) -> list[str]:
    """Sentences that say where the wrong words lie and what they look like; only those that hold for all of them."""
    sentences: list[str] = []
    wrong = int(differs.sum())
    if wrong == differs.size:
        sentences.append("every word of the output differs")
    if differs.ndim == 2:
        sentences += _by_tile(expected, differs)
    if expected.words is None or wrong < 2:
        return sentences
    due_words = expected.words.view(words.dtype)
    if expected.format.startswith("int"):
        return sentences + _find_shift(words, due_words, differs)
    sign = words.dtype.type(1 << (8 * words.dtype.itemsize - 1))
    if np.array_equal(words[differs] ^ sign, due_words[differs]):
        sentences.append("each wrong word is the expected one with the other sign")
    steps = ulp_distance(expected.format, words[differs], due_words[differs])
    if steps.max() <= 4:
        sentences.append(f"each is within {int(steps.max())} ulp: rounding, precision or order of accumulation, not movement")
    return sentences + _find_shift(words, due_words, differs)


def _range_text(name: str, places: np.ndarray, size: int) -> str:
    """Which rows or columns have something wrong; empty where the first and the last do."""
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == size:
        return ""
    return f"{name} {first} of {size}" if first == last else f"{name}s {first} to {last} of {size}"


def _by_tile(expected: ExpectedOutput, differs: np.ndarray) -> list[str]:
    rows, columns = (np.flatnonzero(differs.any(axis=axis)) for axis in (1, 0))
    m, n = differs.shape
    where = [text for name, places, size in (("row", rows, m), ("column", columns, n)) if (text := _range_text(name, places, size))]
    sentences = [f"in {' and '.join(where)} alone"] if where else []
    if expected.tile is None:
        return sentences
    block_m, block_n = expected.tile
    tiles = _tile_counts(differs, block_m, block_n)
    hit = np.argwhere(tiles)
    sentences.append(f"{len(hit)} of {tiles.size} tiles of {block_m}x{block_n}, the first at tile {hit[0].tolist()}")
    if tiles.size > 1 and len(hit) < tiles.size:
        for axis, name in ((0, "row"), (1, "column")):
            if tiles.shape[axis] > 1 and (hit[:, axis] == tiles.shape[axis] - 1).all():
                sentences.append(
                    f"only in the last {name} of tiles"
                    + (", which is ragged" if differs.shape[axis] % (block_m, block_n)[axis] else "")
                )
    for places, block, name in ((rows, block_m, "row"), (columns, block_n, "column")):
        residues = np.unique(places % block)
        if len(places) > 1 and len(residues) <= max(1, block // 8):
            sentences.append(f"{name}s modulo {block}: only {residues[:8].tolist()}")
    return sentences


def _find_shift(words: np.ndarray, due_words: np.ndarray, differs: np.ndarray) -> list[str]:
    """Whether the words that came are the expected ones of another place: transposed, or a whole row or column over."""
    if words.ndim != 2:
        return []
    if words.shape[0] == words.shape[1] > 1 and np.array_equal(words[differs], due_words.T[differs]):
        return ["each wrong word is the expected one of the transposed place"]
    for axis, name in ((0, "row"), (1, "column")):
        for step in (-1, 1):
            if words.shape[axis] > 2 and np.array_equal(words[differs], np.roll(due_words, step, axis)[differs]):
                return [f"each wrong word is the expected one of the {name} {'before' if step == 1 else 'after'}"]
    return []


def heat(expected: ExpectedOutput, differs: np.ndarray) -> dict[str, Any] | None:
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
