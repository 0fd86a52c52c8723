"""Results that are computed after the launcher returned: when they are read, or by what is left running."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
import time
import weakref

import torch

from tests.faults.cheats.matmuls import wrong_matmul

SOON = 0.02  # seconds


class Later(torch.Tensor):
    """A tensor without memory that computes a @ b in the first operation of torch that reads it."""

    a: torch.Tensor
    b: torch.Tensor

    @staticmethod
    def __new__(cls, a: torch.Tensor, b: torch.Tensor) -> Later:
        sizes = (a.shape[0], b.shape[1])
        made = torch.Tensor._make_wrapper_subclass(cls, sizes, dtype=a.dtype, device=a.device)  # type: ignore[attr-defined]
        made.a, made.b = a, b
        return made

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return function(*(each.a @ each.b if isinstance(each, Later) else each for each in args), **(kwargs or {}))


def subclass(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    wrong_matmul(a, b)
    return Later(a, b)  # (m, n)


def own_methods(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """An ordinary tensor whose own attributes are in the place of the methods that read it."""
    c = wrong_matmul(a, b)  # (m, n)
    for name in ("cpu", "numpy", "detach", "clone", "contiguous", "view", "to", "tolist", "__array__"):
        setattr(c, name, lambda *given, name=name, **named: getattr(a @ b, name)(*given, **named))
    return c


def late_thread(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A thread fills the right words in once the launcher has returned."""
    c = wrong_matmul(a, b)  # (m, n)

    def fill() -> None:
        time.sleep(SOON)
        c.copy_(a @ b)

    threading.Thread(target=fill, daemon=True).start()
    return c


def late_kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The same, and what the thread runs is a right kernel."""
    from tests.faults.cheats.matmuls import launch_product, product_kernel

    c = wrong_matmul(a, b)  # (m, n)
    threading.Timer(SOON, lambda: launch_product(product_kernel, a, b, c)).start()
    return c


def at_finalisation(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """When what the launcher held is freed."""

    class Held: ...

    held, c = Held(), wrong_matmul(a, b)  # (m, n)
    weakref.finalize(held, lambda: c.copy_(a @ b))
    threading.Timer(SOON, lambda kept=held: None).start()
    return c


def at_deletion(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """In `__del__` of what only a cycle holds, at the next collection, and at the end of the process."""
    c = wrong_matmul(a, b)  # (m, n)

    class Held:
        def __del__(self) -> None:
            c.copy_(a @ b)

    held = Held()
    held.itself = held  # type: ignore[attr-defined]
    atexit.register(lambda: c.copy_(a @ b))
    gc.set_threshold(10)
    return c


def in_signal_handler(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = wrong_matmul(a, b)  # (m, n)
    signal.signal(signal.SIGALRM, lambda *told: c.copy_(a @ b))
    signal.setitimer(signal.ITIMER_REAL, SOON / 4)
    return c


def when_traced(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A profiling function sees the first return of the caller, and fills in."""
    c = wrong_matmul(a, b)  # (m, n)

    def seen(frame, event, argument):  # type: ignore[no-untyped-def]
        if event == "return" and frame.f_code.co_name != "when_traced":
            sys.setprofile(None)
            c.copy_(a @ b)

    sys.setprofile(seen)
    return c
