"""A bare `tl.dot_scaled` and a way to run it in a process of its own, where TRITON_INTERPRET is read when it is decorated.

    python -m tests.reference_checks.dot_scaled_kernel IN.npz OUT.npz

IN holds, for each case, a (M, K) codes packed as Triton takes them, its scales, b (N, K) and its scales, under ``case/a`` and so
on; OUT the words (M, N) of each.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
import triton
import triton.language as tl

OPERANDS = {
    "mxfp4": ("e2m1", "e2m1", 32),
    "nvfp4": ("e2m1", "e2m1", 16),
    "mxfp8": ("e4m3", "e4m3", 32),
    "mixed": ("e4m3", "e2m1", 32),
}


@triton.jit
def dot_scaled_kernel(a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
                      A: tl.constexpr, B: tl.constexpr, SIZE: tl.constexpr):  # fmt: skip
    A_K: tl.constexpr = K // 2 if A == "e2m1" else K
    B_K: tl.constexpr = K // 2 if B == "e2m1" else K
    rows, columns, blocks = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K // SIZE)
    a = tl.load(a_ptr + rows[:, None] * A_K + tl.arange(0, A_K)[None, :])  # (M, A_K)
    b = tl.load(b_ptr + columns[:, None] * B_K + tl.arange(0, B_K)[None, :])  # (N, B_K)
    a_scale = tl.load(a_scale_ptr + rows[:, None] * (K // SIZE) + blocks[None, :])  # (M, K / SIZE)
    b_scale = tl.load(b_scale_ptr + columns[:, None] * (K // SIZE) + blocks[None, :])  # (N, K / SIZE)
    c = tl.dot_scaled(a, a_scale, A, b.T, b_scale, B)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], c)


def multiply(format_name: str, operands: dict[str, np.ndarray]) -> np.ndarray:
    """fp32 words (M, N) of operands a, a_scale, b, b_scale as bytes; e4m3 elements, and nvfp4's scales, are handed over as such."""
    a_format, b_format, size = OPERANDS[format_name]
    given = {name: torch.from_numpy(np.ascontiguousarray(codes)) for name, codes in operands.items()}
    for name, eight_bit in (("a", a_format == "e4m3"), ("b", b_format == "e4m3"), ("a_scale", size == 16), ("b_scale", size == 16)):
        if eight_bit:
            given[name] = given[name].view(torch.float8_e4m3fn)
    m, n = given["a"].shape[0], given["b"].shape[0]
    k = given["a_scale"].shape[1] * size
    c = torch.zeros((m, n))
    dot_scaled_kernel[(1,)](given["a"], given["a_scale"], given["b"], given["b_scale"], c, m, n, k, a_format, b_format, size)
    return c.numpy().view(np.uint32)


if __name__ == "__main__":
    found: dict[str, dict[str, np.ndarray]] = {}
    with np.load(sys.argv[1]) as given:
        for key in given.files:
            case, _, operand = key.rpartition("/")
            found.setdefault(case, {})[operand] = given[key]
    np.savez(sys.argv[2], **{case: multiply(case.partition(" ")[0], operands) for case, operands in found.items()})
