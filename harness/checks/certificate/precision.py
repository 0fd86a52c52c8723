"""Losses of precision: accumulators, sums and operands in a narrower type, and an output that is stored by another rounding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from bitverdict.harness.checks.certificate.constants import Neighbour, through
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.reference.formats import FORMATS, FP32, Format, Rounding, decode, encode
from bitverdict.reference.tensor_core import Instruction
from bitverdict.reference.tensor_core.product_query import Answer, ProductQuery

NARROWER = ("tf32", "bf16", "fp16")  # than fp32


def narrower(rules: list[Instruction | None], formats: set[str]) -> Iterator[Neighbour]:
    """Losses in the products of a case by `rules`, whose outputs have `formats`."""
    if all(rule is not None and rule.d == "int32" for rule in rules):
        yield Neighbour("accumulator", "in 16 bits", _wrap_to_int16)
        return
    fraction_bits = [rule.output_fraction_bits if rule is not None else FP32.mantissa_bits for rule in rules]
    for name in NARROWER:
        if FORMATS[name].mantissa_bits < max(fraction_bits):
            yield Neighbour(f"accumulator in {name}", "each block", _accumulated_in(name))
    for name in NARROWER:
        if all(FORMATS[name].mantissa_bits < FORMATS[out].mantissa_bits for out in formats if out in FORMATS):
            yield Neighbour(f"sum through {name}", "once", _through(name, Rounding.NEAREST_EVEN))
    for out in sorted(formats):
        if out in FORMATS and FORMATS[out].mantissa_bits < min(fraction_bits):
            yield Neighbour(f"{out} store", "toward zero", _through(out, Rounding.TOWARD_ZERO))
    operands = {name for rule in rules for name in ((rule.a, rule.b) if rule is not None else ("fp32",))}
    for lesser in ("tf32", "bf16"):
        if any(FORMATS[lesser].mantissa_bits < FORMATS[name].mantissa_bits for name in operands):
            yield Neighbour(f"operands cut to {lesser}", "before the product", _operands_in(lesser))


def _wrap_to_int16(asked: ProductQuery) -> np.ndarray:
    words = asked.words()
    return words.astype(np.int16).astype(words.dtype)


def _through(name: str, rounding: Rounding) -> Answer:
    def words(asked: ProductQuery) -> np.ndarray:
        found = asked.words()
        return through(found, name, rounding) if _fp32_result(asked) else found

    return words


def _fp32_result(asked: ProductQuery) -> bool:
    return asked.rule is None or asked.rule.d == "fp32"


def _accumulated_in(name: str) -> Answer:
    """Each block's result, and c, rounded to `name`, to nearest."""
    fmt = FORMATS[name]

    def words(query: ProductQuery) -> np.ndarray:
        if not _fp32_result(query):
            return query.words()
        c = None if query.c is None else through(query.c, name, Rounding.NEAREST_EVEN)
        if query.rule is None:
            total = np.zeros(query.shape, np.uint32) if c is None else c  # (M, N)
            for k in range(query.depth):
                step = replace(query, a=np.ascontiguousarray(query.a[:, k : k + 1]), b=query.b[k : k + 1], c=total)
                total = through(step.words(), name, Rounding.NEAREST_EVEN)  # (M, N)
            return total
        bits = min(fmt.mantissa_bits, query.rule.output_fraction_bits)
        rule = replace(query.rule, output_fraction_bits=bits, rounding=Rounding.NEAREST_EVEN)
        return through(replace(query, rule=rule, c=c).words(), name, Rounding.NEAREST_EVEN)

    return words


def _operands_in(name: str) -> Answer:
    """Operands without the bits that `name` does not hold, cut toward zero."""
    lesser = FORMATS[name]

    def cut(fmt: Format, codes: np.ndarray) -> np.ndarray:
        lost = fmt.mantissa_bits - lesser.mantissa_bits + fmt.low_padding
        if lost <= 0 or fmt.width < 16:
            return codes
        return codes & ~codes.dtype.type((1 << lost) - 1)

    def words(asked: ProductQuery) -> np.ndarray:
        a, b = ("fp32", "fp32") if asked.rule is None else (asked.rule.a, asked.rule.b)
        if not {a, b} <= set(FORMATS):
            return asked.words()
        return replace(asked, a=cut(FORMATS[a], asked.a), b=cut(FORMATS[b], asked.b)).words()

    return words


def stored_else(expected: ExpectedOutput) -> Iterator[tuple[str, np.ndarray]]:
    """Faults of the store of an output, each with the words (*shape,) that it leaves: of one that is held to its mathematics the
    other rounding, and of any a cast to a narrower type before it."""
    fmt, value = FORMATS.get(expected.format), expected.exact if expected.exact is not None else expected.value
    if fmt is None:
        return
    held_to_value = value is not None
    if value is None and expected.words is not None:
        value = decode(fmt, np.ascontiguousarray(expected.words).view(fmt.storage))
    if value is None:
        return
    with np.errstate(all="ignore"):
        if held_to_value and fmt.mantissa_bits < FP32.mantissa_bits:
            yield f"{fmt.name} store toward zero", encode(fmt, value, rounding=Rounding.TOWARD_ZERO)
        for name in NARROWER:
            if FORMATS[name].mantissa_bits < fmt.mantissa_bits:
                yield f"{fmt.name} result through {name}", encode(fmt, decode(FORMATS[name], encode(FORMATS[name], value)))
