"""Matrix products of traced arrays, on whatever unit of the target.

The words come from `reference/error_bound.py`: K products in any order, by any of the instructions that the architecture has for
the operands' formats, or by plain multiply-adds. What the operands themselves may be off is a loss of the sum:
|a| rb + ra |b| + ra rb, summed over k.

An operand is fed in its own format; one that is computed, in fp32: a matrix instruction then takes it as tf32, with its low 13 bits
dropped or rounded away (`harness/contracts/inputs/narrowed_inputs.py` has the sources), unless precision="ieee". One that is
`kept_in` formats is fed in one of them. A product of a narrow operand and its scales may be fed as the operand, its scales put on
the sums of blocks: the scales are multiplied, the sum by them, and added: three roundings, each at most u of the sum of magnitudes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from bitverdict.reference.error_bound import (
    Accumulation,
    accumulated_sums,
    field_powers,
    of_instruction,
    plain_fp32,
    products_grid,
    raised_alignment,
)
from bitverdict.reference.formats import FORMATS, FP32, Format, Rounding
from bitverdict.reference.stored_sums import store_sum
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction
from bitverdict.reference.tracing.accumulation import MARGIN
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array, pair
from bitverdict.reference.tracing.dtypes import BY_FORMAT, Untraceable, promote
from bitverdict.reference.tracing.results import V, all_finite, errors, real, settle_result
from bitverdict.reference.tracing.state import OPERATIONS, Trace, operation

TF32_PRODUCTS = 3  # tf32x3 multiplies high and low parts
TF32_LOSS = 2.0**-10  # of a number whose low 13 bits are dropped


@operation("matmul")
def matmul(
    trace: Trace, x1: Operand, x2: Operand, /, *, accumulation: str | None = None, precision: str | None = None
) -> TracedArray:
    """Product of matrices, over leading axes one by one. `accumulation`: the type of the sums, "fp32" or "fp16"; `precision`
    "ieee": fp32 operands are taken whole."""
    left, right = pair(trace, x1, x2)
    if not left.ndim or not right.ndim:
        raise Untraceable("matmul", "of an array without axes")
    if left.ndim == 1:
        found = matmul(trace, _view(left, lambda each: each[None, :]), right, accumulation=accumulation, precision=precision)
        return found.map_elements(lambda each: each[..., 0, :] if right.ndim > 1 else each[..., 0])
    if right.ndim == 1:
        found = matmul(trace, left, _view(right, lambda each: each[:, None]), accumulation=accumulation, precision=precision)
        return found.map_elements(lambda each: each[..., 0])
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"matmul of {left.shape} and {right.shape}: K is {left.shape[-1]} and {right.shape[-2]}")
    if not left.is_float and not right.is_float:
        return _of_integers(trace, left, right, accumulation)
    with np.errstate(all="ignore"):
        return _of_floats(trace, real(left), real(right), accumulation or trace.accumulation.format, precision)


def _view(x: TracedArray, function: Callable[..., np.ndarray]) -> TracedArray:
    return x.map_elements(function)


def _of_integers(trace: Trace, left: TracedArray, right: TracedArray, accumulation: str | None) -> TracedArray:
    """Integers are summed in int32, as tensor cores do, or wider; exact, with wraparound."""
    dtype = promote(promote(left.dtype, right.dtype), BY_FORMAT["int32"]) if accumulation is None else BY_FORMAT[accumulation]
    a, b = left.value.astype(np.int64), right.value.astype(np.int64)
    k = a.shape[-1]
    reach = float(np.abs(a).max(initial=0)) * float(np.abs(b).max(initial=0)) * k
    value = (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64) if reach < 2.0**53 else a @ b

    hangs, loose = (
        _cross_masks(left.hangs, right.hangs, value.shape),
        _cross_masks(left.words_differ, right.words_differ, value.shape),
    )
    return TracedArray(trace, dtype, value.astype(dtype.storage_type), hangs=hangs, words_differ=loose)


def _matrix_product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a b; without BLAS where numbers are infinite, since it may skip zeros. What is NaN makes its row or column NaN."""
    result: np.ndarray
    if all_finite(a) and all_finite(b):
        result = a @ b
        return result
    if not np.isinf(a).any() and not np.isinf(b).any():
        nan_a, nan_b = np.isnan(a), np.isnan(b)
        result = np.where(nan_a, 0.0, a) @ np.where(nan_b, 0.0, b)
        result[np.broadcast_to(nan_a.any(axis=-1)[..., :, None] | nan_b.any(axis=-2)[..., None, :], result.shape)] = np.nan
        return result
    result = np.einsum("...mk,...kn->...mn", a, b)
    return result


def _of_floats(trace: Trace, left: TracedArray, right: TracedArray, accumulation: str, precision: str | None) -> TracedArray:
    a, b = left.value, right.value
    k = a.shape[-1]
    value = store_sum(_matrix_product(a, b))  # (..., M, N)
    if trace.is_of_values:
        return settle_result(trace, value, None, None, (_masks(left, right, value),))
    sizes = [np.where(np.isfinite(operand), np.abs(operand), 0.0) for operand in (a, b)]
    magnitude = sizes[0] @ sizes[1] * (1 + k * V)  # (..., M, N)
    grid = products_grid(a, b)  # (..., M, N)
    clean = left.error is None and right.error is None
    error: np.ndarray | None = (k + 2) * V * magnitude + k * 2.0**-1074
    if clean:
        whole = magnitude * V < np.ldexp(1.0, np.clip(grid, -1000, 900))
        error = np.where(whole, 0.0, np.asarray(error))
    else:
        error = error + _moved_by(sizes, (left.error, right.error))
    if not np.isfinite(value).all():
        error = np.where(np.isfinite(value), np.asarray(error), 0.0)
    trace.note("matmul")
    formats = [_fed_as(operand) for operand in (left, right)]
    how = ways(trace.arch, *formats, accumulation, precision == "ieee", left.has_scales or right.has_scales, k)
    radius = _radius_of_operands(left, right, sizes)
    if not clean or radius.any():
        radius = radius + error
    if left.has_scales or right.has_scales:
        radius = radius + 3 * trace.accumulation.unit * (1 + MARGIN) * magnitude
    open_ = np.zeros(value.shape, bool)
    narrow = how.narrowed and precision != "ieee"
    if narrow:
        cut, strange = zip(*(_cut_to_tf32(operand) for operand in (left, right)), strict=True)
        radius = radius + (sizes[0] + cut[0]) @ cut[1] + cut[0] @ sizes[1]
        open_ = np.broadcast_to(strange[0].any(axis=-1)[..., :, None] | strange[1].any(axis=-2)[..., None, :], value.shape)
        open_ = open_ & ~np.isnan(value)
    if trace.arch == "gfx90a":
        radius = radius + _flushed_products(left, right, formats)
    radius = radius * (1 + (k + 8) * 2 * V)
    low_grid = grid if left.low is None and right.low is None and not left.has_scales and not right.has_scales else -4096
    alignment = raised_alignment(
        a, field_powers(a, _smallest_normal(left)), b, field_powers(b, _smallest_normal(right))
    )  # (..., M, N)
    sums = accumulated_sums(
        value,
        magnitude,
        k * (TF32_PRODUCTS if narrow else 1),
        accumulations=how.all_ways,
        alignment=alignment,
        grid=low_grid,
        operand_loss=radius,
    )
    margin = np.where(np.isfinite(value), sums.error * (1 + 2.0**-40), 0.0)
    low, high = np.where(sums.falls, -np.inf, value - margin), np.where(sums.rises, np.inf, value + margin)
    over = np.isinf(value) & (magnitude + radius >= FP32.largest / 2)
    return settle_result(trace, value, error, (low, high), (_masks(left, right, value),), meets=sums.inconclusive | over | open_)


def _masks(left: TracedArray, right: TracedArray, value: np.ndarray) -> TracedArray:
    """What `settle_result` asks of operands: which results have one that is not finite, and whose words may be anything."""
    bad = [~np.isfinite(each.value) for each in (left, right)]
    given = bad[0].any(axis=-1)[..., :, None] | bad[1].any(axis=-2)[..., None, :]
    found = np.broadcast_to(np.where(given, np.inf, 0.0), value.shape)
    return TracedArray(left.trace, left.dtype, found, open=_cross_masks(left.open, right.open, value.shape))


def _cross_masks(left: np.ndarray | None, right: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray | None:
    """(..., M, N): whether a mask (..., M, K) or (..., K, N) holds anywhere in row m, or in column n."""
    if left is None and right is None:
        return None
    rows = np.zeros((), bool) if left is None else np.asarray(left.any(axis=-1))[..., :, None]
    columns = np.zeros((), bool) if right is None else np.asarray(right.any(axis=-2))[..., None, :]
    return np.broadcast_to(rows | columns, shape)


def _moved_by(sizes: list[np.ndarray], radii: tuple[np.ndarray | None, np.ndarray | None]) -> np.ndarray:
    """How far the sum of products may move where the operands move by `radii`."""
    ra, rb = radii
    found: np.ndarray = np.zeros(())
    if rb is not None:
        found = found + (sizes[0] if ra is None else sizes[0] + ra) @ rb
    if ra is not None:
        found = found + ra @ sizes[1]
    result: np.ndarray = found * (1 + (sizes[0].shape[-1] + 4) * V)
    return result


def _radius(x: TracedArray) -> np.ndarray | None:
    if x.low is None:
        return None
    found = np.maximum(x.ends[1] - x.value, x.value - x.ends[0])
    return np.where(np.isnan(found), 0.0, found)


def _radius_of_operands(left: TracedArray, right: TracedArray, sizes: list[np.ndarray]) -> np.ndarray:
    moved = _moved_by(sizes, (_radius(left), _radius(right)))
    return np.broadcast_to(moved, np.broadcast_shapes(moved.shape, (left.shape[-2], right.shape[-1])))


def _cut_to_tf32(x: TracedArray) -> tuple[np.ndarray, np.ndarray]:
    """(what tf32 may take from each element, which elements may become another kind of number)."""
    size = np.maximum(np.abs(x.ends[0]), np.abs(x.ends[1]))
    if x.low is None:
        with np.errstate(over="ignore", invalid="ignore"):
            words = x.value.astype(np.float32).view(np.uint32)
        kept = (words & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)
        cut = np.where(np.isfinite(x.value), np.abs(x.value - kept), 0.0)
    else:
        cut = np.where(np.isfinite(size), np.maximum(size, FP32.smallest_normal) * TF32_LOSS, 0.0)
        cut = np.where(size == 0, 0.0, cut)
    growing = np.isfinite(size) & (size >= FP32.largest * (1 - 2.0**-11))
    return cut, growing | ~np.isfinite(size)


def _flushed_products(left: TracedArray, right: TracedArray, formats: list[frozenset[str]]) -> np.ndarray:
    """What MI200's MFMA may lose besides: operands of fp16 and bf16 that are subnormal count as zero, and so does each product and
    each sum in fp32 that is ([MI200] of reference/SOURCES.md)."""
    sizes, cuts = [], []
    for x, fed in zip((left, right), formats, strict=True):
        low, high = (np.where(np.isfinite(end), end, 0.0) for end in x.ends)
        largest, least = np.maximum(np.abs(low), np.abs(high)), np.minimum(np.abs(low), np.abs(high))
        least = np.where(np.signbit(low) != np.signbit(high), 0.0, least)  # zero lies between them
        normal = max((FORMATS[name].smallest_normal for name in fed & {"fp16", "bf16"}), default=0.0)
        sizes.append(largest)
        cuts.append(np.where(least < normal, np.minimum(largest, normal), 0.0))
    k = left.shape[-1]
    result: np.ndarray = sizes[0] @ cuts[1] + cuts[0] @ sizes[1] + 2 * k * FP32.smallest_normal
    return result


def _smallest_normal(x: TracedArray) -> float:
    fmt = x.dtype.number
    return FP32.smallest_normal if fmt is None else fmt.smallest_normal


def _fed_as(x: TracedArray) -> frozenset[str]:
    """The formats in which a matrix instruction may take `x`."""
    return x.operand_formats or frozenset({x.dtype.format})


class Ways:
    """Every way to sum K products; whether tf32 is one for operands that it does not hold."""

    def __init__(self, all_ways: tuple[Accumulation, ...], narrowed: bool) -> None:
        self.all_ways, self.narrowed = all_ways, narrowed


@lru_cache(maxsize=1024)
def ways(arch: str, left: frozenset[str], right: frozenset[str], output: str, ieee: bool, takes_scales: bool, k: int) -> Ways:
    """By each instruction of `arch` that takes the formats, in blocks that hold one product each, and by fp32 multiply-adds. Of
    AMD's MFMA as `bitverdict.reference.mfma_bound` has it: one addition a product, each of which may lose a last place of fp32."""
    if arch.startswith("gfx"):
        cuts_to_tf32 = "fp32" in (left | right) and arch == "gfx942" and not ieee
        terms = max(k, 1) * (TF32_PRODUCTS if cuts_to_tf32 else 1)
        added = Accumulation(
            block=1, fraction_bits=23, rounding=Rounding.TOWARD_ZERO, output=FP32, output_fraction_bits=23, chains=terms
        )
        return Ways((added, plain_fp32()), cuts_to_tf32)
    there = [rule for rule in INSTRUCTIONS if rule.arch == arch] or list(INSTRUCTIONS)
    output = output if output in ("fp16", "fp32") else "fp32"
    rules, cuts_to_tf32 = [], False
    for rule in there:
        if rule.d != output or rule.a not in FORMATS or (rule.scale is not None and not takes_scales):
            continue
        for a in left:
            for b in right:
                if a in ("fp64",) or b in ("fp64",):
                    continue
                if "fp32" in (a, b):
                    if rule.a == rule.b == "tf32" and not ieee:
                        rules.append(rule)
                        cuts_to_tf32 = True
                elif (
                    _holds_format(FORMATS[a], FORMATS[rule.a])
                    and _holds_format(FORMATS[b], FORMATS[rule.b])
                    and _multiplies_formats(rule, a, b)
                ):
                    rules.append(rule)
    chosen = _weakest(rules)
    terms = k * (TF32_PRODUCTS if cuts_to_tf32 else 1)
    accumulations = []
    for rule in chosen:
        try:
            accumulations.append(of_instruction(rule, terms, full=False))
        except ValueError:  # an instruction that rounds to nearest: at most one rounding for each product
            accumulations.append(of_instruction(rule, terms, chains=max(terms, 1)))
    return Ways((*accumulations, plain_fp32()), cuts_to_tf32)


def _multiplies_formats(rule: Instruction, a: str, b: str) -> bool:
    """Whether `rule` multiplies these formats themselves, or the one that a compiler widens them to."""
    return (rule.a, rule.b) == (a, b) or rule.a == rule.b


def _weakest(rules: list[Instruction]) -> list[Instruction]:
    """Of `rules` those that no other one bounds."""
    kept: list[Instruction] = []
    for rule in sorted(rules, key=lambda each: (each.fraction_bits, each.output_fraction_bits)):
        if not kept or rule.output_fraction_bits < kept[-1].output_fraction_bits or rule.rounding != kept[-1].rounding:
            kept.append(rule)
    return kept


def _holds_format(fmt: Format, operand: Format) -> bool:
    """Whether every number in `fmt` is one of `operand`."""
    return operand.mantissa_bits >= fmt.mantissa_bits and operand.largest >= fmt.largest and operand.smallest <= fmt.smallest


@operation("vecdot")
def vecdot(trace: Trace, x1: Operand, x2: Operand, /, *, axis: int = -1) -> TracedArray:
    """Sum of products along an axis."""
    return OPERATIONS["sum"](trace, OPERATIONS["multiply"](trace, x1, x2), axis=axis)


@operation("tensordot")
def tensordot(trace: Trace, x1: Operand, x2: Operand, /, *, axes: int | Sequence[Sequence[int]] = 2) -> TracedArray:
    """Products summed over pairs of axes: a matrix product of what they are reshaped to."""
    left, right = array(trace, x1), array(trace, x2)
    if isinstance(axes, int):
        left_axes, right_axes = list(range(left.ndim - axes, left.ndim)), list(range(axes))
    else:
        left_axes, right_axes = ([int(one) % x.ndim for one in item] for x, item in zip((left, right), axes, strict=True))
    rows = [axis for axis in range(left.ndim) if axis not in left_axes]
    columns = [axis for axis in range(right.ndim) if axis not in right_axes]
    shape = [left.shape[axis] for axis in rows] + [right.shape[axis] for axis in columns]
    k = int(np.prod([left.shape[axis] for axis in left_axes], dtype=np.int64))
    a = left.map_elements(lambda each: np.transpose(each, [*rows, *left_axes]).reshape(-1, k))
    b = right.map_elements(lambda each: np.transpose(each, [*right_axes, *columns]).reshape(k, -1))
    return matmul(trace, a, b).map_elements(lambda each: each.reshape(shape))


@operation("outer")
def outer(trace: Trace, x1: Operand, x2: Operand, /) -> TracedArray:
    """Products of all pairs of two vectors."""
    left, right = array(trace, x1), array(trace, x2)
    return OPERATIONS["multiply"](
        trace, left.map_elements(lambda each: each[:, None]), right.map_elements(lambda each: each[None, :])
    )


__all__ = ["errors"]
