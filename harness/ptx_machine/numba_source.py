"""Kernels of Numba-CUDA on the emulated GPU: `bv.numba_kernel(FUNCTION)[grid, block](tensor, 5)`.

Numba compiles the function to PTX for the types of the arguments and the chip that is emulated, without a GPU
(``pip install bitverdict[numba]``); `bitverdict.harness.ptx_machine` executes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import cast
from unittest.mock import patch

import numpy as np
import torch

from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.ptx_machine.launch import PtxKernel, active_device


@dataclass(frozen=True)
class NumbaKernel:
    """A kernel of Numba-CUDA, launched as Numba launches it: ``kernel[grid, block]``, ``kernel[grid, block, 0, shared_bytes]``.
    Tensors and NumPy's arrays are arrays of their shapes and strides; numbers and tuples have the types that Numba gives them, or
    those of `signature`. BadArgument for what Numba does not compile, with what it says."""

    function: Callable[..., None]
    signature: object = None  # types of the arguments
    is_fast: bool = False  # fastmath=True

    def __getitem__(self, shape: Sequence[Sequence[int] | int]) -> Callable[..., None]:
        grid, block, _, shared_bytes = (*shape, 0, 0)[:4]

        def launch(*values: object) -> None:
            types = self.signature or tuple(map(_numba_type, values))
            text = compile_function(self.function, types, active_device().architecture.name, self.is_fast)
            words = _parameter_words(values)
            PtxKernel(text, shared_bytes=cast(int, shared_bytes))[grid, block](*words)

        return launch


def numba_kernel(function: Callable[..., None], signature: object = None) -> NumbaKernel:
    """The kernel that Numba-CUDA makes of `function`: what ``cuda.jit`` gave, or a plain function.

    - `signature`: as ``cuda.jit`` takes one; without it the arguments of each launch say the types.
    """
    options = getattr(function, "targetoptions", {})
    return NumbaKernel(getattr(function, "py_func", function), signature, bool(options.get("fastmath")))


@lru_cache(maxsize=64)
def compile_function(function: Callable[..., None], signature: object, arch: str, is_fast: bool) -> str:
    """The PTX of the function for arguments of these types."""
    from numba import cuda
    from numba.core.errors import NumbaError
    from numba.cuda.core.sigutils import normalize_signature

    types = normalize_signature(signature)[0]
    chip = divmod(int(arch.removeprefix("sm_")), 10)
    device = SimpleNamespace(compute_capability=chip)  # which the functions that the kernel calls ask the driver for
    try:
        with patch("numba.cuda.dispatcher.get_current_device", lambda: device):
            text, _ = cuda.compile(function, types, cc=chip, device=False, abi="numba", fastmath=is_fast, lineinfo=True)
    except AttributeError as error:
        if "module 'numpy'" not in str(error):
            raise
        raise EmulatedFault("not modelled", f"Numba-CUDA with NumPy {np.__version__}: {error}") from error
    except NumbaError as error:
        raise BadArgument(f"Numba does not compile {function.__name__} for {', '.join(map(str, types))}:\n{error}") from error
    return text


def _numba_type(value: object) -> object:
    """The type that Numba gives to an argument."""
    try:
        from numba.cuda import types
        from numba.cuda.typing.typeof import typeof
    except ImportError as error:
        message = "a kernel of Numba needs numba-cuda, which is not here: `pip install bitverdict[numba]`"
        raise EmulatedFault("not modelled", message) from error
    if isinstance(value, tuple):
        return types.BaseTuple.from_types(tuple(map(_numba_type, value)))
    if not isinstance(value, torch.Tensor):
        return typeof(value)
    dtype = str(value.dtype).removeprefix("torch.")
    if not hasattr(np, dtype):  # bfloat16: a library computes with it, which is linked at load
        raise BadArgument(f"a tensor of {value.dtype}: a kernel of Numba takes here the types that NumPy has, and bits as uint8")
    strides = [stride * value.element_size() for stride in value.stride()]
    return typeof(np.lib.stride_tricks.as_strided(np.empty(1, dtype), value.shape, strides))


def _parameter_words(value: object) -> Iterator[object]:
    """What the parameters hold that Numba makes of an argument: of an array its two owners, which are none, its elements, their
    bytes, its address, its shape and its strides in bytes."""
    if isinstance(value, tuple):
        for each in value:
            yield from _parameter_words(each)
    elif isinstance(value, np.ndarray):
        yield from _parameter_words(torch.from_numpy(value))
    elif isinstance(value, torch.Tensor):
        size = value.element_size()
        yield from (0, 0, value.numel(), size, value, *value.shape, *(stride * size for stride in value.stride()))
    elif isinstance(value, complex | np.complexfloating):
        yield from (value.real, value.imag)
    elif isinstance(value, np.float16):
        yield int(value.view(np.uint16))
    else:
        yield value


__all__ = ["NumbaKernel", "compile_function", "numba_kernel"]
