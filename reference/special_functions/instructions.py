"""PTX's approximate instructions, as ptxas writes them in machine code: one operation of the special-function unit, and what scales
its operand and its result where subnormals count.

The sequences are the same for sm_80, sm_90 and sm_100 (`tests/emulator/numerics/test_function_sequences.py`). Their multiplications
and additions are those of `scalar_arithmetic`, to nearest even; those without `.FTZ` keep subnormals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32, fp64
from bitverdict.reference.special_functions import units
from bitverdict.reference.special_functions.units import INFINITY, MAGNITUDE, SMALLEST_NORMAL64

Function = Callable[..., np.ndarray]

BLOCK = 1 << 13  # words worked on at once: the temporaries stay in the second-level cache

SMALLEST = np.float32(2.0**-126)
SCALE_DOWN_FROM = np.float32(2.0**126)
TURNS = np.uint32(0x3E22F983).view(np.float32).astype(np.float64)  # 1 / (2 pi), fp32, truncated
SCALE_UP, QUARTER, HALF, FP32_ONE, LESS_24 = (np.array(value, np.float32) for value in (2.0**24, 0.25, 0.5, 1.0, -24.0))


@dataclass(frozen=True)
class Instruction:
    """A PTX instruction: words in, words of the same type out."""

    name: str
    function: Function
    operands: int = 1
    dtype: type = np.uint32

    def __call__(self, *operands: np.ndarray) -> np.ndarray:
        """Result words (`dtype`, the operands' broadcast shape) for operand words (`dtype`).

        Raises ValueError for another number of operands, and for words of another type.
        """
        if len(operands) != self.operands or any(operand.dtype != self.dtype for operand in operands):
            given = ", ".join(str(operand.dtype) for operand in operands)
            raise ValueError(f"{self.name} takes {self.operands} operand(s) of {np.dtype(self.dtype)} words; got {given or 'none'}")
        first = operands[0]
        if first.size <= BLOCK and all(operand.shape == first.shape for operand in operands):
            with np.errstate(all="ignore"):
                return self.function(*(operand.reshape(-1) for operand in operands)).reshape(first.shape)
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        operands_once = [_without_repeats(np.broadcast_to(operand, shape)) for operand in operands]
        with np.errstate(all="ignore"):
            return np.broadcast_to(self._by_blocks(operands_once), shape)

    def _by_blocks(self, operands: list[np.ndarray]) -> np.ndarray:
        """The result words of `operands`, whose axes have one length or are of one word, a block at a time."""
        shape = np.broadcast_shapes(*(operand.shape for operand in operands))
        count = shape[0]
        block = BLOCK if all(operand.size > 1 for operand in operands) else 8 * BLOCK  # of one word less is worked on
        if (size := prod(shape)) <= block:
            return self.function(*operands)
        if count == 1:
            return self._by_blocks([operand[0] for operand in operands])[None]
        results: np.ndarray = np.empty(shape, self.dtype)
        step = max(block * count // size, 1)
        for start in range(0, count, step):
            results[start : start + step] = self._by_blocks(
                [each if len(each) == 1 else each[start : start + step] for each in operands]
            )
        return results


def _without_repeats(operand: np.ndarray) -> np.ndarray:
    """`operand` with one word along each axis that repeats it."""
    return operand[tuple(slice(None) if stride else slice(1) for stride in operand.strides)]


def _ex2(x: np.ndarray) -> np.ndarray:
    """Below -126 the argument is halved and the result squared."""
    values = x.view(np.float32)  # (n,)
    low = values < -126  # (n,)
    if not low.any():
        return units.ex2(x)
    found = units.ex2(_product(values, np.where(low, HALF, FP32_ONE)))  # (n,)
    result = found.view(np.float32)
    return np.where(low, _product(result, result), found)


def _lg2(x: np.ndarray) -> np.ndarray:
    """A subnormal argument is multiplied by 2^24, and 24 taken from the result."""
    values = x.view(np.float32)  # (n,)
    low = np.abs(values) < SMALLEST  # (n,)
    if not low.any():
        return units.lg2(x)
    found = units.lg2(np.where(low, _product(values, SCALE_UP), x))  # (n,)
    return np.where(low, fp32.add(found.view(np.float32), LESS_24).view(np.uint32), found)


def _rcp(x: np.ndarray) -> np.ndarray:
    """Argument and result are both multiplied by 1/4 above 2^126, by 2^24 for a subnormal argument, else by 1."""
    values = x.view(np.float32)  # (n,)
    size = np.abs(values)
    low, high = size < SMALLEST, size > SCALE_DOWN_FROM  # (n,)
    if not (low.any() or high.any()):
        return units.rcp(x)
    factor = np.where(high, QUARTER, np.where(low, SCALE_UP, FP32_ONE))  # (n,)
    return _product(units.rcp(_product(values, factor)).view(np.float32), factor)


def _root(unit: Function, power: int) -> Function:
    """A subnormal argument is multiplied by 2^24, the result then by 2^power."""
    factor = np.array(2.0**power, np.float32)

    def function(x: np.ndarray) -> np.ndarray:
        values = x.view(np.float32)  # (n,)
        low = np.abs(values) < SMALLEST  # (n,)
        if not low.any():
            return unit(x)
        found = unit(np.where(low, _product(values, SCALE_UP), x))  # (n,)
        return np.where(low, _product(found.view(np.float32), factor), found)

    return function


def _sin(x: np.ndarray) -> np.ndarray:
    return units.sin(_turns(x))


def _cos(x: np.ndarray) -> np.ndarray:
    return units.cos(_turns(x))


def _turns(x: np.ndarray) -> np.ndarray:
    """FMUL.RZ by 1 / (2 pi): fp32 words, rounded toward zero, subnormals kept."""
    exact = x.view(np.float32) * TURNS  # (n,) float64
    nearest = exact.astype(np.float32)  # (n,)
    return nearest.view(np.uint32) - (np.abs(nearest) > np.abs(exact))


def _division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.full.f32: both operands times `scaling`; then a * rcp(b)."""
    return _quotient(a, b, scaling(b))


def _approximate_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.approx.f32: as div.full.f32, but a large divisor is not scaled."""
    return _quotient(a, b, scaling(b, full=False))


def scaling(divisor: np.ndarray, full: bool = True) -> np.ndarray:
    """What ptxas multiplies both operands of a division with: 1/4 for a `divisor` (fp32 words) above 2^126 unless the division is
    not `full`, 2^24 for a subnormal one, else 1; float32."""
    size = np.abs(divisor.view(np.float32))  # (...)
    return np.where((size > SCALE_DOWN_FROM) & full, QUARTER, np.where(size < SMALLEST, SCALE_UP, FP32_ONE))


def division_factors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two words whose product div.full.f32 is, for words of equal shape: ptxas may put that product into a following sum."""
    with np.errstate(all="ignore"):
        factor = scaling(b)  # (...)
        right = _product(b.view(np.float32), factor)
        return _product(a.view(np.float32), factor), units.rcp(right.reshape(-1)).reshape(right.shape)


def _quotient(a: np.ndarray, b: np.ndarray, factor: np.ndarray) -> np.ndarray:
    left, right = (words.view(np.float32) for words in (a, b))
    return _product(units.rcp(_product(right, factor)).view(np.float32), left * factor)


def _flushed_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.full.ftz.f32."""
    left, right = (words.view(np.float32) for words in (a, b))
    large = np.abs(right) > SCALE_DOWN_FROM  # (n,)
    if large.any():
        left, right = (np.where(large, fp32.multiply(values, QUARTER, flush=True), values) for values in (left, right))
    return fp32.multiply(units.rcp(right.view(np.uint32)).view(np.float32), left, flush=True).view(np.uint32)


def _flushed_approximate_division(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.approx.ftz.f32."""
    return fp32.multiply(a.view(np.float32), units.rcp(b).view(np.float32), flush=True).view(np.uint32)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return fp32.canonical(a * b).view(np.uint32)


def _of_high_word(unit: Function) -> Function:
    """The unit on the high words of fp64 words; the low word of the argument does not count, that of the result is 0."""
    return lambda x: unit((x >> np.uint64(32)).astype(np.uint32)).astype(np.uint64) << np.uint64(32)


def _inverse_root_of_fp64(x: np.ndarray) -> np.ndarray:
    """rsqrt.approx.f64: one step of a third-order iteration from the unit's 20 bits; a subnormal argument is scaled by 2^54."""
    high = (x >> np.uint64(32)).astype(np.uint32)  # (n,)
    slow = high - SMALLEST_NORMAL64 >= np.uint32(0x7FE00000)  # (n,) zero, subnormal, negative, infinite or NaN
    if not slow.any():
        return _refine_rsqrt(x.view(np.float64)).view(np.uint64)
    values = x.view(np.float64)  # (n,)
    subnormal = (x > 0) & (high < SMALLEST_NORMAL64)  # (n,)
    scaled = np.where(subnormal, values * 2.0**54, np.where(slow, 1.0, values))  # (n,)
    found = _refine_rsqrt(scaled)  # (n,)
    found = np.where(subnormal, found * 2.0**27, found)
    found = np.where(values < 0, np.uint64(0xFFF8000000000000).view(np.float64), found)
    found = np.where(values == np.inf, 0.0, np.where(values == 0, np.copysign(np.inf, values), found))
    return np.where(np.isnan(values), values + values, found).view(np.uint64)


def _refine_rsqrt(values: np.ndarray) -> np.ndarray:
    high = units.rsqrt64h((values.view(np.uint64) >> np.uint64(32)).astype(np.uint32))  # (n,)
    first = (high.astype(np.uint64) << np.uint64(32)).view(np.float64)  # (n,)
    error = fp64.fma(values, -(first * first), np.ones_like(values))  # (n,)
    slope = fp64.fma(error, np.full_like(values, 0.375), np.full_like(values, 0.5))  # (n,)
    return fp64.fma(slope, first * error, first)  # (n,)


def _widened_fp16(words: np.ndarray) -> np.ndarray:
    return words.view(np.float16).astype(np.float32).view(np.uint32)


def _truncated_fp16(words: np.ndarray) -> np.ndarray:
    """fp16 words, rounded toward zero, subnormals kept; what is beyond 65504 is infinite."""
    size, sign = words & MAGNITUDE, words >> 16 & 0x8000  # (n,)
    normal = (size >> 13) - np.uint32(127 - 15 << 10)  # (n,)
    exponent = (size >> 23).astype(np.int64) - 127  # (n,)
    subnormal = (size & units.FRACTION | 1 << 23) >> np.clip(-1 - exponent, 0, 31).astype(np.uint32)  # (n,) in units of 2^-24
    found = np.where(exponent < -14, subnormal, np.where(exponent > 15, np.uint32(0x7C00), normal))
    return np.where(size > INFINITY, np.uint32(0x7FFF), found | sign).astype(np.uint16)


def _widened_bf16(words: np.ndarray) -> np.ndarray:
    return words.astype(np.uint32) << 16


def _truncated_bf16(words: np.ndarray) -> np.ndarray:
    return (words >> 16).astype(np.uint16)


def _of_16_bits(unit: Function, widened: Function, truncated: Function) -> Function:
    """The unit on words of 16 bits: the fp32 result, truncated. A table of all 2^16."""

    @cache
    def table() -> np.ndarray:
        return truncated(unit(widened(np.arange(1 << 16, dtype=np.uint16))))

    return lambda x: table().take(x)


def _on_halves(function: Function) -> Function:
    """The same on both halves of a 32-bit word."""
    return lambda x: function(x & np.uint32(0xFFFF)).astype(np.uint32) | function(x >> 16).astype(np.uint32) << 16


def _forms_of_16_bits(name: str, unit: Function, widened: Function, truncated: Function) -> tuple[Instruction, Instruction]:
    function = _of_16_bits(unit, widened, truncated)
    return Instruction(name, function, dtype=np.uint16), Instruction(f"{name}x2", _on_halves(function))


INSTRUCTIONS: dict[str, Instruction] = {
    known.name: known
    for known in (
        Instruction("ex2.approx.ftz.f32", units.ex2),
        Instruction("ex2.approx.f32", _ex2),
        Instruction("lg2.approx.ftz.f32", units.lg2),
        Instruction("lg2.approx.f32", _lg2),
        Instruction("rcp.approx.ftz.f32", units.rcp),
        Instruction("rcp.approx.f32", _rcp),
        Instruction("rsqrt.approx.ftz.f32", units.rsqrt),
        Instruction("rsqrt.approx.f32", _root(units.rsqrt, 12)),
        Instruction("sqrt.approx.ftz.f32", units.sqrt),
        Instruction("sqrt.approx.f32", _root(units.sqrt, -12)),
        Instruction("sin.approx.ftz.f32", _sin),
        Instruction("sin.approx.f32", _sin),
        Instruction("cos.approx.ftz.f32", _cos),
        Instruction("cos.approx.f32", _cos),
        Instruction("tanh.approx.f32", units.tanh),
        Instruction("div.full.f32", _division, operands=2),
        Instruction("div.full.ftz.f32", _flushed_division, operands=2),
        Instruction("div.approx.f32", _approximate_division, operands=2),
        Instruction("div.approx.ftz.f32", _flushed_approximate_division, operands=2),
        Instruction("rcp.approx.ftz.f64", _of_high_word(units.rcp64h), dtype=np.uint64),
        Instruction("rsqrt.approx.ftz.f64", _of_high_word(units.rsqrt64h), dtype=np.uint64),
        Instruction("rsqrt.approx.f64", _inverse_root_of_fp64, dtype=np.uint64),
        *_forms_of_16_bits("ex2.approx.f16", units.ex2, _widened_fp16, _truncated_fp16),
        *_forms_of_16_bits("ex2.approx.ftz.bf16", units.ex2, _widened_bf16, _truncated_bf16),
        *_forms_of_16_bits("tanh.approx.f16", units.tanh, _widened_fp16, _truncated_fp16),
        *_forms_of_16_bits("tanh.approx.bf16", units.tanh, _widened_bf16, _truncated_bf16),
    )
}
"""By PTX name."""
