"""What is there for CUDA alone, computed on the CPU: ATen's histograms of integers, its products with a type of their own for the
result (`torch.mm(a, b, out_dtype=torch.float32)`), and Triton's handle of cuBLAS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch

from bitverdict.harness.emulator.faults import raise_for_the_launcher, unanswered_call_fault
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import OpOverload, OpOverloadPacket

_aten = torch.ops.aten


def _histogram(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """`torch.histc` as its CUDA kernel counts integers: by whole numbers, the last bin closed.
    Source: ATen, SummaryOps.cu, `getBin`."""
    if x.is_floating_point():
        return torch.histc(x, bins, min, max)
    low, high = int(min), int(max)
    if low == high and x.numel():
        low, high = int(x.min()), int(x.max())
    if low == high:
        low, high = low - 1, high + 1
    whole = x.flatten().long()
    counted = whole[(whole >= low) & (whole <= high)]
    return torch.bincount(((counted - low) * bins // (high - low)).clamp(max=bins - 1), minlength=bins).to(x.dtype)


def _product(packet: OpOverloadPacket, *operands: Any, out: torch.Tensor | None = None, **factors: float) -> torch.Tensor:
    """The product of `operands`, of which the last is the type of the result: summed in fp32 at least, and rounded once.
    RuntimeError where CUDA raises it. Source: ATen, native/cuda/Blas.cpp, the forms of addmm, mm and bmm with `dtype`."""
    *addend, a, b, dtype = operands
    if a.dtype != b.dtype:
        raise_for_the_launcher(RuntimeError(f"input dtypes must be the same, but got {a.dtype} and {b.dtype}"))
    if dtype != a.dtype and (dtype, a.dtype) not in ((torch.float32, torch.float16), (torch.float32, torch.bfloat16)):
        raise_for_the_launcher(RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs"))
    if any(each.dtype not in (dtype, a.dtype) for each in addend):
        raise_for_the_launcher(RuntimeError("self dtype must match either out_dtype or mat1 dtype"))
    if out is not None and out.dtype != dtype:
        raise_for_the_launcher(RuntimeError("out_dtype must be the same as the dtype of the provided out tensor"))
    wide = torch.promote_types(dtype, torch.float32)
    product: torch.Tensor = packet(*(each.to(wide) for each in (*addend, a, b)), **factors).to(dtype)
    return product if out is None else out.resize_(product.shape).copy_(product)


class CublasLt:
    """Triton's handle of cuBLAS (`triton._C.libtriton.nvidia.cublas`): products are summed in fp32 and rounded once."""

    def __init__(self, workspace: torch.Tensor) -> None:
        """No memory is taken of `workspace`."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c (m, n) = a (m, k) times b (n, k) transposed."""
        for_the_launcher(c.copy_, for_the_launcher(torch.mm, a.float(), b.float().T))

    def gemm(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float) -> None:
        """d = alpha times that product + beta times c."""
        for_the_launcher(d.copy_, for_the_launcher(torch.addmm, c.float(), a.float(), b.float().T, alpha=alpha, beta=beta))

    def block_scaled_matmul_mxfp8(self, *_: torch.Tensor) -> NoReturn:
        raise unanswered_call_fault("a block-scaled product of cuBLAS")

    block_scaled_matmul_nvfp4 = block_scaled_matmul_mxfp8


PRODUCTS: dict[OpOverload, Callable[..., torch.Tensor]] = {
    getattr(packet, overload): partial(_product, packet)
    for packet in (_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm)
    for overload in ("dtype", "dtype_out")
    if overload in packet.overloads()
}
"""With a type for the result, where this torch has them. They are rounded once, whoever calls them."""
GPU_ONLY: dict[OpOverload, Callable[..., torch.Tensor]] = {_aten.histc.default: _histogram, **PRODUCTS}

__all__ = ["GPU_ONLY", "PRODUCTS", "CublasLt"]
