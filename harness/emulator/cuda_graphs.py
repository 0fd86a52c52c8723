"""`torch.cuda.CUDAGraph`: what is launched while a graph is captured, and torch's operators between, run at each replay.

A GPU executes nothing while it captures. Here each step is executed, because torch asks for results, and taken back when the
capture ends: what was there before is there again, and what was allocated holds what fresh memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType

import torch

from bitverdict.harness.emulator.cuda_tensors import (
    ACTIVE_WATCHES,
    CudaTensor,
    Watches,
    WatchGroup,
    tensors_in,
)
from bitverdict.harness.emulator.faults import raise_for_the_launcher, unanswered_call_fault
from bitverdict.harness.emulator.gpu_operators import PoisonedMemory
from bitverdict.harness.model.torch_internals import FunctionModesOff, OpOverload

_DRAWS = ("rand", "normal", "bernoulli", "multinomial", "poisson")
_captures: list[CUDAGraph] = []  # one at most


class CUDAGraph(Watches):
    """Steps in their order, and the memory that the captured ones wrote."""

    def __init__(self, keep_graph: bool = False) -> None:
        self.reset()

    def reset(self) -> None:
        self._steps: list[Callable[[], object]] = []
        self._before: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # storages and copies of them
        self._allocated: list[torch.Tensor] = []

    def capture_begin(self, pool: object = None, capture_error_mode: str = "global") -> None:
        if _captures:
            raise_for_the_launcher(RuntimeError("CUDA error: operation not permitted when stream is capturing"))
        self.reset()
        _captures.append(self)
        ACTIVE_WATCHES.append(WatchGroup([*ACTIVE_WATCHES[-1:], self]))

    def capture_end(self) -> None:
        _captures.remove(self)
        ACTIVE_WATCHES.pop()
        with FunctionModesOff():
            for storage, copy in self._before.values():
                storage.copy_(copy)
            for tensor in self._allocated:
                PoisonedMemory().on_allocation(tensor, "empty", (), {})
        self._before.clear()

    def replay(self) -> None:
        with FunctionModesOff():
            for step in self._steps:
                step()

    def pool(self) -> tuple[int, int]:
        return 0, 0

    def launch(self, run: Callable[[], None], values: Iterable[object]) -> None:
        """A kernel's launch that may write to the tensors of `values`."""
        for tensor in tensors_in(list(values)):
            self._keep(tensor)
        run()
        self._steps.append(run)

    def run(
        self, function: OpOverload, args: tuple, kwargs: dict, written_tensors: list[torch.Tensor], call: Callable[[], object]
    ) -> object:
        if torch.Tag.nondeterministic_seeded in function.tags:
            raise unanswered_call_fault(f"torch.cuda.graph of {function}, which draws random numbers,")
        for tensor in written_tensors:
            self._keep(tensor)
        result = call()
        results = [tensor for tensor in tensors_in(result) if not any(tensor is other for other in written_tensors)]
        self._allocated += results

        def step() -> None:
            again = [tensor for tensor in tensors_in(call()) if not any(tensor is other for other in written_tensors)]
            for old, new in zip(results, again, strict=True):
                old.copy_(new)

        self._steps.append(step)
        return result

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        if function.startswith(_DRAWS):
            raise unanswered_call_fault(f"torch.cuda.graph of torch.{function}, which draws random numbers,")
        if not function.removeprefix("new_").startswith("empty"):
            content = tensor.detach().clone()
            self._steps.append(lambda: tensor.detach().copy_(content))
        self._allocated.append(tensor)

    def on_host_read(self, tensor: torch.Tensor, what: str) -> None:
        raise_for_the_launcher(RuntimeError("CUDA error: operation not permitted when stream is capturing"))

    def _keep(self, tensor: torch.Tensor) -> None:
        inner = tensor.inner if isinstance(tensor, CudaTensor) else tensor
        storage = torch.empty(0, dtype=torch.uint8).set_(inner.untyped_storage())
        if storage.numel() and storage.data_ptr() not in self._before:
            self._before[storage.data_ptr()] = storage, storage.clone()


class GraphContext:
    """`torch.cuda.graph`."""

    def __init__(
        self, cuda_graph: CUDAGraph, pool: object = None, stream: object = None, capture_error_mode: str = "global"
    ) -> None:
        self.cuda_graph = cuda_graph

    def __enter__(self) -> None:
        self.cuda_graph.capture_begin()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cuda_graph.capture_end()


def captured_launch(run: Callable[[], None], values: Iterable[object]) -> None:
    """`run()`, which launches a kernel with `values`; a step of the graph that is being captured, if one is."""
    if _captures:
        _captures[0].launch(run, values)
    else:
        run()


def is_capturing() -> bool:
    return bool(_captures)


__all__ = ["CUDAGraph", "GraphContext", "captured_launch", "is_capturing"]
