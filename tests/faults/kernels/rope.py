"""The mutants of `kernels/rope.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("turned the other way", "left * c - right * s", "left * c + right * s", ("wrong words",)),
    ("neighbours paired", "gl.load(x + offset + HALF", "gl.load(x + offset + 1", ("wrong words", "stray read", "race")),
    ("angles of the head", "cos + position * HALF", "cos + gl.program_id(1) * HALF", ("wrong words", "stray read")),
    ("the second half not stored", "    gl.store(y + offset + HALF, (right * c + left * s).to(y.dtype.element_ty), mask=inside)\n",
     "", ("wrong words",)),
    ("a column too many", "inside = column < HALF",
     "inside = column <= HALF", ("wrong words", "race", "stray read", "stray write")),
    ("fused", "gl.store(y + offset, (left * c - right * s)",
     "gl.store(y + offset, gl.fma(left, c, -(right * s))", ("wrong words",)),
)  # fmt: skip
MUTANTS = tuple(Mutant(kernel="rope", name=name, edits=once(was, by), expected=named) for name, was, by, named in _TEXTS)
