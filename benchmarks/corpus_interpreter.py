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
    from triton.runtime.jit import TensorWrapper

    function = interpreted(source.fn)
    constants = {place[0]: value for place, value in source.constants.items() if len(place) == 1}
    given = [constants.get(place, value) for place, value in enumerate(values)]
    held = [
        inside(v) if isinstance(v, torch.Tensor) else TensorWrapper(inside(v.base), v.dtype) if isinstance(v, TensorWrapper) else v
        for v in given
    ]
    with torch._C.DisableTorchFunction(), calls_interpreted():
        GridExecutor(function.rewrite(), source.fn.arg_names, grid)(*held)


@cache
def interpreted(function: JITFunction) -> InterpretedFunction:
    return InterpretedFunction(function.fn)


@contextmanager
def calls_interpreted() -> Iterator[None]:
    """A call of a `triton.jit` function from an interpreted one is interpreted."""
    before: Callable = JITFunction.__call__
    patched: list[Any] = []

    def call(self: JITFunction, *given: Any, **named: Any) -> Any:
        patched.append(_patch_lang(self.fn))
        return interpreted(self).rewrite()(*given, **named)

    JITFunction.__call__ = call  # type: ignore[method-assign]
    try:
        yield
    finally:
        JITFunction.__call__ = before  # type: ignore[method-assign]
        for scope in reversed(patched):  # the compiler could not read a kernel that refers to a patched function
            scope.restore()


__all__ = ["interpret"]
