"""What Triton's own functions become: `tl.exp`, `tl.exp2`, `/`, `%`, `tl.sigmoid` and `tl.softmax` of fp32, as sequences.

Source: the PTX and the machine code of one-operation kernels (Triton 3.9; sm_80, sm_90 and sm_100 alike), to which
`tests/emulator/numerics/test_function_sequences.py` holds each. Every function takes fp32 words (uint32, any shape) and returns
such."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions.instructions import INSTRUCTIONS

LOG2_E = np.array(0x3FB8AA3B, np.uint32).view(np.float32)
ONE = np.array(1, np.float32)


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


def sigmoid(x: np.ndarray) -> np.ndarray:
    """tl.sigmoid: mul.f32 by -log2(e), ex2.approx.f32, add.f32 of 1, div.full.f32 of 1 by that."""
    power = INSTRUCTIONS["ex2.approx.f32"](_words(fp32.multiply(x.view(np.float32), -LOG2_E)))
    return divide(_words(ONE), _words(fp32.add(power.view(np.float32), ONE)))


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
