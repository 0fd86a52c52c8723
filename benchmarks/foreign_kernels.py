"""What the modules of foreign kernels share: a judged test under a name of its module, and a tensor to write into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import bitverdict as bv


def judged_in(module: dict[str, Any], name: str, reference: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """`bv.judged` under a name of the `module`, its globals."""

    def register(body: Callable[..., Any]) -> Any:
        body.__name__ = body.__qualname__ = name
        test = bv.judged(reference=reference, strides="contiguous")(body)
        module[name] = test
        return test

    return register


def empty_like(x: torch.Tensor, *shape: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Where `x` lies, of its shape and dtype unless others are given."""
    return torch.empty(shape or tuple(x.shape), dtype=dtype or x.dtype, device=x.device)
