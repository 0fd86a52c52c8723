"""The process that draws runs a body up to its first use of a tensor: nothing is launched there, and CUDA is never initialised."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


class TensorUsed(BaseException):
    """A body used a tensor: what it drew until then is its case. No `except Exception` of a launcher's catches it."""


class Placeholder:
    """A tensor that is not there: it knows its shape, dtype and number of axes, and any other use raises `TensorUsed`."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        import torch

        object.__setattr__(self, "_known", {"shape": torch.Size(shape), "dtype": dtype, "ndim": len(shape)})

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # a launcher may assert that it is given a tensor
        import torch

        return torch.Tensor

    def __getattr__(self, name: str) -> Any:
        known = object.__getattribute__(self, "_known")
        if name in known:
            return known[name]
        raise TensorUsed


def _use(self: Placeholder, *arguments: object) -> Any:
    raise TensorUsed


for _name in (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "matmul", "rmatmul", "truediv", "rtruediv", "floordiv", "mod", "pow", "rpow"),
    *("and", "or", "xor", "lshift", "rshift", "iadd", "isub", "imul", "itruediv", "neg", "pos", "abs", "invert"),
    *("eq", "ne", "lt", "le", "gt", "ge", "getitem", "setitem", "len", "iter", "bool", "int", "float", "index", "contains"),
    *("setattr", "delattr", "array", "dlpack", "hash"),
):
    setattr(Placeholder, f"__{_name}__", _use)


class _NoDriver:
    """In the place of Triton's driver: whoever asks it anything is about to launch."""

    def __getattr__(self, name: str) -> Any:
        raise TensorUsed


@contextmanager
def nothing_is_launched() -> Iterator[None]:
    """Inside, `TensorUsed` is raised by any function of torch, by a launch of Triton, and by what would initialise CUDA."""
    import torch

    from bitverdict.harness.model.torch_internals import CUDA_START, TorchFunctionMode, exchange

    class Stops(TorchFunctionMode):
        def __torch_function__(self, func: object, types: object, args: object = (), kwargs: object = None) -> Any:
            raise TensorUsed

    def initialise(*arguments: object, **named: object) -> None:
        raise TensorUsed

    drivers: Any = sys.modules.get("triton.runtime.driver")
    config = drivers.driver if drivers is not None else None
    active = config._active if config is not None else None
    function: Any = torch.autograd.Function
    saved_apply = vars(function)["apply"]
    saved_start = exchange(CUDA_START, initialise)
    function.apply = initialise  # torch's own would take a placeholder's bytes for those of a tensor
    if config is not None:
        config.set_active(_NoDriver())
    try:
        with Stops():
            yield
    finally:
        exchange(CUDA_START, saved_start)
        function.apply = saved_apply
        if config is not None:
            config.set_active(active)
