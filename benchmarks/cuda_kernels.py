"""Kernels of others in CUDA C++, judged on emulated GPUs: each by a reference and the bound that follows from it.

    BITVERDICT_CUDA_SOURCES=FOLDER bitverdict run benchmarks/cuda_kernels.py --target emulated:sm_80

FOLDER has the checkouts, by the names of `SOURCES`. `BITVERDICT_CUDA_OPTIONS` goes to nvcc: llm.c and SGEMM_CUDA include a header
of cuBLAS.
Sizes are those that a kernel takes; what it leaves out (whole tiles only, one block) is its own.
"""

# One file because `bitverdict run` takes one, and its report is the table of all kernels.
from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bitverdict as bv
from benchmarks.foreign_kernels import empty_like, judged_in

SOURCES = {
    "SGEMM_CUDA": "siboehm/SGEMM_CUDA",
    "llm.c": "karpathy/llm.c",
    "cuda-samples": "NVIDIA/cuda-samples",
    "lectures": "gpu-mode/lectures",
    "How_to_optimize_in_GPU": "Liu-xiandong/How_to_optimize_in_GPU",
}
FOLDER = Path(os.environ.get("BITVERDICT_CUDA_SOURCES", "."))
OPTIONS = tuple(os.environ.get("BITVERDICT_CUDA_OPTIONS", "").split())


@functools.cache
def _kernel(file: str, name: str, shared_bytes: int = 0, *options: str) -> Any:
    include = (f"-I{FOLDER / 'cuda-samples' / 'Common'}", f"-I{FOLDER / 'SGEMM_CUDA' / 'src'}", "-x", "cu")
    return bv.cuda_kernel(FOLDER / file, name, shared_bytes=shared_bytes, options=(*include, *OPTIONS, *options))


_judged = functools.partial(judged_in, globals())


def _blocks(count: int, size: int) -> int:
    return -(-count // size)


# -- SGEMM_CUDA: eleven ways to alpha A B + beta C ----------------------------------------------------------------------------
TILED = {
    "4_kernel_1D_blocktiling.cuh": ("sgemm1DBlocktiling<64, 64, 8, 8>", 64, 64, 8, 512),
    "5_kernel_2D_blocktiling.cuh": ("sgemm2DBlocktiling<64, 64, 8, 8, 8>", 64, 64, 8, 64),
    "6_kernel_vectorize.cuh": ("sgemmVectorize<128, 128, 8, 8, 8>", 128, 128, 8, 256),  # 64 threads load half of a tile of 64
    "7_kernel_resolve_bank_conflicts.cuh": ("sgemmResolveBankConflicts<128, 128, 8, 8, 8>", 128, 128, 8, 256),
    "8_kernel_bank_extra_col.cuh": ("sgemmResolveBankExtraCol<128, 128, 8, 8, 8>", 128, 128, 8, 256),
    "9_kernel_autotuned.cuh": ("sgemmAutotuned<128, 128, 16, 8, 8>", 128, 128, 16, 256),
    "10_kernel_warptiling.cuh": ("sgemmWarptiling<128, 128, 16, 64, 64, 4, 8, 4, 128>", 128, 128, 16, 128),
    "11_kernel_double_buffering.cuh": ("sgemmDoubleBuffering<128, 256, 16, 128, 32, 1, 8, 8, 256>", 128, 256, 16, 256),
    "12_kernel_double_buffering.cuh": ("runSgemmDoubleBuffering2<128, 128, 16, 64, 64, 4, 8, 4, 128>", 128, 128, 16, 128),
}


def _sgemm(xp: Any, a: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
    return alpha * (a @ b) + beta * c


def _launch_sgemm(draw: Any, file: str, name: str, sizes: tuple[int, int, int], grid: Any, block: Any) -> Any:
    m, n, k = sizes
    alpha, beta = draw.scalar(-2.0, 2.0, name="alpha"), draw.scalar(-2.0, 2.0, name="beta")
    a, b, c = draw.tensor("fp32", (m, k)), draw.tensor("fp32", (k, n)), draw.tensor("fp32", (m, n))
    out = c.clone()
    options = ("-DWARPSIZE=32",) if file.startswith(("11", "12")) else ()  # of the header before theirs
    _kernel(f"SGEMM_CUDA/src/kernels/{file}", name, 0, *options)[grid, block](m, n, k, alpha, a, b, beta, out)
    return out


def _tiled(file: str, name: str, rows: int, columns: int, depth: int, threads: int) -> None:
    @_judged(f"sgemm_{int(file.partition('_')[0]):02}", _sgemm)
    def test(draw: Any) -> Any:
        m, n, k = draw.size(1, 2) * rows, columns, draw.size(1, 2) * depth
        return _launch_sgemm(draw, file, name, (m, n, k), (n // columns, m // rows), threads)


for _file, _row in TILED.items():
    _tiled(_file, *_row)


def _simple_sgemm(number: int, file: str, name: str, block: Any) -> None:
    @_judged(f"sgemm_{number:02}", _sgemm)
    def test(draw: Any) -> Any:
        m, n, k = draw.size(1, 70), draw.size(1, 70), draw.size(1, 40)
        if number == 3:  # whole tiles
            m, n, k = 32 * _blocks(m, 32), 32 * _blocks(n, 32), 32 * _blocks(k, 32)
        return _launch_sgemm(draw, file, name, (m, n, k), (_blocks(m, 32), _blocks(n, 32)), block)


_simple_sgemm(1, "1_naive.cuh", "sgemm_naive", (32, 32))
_simple_sgemm(2, "2_kernel_global_mem_coalesce.cuh", "sgemm_global_mem_coalesce<32>", 1024)
_simple_sgemm(3, "3_kernel_shared_mem_blocking.cuh", "sgemm_shared_mem_block<32>", 1024)


# -- llm.c --------------------------------------------------------------------------------------------------------------------
def _llm(file: str, name: str, shared_bytes: int = 0) -> Any:
    return _kernel(f"llm.c/dev/cuda/{file}.cu", name, shared_bytes)


def _gelu(xp: Any, x: Any) -> Any:
    return 0.5 * x * (1.0 + xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _gelu_gradient(xp: Any, x: Any, g: Any) -> Any:
    t = xp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    slope = 0.5 * (1.0 + t) + x * 0.5 * (1.0 - t * t) * 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x)
    return slope * g


def _elementwise(name: str, file: str, kernel: str, reference: Callable[..., Any], operands: int, vector: int) -> None:
    @_judged(name, reference)
    def test(draw: Any) -> Any:
        n = draw.size(1, 100) * vector
        x = [draw.tensor("bf16", (n,)) for _ in range(operands)]
        out = empty_like(x[0])
        _llm(file, kernel)[_blocks(n, 128 * vector), 128](out, *x, n)
        return out


_elementwise("llm_gelu_forward_1", "gelu_forward", "gelu_forward_kernel1", _gelu, 1, 1)
_elementwise("llm_gelu_forward_2", "gelu_forward", "gelu_forward_kernel2", _gelu, 1, 8)
_elementwise("llm_gelu_backward_1", "gelu_backward", "gelu_backward1", _gelu_gradient, 2, 1)
_elementwise("llm_gelu_backward_2", "gelu_backward", "gelu_backward2", _gelu_gradient, 2, 8)
_elementwise("llm_residual_1", "residual_forward", "residual_forward_kernel1", lambda xp, a, b: a + b, 2, 1)
_elementwise("llm_residual_2", "residual_forward", "residual_forward_kernel2", lambda xp, a, b: a + b, 2, 8)


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


def _softmax_of_rows(name: str, kernel: str, rows_of_block: int, block: int, shared_bytes: int = 0, least: int = 1) -> None:
    """`least`: columns that a row must have, one for each of its threads."""

    @_judged(name, _softmax)
    def test(draw: Any) -> Any:
        n, c = draw.size(1, 9), draw.size(least, least + 150)
        x = draw.tensor("fp32", (n, c))
        out = empty_like(x)
        _llm("softmax_forward", kernel, shared_bytes)[_blocks(n, rows_of_block), block](out, x, n, c)
        return out


_softmax_of_rows("llm_softmax_1", "softmax_forward_kernel1", 64, 64)
_softmax_of_rows("llm_softmax_2", "softmax_forward_kernel2", 1, 64, 256)
_softmax_of_rows("llm_softmax_3", "softmax_forward_kernel3", 1, 32, 128)
_softmax_of_rows("llm_softmax_4", "softmax_forward_kernel4", 1, 128, 16)
_softmax_of_rows("llm_softmax_7", "softmax_forward_kernel7", 1, 128, 32, 128)
_softmax_of_rows("llm_softmax_online_1", "softmax_forward_online_kernel1", 64, 64)
_softmax_of_rows("llm_softmax_online_2", "softmax_forward_online_kernel2", 4, 128, 0, 32)
_softmax_of_rows("llm_softmax_online_8", "softmax_forward_online_kernel8", 4, 128, 0, 128)


def _layer_norm(xp: Any, x: Any, w: Any, b: Any) -> Any:
    mean = xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean((x - mean) * (x - mean), axis=-1, keepdims=True)
    return (x - mean) / xp.sqrt(variance + 1e-5) * w + b


def _layer_norm_of_rows(name: str, kernel: str, rows_of_block: int, block: Any, shared: Callable[[int], int] = lambda c: 0) -> None:
    @_judged(name, _layer_norm)
    def test(draw: Any) -> Any:
        n, c = draw.size(1, 9), draw.size(1, 40, around=32) * (4 if "6" in name else 1)
        x, w, b = draw.tensor("fp32", (n, c)), draw.tensor("fp32", (c,)), draw.tensor("fp32", (c,))
        out, mean, rstd = empty_like(x), empty_like(x, n), empty_like(x, n)
        _llm("layernorm_forward", kernel, shared(c))[_blocks(n, rows_of_block), block](out, mean, rstd, x, w, b, n, c)
        return out


_layer_norm_of_rows("llm_layer_norm_1", "layernorm_forward_kernel1", 64, 64)
_layer_norm_of_rows("llm_layer_norm_3", "layernorm_forward_kernel3", 4, 128)
_layer_norm_of_rows("llm_layer_norm_4", "layernorm_forward_kernel4", 4, 128)
_layer_norm_of_rows("llm_layer_norm_5", "layernorm_forward_kernel5", 1, 128)
_layer_norm_of_rows("llm_layer_norm_6", "layernorm_forward_kernel6", 4, (32, 4), lambda c: 6 * c * 4)


@_judged("llm_layer_norm_2", _layer_norm)
def _three_kernels(draw: Any) -> Any:
    n, c = 8 * draw.size(1, 2), 32 * draw.size(1, 3)  # whole blocks
    x, w, b = draw.tensor("fp32", (n, c)), draw.tensor("fp32", (c,)), draw.tensor("fp32", (c,))
    out, mean, rstd = empty_like(x), empty_like(x, n), empty_like(x, n)
    _llm("layernorm_forward", "mean_kernel", 256)[n, 64](mean, x, n, c, 64)
    _llm("layernorm_forward", "rstd_kernel", 256)[n, 64](rstd, x, mean, n, c, 64)
    _llm("layernorm_forward", "normalization_kernel")[_blocks(n * c, 256), 256](out, x, mean, rstd, w, b, n, 1, c)
    return out


def _adamw(xp: Any, p: Any, g: Any, m: Any, v: Any, rate: float) -> Any:
    m = 0.875 * m + (1.0 - 0.875) * g
    v = 0.96875 * v + (1.0 - 0.96875) * g * g
    return p - rate * (m / 0.5 / (xp.sqrt(v / 0.25) + 0.0009765625) + 0.0625 * p), m, v


def _adamw_of(name: str, kernel: str) -> None:
    @_judged(name, _adamw)
    def test(draw: Any) -> Any:
        n = draw.size(1, 300)
        p, g, m = (draw.tensor("fp32", (n,)) for _ in range(3))
        v = draw.tensor("fp32", (n,), values=(0.0, 1.0))
        rate = draw.scalar(0.0, 1.0, name="rate")
        p, m, v = p.clone(), m.clone(), v.clone()
        _llm("adamw", kernel)[_blocks(n, 128), 128](p, g, m, v, n, rate, 0.875, 0.96875, 0.5, 0.25, 0.0009765625, 0.0625)
        return p, m, v


_adamw_of("llm_adamw_1", "adamw_kernel1")
_adamw_of("llm_adamw_2", "adamw_kernel2")


def _heads(x: Any, xp: Any, heads: int) -> list[Any]:
    """q, k, v of (batch, time, 3 C), each (batch, heads, time, C / heads)."""
    b, t, c = x.shape
    x = xp.permute_dims(xp.reshape(x, (b, t, 3, heads, c // 3 // heads)), (2, 0, 3, 1, 4))
    return [x[0], x[1], x[2]]


@_judged("llm_attention_permute", lambda xp, x, heads: tuple(_heads(x, xp, heads)))
def _permute(draw: Any) -> Any:
    b, t, heads, d = draw.size(1, 3), draw.size(1, 9), draw.choice((1, 2, 3), name="heads"), draw.size(1, 9)
    x = draw.tensor("fp32", (b, t, 3 * heads * d))
    q, k, v = (empty_like(x, b, heads, t, d) for _ in range(3))
    _llm("attention_forward", "permute_kernel")[_blocks(q.numel(), 64), 64](q, k, v, x, b, t, heads, d)
    return q, k, v


@_judged("llm_attention_unpermute", lambda xp, x: xp.permute_dims(x, (0, 2, 1, 3)))
def _unpermute(draw: Any) -> Any:
    b, heads, t, d = draw.size(1, 3), draw.size(1, 3), draw.size(1, 9), draw.size(1, 9)
    x = draw.tensor("fp32", (b, heads, t, d))
    out = empty_like(x, b, t, heads, d)
    _llm("attention_forward", "unpermute_kernel")[_blocks(x.numel(), 64), 64](x, out, b, t, heads, d)
    return out


@_judged("llm_matmul_1", lambda xp, x, w, b: x @ w.T + b)
def _matmul(draw: Any) -> Any:
    m, k, n = draw.size(1, 20), draw.size(1, 40), draw.size(1, 20)
    x, w, b = draw.tensor("fp32", (m, k)), draw.tensor("fp32", (n, k)), draw.tensor("fp32", (n,))
    out = empty_like(x, m, n)
    _llm("matmul_forward", "matmul_forward_kernel1")[(_blocks(m, 8), _blocks(n, 8)), (8, 8)](out, x, w, b, m, k, n)
    return out


@_judged("llm_matmul_4", lambda xp, x, w, b: x @ w.T + b)
def _matmul_of_tiles(draw: Any) -> Any:
    m, k, n = 128 * draw.size(1, 2), 32 * draw.size(1, 2), 128
    x, w, b = draw.tensor("fp32", (m, k)), draw.tensor("fp32", (n, k)), draw.tensor("fp32", (n,))
    out = empty_like(x, m, n)
    _llm("matmul_forward", "matmul_forward_kernel4")[(m // 128, n // 128), (16, 16)](out, x, w, b, k, n)
    return out


@_judged("llm_bias_gradient_1", lambda xp, g: xp.sum(g, axis=0))
def _bias_gradient(draw: Any) -> Any:
    n, c = draw.size(1, 200), draw.size(1, 40)
    g = draw.tensor("bf16", (n, c))
    out = torch.zeros(c, dtype=g.dtype, device=g.device)
    _llm("matmul_backward_bias", "matmul_backward_bias_kernel1", 256)[c, 64](out, g, n, 1, c)
    return out


# -- NVIDIA's samples ---------------------------------------------------------------------------------------------------------
INTRODUCTION, TECHNIQUES = "cuda-samples/Samples/0_Introduction", "cuda-samples/Samples/2_Concepts_and_Techniques"


def _sum_of_vectors(name: str, file: str, kernel: str, block: int, vector: int = 0) -> None:
    """`vector`: elements of a thread, where the kernel takes whole blocks and no length."""

    @_judged(name, lambda xp, a, b: a + b)
    def test(draw: Any) -> Any:
        n = block * vector * draw.size(1, 3) if vector else draw.size(1, 300)
        a, b = draw.tensor("fp32", (n,)), draw.tensor("fp32", (n,))
        out = empty_like(a)
        _kernel(file, kernel)[_blocks(n, block * (vector or 1)), block](a, b, out, *(() if vector else (n,)))
        return out


_sum_of_vectors("samples_vector_add", f"{INTRODUCTION}/vectorAdd/vectorAdd.cu", "vectorAdd", 128)
_sum_of_vectors("lectures_vector_add", "lectures/lecture_002/vector_addition/vector_addition.cu", "vecAddKernel", 64)
for _name, _vector in (("add", 1), ("vec2_add", 2), ("vec4_add", 4)):
    _sum_of_vectors(f"how_to_{_name}", "How_to_optimize_in_GPU/elementwise/elementwise_add.cu", _name, 256, _vector)


def _samples_matmul(name: str, file: str, kernel: str, block: int) -> None:
    @_judged(name, lambda xp, a, b: a @ b)
    def test(draw: Any) -> Any:
        m, n, k = (block * draw.size(1, 3) for _ in range(3))
        a, b = draw.tensor("fp32", (m, k)), draw.tensor("fp32", (k, n))
        out = empty_like(a, m, n)
        _kernel(f"{INTRODUCTION}/{file}", kernel)[(n // block, m // block), (block, block)](out, a, b, k, n)
        return out


_samples_matmul("samples_matmul_16", "matrixMul/matrixMul.cu", "MatrixMulCUDA<16>", 16)
_samples_matmul("samples_matmul_32", "matrixMul/matrixMul.cu", "MatrixMulCUDA<32>", 32)
_samples_matmul("samples_matmul_64_bit", "matrixMulDrv/matrixMul_kernel.cu", "matrixMul_bs16_64bit", 16)


def _windows(xp: Any, x: Any, w: Any, axis: int) -> Any:
    radius, total = 8, 0.0
    padded = xp.concat([xp.zeros_like(x), x, xp.zeros_like(x)], axis=axis)
    size = x.shape[axis]
    for offset in range(-radius, radius + 1):
        part = padded[:, size + offset : 2 * size + offset] if axis else padded[size + offset : 2 * size + offset, :]
        total = total + w[radius - offset] * part
    return total


def _convolution(name: str, kernel: str, axis: int) -> None:
    @_judged(name, lambda xp, x, weights: _windows(xp, x, weights, axis))
    def test(draw: Any) -> Any:
        h, w = 64 * draw.size(1, 2), 128 * draw.size(1, 2)
        x, weights = draw.tensor("fp32", (h, w)), draw.tensor("fp32", (17,))
        out = empty_like(x)
        filled = bv.cuda_kernel(
            FOLDER / TECHNIQUES / "convolutionSeparable/convolutionSeparable.cu",
            kernel,
            options=(f"-I{FOLDER / 'cuda-samples' / 'Common'}", *OPTIONS),
            constants={"c_Kernel": weights.cpu().numpy()},
        )
        grid, block = ((w // 128, h // 4), (16, 4)) if axis else ((w // 16, h // 64), (16, 8))
        filled[grid, block](out, x, w, h, w)
        return out


_convolution("samples_convolution_rows", "convolutionRowsKernel", 1)
_convolution("samples_convolution_columns", "convolutionColumnsKernel", 0)


def _boxes(xp: Any, x: Any, radius: int) -> Any:
    """Each window from the one before it, as the kernel sums."""
    size = x.shape[1]
    columns = [x[:, min(max(at, 0), size - 1)] for at in range(-radius - 1, size + radius)]
    total = columns[0] * radius
    for column in columns[radius + 1 : 2 * radius + 2]:
        total = total + column
    sums = [total]
    for left, right in zip(columns[1:size], columns[2 * radius + 2 :], strict=True):
        sums.append(sums[-1] + right - left)
    return xp.stack(sums, axis=1) / (2 * radius + 1)


@_judged("samples_box_filter_rows", _boxes)
def _box_filter(draw: Any) -> Any:
    h, w, radius = 64, draw.size(9, 40), draw.size(1, 4, name="radius")
    x = draw.tensor("fp32", (h, w))
    out = empty_like(x)
    file = f"{TECHNIQUES}/boxFilter/boxFilter_kernel.cu"
    _kernel(file, "d_boxfilter_x_global")[h // 64, 64](x, out, w, h, radius)
    return out


@_judged("samples_merge_sort_of_a_block", lambda xp, x: xp.sort(x))
def _merge_sort(draw: Any) -> Any:
    x = draw.integers((1024,), 0, 1 << 30)
    keys, values, numbers = empty_like(x), empty_like(x), torch.arange(1024, dtype=torch.int32, device=x.device)
    file = f"{INTRODUCTION}/mergeSort/mergeSort.cu"
    _kernel(file, "mergeSortSharedKernel<1U>")[1, 512](keys, values, x, numbers, 1024)
    return keys


# -- gpu-mode's lectures ------------------------------------------------------------------------------------------------------
def _lectures_matmul(name: str, kernel: str) -> None:
    @_judged(name, lambda xp, a, b: a @ b)
    def test(draw: Any) -> Any:
        n = 16 * draw.size(1, 4)
        a, b = draw.tensor("fp32", (n, n)), draw.tensor("fp32", (n, n))
        out = empty_like(a)
        _kernel("lectures/lecture_008/tiling.cu", kernel)[(n // 16, n // 16), (16, 16)](a, b, out, n)
        return out


_lectures_matmul("lectures_matmul", "matrixMulSimple")
_lectures_matmul("lectures_matmul_tiled", "matrixMulTiled")


@_judged("lectures_copy", lambda xp, x: x)
def _copy(draw: Any) -> Any:
    n = draw.size(1, 300)
    x = draw.tensor("fp32", (n,))
    out = empty_like(x)
    _kernel("lectures/lecture_008/coalesce.cu", "copyDataCoalesced")[_blocks(n, 128), 128](x, out, n)
    return out


@_judged("lectures_window_sum", lambda xp, x: _sums_of_windows(xp, x, 2))
def _window_sum(draw: Any) -> Any:
    n = draw.size(5, 300)
    x = draw.tensor("fp32", (n,))
    out = empty_like(x)
    _kernel("lectures/lecture_008/privatization2.cu", "windowSumDirect")[_blocks(n, 128), 128](x, out, n, 5)
    return out


def _sums_of_windows(xp: Any, x: Any, radius: int) -> Any:
    zeros = xp.zeros_like(x)[:radius]
    padded, size, total = xp.concat([zeros, x, zeros]), x.shape[0], 0.0
    for offset in range(2 * radius + 1):
        total = total + padded[offset : offset + size]
    return total


@_judged("lectures_sum_of_a_block", lambda xp, x: xp.sum(x))
def _sum_of_a_block(draw: Any) -> Any:
    x = draw.tensor("fp32", (2048,))
    out = empty_like(x, 1)
    _kernel("lectures/lecture_009/control_divergence_reduce.cu", "FixDivergenceKernel")[1, 1024](x.clone(), out)
    return out[0]


@_judged("lectures_flash_attention", lambda xp, q, k, v: _softmax(xp, (q @ k.T) * 0.0883883461356163) @ v)
def _flash_attention(draw: Any) -> Any:
    n = 32 * draw.size(1, 2)
    q, k, v = (draw.tensor("fp32", (n, 128)) for _ in range(3))
    out, logs = empty_like(q), empty_like(q, n)
    kernel = _kernel("lectures/lecture_012/flash_attention.cu", "flash_attention_k")
    kernel[n // 8, (128, 8)](out, logs, q, k, v, float(np.float32(0.0883883461356163)), n, n // 8, n // 32)
    return out


# -- How_to_optimize_in_GPU ---------------------------------------------------------------------------------------------------
def _reduction(number: int, file: str, kernel: str, elements: int, *arguments: int) -> None:
    @_judged(f"how_to_reduce_{number}", lambda xp, x: xp.sum(x, axis=1))
    def test(draw: Any) -> Any:
        blocks = draw.size(1, 3)
        x = draw.tensor("fp32", (blocks, elements))
        out = empty_like(x, blocks)
        _kernel(f"How_to_optimize_in_GPU/reduce/{file}", kernel)[blocks, 256](x.clone(), out, *arguments)
        return out


_reduction(0, "reduce_v0_baseline.cu", "reduce0", 256)
_reduction(1, "reduce_v1_no_divergence_branch.cu", "reduce1", 256)
_reduction(2, "reduce_v2_no_bank_conflict.cu", "reduce2", 256)
_reduction(3, "reduce_v3_add_during_load.cu", "reduce3", 512)
_reduction(4, "reduce_v4_unroll_last_warp.cu", "reduce4", 512)
_reduction(5, "reduce_v5_completely_unroll.cu", "reduce5<256>", 512)


def _sgemv(name: str, file: str, kernel: str, k: int, rows_of_block: int) -> None:
    @_judged(name, lambda xp, a, x: a @ x)
    def test(draw: Any) -> Any:
        m = rows_of_block * draw.size(1, 4)
        a, x = draw.tensor("fp32", (m, k)), draw.tensor("fp32", (k,))
        out = empty_like(a, m)
        _kernel(f"How_to_optimize_in_GPU/sgemv/{file}", kernel)[m // rows_of_block, (32, 4)](a, x, out, m, k)
        return out


_sgemv("how_to_sgemv_0", "Sgemv_v0.cu", "Sgemv_v0", 32, 4)
_sgemv("how_to_sgemv_1", "Sgemv_v1.cu", "Sgemv_v1", 128, 4)
_sgemv("how_to_sgemv_2", "Sgemv_v2.cu", "Sgemv_v2<2>", 16, 8)
