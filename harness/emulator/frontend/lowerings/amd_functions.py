"""Functions on AMD's architectures. No public model gives the words of `v_exp_f32` and its like: AMD promises how near they are.

Here each gives the word nearest to the real result of the arguments that its instruction takes. That is one of the words that the
promise allows, so results that hang on it are held to a bound and never to words (docs/amd_targets.md). Division and the square
root that is asked for by name round once: LLVM refines them (`v_div_scale_f32`, `v_div_fmas_f32`, `v_div_fixup_f32`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.numerics.scalar_ops import canonical, flush_subnormals

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import Translator
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.numerics.real_values import TileValue

LOG2E = np.float32(1.4426950408889634)
_REAL: dict[str, Callable] = {
    "math.exp2": np.exp2,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda a: 1 / np.sqrt(a),
    "math.log": np.log,
    "math.log2": np.log2,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.erf": np.vectorize(erf, otypes=[np.float64]),
}
_FLUSHES = {"math.exp2"}
"""Triton compiles these to the instruction itself, which takes and gives no subnormals (`__HIP_FTZ`)."""
APPROXIMATE_FUNCTIONS = frozenset({"math.exp", *_REAL})


def divide_fp32(a: TileValue, b: TileValue) -> np.ndarray:
    """fp32 a / b, rounded once."""
    return canonical(np.divide(np.asarray(a, np.float32), np.asarray(b, np.float32)))


def write_approximation(t: Translator, op: Operation) -> None:
    """Write the function `op` of fp32. NotModelled for another type, and for a function of OCML that is called by its name."""
    if op.name not in APPROXIMATE_FUNCTIONS or t.result(op).element != "f32":
        called = op.string("symbol") or t.result(op).element
        raise NotModelled(op, f"of {called} on {t.arch}: its words and its error are not known here")
    t.call(op, _exponential if op.name == "math.exp" else _nearest(op.name))


def _exponential(a: TileValue) -> np.ndarray:
    """v_mul_f32 by log2(e), v_exp_f32; subnormals are kept (LLVM scales the argument)."""
    return _nearest("math.exp")(np.asarray(a, np.float32) * LOG2E)


def _nearest(name: str) -> Callable[[Any], np.ndarray]:
    real, flushes = _REAL[{"math.exp": "math.exp2"}.get(name, name)], name in _FLUSHES

    def run(a: TileValue) -> np.ndarray:
        given = np.asarray(a, np.float32)
        found = canonical(real((flush_subnormals(given) if flushes else given).astype(np.float64)).astype(np.float32))
        return flush_subnormals(found) if flushes else found

    return run


__all__ = ["APPROXIMATE_FUNCTIONS", "divide_fp32", "write_approximation"]
