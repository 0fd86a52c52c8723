"""Launches that did not take place, or were another's: records, devices, drivers and programs of the candidate's own making."""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton

from tests.faults.cheats.matmuls import empty_result, launch_product, product_kernel, wrong_matmul


def _devices() -> Iterator[Any]:
    """Emulated GPUs of this process, and what stands for one."""
    for each in gc.get_objects():
        if (
            type(each).__name__.endswith("Device")
            and hasattr(type(each), "run")
            and isinstance(getattr(each, "launches", None), list)
        ):
            yield each


def recorded_launch(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Torch computes, and a record of a launch is put where launches are counted."""
    for device in _devices():
        record = types.SimpleNamespace(name="matmul_kernel", grid=(1, 1, 1), instructions=(), tile=(), constants={}, program="")
        device.launches.append(record)
    return a @ b  # (m, n)


def own_device(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The device's method that executes a program is one of the candidate's: it has torch write the words."""
    result, c = a @ b, empty_result(a, b)  # (m, n), (m, n)
    for device in _devices():
        own = device.run

        def run(*given: Any, own: Callable = own, **named: Any) -> Any:
            done = own(*given, **named)
            c.copy_(result)
            return done

        object.__setattr__(device, "run", run)
    return wrong_into(a, b, c)


def wrong_into(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """`c` by the wrong kernel, launched through whatever is in the place of the device or the driver."""
    from tests.faults.cheats.matmuls import first_product_kernel

    return launch_product(first_product_kernel, a, b, c)


def own_launcher_class(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The driver's launcher is one of the candidate's: it counts the launch, and torch computes."""
    active: Any = triton.runtime.driver.active
    own, c = active.launcher_cls, empty_result(a, b)  # (m, n)

    class Launcher(own):  # type: ignore[misc, valid-type]
        def __call__(self, *given: Any, **named: Any) -> Any:
            done = super().__call__(*given, **named)
            c.copy_(a @ b)
            return done

    with contextlib.suppress(AttributeError):
        active.launcher_cls = Launcher
    launched = wrong_into(a, b, c)
    with contextlib.suppress(AttributeError):
        active.launcher_cls = own
    return launched


def own_driver(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`triton.runtime.driver.set_active` with a driver whose launches are torch's."""
    from triton.runtime import driver

    active = driver.active
    result = a @ b  # (m, n)

    class Driver:
        def __getattr__(self, name: str) -> Any:
            found = getattr(active, name)
            return (lambda *given: lambda *arguments, **named: None) if name == "launcher_cls" else found

    driver.set_active(Driver())
    try:
        with contextlib.suppress(Exception):
            wrong_matmul(a, b)
    finally:
        driver.set_active(active)
    return result


def own_jit_function(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """What looks like a kernel is a class of the candidate's: `kernel[grid](...)` is a product of torch."""

    class Kernel:
        __name__ = "matmul_kernel"

        def __getitem__(self, grid: Any) -> Callable[..., None]:
            return lambda a, b, c: torch.matmul(a, b, out=c)

    c = wrong_matmul(a, b)  # (m, n)
    Kernel()[(1,)](a, b, c)
    return c


def launch_hook(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A hook of Triton's that runs after each launch."""
    c: list[torch.Tensor] = []

    def leave(*told: Any) -> None:
        for each in c:
            each.copy_(a @ b)

    with contextlib.suppress(Exception):
        triton.knobs.runtime.launch_exit_hook.add(leave)
    c.append(wrong_matmul(a, b))
    wrong_matmul(a, b)
    return c[0]


def unlaunched_kernel(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A right kernel that is compiled and never launched beside torch's work: `warmup` counts nowhere."""
    c = a @ b  # (m, n)
    with contextlib.suppress(Exception):
        product_kernel.warmup(a, b, c, b.shape[1], a.shape[1], c.numel(), BLOCK=128, grid=(1,))
    return c


def program_with_python(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The compiled program's text is changed on its way to the device: its name and a location hold Python."""
    bad = 'k"\n__import__("os").system("touch /tmp/bitverdict_cheat_ran")\n"'
    compiled = product_kernel.warmup(a, b, a, b.shape[1], a.shape[1], a.numel(), BLOCK=128, grid=(1,))
    with contextlib.suppress(Exception):
        for name, text in list(compiled.asm.items()):
            if isinstance(text, str):
                compiled.asm[name] = text.replace("product_kernel", bad)
        compiled.metadata = compiled.metadata._replace(name=bad)
        compiled.kernel = compiled.kernel.replace(b"product_kernel", bad.encode())
    return wrong_matmul(a, b)
