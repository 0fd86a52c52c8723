"""A launch of a compiled kernel, done by Triton's interpreter instead: the same Python function, grid and arguments.

The interpreter is Triton's own (`triton.runtime.interpreter`). `TRITON_INTERPRET=1` turns each kernel into a function of another
class where it is decorated, and some launchers fail on that class. So a kernel is turned when it is launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from triton.runtime.interpreter import GridExecutor, InterpretedFunction, _patch_lang
from triton.runtime.jit import JITFunction

from bitverdict.harness.emulator.cuda_tensors import inside


def interpret(source: Any, grid: tuple[int, int, int], values: tuple) -> None:
    """Run the kernel of `source` (Triton's ASTSource) over `grid`; `values` are those of its whole signature."""
    import torch

    function = interpreted(source.fn)
    constants = {place[0]: value for place, value in source.constants.items() if len(place) == 1}
    held = [_held(constants.get(place, value)) for place, value in enumerate(values)]
    with torch._C.DisableTorchFunction(), calls_interpreted():
        GridExecutor(function.rewrite(), source.fn.arg_names, grid)(*held)


def _held(value: Any) -> Any:
    """`value` as the interpreter takes it: a tensor of the emulated GPU, or a launcher's own class around one, as the CPU's."""
    import torch
    from triton.runtime.jit import TensorWrapper

    if isinstance(value, torch.Tensor):
        return inside(value)
    if isinstance(value, TensorWrapper):
        return TensorWrapper(inside(value.base), value.dtype)
    around = [inside(each) for each in getattr(value, "__dict__", {}).values() if isinstance(each, torch.Tensor)]
    if not around or not hasattr(value, "data_ptr"):
        return value
    storage = around[0].untyped_storage()
    offset = (value.data_ptr() - storage.data_ptr()) // value.dtype.itemsize
    return torch.empty(0, dtype=value.dtype, device="cpu").set_(storage, offset, (1,), (1,))


@cache
def interpreted(function: JITFunction) -> InterpretedFunction:
    return InterpretedFunction(function.fn)


@contextmanager
def calls_interpreted() -> Iterator[None]:
    """A call of a `triton.jit` function from an interpreted one is interpreted."""
    before: Callable = JITFunction.__call__

    def call(self: JITFunction, *given: Any, **named: Any) -> Any:
        scope = _patch_lang(self.fn)
        try:
            return interpreted(self).rewrite()(*given, **named)
        finally:
            scope.restore()  # the compiler could not read a kernel that refers to a patched function

    JITFunction.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        JITFunction.__call__ = before  # type: ignore[method-assign]


__all__ = ["interpret"]
