"""The mutants of `kernels/quantize_mxfp.py`, one text each."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

_WRONG = ("wrong words",)
_TEXTS = (
    ("ties away from zero", "(size > 0.25)", "(size >= 0.25)", _WRONG),
    ("ties toward zero", "(size >= 1.75)", "(size > 1.75)", _WRONG),
    ("no sign", " | (values.to(tl.uint32, bitcast=True) >> 31 << 3).to(tl.uint8)", "", _WRONG),
    ("largest exponent of e5m2 one less", "else 15)", "else 14)", _WRONG),
    ("exponent of the largest, rounded", "(largest >> 23) - EMAX", "(largest + 0x400000 >> 23) - EMAX", _WRONG),
    ("largest by sign", "bitcast=True) & 0x7FFFFFFF, 1)", "bitcast=True), 1)", _WRONG),
    ("scales below the smallest", "tl.maximum((largest >> 23) - EMAX, 0)", "(largest >> 23) - EMAX", _WRONG),
    ("NaN elements", "values = tl.where(finite[:, None], values, 0.0)", "values = values", _WRONG),
    ("no scale's NaN", "tl.where(finite, exponent, 0xFF)", "exponent", _WRONG),
    ("an fp8 scale without the tensor's", "scale.to(tl.float32) * tensor_scale", "scale.to(tl.float32)", _WRONG),
    ("a quotient of two ulp", "tl.div_rn(top, 6.0 * tensor_scale)", "(top / (6.0 * tensor_scale))", _WRONG),
    ("a product with the reciprocal", "tl.div_rn(values, tl.broadcast_to(divisor[:, None], (BLOCKS, SIZE)))",
     "values * (1.0 / divisor)[:, None]", _WRONG),
    ("a divisor of zero", "tl.where(divisor > 0, divisor, float(\"inf\"))", "divisor", _WRONG),
    ("nibbles in the other order", "low | high << 4", "high | low << 4", _WRONG),
    ("the odd last byte lost", "mask=byte * 2 < columns", "mask=byte * 2 + 1 < columns", _WRONG),
    ("the last short scale lost", "mask=block * SIZE < columns", "mask=block * SIZE + SIZE <= columns", _WRONG),
    ("the row behind in the last block", "mask=column < columns, other=0.0", "mask=column < columns + 1, other=0.0",
     ("wrong words", "stray read")),
)  # fmt: skip
_TIES = (("regime", "ties"),)
_SHOWS_IN = {
    "no scale's NaN": (*_TIES, ("format", "mxfp4")),
    "NaN elements": (*_TIES, ("format", "mxfp4")),
    "largest exponent of e5m2 one less": (*_TIES, ("format", "mxfp8_e5m2")),
    "the last short scale lost": (("last block", "short"),),
    "scales below the smallest": _TIES,
    "an fp8 scale without the tensor's": (*_TIES, ("format", "nvfp4"), ("dtype", "fp32")),
    "a quotient of two ulp": (*_TIES, ("format", "nvfp4")),
    "a product with the reciprocal": (*_TIES, ("format", "nvfp4")),
    "a divisor of zero": (*_TIES, ("format", "nvfp4")),
    "the odd last byte lost": (("last block", "short"), ("format", "nvfp4")),
}
MUTANTS = tuple(
    Mutant(kernel="quantize_mxfp", name=name, edits=once(was, by), expected=named, shows_in=_SHOWS_IN.get(name, ()))
    for name, was, by, named in _TEXTS
)
