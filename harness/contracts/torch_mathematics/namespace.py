"""torch as the namespace `xp` of a reference, to take its gradient: array-api-compat's, and our extensions.

`kept_in` becomes a conversion there and back, which `graph` turns into `kept_in` again by its dtype. What has no derivative is
refused by name.
"""

from __future__ import annotations

from typing import Any

import torch

from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
_STEPS = ("round_to", "bits", "from_bits", "philox", "random_uniform")


class TorchNamespace:
    """`xp` for a reference whose operands are tensors of torch."""

    def __getattr__(self, name: str) -> Any:
        import array_api_compat.torch as standard

        if name in _STEPS:
            raise NoRule(f"xp.{name} has no derivative; give the reference of the backward pass by itself")
        if (found := getattr(standard, name, None)) is None:
            raise NoRule(f"xp.{name} is not known to array-api-compat; give the reference of the backward pass by itself")
        return found

    @staticmethod
    def kept_in(x: torch.Tensor, format_name: str) -> torch.Tensor:
        """`x`, which an implementation may round to `format_name` here."""
        if format_name not in _DTYPES:
            raise NoRule(f"xp.kept_in(x, {format_name!r}) has no derivative; known are {', '.join(_DTYPES)}")
        return x.to(_DTYPES[format_name]).to(x.dtype)

    @staticmethod
    def matmul(a: torch.Tensor, b: torch.Tensor, **_: object) -> torch.Tensor:
        """The product; in which type it is accumulated is no mathematics."""
        return torch.matmul(a, b)
