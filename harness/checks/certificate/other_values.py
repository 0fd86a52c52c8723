"""Operands with other values: special ones taken for zero, and all drawn anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from bitverdict.harness.checks.certificate.movement import MovementFault
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.certificate import Kind
from bitverdict.reference.formats import FORMATS, Format, decode, encode

Operands = Mapping[str, Operand]


def without_specials(operands: Operands) -> Iterator[MovementFault]:
    """All operands with zeros for their NaN and infinities, and for their subnormals, where they have some."""
    special, subnormal = dict(operands), dict(operands)
    for name, operand in operands.items():
        fmt = _format(operand)
        if fmt is None:
            continue
        values = decode(fmt, operand.codes)  # (*shape,)
        small = (values != 0) & (np.abs(values) < fmt.smallest_normal)
        for found, places in ((special, ~np.isfinite(values)), (subnormal, small)):
            if places.any():
                found[name] = replace(operand, codes=np.where(places, operand.codes.dtype.type(0), operand.codes))
    for subject, found in (("NaN and infinities", special), ("subnormals", subnormal)):
        if any(found[name] is not operand for name, operand in operands.items()):
            yield MovementFault(Kind.SPECIAL, subject, "as zero", found)


def redraw_operands(operands: Operands, data_seed: int) -> Operands:
    """Every operand of floats with values near 1, of either sign. Integers stay: they may be row numbers."""
    rng = np.random.default_rng([data_seed, 1])
    new_operands = dict(operands)
    for name, operand in operands.items():
        fmt, shape = _format(operand), operand.codes.shape
        if fmt is not None:
            values = rng.standard_normal(shape)  # (*shape,)
            new_operands[name] = replace(operand, codes=encode(fmt, values if fmt.has_sign else np.abs(values)))
        elif operand.codes.itemsize == 1:  # int8, or two elements of four bits
            new_operands[name] = replace(operand, codes=rng.integers(0, 127, shape).astype(operand.codes.dtype))
    return new_operands


def _format(operand: Operand) -> Format | None:
    """The format of floats that the operand holds one of in each code; None where it holds others, or nothing."""
    fmt = FORMATS.get(operand.format)
    if fmt is None or not operand.codes.size or operand.codes.dtype != fmt.storage:
        return None
    return None if int(operand.codes.max()) >> (fmt.width + fmt.ignored_high_bits) else fmt
