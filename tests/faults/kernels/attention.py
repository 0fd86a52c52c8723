"""The mutants of `kernels/attention.py`: what a person gets wrong with running sums, masks and groups, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_WRONG = ("wrong words",)
_MASK = "met & (columns[None, :] <= rows[:, None] + (n - m))"
_STORE = "mask=(rows < m)[:, None] & (depth < D)[None, :],\n    )\n\n"
_HEAD_OF_K = "q_head\n    k += batch * k_batch + head // group * k_head"
_HEAD_OF_V = "head // group * v_head\n    queries"
_TEXTS = (
    ("row sums not faded", "tl.fma(total, faded, tl.sum(powers, 1))", "total + tl.sum(powers, 1)", _WRONG),
    ("products not faded", "values, sums * faded[:, None])", "values, sums)", _WRONG),
    ("faded by the largest to come", "tl.exp2(largest - base)", "tl.exp2(base - largest)", _WRONG),
    ("the largest of this block alone", "tl.maximum(largest, tl.max(scores, 1) * factor)", "tl.max(scores, 1) * factor", _WRONG),
    ("the largest not scaled", "tl.max(scores, 1) * factor)", "tl.max(scores, 1))", _WRONG),
    ("scores rounded once more", "tl.fma(scores, factor, -base[:, None])", "scores * factor - base[:, None]", _WRONG),
    ("e in the place of 2", "scale_of(problem) * LOG2_E", "scale_of(problem)", _WRONG),
    ("powers rounded before the sum", "tl.sum(powers, 1))", "tl.sum(powers.to(v.dtype.element_ty).to(tl.float32), 1))", _WRONG),
    ("no row meets itself", _MASK, _MASK.replace("<=", "<"), _WRONG),
    ("causal from the first row", _MASK, "met & (columns[None, :] <= rows[:, None])", _WRONG),
    ("causal blocks end too early", "tl.minimum(n, behind + n - m)", "tl.minimum(n, behind)",
     (*_WRONG, "other instructions than promised")),  # of more rows than columns it takes too many
    ("a row that meets nothing is NaN", "tl.where(higher == -float(\"inf\"), 0.0, higher)", "higher", _WRONG),
    ("columns behind the end count", "met = (columns < n)[None, :]", "met = (columns < n + 64)[None, :]", _WRONG),
    ("heads of K in turn", _HEAD_OF_K, _HEAD_OF_K.replace("head // group", "head % (heads // group)"), _WRONG),
    ("V of the head's own number", _HEAD_OF_V, _HEAD_OF_V.replace("head // group", "head"), ("stray read", "illegal address")),
    ("sums in natural units", "largest + _log2(total)", "(largest + _log2(total)) * 0.6931471805599453", _WRONG),
    ("a logarithm of libdevice", "largest + _log2(total)", "largest + tl.log2(total)", _WRONG),
    ("each quotient divided", "sums * share[:, None])", "sums / total[:, None])", _WRONG),
    ("rows not masked at the store", _STORE, _STORE.replace("(rows < m)[:, None] & ", ""), ("stray write", "race")),
    ("columns not checked", "holds=lambda p, c: 16 <= c.block_n <= 256,", "holds=lambda p, c: True,", ("not refused", "refused")),
)  # fmt: skip
_OF_GRADIENTS = (
    ("delta of O alone", "gl.sum(made * given, 1)", "gl.sum(made * made, 1)"),
    ("dQ without delta", "tl.trans(values)) - along[:, None])", "tl.trans(values)))"),
    ("dK without delta", "tl.trans(gradients)) - along[None, :])", "tl.trans(gradients)))"),
    ("dQ not scaled", "(sums * scale).to(", "sums.to("),
    ("dK not scaled", "(found_k * scale).to(", "found_k.to("),
    ("dK of powers", "tl.dot(slopes.to(k.dtype.element_ty), queries, found_k)",
     "tl.dot(powers.to(k.dtype.element_ty), queries, found_k)"),
    ("heads of the group left out", "for member in range(group):", "for member in range(1):"),
    ("dO of the first head", "of_q * do_head", "head * group * do_head"),
    ("lse of the first head", "* group + member) * m + rows", "* group) * m + rows"),
    ("causal gradients begin too late", "tl.maximum(start + m - n, 0) // BLOCK_N",
     "(tl.maximum(start + m - n, 0) + BLOCK_N - 1) // BLOCK_N"),
    ("dK causal from the first row", "<= rows[None, :] + (n - m), powers", "<= rows[None, :], powers"),
)  # fmt: skip
_SHOWS_IN = {"columns behind the end count": (("causal", "False"),), "each quotient divided": (("rows that meet none", "False"),)}
MUTANTS = (
    *(
        Mutant(kernel="attention", name=name, edits=once(was, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
        for name, was, by, named in _TEXTS
    ),
    *(
        Mutant(kernel="attention", name=name, edits=once(was, by), expected=_WRONG, shows_in=(("backward", "True"),))
        for name, was, by in _OF_GRADIENTS
    ),
)
