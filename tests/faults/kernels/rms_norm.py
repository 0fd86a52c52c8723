"""The mutants of `kernels/rms_norm.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("the mean of the tile", "gl.sum(values * values, 0) * share", "gl.sum(values * values, 0) / BLOCK", ("wrong words",)),
    ("eps outside the root", "gl.rsqrt(gl.sum(values * values, 0) * share + eps)",
     "gl.rsqrt(gl.sum(values * values, 0) * share) + eps", ("wrong words",)),
    ("the root rounded correctly", "gl.rsqrt(", "1.0 / gl.sqrt(", ("wrong words",)),
    ("weights before the root", "values * inverse * scale", "values * scale * inverse", ("wrong words",)),
    ("rows that do not exist", "row_mask = inside & (row < rows)",
     "row_mask = inside", ("stray read", "stray write", "race", "wrong words")),
    ("dw of the last row alone", "part += given * values * inverse", "part = given * values * inverse", ("wrong words",)),
    ("dx without the mean", "(scaled - values * along)", "scaled", ("wrong words",)),
    ("the first part each time", "        place += columns\n", "", ("wrong words",)),
    ("the sum's weights forgotten", "gl.sum(scaled * values, 0)", "gl.sum(given * values, 0)", ("wrong words",)),
)  # fmt: skip
MUTANTS = tuple(Mutant(kernel="rms_norm", name=name, edits=once(was, by), expected=named) for name, was, by, named in _TEXTS)
