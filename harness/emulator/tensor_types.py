"""`torch.cuda.FloatTensor` and its like, torch's older names of an element type on a GPU, as the emulated GPU answers them.

They construct, `isinstance` asks for them, and `Tensor.type` takes them or their names as text.
"""

from __future__ import annotations

from typing import Any

import torch

from bitverdict.harness.emulator.faults import raise_for_the_launcher

KINDS = {
    torch.float64: "DoubleTensor",
    torch.float32: "FloatTensor",
    torch.float16: "HalfTensor",
    torch.bfloat16: "BFloat16Tensor",
    torch.uint8: "ByteTensor",
    torch.int8: "CharTensor",
    torch.int16: "ShortTensor",
    torch.int32: "IntTensor",
    torch.int64: "LongTensor",
    torch.bool: "BoolTensor",
}
_DTYPES = {name: dtype for dtype, name in KINDS.items()}


class _TensorType(type):
    dtype: torch.dtype
    is_cuda: bool

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, torch.Tensor) and value.is_cuda == cls.is_cuda and value.dtype == cls.dtype

    def __call__(cls, *arguments: Any, **_: Any) -> torch.Tensor:
        """Of sizes an empty tensor, of a sequence its values, as torch's own."""
        device = "cuda" if cls.is_cuda else "cpu"
        if all(isinstance(size, int | torch.Size) for size in arguments):
            return torch.empty(*(arguments or (0,)), dtype=cls.dtype, device=device)
        if len(arguments) > 1:
            raise_for_the_launcher(
                TypeError(f"{cls.__name__} takes sizes or one sequence of values, not {len(arguments)} arguments")
            )
        return torch.as_tensor(arguments[0], dtype=cls.dtype, device=device)


def _types(module: str, is_cuda: bool) -> dict[str, _TensorType]:
    return {
        name: _TensorType(name, (), {"dtype": dtype, "is_cuda": is_cuda, "__module__": module}) for dtype, name in KINDS.items()
    }


GPU_TYPES = _types("torch.cuda", True)
CPU_TYPES = _types("torch", False)
"""Torch's own would take a tensor of the emulated GPU, whose bytes lie on the CPU, for theirs."""


def legacy_type(kind: object) -> tuple[torch.dtype, bool] | None:
    """What `Tensor.type(kind)` asks for by an older name: the element type, and whether on a GPU. None where `kind` is none."""
    if isinstance(kind, str):
        module, _, name = kind.rpartition(".")
        return (_DTYPES[name], module == "torch.cuda") if module in ("torch", "torch.cuda") and name in _DTYPES else None
    return (kind.dtype, kind.is_cuda) if isinstance(kind, _TensorType | type(torch.FloatTensor)) else None


__all__ = ["CPU_TYPES", "GPU_TYPES", "KINDS", "legacy_type"]
