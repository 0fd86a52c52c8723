"""Operands made ready for the integer chain: significand and exponent of each code in one 32-bit word, k first.

Bits 31..16 hold the exponent, signed; bits 15..0 the significand, signed. A value is significand * 2^(exponent - mantissa bits).
The exponent is the field's meaning, the smallest normal one for subnormals (`reference.tensor_core.definition.factors`).
What is not finite has significand 0 here, and stands in a second array that exists only where such a code does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from bitverdict.reference.formats import FORMATS, Format, decode
from bitverdict.reference.tensor_core.fused_sum import exponents
from bitverdict.reference.tensor_core.record import Instruction

OF_ZERO = -(1 << 10)  # below every exponent, alone or in a sum of two operands' and of their scales'
SIDE_MULTIPLE = 128  # what the length L of a side is filled up to a multiple of, with zeros
ZERO, FINITE, INFINITE, NAN, NEGATIVE = 0, 1, 2, 3, 4


@dataclass(frozen=True)
class PackedSide:
    """One side of a product on the device: K' whole spans in the order of the rule's passes, L' whole tiles."""

    words: torch.Tensor  # (K', L') int32
    size: int  # L before it was padded to PADDED
    classes: torch.Tensor | None  # (K', L') int8: ZERO .. NAN, with NEGATIVE; None where all are finite


@cache
def table(name: str, widened: str) -> tuple[np.ndarray, np.ndarray]:
    """For every code of `name` (at most 16 bits wide): its packed word (int32) as a number of `widened`, and its class (int8)."""
    fmt, wide = FORMATS[name], FORMATS[widened]
    values = decode(fmt, np.arange(1 << (fmt.width + fmt.ignored_high_bits)).astype(fmt.storage))  # (codes,)
    finite = np.isfinite(values)
    plain = np.where(finite, values, 0.0)
    exponent = exponents(plain, wide.smallest_exponent, OF_ZERO).astype(np.int64)
    significand = np.where(plain == 0, 0.0, plain * 2.0 ** (wide.mantissa_bits - np.maximum(exponent, -1000).astype(np.float64)))
    packed = ((exponent << 16) | (significand.astype(np.int64) & 0xFFFF)).astype(np.uint32).view(np.int32)
    kinds = np.where(np.isnan(values), NAN, np.where(~finite, INFINITE, np.where(plain == 0, ZERO, FINITE)))
    return packed, (kinds | np.where(np.signbit(values), NEGATIVE, 0)).astype(np.int8)


@cache
def _table_on(name: str, widened: str, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """`table` there: a sum of 64 blocks packs 128 sides."""
    words, kinds = (torch.from_numpy(part).to(device) for part in table(name, widened))
    return words, kinds


def pack_side(rule: Instruction, name: str, codes: torch.Tensor) -> PackedSide:
    """`codes` (K, L) of format `name`, on any device, in the rule's order of k."""
    fmt = FORMATS[name]
    if fmt.width > 16:
        return _of_containers(rule, fmt, codes)
    words, kinds = _table_on(name, rule.widened or name, codes.device)
    signed = codes.view({1: torch.uint8, 2: torch.int16}[codes.element_size()])
    index = signed.to(torch.int32) & ((1 << (8 * codes.element_size())) - 1)  # (K, L)
    found = words[index]  # (K, L)
    special = bool(((kinds & 3) >= INFINITE)[index].any())
    return PackedSide(_order_k(rule, found, OF_ZERO << 16), codes.shape[1], _order_k(rule, kinds[index], ZERO) if special else None)


def _of_containers(rule: Instruction, fmt: Format, codes: torch.Tensor) -> PackedSide:
    """The same of tf32 in 32-bit containers (K, L), whose low bits are not read."""
    code = codes.view(torch.int32) >> fmt.low_padding  # (K, L)
    mask = (1 << fmt.mantissa_bits) - 1
    field, low = (code >> fmt.mantissa_bits) & 0xFF, code & mask  # (K, L) each
    normal, special, negative = field != 0, field == 0xFF, code < 0
    significand = torch.where(normal, low | (mask + 1), low)  # (K, L)
    zero = (significand == 0) | special
    exponent = torch.where(zero, OF_ZERO, field.clamp(min=1) - fmt.bias)
    signed = torch.where(zero, 0, torch.where(negative, -significand, significand))
    kinds = torch.where(special, torch.where(low != 0, NAN, INFINITE), torch.where(zero, ZERO, FINITE))  # (K, L)
    kinds = torch.where(negative, kinds | NEGATIVE, kinds)  # (K, L)
    classes = _order_k(rule, kinds.to(torch.int8), ZERO) if bool(special.any()) else None
    return PackedSide(_order_k(rule, (exponent << 16) | (signed & 0xFFFF), OF_ZERO << 16), codes.shape[1], classes)


def pack_scaled_side(rule: Instruction, name: str, codes: torch.Tensor, scales: torch.Tensor) -> PackedSide:
    """`codes` (K, L) with the e8m0 `scales` (ceil(K / scale_block), L) multiplied in: their exponents are added."""
    unscaled_side = pack_side(rule, name, codes)
    spread = (scales.to(torch.int32) & 0xFF).repeat_interleave(rule.scale_block or 1, dim=0)[: codes.shape[0]]  # (K, L)
    spread = _order_k(rule, spread, 127)
    zero = (unscaled_side.words & 0xFFFF) == 0
    words = torch.where(zero, unscaled_side.words, unscaled_side.words + ((spread - 127) << 16))
    nan = spread == 0xFF
    if not bool(nan.any()):
        return PackedSide(words, unscaled_side.size, unscaled_side.classes)
    classes = unscaled_side.classes if unscaled_side.classes is not None else classes_of(unscaled_side.words)
    return PackedSide(torch.where(nan, OF_ZERO << 16, words), unscaled_side.size, classes.masked_fill(nan, NAN))


def classes_of(words: torch.Tensor) -> torch.Tensor:
    """Of packed words that are all finite (K, L): ZERO or FINITE, with NEGATIVE; int8."""
    low = (words << 16) >> 16
    return (low != 0).to(torch.int8) | ((low < 0).to(torch.int8) << 2)


def _order_k(rule: Instruction, array: torch.Tensor, of_zero: int) -> torch.Tensor:
    """`array` (K, L), K padded to whole spans, k in the order in which the blocks take it."""
    missing = -array.shape[0] % rule.span, -array.shape[1] % SIDE_MULTIPLE
    array = torch.nn.functional.pad(array, (0, missing[1], 0, missing[0]), value=of_zero)  # (K', L')
    if rule.passes is not None:
        order = torch.tensor([k for one in rule.passes for k in one], device=array.device)
        array = array.view(-1, rule.span, array.shape[1])[:, order].reshape(array.shape)
    return array.contiguous()
