"""A product judged by its mathematics alone: whichever instruction multiplied, in whatever order the K blocks came.

For a user's launcher, whose plan nobody knows. The bound is the largest over every instruction the target could have used
(`reference.error_bound` has the derivation), so it acquits more than a plan does, and convicts no right kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.contract import Expected
from harness.narrowed_operands import narrowed
from harness.verdict import RestsOn
from reference.error_bound import (
    accumulation_bound,
    activated_bound,
    converted_bound,
    of_instruction,
    plain_fp32,
    products_grid,
    subnormal_alignment,
)
from reference.exact_gemm import exact_gemm
from reference.formats import FORMATS, FP32, decode
from reference.tensor_core import INSTRUCTIONS, Instruction

SHORTEST_BLOCK = 16  # K of the shortest tl.dot: a kernel that restarts its chain in every block has no more chains than this makes
TF32_PRODUCTS = 3  # for one of fp32: tf32x3 multiplies high and low parts
SATURATED = ("e4m3", "e5m2")  # cvt.rn.satfinite makes the largest finite value of an infinity; a store of one's own may not
_OPERANDS = {"fp32": ("tf32",), "e4m3": ("e4m3", "fp16")}  # what the compiler may hand to the instruction


def bounded_product(problem: Any, a: np.ndarray, b: np.ndarray, arch: str) -> Expected:
    """What any kernel must give for `problem` (m, n, k, dtype, out, activation): a (M, K), b (K, N) codes in `problem.dtype`.

    Float operands: value and bound, infinite (undecided) where a sum could overflow on the way. int8: words, since integers are
    exact."""
    shape = (problem.m, problem.n)
    if problem.dtype == "int8":
        total = a.astype(np.int64) @ b.astype(np.int64)  # (M, N)
        words = total.astype(np.int8 if problem.out == "int8" else np.int32)  # (M, N)
        return Expected(name="c", format=problem.out, shape=shape, words=words, rests_on=RestsOn.EXACT)
    fmt, k = FORMATS[problem.dtype], problem.k
    left, right = decode(fmt, a), decode(fmt, b)  # (M, K), (K, N)
    exact = exact_gemm(left, right)
    chains = max(1, -(-k // SHORTEST_BLOCK))
    terms = k * TF32_PRODUCTS if problem.dtype == "fp32" else k
    possible = [of_instruction(rule, terms, chains=chains) for rule in instructions(arch, problem.dtype)]
    possible.append(plain_fp32(chains=chains))
    alignment, grid = subnormal_alignment(left, right, fmt, fmt), products_grid(left, right)  # (M, N) each
    value, error = exact.value, np.zeros(shape)  # (M, N)
    narrow = narrowed(a, b) if problem.dtype == "fp32" else None
    lost = narrow.loss if narrow else 0.0  # (M, N)
    for how in possible:
        magnitude = exact.magnitude + 2.0 * lost  # (M, N) of products whose operands may have grown
        bound = accumulation_bound(value, magnitude, terms, accumulation=how, alignment=alignment, grid=grid)  # (M, N)
        error = np.maximum(error, bound)  # (M, N)
    error = error + lost  # (M, N)
    with np.errstate(invalid="ignore"):  # NaN and infinities pass through, and are owed as they are
        if problem.activation:
            value, error = activated_bound(value, error)
        bound = converted_bound(value, error, FORMATS[problem.out])  # (M, N)
    undecided = np.isinf(value) & (_may_overflow(left, right) | (problem.out in SATURATED))  # (M, N)
    if narrow:
        undecided |= narrow.hollow | (narrow.unsettled & ~np.isnan(value))
    return Expected(
        name="c", format=problem.out, shape=shape, value=value, bound=bound, undecided=undecided, rests_on=RestsOn.BOUND
    )


def _may_overflow(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """(M, N): whether the finite products could leave fp32, which makes a NaN of an owed infinity when it has the other sign."""
    largest = [np.abs(np.where(np.isfinite(side), side, 0.0)).max(axis=axis, initial=0.0) for side, axis in ((left, 1), (right, 0))]
    return left.shape[1] * largest[0][:, None] * largest[1][None, :] >= FP32.largest / 2


def instructions(arch: str, dtype: str) -> list[Instruction]:
    """Every instruction a compiler could multiply two operands in `dtype` with on `arch`, into fp32."""
    operands = _OPERANDS.get(dtype, (dtype,))
    return [
        rule
        for rule in INSTRUCTIONS
        if rule.arch == arch and rule.d == "fp32" and rule.a == rule.b and rule.a in operands and rule.scale is None
    ]
