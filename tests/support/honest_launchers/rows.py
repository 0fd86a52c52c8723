"""Reductions and rows: several outputs, atomics, a module with parameters, descriptors."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def row_sums_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


def row_sums(x):
    out = torch.empty((x.shape[0],), dtype=torch.float32, device=x.device)
    row_sums_kernel[(x.shape[0],)](x, out, x.shape[1], x.stride(0), BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def row_sums_with_an_axis(x):
    return row_sums(x).unsqueeze(-1)


@triton.jit
def atomic_sums_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.atomic_add(out_ptr + row, tl.sum(x, axis=0))


def row_sums_by_atomics(x):
    rows, columns = x.shape
    out = torch.zeros(rows, dtype=torch.float32, device=x.device)
    atomic_sums_kernel[(rows, triton.cdiv(columns, 64))](x, out, columns, BLOCK=64)
    return out


@triton.jit
def partial_sums_kernel(x_ptr, parts_ptr, columns, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    at = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(parts_ptr + row * parts + part, tl.sum(x, axis=0))


def row_sums_in_two_kernels(x):
    rows, columns = x.shape
    parts = triton.cdiv(columns, 64)
    work = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    partial_sums_kernel[(rows, parts)](x, work, columns, parts, BLOCK=64)
    return row_sums(work)


@triton.jit
def sum_and_maximum_kernel(x_ptr, sum_ptr, most_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    tl.store(sum_ptr + row, tl.sum(x, axis=0))
    tl.store(most_ptr + row, tl.max(tl.where(at < columns, x, -float("inf")), axis=0))


def sum_and_maximum(x):
    total = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    most = torch.empty_like(total)
    sum_and_maximum_kernel[(x.shape[0],)](x, total, most, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return total, most


def sum_and_maximum_in_one_buffer(x):
    both = torch.empty((2, x.shape[0]), dtype=torch.float32, device=x.device)
    sum_and_maximum_kernel[(x.shape[0],)](x, both[0], both[1], x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return both.unbind(0)


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * x_stride + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * out_stride + at, e / tl.sum(e, axis=0), mask=at < columns)


def softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    block = triton.next_power_of_2(columns)
    num_warps = 8 if block >= 2048 else 4
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, x.stride(0), y.stride(0), BLOCK=block, num_warps=num_warps)
    return y


class Softmax(torch.nn.Module):
    def forward(self, x):
        return softmax(x.contiguous())


softmax_module = Softmax().eval()


@triton.jit
def scaled_rows_kernel(x_ptr, w_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + at, mask=at < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / columns + eps)
    tl.store(out_ptr + row * columns + at, x * scale * w, mask=at < columns)


class RMSNorm(torch.nn.Module):
    """A module that is made for the sizes of its operands, and takes its weight from the caller."""

    def __init__(self, columns, eps=1e-6, device="cuda", dtype=torch.float32):
        super().__init__()
        self.eps = eps
        self.weight = torch.nn.Parameter(torch.ones(columns, device=device, dtype=dtype), requires_grad=False)

    def forward(self, x):
        y = torch.empty_like(x)
        columns = x.shape[-1]
        scaled_rows_kernel[(x.shape[0],)](x, self.weight, y, columns, self.eps, BLOCK=triton.next_power_of_2(columns))
        return y


def rms_norm_by_a_module(x, w):
    layer = RMSNorm(x.shape[1], device=x.device, dtype=w.dtype)
    with torch.no_grad():
        layer.weight.copy_(w)
        return layer(x)


def rms_norm_by_a_state_dict(x, w):
    layer = RMSNorm(x.shape[1], device=x.device, dtype=w.dtype)
    layer.load_state_dict({"weight": w})
    return layer(x)


@triton.jit
def described_kernel(x_desc, out_desc, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    out_desc.store([row, column], x_desc.load([row, column]))


def copied_by_host_descriptors(x):
    """Rows of a multiple of 16 bytes."""
    out = torch.empty_like(x)
    block = [16, 32]
    grid = (triton.cdiv(x.shape[0], 16), triton.cdiv(x.shape[1], 32))
    described_kernel[grid](
        TensorDescriptor.from_tensor(x, block), TensorDescriptor(out, list(out.shape), list(out.stride()), block), *block
    )
    return out


@triton.jit
def descriptors_kernel(x_ptr, out_ptr, rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK_M, BLOCK_N])
    out = tl.make_tensor_descriptor(out_ptr, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK_M, BLOCK_N])
    row, column = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    out.store([row, column], x.load([row, column]))


def copied_by_device_descriptors(x):
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    rows, columns = x.shape
    out = torch.empty_like(x)
    descriptors_kernel[(triton.cdiv(rows, 16), triton.cdiv(columns, 32))](x, out, rows, columns, BLOCK_M=16, BLOCK_N=32)
    return out


@triton.jit
def gather_kernel(x_ptr, index_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    source = tl.load(index_ptr + row).to(tl.int64)
    tl.store(out_ptr + row * columns + at, tl.load(x_ptr + source * columns + at, mask=at < columns), mask=at < columns)


def gathered(x, index):
    out = x.new_empty((index.numel(), x.shape[1]))
    gather_kernel[(index.numel(),)](x, index, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def gathered_by_short_indices(x, index):
    return gathered(x, index.to(torch.int32))


@triton.jit
def matmul_kernel(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        depth = k + tl.arange(0, BLOCK_K)
        left = tl.load(a + rows[:, None] * sam + depth[None, :] * sak, mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
        right = tl.load(
            b + depth[:, None] * sbk + columns[None, :] * sbn, mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        acc = tl.dot(left, right, acc)
    tl.store(
        c + rows[:, None] * scm + columns[None, :] * scn,
        acc.to(c.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def matmul(a, b):
    assert a.shape[1] == b.shape[0], "Incompatible dimensions"
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]), triton.cdiv(N, META["BLOCK_N"]))
    matmul_kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return c


def matmul_of_a_transpose(a, b):
    """B is handed on as the view of a contiguous transpose."""
    return matmul(a, b.t().contiguous().t())


def matmul_with_bias(a, b, bias):
    c = matmul(a, b)
    out = torch.empty_like(c)
    bias_kernel[(c.shape[0],)](c, bias, out, c.shape[1], BLOCK=triton.next_power_of_2(c.shape[1]))
    return out


@triton.jit
def bias_kernel(c_ptr, bias_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    c = tl.load(c_ptr + row * columns + at, mask=at < columns)
    tl.store(out_ptr + row * columns + at, c + tl.load(bias_ptr + at, mask=at < columns), mask=at < columns)
