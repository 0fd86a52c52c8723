"""The mutants of `kernels/dropout.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("more than p", "number >= p", "number > p", ("wrong words",)),
    ("the other ones dropped", "number >= p", "number < p", ("wrong words",)),
    ("the index of the storage", "row * columns + column", "row * x_stride + column", ("wrong words",)),
    ("each row by the same numbers", "row * columns + column", "column.to(tl.int64)", ("wrong words",)),
    ("a key of 32 bits", "number = tl.rand(key", "number = tl.rand(key.to(tl.uint32)", ("wrong words",)),
    ("seven rounds", "row * columns + column)  # (BLOCK,)", "row * columns + column, 7)  # (BLOCK,)", ("wrong words",)),
    ("not scaled", "values * scale, 0.0", "values, 0.0", ("wrong words",)),
    ("a quotient", "values * scale, 0.0", "values / (1.0 - p), 0.0", ("wrong words",)),
    ("multiplied by zero", "tl.where(number >= p, values * scale, 0.0)",
     "values * tl.where(number >= p, scale, 0.0)", ("wrong words",)),
    ("a gradient of its own", '_launch_dropout("dy", dy, key, p,', '_launch_dropout("dy", dy, key ^ 1, p,', ("wrong words",)),
    ("one column too many", "inside = column < columns", "inside = column < columns + 1", ("stray read", "stray write", "race")),
)  # fmt: skip
_SHOWS_IN = {
    "a key of 32 bits": (("bits of the key", "64"), ("regime", "subnormals")),
    "more than p": (("kept", "from the number of an element on"),),
}
MUTANTS = tuple(
    Mutant(kernel="dropout", name=name, edits=once(was, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
    for name, was, by, named in _TEXTS
)
