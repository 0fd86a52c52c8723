"""The mutants of `kernels/softmax.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_TEXTS = (
    ("nothing behind the last column", "mask=inside, other=-float",
     "mask=column < columns + 1, other=-float", ("wrong words", "stray read")),
    ("zero behind the last column", 'other=-float("inf")', "other=0.0", ("wrong words",)),
    ("the maximum not taken away", "below = values - gl.max(values, 0)", "below = values", ("wrong words",)),
    ("base two", "gl.exp(below)", "gl.exp2(below)", ("wrong words",)),
    ("the quotient rounded correctly", "powers / total", "gl.div_rn(powers, total)", ("wrong words",)),
    ("summed in the type of the result", "gl.sum(powers, 0)",
     "gl.sum(powers.to(y.dtype.element_ty), 0).to(gl.float32)", ("wrong words",)),
    ("another order of the sum", "gl.BlockedLayout([PER_THREAD], [warp_threads()]",
     "gl.BlockedLayout([2 * PER_THREAD], [warp_threads()]", ("wrong words",)),
    ("rows of the result as far apart as those of x", "y + row * y_stride", "y + row * x_stride", ("wrong words", "stray write")),
)  # fmt: skip
MUTANTS = tuple(Mutant(kernel="softmax", name=name, edits=once(was, by), expected=named) for name, was, by, named in _TEXTS)
