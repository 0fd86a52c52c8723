"""What of the operand space the cases of a block-scaled kernel exercise: a code counts only where it decides a word.

Element codes under each class of scale codes, scale codes, positions inside a packed block of scales, and how far exponents lie
apart within one sum. A code at a place counts when its neighbour (last bit flipped) in its stead changes an expected word of that
case: a code that is cut off, multiplied by zero or behind a NaN has been read by nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.contracts.inputs.block_scaled_inputs import Side
from bitverdict.harness.contracts.inputs.exact_inputs import generator
from bitverdict.harness.contracts.inputs.operand_coverage import scale_class
from bitverdict.reference import scale_layout
from bitverdict.reference.formats import FORMATS, decode

PARTNERS = 3  # rows of the other side tried for each code
TRIES = 4  # places tried for each pair of an element code and a class of scales
BATCH_WORDS = 4096  # words evaluated at a time
Words = Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""(a (P, K), a scales, b (P, K), b scales) -> words (P,): the plan's, on chosen elements."""
SPREADS = (("none", 0), ("1..12", 12), ("13..24", 24), ("25..35", 35), ("beyond 35", 1 << 30))  # F is 25 or 35


@dataclass
class ReachedCodes:
    """What one or several cases of a format reached on one side ("a" or "b")."""

    element_codes: set[int] = field(default_factory=set)
    pairs: set[tuple[int, str]] = field(default_factory=set)  # (element code, class of its scale)
    scale_codes: set[int] = field(default_factory=set)
    positions: set[tuple[int, int]] = field(default_factory=set)  # (row, column) inside a packed block of 128 x 4
    spreads: set[str] = field(default_factory=set)

    def add(self, other: ReachedCodes) -> None:
        for name, seen in vars(other).items():
            getattr(self, name).update(seen)


def scale_classes(scale: str) -> list[str]:
    return sorted({scale_class(scale, code) for code in range(256)})


def reached_codes(
    side: str, a: Side, b: Side, base: np.ndarray, words: Words, *, elements: tuple[str, str], scale: str, block_size: int
) -> ReachedCodes:
    """What `side` of a case reaches: `a` (M, K), `b` (N, K), `base` (M, N) their expected words, `words` the plan on chosen
    elements, `elements` the element formats of a and b."""
    own_side, other_side = (a, b) if side == "a" else (b, a)
    base = base if side == "a" else base.T  # (rows, partners)

    def changes(rows: np.ndarray, partners: np.ndarray, codes: np.ndarray, scales: np.ndarray) -> np.ndarray:
        mine, theirs = (codes, scales), (other_side.codes[partners], other_side.scales[partners])
        found = words(*mine, *theirs) if side == "a" else words(*theirs, *mine)
        return found != base[rows, partners]

    reach = ReachedCodes(spreads=_spreads(a, b, elements, scale, block_size))
    rng = generator(0, f"reached {side}")
    rows, ks = _element_places(own_side, scale, block_size, rng)
    for place in _deciding_places(own_side, other_side, base, rows, ks, block_size, rng, changes, of_scale=False):
        code, under = int(own_side.codes[rows[place], ks[place]]), int(own_side.scales[rows[place], ks[place] // block_size])
        reach.element_codes.add(code)
        reach.pairs.add((code, scale_class(scale, under)))
    rows, columns = (index.reshape(-1) for index in np.indices(own_side.scales.shape))
    for place in _deciding_places(own_side, other_side, base, rows, columns, block_size, rng, changes, of_scale=True):
        reach.scale_codes.add(int(own_side.scales[rows[place], columns[place]]))
        reach.positions.add((int(rows[place]) % scale_layout.TILE_ROWS, int(columns[place]) % scale_layout.TILE_COLUMNS))
    return reach


def _element_places(side: Side, scale: str, block_size: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Up to TRIES places (rows, k) of each pair of element code and scale class."""
    number = {name: place for place, name in enumerate(scale_classes(scale))}
    table = np.array([number[scale_class(scale, code)] for code in range(256)])
    classes = np.repeat(table[side.scales], block_size, axis=1)[:, : side.codes.shape[1]]  # (rows, K)
    keys = (classes * 256 + side.codes).reshape(-1)
    order = rng.permutation(keys.size)
    order = order[np.argsort(keys[order], kind="stable")]
    sorted_keys = keys[order]
    first = np.r_[0, np.flatnonzero(np.diff(sorted_keys)) + 1]
    rank = np.arange(keys.size) - np.repeat(first, np.diff(np.r_[first, keys.size]))
    chosen = order[rank < TRIES]
    return np.unravel_index(chosen, side.codes.shape)


def _deciding_places(own_side: Side, other: Side, base: np.ndarray, rows: np.ndarray, columns: np.ndarray, block_size: int,
             rng: np.random.Generator, changes: Callable, *, of_scale: bool) -> np.ndarray:  # fmt: skip
    """Which of the places (row, k), or (row, block) of scales, decide a word: indices into `rows`."""
    decides = np.zeros(rows.size, bool)
    lit = other.codes != 0  # (partners, K): a partner without an element there sees nothing
    if of_scale:
        short = -lit.shape[1] % block_size
        lit = np.pad(lit, ((0, 0), (0, short))).reshape(lit.shape[0], -1, block_size).any(axis=2)  # (partners, blocks)
    for start in range(0, rows.size, BATCH_WORDS):
        part = np.arange(start, min(start + BATCH_WORDS, rows.size))
        score = lit[:, columns[part]].T * 2.0 + _moderate(base[rows[part]]) + rng.random((part.size, lit.shape[0]))  # (P, partners)
        count = min(PARTNERS, lit.shape[0])
        best = np.argpartition(-score, count - 1, axis=1)[:, :count]  # (P, count)
        for choice in range(count):
            open_places = part[~decides[part]]
            if not open_places.size:
                break
            codes, scales = own_side.codes[rows[open_places]], own_side.scales[rows[open_places]]  # copies (P, K), (P, blocks)
            changed = scales if of_scale else codes
            changed[np.arange(open_places.size), columns[open_places]] ^= 1
            decides[open_places] = changes(rows[open_places], best[open_places - start, choice], codes, scales)
    return np.flatnonzero(decides)


def _moderate(words: np.ndarray) -> np.ndarray:
    """One where an fp32, fp16 or e4m3 word is neither zero nor beyond the finite numbers: there a change shows."""
    bits = 8 * words.dtype.itemsize
    magnitude = words & ((1 << (bits - 1)) - 1)
    ceiling = {32: 0x7F800000, 16: 0x7C00, 8: 0x7E}[bits]
    return ((magnitude != 0) & (magnitude < ceiling)).astype(np.float64)


def _spreads(a: Side, b: Side, elements: tuple[str, str], scale: str, block_size: int) -> set[str]:
    """Classes of how far apart the exponents of non-zero products lie within a sum, over some of the sums."""
    pairs = min(64, len(a.codes), len(b.codes))
    exponents = []
    for side, element in zip((a, b), elements, strict=True):
        scales, codes = side.scales[:pairs], side.codes[:pairs]
        spread = np.repeat(np.frexp(decode(FORMATS[scale], scales))[1], block_size, axis=1)[:, : codes.shape[1]]  # (pairs, K)
        values = decode(FORMATS[element], codes)  # (pairs, K)
        exponents.append((spread + np.frexp(values)[1], values != 0))
    total, there = exponents[0][0] + exponents[1][0], exponents[0][1] & exponents[1][1]  # (pairs, K)
    high = np.where(there, total, -(1 << 20)).max(axis=1)
    low = np.where(there, total, 1 << 20).min(axis=1)
    return {next(name for name, last in SPREADS if apart <= last) for apart in (high - low)[there.any(axis=1)]}
