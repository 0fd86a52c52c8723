"""What ptxas makes of a division by a constant: it computes the reciprocal itself, rounded correctly, not as the unit would.

Source: the machine code that ptxas writes for divisions by constants (Triton 3.9; sm_80, sm_90 and sm_100 alike), to which
`tests/emulator/numerics/test_function_sequences.py` holds this. Subnormal operands and results of the reciprocal are zeros of their
sign, as the unit's are. Every function takes fp32 words (uint32, shapes that broadcast) and returns such.
"""

from __future__ import annotations

import numpy as np

from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.special_functions.instructions import scaling


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.full.f32 by a constant `b`."""
    return _product(*factors(a, b))


def divide_approximately(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """div.approx.f32 by a constant `b`, which is not scaled where it is large."""
    return _product(*_factors(a, b, scaling(b, full=False)))


def factors(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The two words whose product is div.full.f32 of `a` by a constant `b`."""
    return _factors(a, b, scaling(b))


def _factors(a: np.ndarray, b: np.ndarray, factor: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with np.errstate(all="ignore"):
        divisor = fp32.flush_subnormals(b.view(np.float32) * factor)
        left = fp32.canonical(a.view(np.float32) * factor)
    return left.view(np.uint32), fp32.reciprocal(divisor, flush=True).view(np.uint32)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(fp32.multiply(a.view(np.float32), b.view(np.float32)), np.float32).view(np.uint32)
