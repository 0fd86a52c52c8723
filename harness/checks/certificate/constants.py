"""Neighbours of an instruction: each is wrong in one constant by one step, or takes K in another order.

docs/arithmetic.md has the constants. Where a step has no meaning for an instruction (integers are exact, mxf4 has no other block),
there is no such neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.reference.formats import FORMATS, FP32, Rounding, decode
from bitverdict.reference.fused_multiply_add import NAN, fused_multiply_add
from bitverdict.reference.tensor_core import Accumulator, Instruction, ScaledGroups, ScaledWindow, ZeroTerms
from bitverdict.reference.tensor_core.product_query import Answer, ProductQuery


@dataclass(frozen=True)
class Neighbour:
    """What `answer` gives where `subject` is wrong as `fault` says; of a product that it does not concern the right words."""

    subject: str
    fault: str
    answer: Answer


def neighbours(rules: list[Instruction | None]) -> Iterator[Neighbour]:
    """The neighbours of all `rules` of a case. None: fp32 fused multiply-adds."""
    for subject, fault, moved in RULES:
        if any(rule is not None and moved(rule) is not None for rule in rules):
            yield Neighbour(subject, fault, _by_rule(moved))
    exact = all(rule is not None and rule.d == "int32" for rule in rules)
    if not exact:
        yield Neighbour("order", "K in reverse", reversed_order)
        yield Neighbour("restarts", "the chain cut in two", restart_chain)
    if None in rules:
        yield Neighbour("fused", "each product rounded", _products_rounded)


def _by_rule(moved: Callable[[Instruction], Instruction | None]) -> Answer:
    def words(asked: ProductQuery) -> np.ndarray:
        other = moved(asked.rule) if asked.rule is not None else None
        return asked.words() if other is None else replace(asked, rule=other).words()

    return words


def _float(rule: Instruction) -> bool:
    return rule.d != "int32"


def _bits(step: int) -> Callable[[Instruction], Instruction | None]:
    return lambda rule: replace(rule, fraction_bits=rule.fraction_bits + step) if _float(rule) else None


def _halve_block(rule: Instruction) -> Instruction | None:
    half = rule.block // 2
    if not _float(rule) or rule.sums_groups_exactly or not half:
        return None
    passes = rule.passes and tuple(part for taken in rule.passes for part in (taken[:half], taken[half:]))
    return replace(rule, block=half, passes=passes)


def _double_block(rule: Instruction) -> Instruction | None:
    if not _float(rule) or rule.sums_groups_exactly:
        return None
    if rule.passes is None:
        return replace(rule, block=2 * rule.block)
    if len(rule.passes) % 2:
        return None
    pairs = zip(rule.passes[::2], rule.passes[1::2], strict=True)
    merged = tuple(tuple(sorted((*one, *other))) for one, other in pairs)
    return replace(rule, block=2 * rule.block, passes=merged if len(merged) > 1 else None)


def _rounded_else(rule: Instruction) -> Instruction | None:
    nearest = rule.rounding is Rounding.NEAREST_EVEN
    return replace(rule, rounding=Rounding.TOWARD_ZERO if nearest else Rounding.NEAREST_EVEN) if _float(rule) else None


def _fewer_kept(rule: Instruction) -> Instruction | None:
    return replace(rule, output_fraction_bits=rule.output_fraction_bits - 1) if _float(rule) else None


def _keep_more_bits(rule: Instruction) -> Instruction | None:
    if not _float(rule) or rule.output_fraction_bits >= rule.output.mantissa_bits:
        return None
    return replace(rule, output_fraction_bits=rule.output_fraction_bits + 1)


def _accumulator_elsewhere(rule: Instruction) -> Instruction | None:
    if not _float(rule) or rule.sums_groups_exactly:
        return None
    late = rule.accumulator is Accumulator.ADDED_AFTER
    return replace(rule, accumulator=Accumulator.IN_SUM if late else Accumulator.ADDED_AFTER)


def _groups_of_16(rule: Instruction) -> Instruction | None:
    if rule.kind != "mxf4nvf4" or rule.scale != "ue4m3":
        return None
    return replace(rule, choices=replace(rule.choices, scaled_groups=ScaledGroups.OF_SIXTEEN))


def _window_by_scale(rule: Instruction) -> Instruction | None:
    if not rule.sums_groups_exactly:
        return None
    return replace(rule, choices=replace(rule.choices, scaled_window=ScaledWindow.BY_SCALE, zero_terms=ZeroTerms.TAKE_PART))


RULES: tuple[tuple[str, str, Callable[[Instruction], Instruction | None]], ...] = (
    ("F", "one bit less", _bits(-1)),
    ("F", "one bit more", _bits(1)),
    ("block", "halved", _halve_block),
    ("block", "doubled", _double_block),
    ("rounding", "the other", _rounded_else),
    ("kept bits", "one less", _fewer_kept),
    ("kept bits", "one more", _keep_more_bits),
    ("place of c", "the other", _accumulator_elsewhere),
    ("groups", "of 16", _groups_of_16),
    ("window", "by scale", _window_by_scale),
)
"""Subject, fault, and the rule that has it: None where it concerns no such instruction."""


def _unit(asked: ProductQuery) -> int:
    """How many K are taken in one step, or have one pair of scales."""
    if asked.rule is None:
        return 1
    return max(asked.rule.span, asked.rule.scale_block or 1)


def reversed_order(query: ProductQuery) -> np.ndarray:
    """The blocks from the last K to the first."""
    unit = _unit(query)
    whole = -(-query.depth // unit) * unit
    k = np.arange(whole).reshape(-1, unit)[::-1].reshape(-1)  # (whole,)
    a = np.pad(query.a, ((0, 0), (0, whole - query.depth)))[:, k]  # (M, whole)
    b = np.pad(query.b, ((0, whole - query.depth), (0, 0)))[k]  # (whole, N)
    return _with_scales(replace(query, a=a, b=b), lambda scales: _whole_scales(query, scales, whole)[:, ::-1]).words()


def _whole_scales(asked: ProductQuery, scales: np.ndarray, whole: int) -> np.ndarray:
    """`scales` in the order of units of `whole` K: the blocks of each unit keep theirs."""
    assert asked.rule is not None and asked.rule.scale_block is not None
    of_unit = _unit(asked) // asked.rule.scale_block
    padded = np.pad(scales, ((0, 0), (0, whole // asked.rule.scale_block - scales.shape[1])), mode="edge")
    units = padded.reshape(len(scales), -1, of_unit)  # (L, units, blocks)
    return units[:, :, ::-1].reshape(len(scales), -1)  # (L, blocks) reversed in the unit, as the caller reverses all


def _with_scales(asked: ProductQuery, change: Callable[[np.ndarray], np.ndarray]) -> ProductQuery:
    if asked.a_scales is None or asked.b_scales is None:
        return asked
    a_scales, b_scales = (np.ascontiguousarray(change(scales)) for scales in (asked.a_scales, asked.b_scales))
    return replace(asked, a_scales=a_scales, b_scales=b_scales)


def restart_chain(query: ProductQuery) -> np.ndarray:
    """The chain cut in its middle: the second half begins at zero, and one fp32 addition to nearest joins both."""
    unit = _unit(query)
    at = query.depth // unit // 2 * unit
    if not at or (query.rule is not None and query.rule.d != "fp32"):
        return query.words()
    per = 1 if query.rule is None else query.rule.scale_block or 1
    first = _with_scales(replace(query, a=query.a[:, :at], b=query.b[:at]), lambda scales: scales[:, : at // per])
    second = _with_scales(replace(query, a=query.a[:, at:], b=query.b[at:], c=None), lambda scales: scales[:, at // per :])
    with np.errstate(all="ignore"):
        total = _fp32(first.words()) + _fp32(second.words())  # (M, N)
    return np.where(np.isnan(total), NAN, total.view(np.uint32))


def _products_rounded(query: ProductQuery) -> np.ndarray:
    if query.rule is not None:
        return query.words()
    left, right = query.a.view(np.float32), query.b.view(np.float32)
    zero = np.zeros(query.shape, np.float32)
    total = zero if query.c is None else query.c.view(np.float32)  # (M, N)
    one = np.ones(query.shape, np.float32)
    for step in range(query.depth):
        product = fused_multiply_add(left[:, step, None], right[None, step, :], -zero).view(np.float32)  # (M, N)
        total = fused_multiply_add(product, one, total).view(np.float32)  # (M, N)
    return np.ascontiguousarray(total).view(np.uint32)


def _fp32(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.float32)


def through(words: np.ndarray, name: str, rounding: Rounding) -> np.ndarray:
    """fp32 `words` rounded to format `name` and widened again."""
    from bitverdict.reference.formats import encode

    return encode(FP32, decode(FORMATS[name], encode(FORMATS[name], decode(FP32, words), rounding=rounding)))
