"""The mutants of `kernels/attention.py`: what a person gets wrong with running sums, masks and groups, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_WRONG = ("wrong words",)
_MASK = "met & (columns[None, :] <= rows[:, None] + (n - m))"
_STORE = "mask=(rows < m)[:, None] & (depth < D)[None, :],\n    )\n\n"
_TEXTS = (
    ("row sums not faded", "tl.fma(total, faded, tl.sum(powers, 1))", "total + tl.sum(powers, 1)", _WRONG),
    ("products not faded", "values, found * faded[:, None])", "values, found)", _WRONG),
    ("faded by the largest to come", "tl.exp2(largest - base)", "tl.exp2(base - largest)", _WRONG),
    ("the largest of this block alone", "tl.maximum(largest, tl.max(scores, 1) * scale)", "tl.max(scores, 1) * scale", _WRONG),
    ("the largest not scaled", "tl.max(scores, 1) * scale)", "tl.max(scores, 1))", _WRONG),
    ("scores rounded once more", "tl.fma(scores, scale, -base[:, None])", "scores * scale - base[:, None]", _WRONG),
    ("e in the place of 2", "problem.scale) * LOG2_E", "problem.scale)", _WRONG),
    ("powers rounded before the sum", "tl.sum(powers, 1))", "tl.sum(powers.to(v.dtype.element_ty).to(tl.float32), 1))", _WRONG),
    ("no row meets itself", _MASK, _MASK.replace("<=", "<"), _WRONG),
    ("causal from the first row", _MASK, "met & (columns[None, :] <= rows[:, None])", _WRONG),
    ("causal blocks end too early", "tl.minimum(n, start + BLOCK_M + n - m)", "tl.minimum(n, start + n - m + 1)", _WRONG),
    ("a row that meets nothing is NaN", "tl.where(higher == -float(\"inf\"), 0.0, higher)", "higher", _WRONG),
    ("no share of nothing", "tl.where(total == 0.0, 0.0, 1.0 / total)", "1.0 / total", _WRONG),
    ("columns behind the end count", "met = (columns < n)[None, :]", "met = (columns < n + BLOCK_N)[None, :]", _WRONG),
    ("heads of K in turn", "head // group * k_head", "head % (heads // group) * k_head", _WRONG),
    ("V of the head's own number", "head // group * v_head", "head * v_head", ("stray read", "illegal address", "wrong words")),
    ("sums in natural units", "largest + _log2(total)", "(largest + _log2(total)) * 0.6931471805599453", _WRONG),
    ("a logarithm of libdevice", "largest + _log2(total)", "largest + tl.log2(total)", _WRONG),
    ("each quotient divided", "found * share[:, None])", "found / total[:, None])", _WRONG),
    ("rows not masked at the store", _STORE, _STORE.replace("(rows < m)[:, None] & ", ""), ("stray write", "race")),
    ("columns not checked", "holds=lambda p, c: 16 <= c.block_n <= 256,", "holds=lambda p, c: True,", ("not refused", "refused")),
)  # fmt: skip
MUTANTS = tuple(Mutant(kernel="attention", name=name, edits=once(was, by), expected=named) for name, was, by, named in _TEXTS)
