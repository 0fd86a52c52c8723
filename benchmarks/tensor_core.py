"""Bit-accurate tensor-core products a second, on one core.

Run: `python benchmarks/tensor_core.py [size]`. Exit status 1 when a goal is missed: 100 million fp16 products a second with wide
exponents; 1,000 million where it is proven that no alignment can drop a bit; 25 million for chosen elements of a large product,
decoding of their rows and columns included. A product is one multiplication of two elements with its share of alignment,
truncation and rounding.
"""

from __future__ import annotations

import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy loads its BLAS

import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bitverdict.reference.formats import FORMATS, Overflow, encode  # noqa: E402
from bitverdict.reference.tensor_core import elements, instruction, product  # noqa: E402

SIZE = 512
RUNS = 3
WIDE_GOAL, PROVEN_GOAL, CHOSEN_GOAL = 100, 1000, 25  # million products a second
CHOSEN = 4096
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def wide(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Exponents over most of fp16's range: nearly every product is cut."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 12, shape)


def near_one(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Full significands, one exponent: products are never cut, the sum is rounded, and a large c cuts."""
    return rng.uniform(1, 2, shape) * rng.choice([-1.0, 1.0], shape)


def integers(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Small enough that no step can round: proven, and then one matrix product."""
    return rng.integers(-63, 64, shape).astype(np.float64)


ROWS: list[tuple[str, tuple[str, str, str, str, str], Draw, int | None]] = [
    ("wide exponents", ("sm_90", "wgmma", "fp16", "fp16", "fp32"), wide, WIDE_GOAL),
    ("wide exponents", ("sm_80", "mma.sync", "fp16", "fp16", "fp32"), wide, WIDE_GOAL),
    ("wide exponents, fp16 result", ("sm_90", "wgmma", "fp16", "fp16", "fp16"), wide, WIDE_GOAL),
    ("nothing cut, proven", ("sm_90", "wgmma", "fp16", "fp16", "fp32"), integers, PROVEN_GOAL),
    ("nothing cut, proven", ("sm_80", "mma.sync", "fp16", "fp16", "fp32"), integers, PROVEN_GOAL),
    ("full significands near 1", ("sm_90", "wgmma", "fp16", "fp16", "fp32"), near_one, None),
    ("wide exponents", ("sm_90", "wgmma", "bf16", "bf16", "fp32"), wide, None),
    ("normal", ("sm_90", "wgmma", "e4m3", "e4m3", "fp32"), lambda rng, shape: rng.standard_normal(shape), None),
    ("normal", ("sm_100", "mma.sync", "e4m3", "e4m3", "fp32"), lambda rng, shape: rng.standard_normal(shape), None),
]


def fastest(call: Callable[[], object]) -> float:
    """Processor seconds of the fastest run, after one that is not counted; other work on the machine is not counted either."""
    call()
    taken = []
    for _ in range(RUNS):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken)


def main(size: int) -> int:
    """Print the table; the number of goals missed."""
    rng = np.random.default_rng(0)
    missed = 0
    print(f"{'M = N = K = ' + str(size):56} {'million products/s':>20} {'goal':>8}")
    for what, key, draw, goal in ROWS:
        rule = instruction(*key)
        a, b = (encode(FORMATS[name], draw(rng, (size, size)), overflow=Overflow.SATURATE) for name in (rule.a, rule.b))
        rate = size**3 / fastest(lambda: product(rule, a, b)) / 1e6
        missed += goal is not None and rate < goal
        print(f"{rule.name + ', ' + what:56} {rate:20.0f} {goal or '':>8}")
    missed += not chosen_are_cheap(rng)
    return int(missed)


def chosen_are_cheap(rng: np.random.Generator) -> bool:
    """Chosen elements of an 8192 x 8192 x 8192 product: their rate, and whether it meets the goal."""
    rule = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
    a, b = (encode(FORMATS["fp16"], wide(rng, (CHOSEN // 8, 8192))) for _ in range(2))
    rows, columns = rng.integers(0, len(a), CHOSEN // 8), rng.integers(0, len(b), CHOSEN // 8)
    seconds = fastest(lambda: elements(rule, a[rows], b[columns]))
    rate = len(rows) * 8192 / seconds / 1e6
    what = f"{len(rows)} elements of an 8192^3 product: {seconds * 1e3:.0f} ms"
    print(f"{what:56} {rate:20.0f} {CHOSEN_GOAL:>8}")
    return rate >= CHOSEN_GOAL


if __name__ == "__main__":
    sys.exit(int(main(int(sys.argv[1]) if len(sys.argv) > 1 else SIZE) > 0))
