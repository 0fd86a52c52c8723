"""What Triton's own functions become: `tl.exp`, `tl.exp2`, `tl.log`, `/`, `%`, `tl.sigmoid` and `tl.softmax` of fp32, as sequences.

Source: the PTX and the machine code of one-operation kernels (Triton 3.9; sm_80, sm_90 and sm_100 alike), to which
`tests/emulator/numerics/test_function_sequences.py` holds each. Every function takes fp32 words (uint32, any shape) and returns
such."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

LOG2_E = np.array(0x3FB8AA3B, np.uint32).view(np.float32)
FP32_ONE = np.array(1, np.float32)
_LOG = np.array(
    [0xBE055027, 0x3E1039F6, 0xBDF8CDCC, 0x3E0F2955, 0xBE2AD8B9, 0x3E4CED0B, 0xBE7FFF22, 0x3EAAAA78, 0xBF000000], np.uint32
).view(np.float32)  # of the polynomial, the highest power first
_SCALE_UP, _INFINITY = np.array(2.0**23, np.float32), np.array(np.inf, np.float32)
_UNIT, _LOG_2 = np.array([0x34000000, 0x3F317218], np.uint32).view(np.float32)  # 2^-23, log(2)


def exp2(x: np.ndarray) -> np.ndarray:
    """tl.exp2: ex2.approx.ftz.f32."""
    return INSTRUCTIONS["ex2.approx.ftz.f32"](x)


def exp(x: np.ndarray) -> np.ndarray:
    """tl.exp: mul.f32 by log2(e), ex2.approx.f32."""
    return INSTRUCTIONS["ex2.approx.f32"](_words(fp32.multiply(x.view(np.float32), LOG2_E)))


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b and tl.fdiv: div.full.f32."""
    return INSTRUCTIONS["div.full.f32"](a, b)


def remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a % b: div.rn.f32, cvt.rzi.f32.f32 of that, fma.rn.f32 of its negative, b and a; a itself where b is infinite."""
    left, right = a.view(np.float32), b.view(np.float32)
    with np.errstate(all="ignore"):
        whole = np.trunc(fp32.divide(left, right))
        found = fp32.fma(-whole, right, left)
    return _words(np.where(np.isinf(right), left, found))


def log(x: np.ndarray) -> np.ndarray:
    """tl.log, libdevice's `__nv_logf`: a multiple of log(2), and a polynomial of the mantissa less 1, between -1/3 and 1/3.

    `fma.rn.ftz.f32` throughout; numbers below 2^-126 are multiplied by 2^23 first."""
    small = x.view(np.float32) < fp32.SMALLEST  # (...)
    scaled_values = np.where(small, fp32.multiply(x.view(np.float32), _SCALE_UP), x.view(np.float32))  # (...)
    bits = scaled_values.view(np.int32)
    power = (bits - np.int32(0x3F2AAAAB)) & np.int32(-(1 << 23))  # (...) its exponent, in place
    rest = fp32.add((bits - power).view(np.float32), -FP32_ONE)  # (...)
    exponent = fp32.fma(power.astype(np.float32), _UNIT, np.where(small, np.float32(-23), np.float32(0)), flush=True)  # (...)
    sum_ = np.broadcast_to(_LOG[0], rest.shape)
    for coefficient in _LOG[1:]:
        sum_ = fp32.fma(sum_, rest, coefficient, flush=True)  # (...)
    near = fp32.fma(fp32.multiply(rest, sum_), rest, rest, flush=True)  # (...)
    found = fp32.fma(exponent, _LOG_2, near, flush=True)  # (...)
    with np.errstate(invalid="ignore"):
        special = fp32.fma(scaled_values, _INFINITY, _INFINITY, flush=True)  # (...)
    found = np.where(scaled_values.view(np.uint32) >= np.uint32(0x7F800000), special, found)
    return _words(np.where(scaled_values == 0, np.float32(-np.inf), found))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """tl.sigmoid: mul.f32 by -log2(e), ex2.approx.f32, add.f32 of 1, div.full.f32 of 1 by that."""
    power = INSTRUCTIONS["ex2.approx.f32"](_words(fp32.multiply(x.view(np.float32), -LOG2_E)))
    return divide(_words(FP32_ONE), _words(fp32.add(power.view(np.float32), FP32_ONE)))


def softmax(x: np.ndarray, total: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """tl.softmax along the last axis: sub.f32 of the row's maximum, exp, the sum of these, div.full.f32.

    `total` sums float32 along the last axis and keeps it; the order is the kernel's own, which its layout decides.
    """
    values = x.view(np.float32)
    below = fp32.add(values, -np.max(values, axis=-1, keepdims=True))
    powers = exp(_words(below))
    return divide(powers, _words(total(powers.view(np.float32))))


def _words(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, np.float32).view(np.uint32)
