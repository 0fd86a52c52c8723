"""What wrong kernels of a product give, in NumPy: one function a fault, for operands of any K.

Each takes the codes of A (M, K) and B (K, N) and returns the words of the result; `faultless` is the kernel without a fault. They
are judged as a user's launcher is, by `tests/contracts/test_gemm_bound.py` and `benchmarks/product_faults.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bitverdict.reference.formats import BF16, FORMATS, FP16, FP32, Format, Overflow, Rounding, decode, encode
from bitverdict.reference.tensor_core import Instruction, instruction, product
from tests.faults.mutants import FunctionEdit, Mutant, mutant_function

FAMILIES = {"sm_80": "mma.sync", "sm_90": "wgmma", "sm_100": "tcgen05"}
COARSE_BITS = 13  # fraction bits that an fp8 instruction of sm_90 keeps, where others keep 24 or 25
DEPTH = 64  # k between two stores of an accumulator in half precision
KEPT_BY_TF32 = np.uint32(0xFFFFE000)


@dataclass(frozen=True)
class Kernel:
    """`arch` multiplies operands in `dtype`, the result is stored in `out`, by default in `dtype`."""

    arch: str
    dtype: str
    out: str = ""

    @property
    def result(self) -> Format:
        return FORMATS[self.out or self.dtype]

    @property
    def rule(self) -> Instruction:
        operand = "tf32" if self.dtype == "fp32" else self.dtype
        return instruction(self.arch, FAMILIES[self.arch], operand, operand, "fp32")

    def sums(self, a: np.ndarray, b: np.ndarray, c: np.ndarray | None = None, rule: Instruction | None = None) -> np.ndarray:
        """(M, N) fp32 words of one ascending chain."""
        if self.dtype == "fp32":
            a, b = a & KEPT_BY_TF32, b & KEPT_BY_TF32
        return product(rule or self.rule, np.ascontiguousarray(a), np.ascontiguousarray(b), c)

    def stored(self, sums: np.ndarray, rounding: Rounding = Rounding.NEAREST_EVEN) -> np.ndarray:
        """(M, N) words of fp32 `sums` in the result's format."""
        overflow = Overflow.SATURATE if self.result.width == 8 else Overflow.INFINITY
        return encode(self.result, decode(FP32, sums), rounding=rounding, overflow=overflow)

    def through(self, fmt: Format, a: np.ndarray, b: np.ndarray, depth: int) -> np.ndarray:
        """(M, N) fp32 words of a chain whose sum is rounded to `fmt` after each `depth` k."""
        sums = np.zeros((a.shape[0], b.shape[1]), np.uint32)  # (M, N)
        for start in range(0, a.shape[1], depth):
            part = slice(start, start + depth)
            with np.errstate(over="ignore"):
                sums = encode(FP32, decode(fmt, encode(fmt, decode(FP32, self.sums(a[:, part], b[part], sums)))))
        return sums


def faultless(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(a, b))


def last_k_dropped(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(a[:, :-1], b[:-1]))


def last_k_dropped_in_one_element(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    words = faultless(kernel, a, b)
    row, column = (a.shape[0] * 5 + a.shape[1]) % a.shape[0], (b.shape[1] * 3 + a.shape[1]) % b.shape[1]
    words[row, column] = last_k_dropped(kernel, a, b)[row, column]
    return words


def first_k_twice(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(np.concatenate([a, a[:, :1]], axis=1), np.concatenate([b, b[:1]])))


def b_of_the_next_k(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(a, np.roll(b, -1, axis=0)))


def sums_in_fp16(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.through(FP16, a, b, 16))


def sum_through_bf16(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(encode(FP32, decode(BF16, encode(BF16, decode(FP32, kernel.sums(a, b))))))


def accumulator_through_bf16(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.through(BF16, a, b, DEPTH))


def operands_cut_to_bf16(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    fmt = FORMATS[kernel.dtype]
    cut = [encode(fmt, decode(BF16, encode(BF16, decode(fmt, side), rounding=Rounding.TOWARD_ZERO))) for side in (a, b)]
    return kernel.stored(kernel.sums(*cut))


def stored_toward_zero(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(a, b), Rounding.TOWARD_ZERO)


def ties_stored_away(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return kernel.stored(kernel.sums(a, b), Rounding.NEAREST_AWAY)


def sums_of_13_bits(kernel: Kernel, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    rule = replace(kernel.rule, fraction_bits=COARSE_BITS, output_fraction_bits=COARSE_BITS)
    return kernel.stored(kernel.sums(a, b, rule=rule))


MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(
        kernel="product",
        name=function.__name__.replace("_", " "),
        edits=(FunctionEdit(function),),
        expected=("outside the bound",),
    )
    for function in (
        last_k_dropped, last_k_dropped_in_one_element, first_k_twice, b_of_the_next_k, sums_in_fp16, sum_through_bf16,
        accumulator_through_bf16, operands_cut_to_bf16, stored_toward_zero, ties_stored_away, sums_of_13_bits,
    )
)  # fmt: skip


def no_fault_in(kernel: Kernel, mutant: Mutant, k: int) -> str:
    """Why `mutant` is no fault of this kernel at this K; empty where it is one."""
    fault = mutant_function(mutant)
    if fault in (stored_toward_zero, ties_stored_away) and kernel.result is FP32:
        return "the store does not round"
    if fault is operands_cut_to_bf16 and FORMATS[kernel.dtype].mantissa_bits <= BF16.mantissa_bits:
        return "bf16 holds the operands"
    if fault is accumulator_through_bf16 and kernel.result is BF16 and k <= DEPTH:
        return "one store of the accumulator is the result's own"
    if fault is sum_through_bf16 and kernel.result is BF16:
        return "it is the result's own conversion"
    if fault is sums_of_13_bits and kernel.rule.fraction_bits == COARSE_BITS:
        return "the instruction keeps no more"
    return ""
