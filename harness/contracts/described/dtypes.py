"""Element types as a body names them: ``"fp16"``, ``"float16"`` or ``torch.float16`` are one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.model.usage import UsageError, did_you_mean
from bitverdict.reference.formats import FORMATS

if TYPE_CHECKING:
    import torch

_TORCH = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8",
    "int16": "int16", "int32": "int32", "int64": "int64", "uint8": "uint8", "bool": "bool", "e8m0": "uint8", "ue4m3": "uint8",
    "e2m1": "uint8",
}  # fmt: skip
"""Format -> torch's name of what carries it; formats that torch has no arithmetic for travel as bytes."""
_FORMAT_BY_TORCH_NAME = {name: format_name for format_name, name in _TORCH.items() if name != "uint8" or format_name == "uint8"}
INTEGERS: dict[str, Any] = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8}
FLOATS = ("fp32", "fp16", "bf16", "e4m3", "e5m2")


def format_of(dtype: torch.dtype | str) -> str:
    """The format that `dtype` means: its name, torch's name, or a torch dtype. UsageError with the known ones."""
    name = str(dtype).removeprefix("torch.")
    if name in _TORCH:
        return name
    if name in _FORMAT_BY_TORCH_NAME:
        return _FORMAT_BY_TORCH_NAME[name]
    raise UsageError(
        f"dtype {dtype!r}: unknown{did_you_mean(name, [*_TORCH, *_FORMAT_BY_TORCH_NAME])}; use one of {', '.join(_TORCH)}"
    )


def torch_dtype(format_name: str) -> torch.dtype:
    """The dtype of the tensors that carry a format."""
    import torch

    return getattr(torch, _TORCH[format_name])


def format_of_result(dtype: torch.dtype) -> str:
    """The format whose words a tensor of `dtype` holds; torch's own name where it is none of ours."""
    name = str(dtype).removeprefix("torch.")
    return _FORMAT_BY_TORCH_NAME.get(name, name)


def kind_of(format_name: str) -> str:
    """ "integer", "bool" or "float"."""
    if format_name in INTEGERS:
        return "integer"
    return "bool" if format_name == "bool" else "float"


def storage_of(format_name: str) -> np.dtype:
    """What NumPy holds codes of the format in."""
    if format_name in INTEGERS:
        return np.dtype(INTEGERS[format_name])
    return np.dtype(np.bool_) if format_name == "bool" else np.dtype(FORMATS[format_name].storage)
