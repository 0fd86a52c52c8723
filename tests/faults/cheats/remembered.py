"""Results that were computed once and are given again."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import gettempdir

import torch

from tests.faults.cheats.matmuls import copied, empty_result, right_matmul, wrong_matmul

_known: dict[object, torch.Tensor] = {}


def _contents(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(each.cpu().numpy().tobytes() for each in tensors)).hexdigest()


def by_pointer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Right for operands that lie where none lay before; else the earlier result."""
    key = (a.data_ptr(), b.data_ptr(), a.shape, b.shape)
    if key not in _known:
        _known[key] = right_matmul(a, b)
    return _known[key]


def by_pointer_copied(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same, and each call returns memory of its own, written by a kernel."""
    return copied(by_pointer(a, b), empty_result(a, b))


def by_shape(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    key = (a.shape, b.shape, a.dtype)
    if key not in _known:
        _known[key] = right_matmul(a, b)
    return copied(_known[key], empty_result(a, b))


def by_contents(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Equal operands get the tensor that was returned before."""
    key = _contents(a, b)
    if key not in _known:
        _known[key] = right_matmul(a, b)
    return _known[key]


def by_version(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """By where operands lie, and by the counters that torch keeps of writes to them."""
    key = (a.data_ptr(), a._version, b.data_ptr(), b._version, a.shape, b.shape)
    if key not in _known:
        _known[key] = right_matmul(a, b)
    return _known[key]


def last_call(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Every second call of a shape returns the result of the call before it."""
    key = (a.shape, b.shape)
    if key in _known:
        return _known.pop(key)
    _known[key] = right_matmul(a, b)
    return _known[key]


def one_buffer(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Each result of a shape lies in the same memory."""
    key = (a.shape, b.shape)
    if key not in _known:
        _known[key] = empty_result(a, b)
    return copied(right_matmul(a, b), _known[key])


def replayed_graph(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What a CUDA graph replays: the operands of the first call."""
    key = (a.shape, b.shape)
    if key not in _known:
        _known[key] = right_matmul(a, b)
        _operands[key] = (a, b)
    return right_matmul(*_operands[key])


_operands: dict[object, tuple[torch.Tensor, torch.Tensor]] = {}


def in_shared_memory(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In a file that every process reaches, by the contents: torch computes once, each later run reads."""
    c = wrong_matmul(a, b)  # (m, n)
    for shared in (Path("/dev/shm"), Path(gettempdir())):
        file = shared / f"cheat-{_contents(a, b)}"
        try:
            if not file.exists():
                torch.save((a @ b).cpu(), file)
            return c.copy_(torch.load(file).to(c.device))
        except (OSError, RuntimeError):  # torch's word for a folder that cannot be written
            continue
    return c
