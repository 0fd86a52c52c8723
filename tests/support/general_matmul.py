"""A launcher that claims all that `matmul` lets one claim, and lines in it that tests replace by faulty ones."""

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu(x):
    x = x + 1
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, PROGRAMS: tl.constexpr,
                  GROUP: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                  BLOCK_K: tl.constexpr, ACCUMULATE: tl.constexpr):  # fmt: skip
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), rows * columns, PROGRAMS):
        group = tile // (GROUP * columns)
        in_group = min(rows - group * GROUP, GROUP)
        row = group * GROUP + tile % (GROUP * columns) % in_group
        column = tile % (GROUP * columns) // in_group
        offs_m, offs_n = row * BLOCK_M + tl.arange(0, BLOCK_M), column * BLOCK_N + tl.arange(0, BLOCK_N)
        offs_k = tl.arange(0, BLOCK_K)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=ACCUMULATE)
        for k in range(0, K, BLOCK_K):
            inside = offs_k < K - k
            a_ptrs = a_ptr + (offs_m % M)[:, None] * stride_am + (k + offs_k)[None, :] * stride_ak
            b_ptrs = b_ptr + (k + offs_k)[:, None] * stride_bk + (offs_n % N)[None, :] * stride_bn
            a = tl.load(a_ptrs, mask=inside[None, :], other=0.0)
            b = tl.load(b_ptrs, mask=inside[:, None], other=0.0)
            acc = tl.dot(a, b, acc, out_dtype=ACCUMULATE)
        if ACTIVATION == "leaky_relu":
            acc = leaky_relu(acc)
        places = c_ptr + offs_m.to(tl.int64)[:, None] * N + offs_n[None, :]
        tl.store(places, acc.to(c_ptr.dtype.element_ty), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def matmul(a, b, activation="", out_dtype=None):
    (M, K), (L, N) = a.shape, b.shape
    if K != L or a.dtype != b.dtype:
        raise ValueError(f"a is {tuple(a.shape)} {a.dtype} and b is {tuple(b.shape)} {b.dtype}: they do not belong together")
    c = torch.empty((M, N), device=a.device, dtype=out_dtype or a.dtype)
    programs = torch.cuda.get_device_properties(a.device).multi_processor_count
    tiles = triton.cdiv(M, 32) * triton.cdiv(N, 32)
    matmul_kernel[(min(programs, tiles),)](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), PROGRAMS=programs, GROUP=4, ACTIVATION=activation,
        BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, ACCUMULATE=tl.int32 if a.dtype == torch.int8 else tl.float32,
    )  # fmt: skip
    return c


matmul.claims = ("strides", "bf16", "fp32", "e4m3", "int8", "activation", "out_dtype", "refusals")
