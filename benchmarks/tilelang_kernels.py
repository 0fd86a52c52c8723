"""TileLang's examples, judged on emulated GPUs: each by a reference and the bound that follows from it.

    BITVERDICT_CUDA_SOURCES=FOLDER bitverdict run benchmarks/tilelang_kernels.py --target emulated:sm_90

FOLDER has a checkout of tile-ai/tilelang, `tilelang`; `pip install tilelang` brings the compiler. Sizes are whole tiles, as in the
examples, and one set a kernel: nvcc takes seconds for each.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

import torch

import bitverdict as bv
from benchmarks.foreign_kernels import empty_like, judged_in

FOLDER = Path(os.environ.get("BITVERDICT_CUDA_SOURCES", ".")) / "tilelang" / "examples"


@functools.cache
def _kernel(file: str, name: str, **constants: Any) -> Any:
    """A kernel of an example, for the constants that it leaves to its caller."""
    spec = importlib.util.spec_from_file_location(f"tilelang_{Path(file).stem}", FOLDER / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (RuntimeError, AssertionError):  # an example that runs at its import, on a GPU: what stands above that is there
        pass
    function = getattr(module, name)
    return bv.tilelang_kernel(getattr(function, "jit_impl", function), **constants)


_judged = functools.partial(judged_in, globals())


# -- products -----------------------------------------------------------------------------------------------------------------
def _product(name: str, file: str, kernel: str, *, transposed: bool = False, dtype: str = "fp16", **constants: Any) -> None:
    @_judged(name, lambda xp, a, b: a @ (b.T if transposed else b))
    def test(draw: Any) -> Any:
        m, n, k = 128 * 2, 128, 64 * 3
        a, b = draw.tensor(dtype, (m, k)), draw.tensor(dtype, (n, k) if transposed else (k, n))
        c = empty_like(a, m, n)
        _kernel(file, kernel, M=m, N=n, K=k, block_M=128, block_N=128, **constants)(a, b, c)
        return c


_product("tilelang_gemm", "gemm/example_gemm.py", "matmul", block_K=32)
_pipelined = {"block_K": 32, "threads": 256, "num_stages": 3}
_product("tilelang_gemm_of_tiles_in_turn", "gemm/example_gemm_persistent.py", "matmul_non_persistent", **_pipelined)
_product("tilelang_gemm_sm100", "gemm_sm100/gemm_mma.py", "matmul", transposed=True, block_K=32)


@_judged("tilelang_gemm_splitk", lambda xp, a, b: a @ b)
def _split_product(draw: Any) -> Any:
    m, n, k = 128, 128, 128 * 2
    a, b = draw.tensor("fp16", (m, k)), draw.tensor("fp16", (k, n))
    c = torch.zeros(m, n, device=a.device)
    file = "gemm_splitk/example_tilelang_gemm_splitk.py"
    _kernel(file, "matmul", M=m, N=n, K=k, block_M=128, block_N=128, block_K=32, split_k=2)(a, b, c)
    return c


@_judged("tilelang_blocksparse_gemm", lambda xp, a, b, mask: _masked_product(xp, a, b, mask))
def _sparse_product(draw: Any) -> Any:
    m, n, k = 128 * 2, 128, 96
    a, b = draw.tensor("fp16", (m, k)), draw.tensor("fp16", (k, n))
    mask = draw.integers((m // 128, n // 128, k // 32), 0, 1)
    c = empty_like(a, m, n)
    constants = {"block_M": 128, "block_N": 128, "block_K": 32, "num_stages": 2, "thread_num": 128, "enable_rasteration": True}
    file = "blocksparse_gemm/example_blocksparse_gemm.py"
    _kernel(file, "blocksparse_matmul", M=m, N=n, K=k, **constants)(a, b, mask.bool(), c)
    return c


def _masked_product(xp: Any, a: Any, b: Any, mask: Any) -> Any:
    rows = []
    for row in range(mask.shape[0]):
        total = xp.zeros_like(a[:128, :1] @ b[:1, :])
        for step in range(mask.shape[2]):
            part = a[128 * row : 128 * row + 128, 32 * step : 32 * step + 32] @ b[32 * step : 32 * step + 32, :]
            total = xp.where(mask[row, 0, step] > 0, total + part, total)
        rows.append(total)
    return xp.concat(rows, axis=0)


def _vector_product(name: str, kernel: str, step: int, **constants: Any) -> None:
    @_judged(name, lambda xp, x, a: a @ x)
    def test(draw: Any) -> Any:
        n, k = constants["BLOCK_N"] * 2, step * 3
        x, a = draw.tensor("fp16", (k,)), draw.tensor("fp16", (n, k))
        y = empty_like(x, n)
        _kernel("gemv/example_gemv.py", kernel, N=n, K=k, **constants)(x, a, y)
        return y


_vector_product("tilelang_gemv_naive", "naive_gemv", 128, BLOCK_N=128, BLOCK_K=128)
_vector_product("tilelang_gemv_naive_splitk", "naive_splitk_gemv", 32, BLOCK_N=32, BLOCK_K=32)
_vector_product("tilelang_gemv_splitk", "splitk_gemv", 32, BLOCK_N=32, BLOCK_K=32, reduce_threads=8)
_vector_product("tilelang_gemv_splitk_vectorized", "splitk_gemv_vectorized", 64, BLOCK_N=32, reduce_threads=8)
_vector_product("tilelang_gemv_splitk_vectorized_tvm", "splitk_gemv_vectorized_tvm", 256, BLOCK_N=2, reduce_threads=32)


@_judged("tilelang_gemv_reducer", lambda xp, a, x: a @ x)
def _reduced_product(draw: Any) -> Any:
    m, n = 128 * 2, 128 * 2
    a, x = draw.tensor("fp32", (m, n)), draw.tensor("fp32", (n,))  # of fp16 it rounds each product to fp16
    y = empty_like(a, m)
    _kernel("gemv/example_gemv.py", "gemv_alloc_reducer", M=m, N=n, dtype="float32")(a, x, y)
    return y


@_judged("tilelang_convolution", lambda xp, x, w: _convolved(xp, x, w))
def _convolution(draw: Any) -> Any:
    n, h, w, c, f = 1, 8, 8, 32, 128
    x, weights = draw.tensor("fp16", (n, h, w, c)), draw.tensor("fp16", (3, 3, c, f))
    y = empty_like(x, n, h, w, f)
    constants = {"block_M": 64, "block_N": 128, "block_K": 32, "num_stages": 3, "threads": 256, "S": 1, "D": 1, "P": 1}
    _kernel("convolution/example_convolution.py", "convolution", N=n, C=c, H=h, W=w, F=f, K=3, **constants)(x, weights, y)
    return y


def _convolved(xp: Any, x: Any, w: Any) -> Any:
    n, h, width, c = x.shape
    row = xp.zeros_like(x[:, :1])
    x = xp.concat([row, x, row], axis=1)
    column = xp.zeros_like(x[:, :, :1])
    x = xp.concat([column, x, column], axis=2)
    windows = xp.concat([x[:, dy : dy + h, dx : dx + width] for dy in range(3) for dx in range(3)], axis=3)
    return xp.reshape(xp.reshape(windows, (n * h * width, 9 * c)) @ xp.reshape(w, (9 * c, -1)), (n, h, width, -1))


# -- rows ---------------------------------------------------------------------------------------------------------------------
@_judged("tilelang_elementwise_add", lambda xp, a, b: a + b)
def _sum(draw: Any) -> Any:
    m, n = 32 * 3, 32 * 2
    a, b = draw.tensor("fp32", (m, n)), draw.tensor("fp32", (m, n))
    c = empty_like(a, m, n)
    types = {"in_dtype": "float32", "out_dtype": "float32"}
    file = "elementwise/example_elementwise_add.py"
    _kernel(file, "elementwise_add", M=m, N=n, block_M=32, block_N=32, threads=128, **types)(a, b, c)
    return c


def _rms_norm(name: str, kernel: str, **constants: Any) -> None:
    @_judged(name, lambda xp, x: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-12))
    def test(draw: Any) -> Any:
        m, n = 4 * 2, 128 * 2
        x = draw.tensor("fp32", (m, n))
        y = empty_like(x, m, n)
        _kernel("norm/rms_norm.py", kernel, M=m, N=n, blk_m=1, **constants)(x, y)
        return y


_rms_norm("tilelang_rms_norm", "rms_norm")
_rms_norm("tilelang_rms_norm_splitk", "rms_norm_splitk", blk_k=128)


@_judged("tilelang_layer_norm", lambda xp, x, w, b: _layer_norm(xp, x, w, b))
def _layer_norm_of_rows(draw: Any) -> Any:
    n, d = 3, 256
    x, w, b = draw.tensor("bf16", (n, d)), draw.tensor("bf16", (d,)), draw.tensor("bf16", (d,))
    y, mean, rstd = empty_like(x, n, d), empty_like(x, n, dtype=torch.float32), empty_like(x, n, dtype=torch.float32)
    _kernel("norm/layernorm.py", "_layernorm_fwd", N=n, D=d)(x, w, b, y, mean, rstd)
    return y


def _layer_norm(xp: Any, x: Any, w: Any, b: Any) -> Any:
    """The variance as the kernel has it, mean of squares less the square of the mean."""
    mean = xp.mean(x, axis=1, keepdims=True)
    return (x - mean) / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) - mean * mean + 1e-5) * w + b


def _softmax(xp: Any, x: Any) -> Any:
    e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
    return e / xp.sum(e, axis=-1, keepdims=True)


@_judged("tilelang_flash_attention", lambda xp, q, k, v: _softmax(xp, q @ xp.matrix_transpose(k) * 0.125) @ v)
def _attention(draw: Any) -> Any:
    t, s = 64, 64 * 2
    q, k, v = draw.tensor("fp16", (1, 2, t, 64)), draw.tensor("fp16", (1, 2, s, 64)), draw.tensor("fp16", (1, 2, s, 64))
    out = empty_like(q, 1, 2, t, 64)
    constants = {"batch": 1, "heads": 2, "seq_q": t, "seq_kv": s, "dim": 64, "is_causal": False}
    _kernel("flash_attention/example_mha_fwd_bhsd.py", "flashattn", **constants)(q, k, v, out)
    return out


@_judged("tilelang_topk", lambda xp, x: xp.sort(x, axis=1)[:, ::-1][:, :6])
def _topk(draw: Any) -> Any:
    m, n = 64 * 2, 128
    x = draw.tensor("fp32", (m, n))
    gates, places = empty_like(x, m, 6), empty_like(x, m, 6, dtype=torch.int32)
    _kernel("topk/example_topk.py", "tl_topk", M=m, N=n, topk=6, blk_m=64)(x, gates, places)
    return gates
