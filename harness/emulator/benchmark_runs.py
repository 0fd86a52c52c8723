"""`triton.testing.do_bench` on an emulated GPU, which measures nothing: what it is to time runs once, and is judged as any launch.

Benchmarks take shapes that are made for a GPU. So a launch that they make ends after `BENCHMARK_SECONDS`, where the device has no
limit of its own: then the time is NaN, and so is that of later calls with the same function, which do not run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from triton import testing

from bitverdict.harness.emulator.faults import TooLarge
from bitverdict.harness.model.protocols import for_the_launcher

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.device import Device

BENCHMARK_SECONDS = 2.0  # of the processor, for each launch


@contextmanager
def run_benchmarks_once(device: Device) -> Iterator[None]:
    """Within the block Triton's benchmarks run once on `device`, which counts them."""
    too_large = set[object]()  # the code of functions

    def bench(
        fn: Callable[[], object],
        warmup: int = 25,
        rep: int = 100,
        grad_to_none: Sequence[torch.Tensor] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "mean",
    ) -> Any:
        options, start, code = device.options, device.tick(), getattr(fn, "__code__", fn)
        device.benchmarks += 1
        device.options = replace(options, seconds_limit=options.seconds_limit or BENCHMARK_SECONDS)
        for tensor in grad_to_none or ():
            tensor.grad = None
        milliseconds = float("nan")
        try:
            if code in too_large:
                device.record_finding(TooLarge("a benchmark did not run, because it was too large with other arguments"))
            else:
                for_the_launcher(fn)
                milliseconds = device.tick() - start
        except TooLarge:
            too_large.add(code)
        finally:
            device.options = options
        return testing._summarize_statistics([milliseconds], quantiles, return_mode)

    before = {name: value for name, value in vars(testing).items() if name.startswith("do_bench")}
    vars(testing).update(dict.fromkeys(before, bench))
    try:
        yield
    finally:
        vars(testing).update(before)


__all__ = ["BENCHMARK_SECONDS", "run_benchmarks_once"]
