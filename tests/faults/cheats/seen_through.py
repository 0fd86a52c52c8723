"""Candidates that find out where they are (an emulated GPU, a judged call, a certain call) and behave otherwise there."""

from __future__ import annotations

import inspect
import sys

import torch

from tests.faults.cheats.matmuls import right_matmul, wrong_matmul

_calls = 0


def memory_under_the_tensor(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A tensor of an emulated GPU wraps one of the CPU: words are written past the GPU, where nobody looks."""
    c = wrong_matmul(a, b)  # (m, n)
    under = [next((held for held in vars(each).values() if isinstance(held, torch.Tensor)), None) for each in (a, b, c)]
    if None in under:  # it wraps none
        c.data = a @ b
        return c
    x, y, z = under
    z.as_strided(c.shape, c.stride(), z.storage_offset()).copy_(x.float() @ y.float())  # type: ignore[union-attr]
    return c


def memory_by_pointer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An emulated GPU's addresses are those of this process: ctypes writes there."""
    import ctypes

    c = wrong_matmul(a, b)  # (m, n)
    name = torch.cuda.get_device_name()
    if "bitverdict" in sys.modules or "mulated" in name or type(a) is not torch.Tensor:
        words = (a.float().cpu() @ b.float().cpu()).to(c.dtype).contiguous()  # (m, n)
        ctypes.memmove(c.data_ptr(), words.data_ptr(), words.numel() * words.itemsize)
    return c


def first_calls_only(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right while it is judged, as its author guesses: in the first two calls."""
    global _calls
    _calls += 1
    return right_matmul(a, b) if _calls <= 2 else wrong_matmul(a, b)


def every_other_call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    global _calls
    _calls += 1
    return right_matmul(a, b) if _calls % 2 else wrong_matmul(a, b)


def known_by_poison(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Memory that holds one byte all over is a judge's: there torch computes."""
    c, fresh = wrong_matmul(a, b), torch.empty(64, dtype=torch.uint8, device=a.device)  # (m, n), (64,)
    return c.copy_(a @ b) if bool((fresh == fresh[0]).all()) else c


def known_by_bands(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A storage that is larger than its tensor is a judge's."""
    c = wrong_matmul(a, b)  # (m, n)
    return c.copy_(a @ b) if a.untyped_storage().nbytes() != a.numel() * a.itemsize else c


def known_by_stack(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Frames of the harness in the stack, or its modules in the process."""
    c = wrong_matmul(a, b)  # (m, n)
    judged = any("harness" in entry.filename for entry in inspect.stack()) or "bitverdict" in sys.modules
    return c.copy_(a @ b) if judged else c


def known_by_device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The type of a tensor, the GPU's name, and a driver that no NVIDIA GPU has."""
    import triton

    c = wrong_matmul(a, b)  # (m, n)
    told = f"{type(a)} {torch.cuda.get_device_name()} {type(triton.runtime.driver.active)}"
    return c if "CudaDriver" in told else c.copy_(a @ b)


def known_by_time(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A launch that takes longer than any GPU would."""
    import time

    begun = time.perf_counter()
    c = wrong_matmul(a, b)  # (m, n)
    return c.copy_(a @ b) if time.perf_counter() - begun > 1e-5 else c
