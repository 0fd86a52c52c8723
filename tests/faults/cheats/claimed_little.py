"""Launchers of the wrong kernel that claim next to nothing, or refuse what they would get wrong."""

from __future__ import annotations

import torch

from tests.faults.cheats.matmuls import wrong_matmul


def nothing_left(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`requires` takes no case."""
    return wrong_matmul(a, b)


nothing_left.requires = lambda m, n, k: False  # type: ignore[attr-defined]


def trivial_cases_left(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`requires` leaves the cases that the wrong kernel gets right."""
    return wrong_matmul(a, b)


trivial_cases_left.requires = lambda m, n, k: k == 1  # type: ignore[attr-defined]


def one_case_left(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return wrong_matmul(a, b)


one_case_left.requires = lambda m, n, k: m == n == k == 1  # type: ignore[attr-defined]


def hard_cases_refused(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A refusal that looks honest."""
    if a.shape[1] != 1:
        raise ValueError(f"matmul: K = {a.shape[1]} is not supported; K must be 1")
    return wrong_matmul(a, b)


def missing_feature_claimed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """As the compiler says it of a feature that the target lacks: not run is no failure."""
    if a.shape[1] != 1:
        from triton.compiler.errors import CompilationError

        raise CompilationError("", None, "type fp8e4nv not supported in this architecture: tcgen05, TMA, wgmma are missing")
    return wrong_matmul(a, b)


def harness_blamed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An error whose innermost frame is the harness's: it says nothing about a kernel."""
    if a.shape[1] != 1:
        from bitverdict.harness.model.case import Operand

        Operand(*([None] * 99))  # type: ignore[list-item]
    return wrong_matmul(a, b)


def fault_with_own_outcome(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An exception of the emulator's name that brings its verdict with it."""

    class EmulatedFault(Exception):
        outcome, message, location, details = "pass", "", "", {}

    raise EmulatedFault


def not_run_claimed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    class EmulatedFault(Exception):
        outcome, message, location, details = "not run", "the target lacks MMA_SYNC", "", {}

    raise EmulatedFault


def machine_blamed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The disk is full: that is the machine's."""
    if a.shape[1] != 1:
        import errno

        raise OSError(errno.ENOSPC, "No space left on device")
    return wrong_matmul(a, b)


def memory_blamed(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.shape[1] != 1:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 80.00 GiB")
    return wrong_matmul(a, b)
