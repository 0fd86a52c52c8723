"""The mutants of `kernels/cross_entropy.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_WRONG = ("wrong words",)
_TEXTS = (
    ("the largest not taken away", "gl.sum(gl.exp(values - shift), 0)", "gl.sum(gl.exp(values), 0)", _WRONG),
    ("the sum before not scaled", "total * gl.exp(largest - shift) +", "total +", _WRONG),
    ("the last block alone", "total * gl.exp(largest - shift) +", "", _WRONG),
    ("blocks of -inf not kept apart", 'gl.where(found == -float("inf"), 0.0, found)', "found", _WRONG),
    ("-inf in the mean", "gl.where(inside, values, 0.0)", "values", _WRONG),
    ("a logarithm of base two", "gl.log(total)", "gl.log2(total)", _WRONG),
    ("ignored rows counted", "gl.where(counted, result, 0.0)", "result", _WRONG),
    ("labels smoothed by the sum", "logit_sum * share - largest", "logit_sum - largest", _WRONG),
    ("the target's own share not less", "result * target_weight + (", "result + (", _WRONG),
    ("lse below the largest", "logarithm + largest)", "logarithm)", _WRONG),
    ("a gradient at the next column", "column == target", "column == target + 1", _WRONG),
    ("a gradient of labels that are not smooth", "        share -= class_weight\n", "        share -= 0.0\n", _WRONG),
    ("a gradient of ignored rows", "gl.where(target != ignore_index, share * gl.load(g + row), 0.0)",
     "share * gl.load(g + row)", _WRONG),
    ("a gradient of weight one", "share * gl.load(g + row)", "share", _WRONG),
    ("in place, rows together", "stride if in_place else columns", "columns", ("wrong words", "race", "stray write")),
    ("one column too many", "column = start + gl.arange(0, BLOCK, layout)  # (BLOCK,)\n        inside = column < columns",
     "column = start + gl.arange(0, BLOCK, layout)  # (BLOCK,)\n        inside = column < columns + 1",
     ("wrong words", "stray read")),
    ("another order of the sum",
     "([PER_THREAD], [warp_threads()], [gl.num_warps()], [0])\n    row = gl.program_id(0).to(gl.int64)\n    largest",
     "([2 * PER_THREAD], [warp_threads()], [gl.num_warps()], [0])\n    row = gl.program_id(0).to(gl.int64)\n    largest", _WRONG),
)  # fmt: skip
_BLOCKS = (("config", "block=128 per_thread=1 num_warps=1"), ("regime", "normal"))
_SHOWS_IN = {
    "the sum before not scaled": _BLOCKS,
    "another order of the sum": _BLOCKS,
    "the largest not taken away": _BLOCKS,
    "the last block alone": _BLOCKS,
    "ignored rows counted": (("regime", "subnormals"),),
    "a gradient of ignored rows": (("regime", "subnormals"),),
}
MUTANTS = tuple(
    Mutant(kernel="cross_entropy", name=name, edits=once(was, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
    for name, was, by, named in _TEXTS
)
