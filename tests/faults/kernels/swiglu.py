"""The mutants of `kernels/swiglu.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("not masked", "column, (opened * value).to(y.dtype.element_ty), mask=inside)",
     "column, (opened * value).to(y.dtype.element_ty))", ("race", "stray write", "wrong words")),
    ("the sign forgotten", "gl.exp(-gate)", "gl.exp(gate)", ("wrong words",)),
    ("operands exchanged", "gate / (1.0 + gl.exp(-gate))", "value / (1.0 + gl.exp(-value))", ("wrong words",)),
    ("the gate rounded to the type of the result", "opened * value",
     "opened.to(y.dtype.element_ty).to(gl.float32) * value", ("wrong words",)),
    ("multiplied before it is divided", "(opened * value)", "(gate * value / (1.0 + gl.exp(-gate)))", ("wrong words",)),
    ("rows of b as far apart as those of a", "b + row * b_stride", "b + row * a_stride", ("wrong words", "stray read")),
)  # fmt: skip
MUTANTS = tuple(Mutant(kernel="swiglu", name=name, edits=once(was, by), expected=named) for name, was, by, named in _TEXTS)
