"""x + 2 y with kernels that choose their own configuration, and through torch's ways to register an operator."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.library import custom_op, triton_op, wrap_triton

CONFIGS = [triton.Config({"BLOCK_SIZE": size}, num_warps=warps) for size, warps in ((64, 2), (128, 4), (256, 8))]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def tuned(x, y):
    out = torch.empty_like(x)
    tuned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, y, out, x.numel())
    return out


def fitting(configs, named_args, **kwargs):
    return [each for each in configs if each.kwargs["BLOCK_SIZE"] <= max(named_args["n"], 64)]


@triton.autotune(configs=CONFIGS, key=["n"], prune_configs_by={"early_config_prune": fitting})
@triton.jit
def pruned_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def pruned(x, y):
    out = torch.empty_like(x)
    pruned_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, y, out, x.numel())
    return out


def cleared(arguments):
    arguments["out_ptr"].zero_()


HOOKED = [triton.Config({"BLOCK_SIZE": size}, pre_hook=cleared) for size in (64, 128)]


@triton.autotune(configs=HOOKED, key=["n"])
@triton.jit
def adding_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    before = tl.load(out_ptr + offsets, mask)
    tl.store(out_ptr + offsets, before + tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def hooked(x, y):
    out = torch.empty_like(x)
    adding_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, y, out, x.numel())
    return out


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["out_ptr"])
@triton.jit
def reset_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.atomic_add(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def reset(x, y):
    """Of fp32: atomics of narrower types are other instructions."""
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    reset_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x.float(), y.float(), out, x.numel())
    return out.to(x.dtype)


@triton.autotune(configs=CONFIGS, key=["n"], restore_value=["x_ptr"])
@triton.jit
def restored_kernel(x_ptr, y_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def restored(x, y):
    out = x.clone()
    restored_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](out, y, x.numel())
    return out


@triton.heuristics(
    {"BLOCK_SIZE": lambda args: min(1024, triton.next_power_of_2(args["n"])), "EVEN": lambda args: args["n"] % 64 == 0}
)
@triton.jit
def heuristic_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def heuristic(x, y):
    out = torch.empty_like(x)
    heuristic_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, y, out, x.numel())
    return out


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 4)], key=["n"])
@triton.heuristics({"BLOCK_SIZE": lambda args: 64 if args["n"] < 200 else 128})
@triton.jit
def both_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


def tuned_and_heuristic(x, y):
    out = torch.empty_like(x)
    both_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK_SIZE"]),)](x, y, out, x.numel())
    return out


@triton.jit
def plain_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask) + 2 * tl.load(y_ptr + offsets, mask), mask)


class Axpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        out = torch.empty_like(x)
        plain_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
        return out

    @staticmethod
    def backward(ctx, upstream):
        return upstream, 2 * upstream


def by_autograd(x, y):
    return Axpy.apply(x, y)


apply_itself = Axpy.apply


@custom_op("honest_launchers::axpy", mutates_args=())
def registered(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    plain_kernel[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def by_custom_op(x, y):
    return registered(x, y)


@triton_op("honest_launchers::axpy_of_triton", mutates_args={})
def registered_with_triton(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    wrap_triton(plain_kernel)[(triton.cdiv(x.numel(), 128),)](x, y, out, x.numel(), BLOCK_SIZE=128)
    return out


def by_triton_op(x, y):
    return registered_with_triton(x, y)
