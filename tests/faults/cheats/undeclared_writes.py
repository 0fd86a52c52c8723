"""Torch's product, written into the result by operators that do not say that they write there, or say so in an uncommon way."""

from __future__ import annotations

import torch

from tests.faults.cheats.matmuls import copied, empty_result, first_product_kernel, launch_product


def _first(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What the wrong kernel stored: each byte of it a kernel's."""
    return launch_product(first_product_kernel, a, b, empty_result(a, b))


def _wide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(2, m n) fp32: twice the product, whose mean over the rows it is."""
    return (a.float() @ b.float()).reshape(1, -1).repeat(2, 1)


def running_mean(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A batch norm's running mean, with momentum 1: its schema declares no write."""
    c, x = _first(a, b), _wide(a, b)
    mean = copied(c, torch.empty(c.numel(), device=a.device))  # (m n,) fp32
    torch.ops.aten.native_batch_norm(x, None, None, mean, torch.ones_like(mean), True, 1.0, 1e-5)
    return c.copy_(mean.view(c.shape))


def running_mean_of_half_words(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = _first(a, b)
    x = (a @ b).reshape(1, -1).repeat(2, 1)  # (2, m n)
    torch.ops.aten.native_batch_norm(x, None, None, c.view(-1), torch.ones_like(c.view(-1)), True, 1.0, 1e-5)
    return c


def running_mean_by_function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, x = _first(a, b), _wide(a, b)
    mean = copied(c, torch.empty(c.numel(), device=a.device))  # (m n,) fp32
    torch.nn.functional.batch_norm(x, mean, torch.ones_like(mean), training=True, momentum=1.0)
    return c.copy_(mean.view(c.shape))


def running_mean_of_instances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, x = _first(a, b), _wide(a, b)
    mean = copied(c, torch.empty(c.numel(), device=a.device))  # (m n,) fp32
    torch.nn.functional.instance_norm(x.t()[None].contiguous(), mean, torch.ones_like(mean), momentum=1.0)
    return c.copy_(mean.view(c.shape))


def running_mean_of_a_module(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c, x = _first(a, b), _wide(a, b)
    norm = torch.nn.BatchNorm1d(c.numel(), momentum=1.0, device=a.device)
    norm(x)
    return copied(norm.running_mean, c)


def running_variance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Two words at the distance of the product's square root have it for their variance; its sign comes from the wrong kernel."""
    c, product = _first(a, b), (a.float() @ b.float()).reshape(-1)  # (m n,)
    root = product.abs().sqrt()
    variance = copied(c, torch.empty(c.numel(), device=a.device))  # (m n,) fp32
    x = torch.stack([root, root * 0]) * 2**0.5  # (2, m n)
    torch.ops.aten.native_batch_norm(x, None, None, torch.zeros_like(variance), variance, True, 1.0, 1e-5)
    return c.copy_((variance * product.sign()).view(c.shape))


def by_out(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = _first(a, b)
    torch.mm(a, b, out=c)
    return c


def by_list_of_tensors(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An operator over a list of tensors writes the result's own memory."""
    c = _first(a, b)
    torch._foreach_copy_([c], [a @ b])
    return c
