"""The mutants of `kernels/split_k_matmul.py`: what a person gets wrong when parts of K are added, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_ADDED = "for part in tl.static_range(1, SPLIT):"
_PART = "tl.load(parts + part * elements + places, mask=inside)"
_STORED = "tl.store(places + part * matrix, accumulator, mask=inside)"
_ATOMIC = 'tl.atomic_add(results, accumulator, mask=inside, sem="relaxed")'
_TEXTS = (
    ("share rounded down", "share = tl.cdiv(blocks, SPLIT)", "share = blocks // SPLIT"),
    ("shares overlap by a block", "range(part * share, min((part + 1)", "range(max(part * share - 1, 0), min((part + 1)"),
    ("tile counted in columns", "tile_row = tile % tl.cdiv(m, BLOCK_M)", "tile_row = tile % tl.cdiv(n, BLOCK_N)"),
    ("last part left out", _ADDED, "for part in tl.static_range(1, SPLIT - 1):"),
    ("first part added twice", _ADDED, "for part in tl.static_range(0, SPLIT):"),
    ("parts added in descending order", _PART, "tl.load(parts + (SPLIT - part) * elements + places, mask=inside)"),
    ("parts rounded to the type of C", _STORED,
     _STORED.replace("accumulator", "accumulator.to(c.dtype.element_ty).to(tl.float32)")),
    ("parts of one tile in one place", _STORED, "tl.store(places, accumulator, mask=inside)"),
    ("columns of a part not masked", _STORED, _STORED.replace("mask=inside", "mask=(rows < m)[:, None]")),
    ("empty share stores nothing", _STORED, _STORED.replace("mask=inside", "mask=inside & (part * share < blocks)")),
    ("the first program adds", "if before == SPLIT - 1:", "if before == 0:"),
    ("counter without order", 'sem="acq_rel"', 'sem="relaxed"'),
    ("part added without an atomic", _ATOMIC, "tl.store(results, tl.load(results, mask=inside) + accumulator, mask=inside)"),
    ("part added by halves", _ATOMIC,
     f"for half in tl.static_range(2):\n            {_ATOMIC.replace('accumulator', '0.5 * accumulator')}"),
    ("C not zeroed before atomics", "        c.zero_()\n", "        pass\n"),
    ("rows of C taken as if they had no gaps", "flat = problem.c_pad == 0", "flat = True"),
    ("split not checked", "holds=lambda p, c: 1 <= c.split <= MOST_SHARES,", "holds=lambda p, c: True,"),
)  # fmt: skip
_EXPECTED = {
    "parts of one tile in one place": ("race",),
    "columns of a part not masked": ("race", "stray write"),
    "the first program adds": ("race", "wrong words"),
    "counter without order": ("race",),
    "part added without an atomic": ("race",),
    "C not zeroed before atomics": ("outside the bound", "wrong words"),
    "rows of C taken as if they had no gaps": ("wrong words", "stray write"),
    "split not checked": ("not refused", "refused", "illegal address"),
}
_SHOWS = {
    **dict.fromkeys(("the first program adds", "counter without order"), (("reduction", "last program"),)),
    **dict.fromkeys(
        ("part added without an atomic", "part added by halves", "C not zeroed before atomics"), (("reduction", "atomics"),)
    ),
    "parts rounded to bf16": (("shares", "4"), ("regime", "normal")),
    "first part added twice": (("shares", "4"),),
    "empty share stores nothing": (("empty shares", "True"),),
}
MUTANTS = tuple(
    Mutant(
        kernel="split_k_matmul",
        name=name,
        edits=once(text, by),
        expected=_EXPECTED.get(name, ("wrong words",)),
        shows_in=_SHOWS.get(name, ()),
    )
    for name, text, by in _TEXTS
)
