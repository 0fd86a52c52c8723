"""The text of generated Python: lines whose parts are names made here, literals, or constants.

Nothing of the tile program is text of the code by itself. A template is written in a lowering, a `Code` is made by `Writer`, an
integer is a literal, and any other object is a constant of the generated module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from bitverdict.harness.emulator.execution.async_copies import AsyncCopies
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.execution.tma import Tma
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics

UNIT_OF: dict[type, str] = {
    Cta: "m",
    GlobalAccess: "m.global_access",
    GlobalAtomics: "m.atomics",
    OnChipMemory: "m.onchip",
    AsyncCopies: "m.async_copies",
    Mbarriers: "m.mbarriers",
    Tma: "m.tma",
    TensorCore: "m.tensor_core",
}
"""The classes whose methods generated code calls -> where it finds their instance; `m` is the program (CTA) that runs."""


class Code(str):
    """An expression of generated code. `Writer` makes them, and nobody else."""

    __slots__ = ()


class Writer:
    """The lines so far, and the constants that they name."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = ""
        self._constant_of: dict[int, Code] = {}  # by id: a constant keeps its value alive

    def constant(self, value: Any) -> Code:
        """A name by which the generated code reaches `value`."""
        if (name := self._constant_of.get(id(value))) is None:
            name = self._constant_of[id(value)] = Code(f"k{len(self.constants)}")
            self.constants[name] = value
        return name

    def text(self, given: Any) -> str:
        """`given` as generated code: a `Code` as it is, None, bools and integers as literals, tuples and lists of such as such, and
        all else as a constant."""
        if isinstance(given, Code) or given is None or type(given) in (bool, int):
            return str(given)
        if type(given) is tuple:
            return f"({', '.join(map(self.text, given))}{',' if len(given) == 1 else ''})"
        if type(given) is list:
            return f"[{', '.join(map(self.text, given))}]"
        return self.constant(given)

    def code(self, template: str, *given: Any) -> Any:
        """The expression `template`, a literal of the caller's, with `text` of each of `given` for its braces."""
        return Code(template.format(*map(self.text, given)))

    def emit(self, template: str, *given: Any) -> None:
        """One line of code, by `code`."""
        self.lines.append(self.indent + template.format(*map(self.text, given)))

    @contextmanager
    def indented(self) -> Iterator[None]:
        """Lines of a block."""
        before, self.indent = self.indent, self.indent + "    "
        yield
        self.indent = before

    @contextmanager
    def when(self, condition: Any) -> Iterator[None]:
        """Lines that run where the value `condition` is true; always where it is None."""
        if condition is None:
            yield
            return
        self.emit("if {}:", condition)
        with self.indented():
            yield

    def calls(self, function: Callable, *given: Any, **named: Any) -> Any:
        """The expression that calls `function` on `given` and `named`: a method of a class in `UNIT_OF` on its instance, any other
        function on the program first. What may wait (it returns a `Thread`) is waited for. TypeError for arguments that `function`
        does not take."""
        signature, path = _signature(function), bound(function)
        try:
            signature.bind(None, *given, **named)
        except TypeError as error:
            raise TypeError(f"a lowering calls {function.__qualname__}{signature}: {error}") from None
        parts = [self.text(each) for each in given] + [f"{name}={self.text(each)}" for name, each in named.items()]
        called = path or self.constant(function)
        return Code(f"{'yield from ' if suspends(function) else ''}{called}({', '.join(parts if path else ['m', *parts])})")


@cache
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(function)


def suspends(function: Callable) -> bool:
    """Whether a call of `function` gives a generator that must be run to its end."""
    told = str(_signature(function).return_annotation)
    return inspect.isgeneratorfunction(function) or "Thread" in told or "Generator" in told or "Iterator" in told


def gives_nothing(function: Callable) -> bool:
    """Whether `function` returns None, by its annotation."""
    return _signature(function).return_annotation in (None, "None")


@cache
def bound(function: Callable) -> Any:
    """The method `function` of a class in `UNIT_OF` as generated code names it; empty for a function whose first parameter is `m`.
    TypeError for any other."""
    for unit, path in UNIT_OF.items():
        for owner in unit.__mro__:
            for name, member in vars(owner).items():
                if member is function:
                    return Code(f"{path}.{name}")
    if next(iter(_signature(function).parameters), "") != "m":
        raise TypeError(f"generated code cannot reach {function.__qualname__}: its class is not in UNIT_OF")
    return Code("")


__all__ = ["UNIT_OF", "Code", "Writer", "bound", "gives_nothing", "suspends"]
