"""How far a function of an implementation may be from the real one: one table, with its sources.

A table of NVIDIA counts units in the last place to the correctly rounded result: n of them are n + 1/2 to the real one, and each is
at most 2 u of the result, u the unit of the type; of a subnormal one, 2 u of the smallest normal number. Sources:

- [CUDA]: CUDA C++ Programming Guide, "Mathematical Functions", maximum error of the functions of libdevice, fp32 and fp64.
- [PTX]: PTX ISA, "Floating Point Instructions": `div.full` 2 ulp, `ex2.approx` 2 ulp, `sqrt.approx` 2^-23 of the result,
  `rsqrt.approx` 2^-22.9. What they compute on hardware is nearer (docs/special_functions.md): the bound takes what is promised.
- [OpenCL]: OpenCL C Specification, "Relative Error as ULPs", for AMD's targets. `tl.exp`, `tl.exp2` and `tl.sqrt` become
  `v_exp_f32` and `v_sqrt_f32` there, which are nearer: LLVM, "User Guide for AMDGPU Backend", has 1 ulp for exp2.
- [Triton]: which of them an operator becomes (reference/special_functions/sequences.py): `tl.exp(x)` is ex2.approx(x log2(e)).

A row also allows the ordinary ways to write the same mathematics. Each names its derivation below.

*divide.* `a / b` is div.full: 2.5 ulp, 5 u. `a * (1 / b)` has a quotient and a product: 5 u + u. `a * rsqrt(v)` in place of
`a / sqrt(v)` has 2^-22.9 + u = 3.2 u, less than the sqrt and the quotient of the reference. `s * (1 / n)`, with 1 / n rounded,
has 2 u. So 6 u.

*exp.* ex2.approx has 5 u. Its argument x log2(e) has two errors that grow with x: the constant is 0.23 u away from log2(e), and the
product is rounded: (1 + 0.23) u |x|, and of the result as much, relatively. Where x is a difference a - b, the factor may be folded
into both, exp2(a l - b l): the same with |a| + |b| in place of |x|. And where a sum of exponentials is kept beside a running
maximum, exp(a - b) is exp(a - m) exp(m - b): a second 5 u and a product, 11 u in all. Arguments of both add up to a - b. Of B
blocks of s terms each, B - 2 such products more are paid for by the roundings that a sum of n terms may have: s - 1 + 6 (B - 1) are
at most n + 5 for every s of 6 or more.

*log.* libdevice's has 1 ulp, and log2(x) ln(2) a constant and a product more: 3 u + 1.6 u + u.

*tanh.* libdevice's has 2 ulp. As 2 sigmoid(2 x) - 1, or (1 - e) / (1 + e) with e = exp(-2 |x|), it has an absolute error: e within
(5 + 1.23 |2 x|) u of itself, 1 + e and the quotient within 7 u of themselves. The derivative of 2 / (1 + e) by e is at most 2, and
e (5 + 2.46 |x|) is at most 5.3 for e = exp(-2 |x|): (2 * 5.3 + 2 * 7 + 1) u, less than 26 u.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.reference.tracing.accumulation import Ends, widen_ends
from bitverdict.reference.tracing.state import Trace

SECOND_ORDER = 1 + 2.0**-16  # products of a few u, each at most 2^-18: fp16 is treated by its own rounding


@dataclass(frozen=True)
class Function:
    """An error in fp32 and fp64: `relative` and `absolute` in units u, `argument` the same for each unit of the argument.

    `flushes`: results, and `takes_flushed`: arguments, that are subnormal may be taken as zero (`.ftz`)."""

    relative: float
    relative_fp64: float = 5.0
    absolute: float = 0.0
    argument: float = 0.0
    flushes: bool = True
    takes_flushed: bool = False
    source: str = "[CUDA]"

    def apply(self, trace: Trace, low: np.ndarray, high: np.ndarray, extra: np.ndarray | float = 0.0) -> Ends:
        """The words, where the exact results lie in [low, high]; `extra`: more relative error, in units."""
        how = trace.accumulation
        is_fp64 = how.format == "fp64"
        unit = how.unit if is_fp64 else 2.0**-24
        count = ((self.relative_fp64 if is_fp64 else self.relative) + extra) * SECOND_ORDER
        floor = [np.where(end == 0, 0.0, how.smallest_normal) for end in (low, high)]  # a unit of the subnormals
        low, _ = widen_ends(low, low, count * unit, self.absolute * unit + count * unit * floor[0])
        _, high = widen_ends(high, high, count * unit, self.absolute * unit + count * unit * floor[1])
        if self.flushes and not is_fp64:
            low, high = how.flush_ends(low, high)
        return how.outward(low, high)


def ulps(count: float, fp64: float = 2, **named: object) -> Function:
    """`count` units in the last place in fp32, `fp64` in fp64, to the correctly rounded result."""
    return Function(2 * count + 1, 2 * fp64 + 1, **named)  # type: ignore[arg-type]


FUNCTIONS: dict[str, Function] = {
    "divide": Function(6, 6, source="[PTX] div.full, and a product"),
    "sqrt": Function(2, 1, takes_flushed=True, source="[PTX] sqrt.approx.ftz"),
    "exp": Function(5, 3, argument=1.23, source="[PTX] ex2.approx [Triton]"),
    "exp2": Function(5, 3, source="[PTX] ex2.approx"),
    "log": Function(5.6, 5.6, takes_flushed=True),
    "log2": Function(5.6, 5.6, takes_flushed=True),
    "log10": Function(5.6, 5.6, takes_flushed=True),
    "log1p": ulps(1, 1),
    "expm1": ulps(1, 1),
    "sin": ulps(2),
    "cos": ulps(2),
    "tan": ulps(4),
    "asin": ulps(2),
    "acos": ulps(2),
    "atan": ulps(2),
    "atan2": ulps(3),
    "sinh": ulps(3),
    "cosh": ulps(2, 1),
    "tanh": ulps(2, 1, absolute=26),
    "asinh": ulps(3, 3),
    "acosh": ulps(4, 3),
    "atanh": ulps(3),
    "hypot": ulps(3),
    "pow": ulps(4),
    "erf": ulps(2),
    "erfc": ulps(4, 5),
}
"""By the standard's name, erf and erfc besides."""

OPENCL: dict[str, float] = {
    "exp": 3, "exp2": 3, "sqrt": 3, "log": 3, "log2": 3, "log10": 3, "log1p": 2, "expm1": 3, "sin": 4, "cos": 4, "tan": 5,
    "asin": 4, "acos": 4, "atan": 5, "atan2": 6, "sinh": 4, "cosh": 4, "tanh": 5, "asinh": 4, "acosh": 4, "atanh": 5, "hypot": 4,
    "pow": 16, "erf": 16, "erfc": 16,
}  # fmt: skip
"""Units in the last place to the real result, of fp32 (OpenCL C Specification, "Relative Error as ULPs"; OCML is written to it)."""


def function_error(name: str, arch: str) -> Function:
    """The row of `name` on `arch`; on AMD's ("gfx942") with OpenCL's error where that is larger."""
    row = FUNCTIONS[name]
    if not arch.startswith("gfx") or name not in OPENCL:
        return row
    return replace(row, relative=max(row.relative, 2 * OPENCL[name]), source=f"{row.source} [OpenCL]")


RESCALING_UNITS = 6.0
"""Units that exp(a - m) exp(m - b) has more than exp(a - b)."""

Real = Callable[[np.ndarray], np.ndarray]
