"""The text of generated Python: lines whose parts are names made here, literals, or constants.

No string of the tile program is code. A template is written in a lowering, an integer is a literal, and any other object is a
constant of the generated module. Names are made of letters, digits and underscores, whatever the program calls a value, and no name
is given twice. A comment is one line of printable characters.
"""

from __future__ import annotations

import builtins
import inspect
import keyword
import linecache
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import CodeType
from typing import Any, TypeVar

import numpy as np

from bitverdict.harness.emulator.execution.async_copies import AsyncCopies
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.global_access import GlobalAccess
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.execution.program_batches import Batch
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.execution.tma import Tma
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.memory.real_access import RealAccess
from bitverdict.harness.emulator.mlir_reader import Operation

UNIT_OF: dict[type, str] = {
    Cta: "m",
    Batch: "m",
    GlobalAccess: "m.global_access",
    GlobalAtomics: "m.atomics",
    OnChipMemory: "m.onchip",
    AsyncCopies: "m.async_copies",
    Mbarriers: "m.mbarriers",
    Tma: "m.tma",
    TensorCore: "m.tensor_core",
    RealAccess: "m.launch.real_access",
}
"""The classes whose methods generated code calls -> where it finds their instance; `m` is the program (CTA) that runs, or
the programs that run together."""


_RESERVED_NAMES = (*keyword.kwlist, *dir(builtins), "m", "block")  # names that mean something else
LONGEST = 60  # characters of a name, those that tell it from an equal one apart


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def register_in(table: dict[str, FunctionT], *names: str) -> Callable[[FunctionT], FunctionT]:
    """A decorator that puts a function into `table` under each of `names`."""

    def register(function: FunctionT) -> FunctionT:
        table.update(dict.fromkeys(names, function))
        return function

    return register


class RegionDepth:
    """How many regions an operation lies in, where values are parts of others: what is carried beside the others is not known by
    their parts."""

    depth = 0

    @contextmanager
    def region(self) -> Iterator[None]:
        """While entered, operations lie in one more."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1


class Code(str):
    """An expression of generated code. `Writer` makes them, and nobody else."""

    __slots__ = ()


class Writer:
    """The lines so far, and the constants that they name."""

    def __init__(self) -> None:
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []
        self.indent = ""
        self._taken = set(_RESERVED_NAMES)
        self._constant_of: dict[int, Code] = {}  # by id: a constant keeps its value alive

    def name(self, wished: str) -> Code:
        """A name that nothing else has, of what is a letter, a digit or an underscore in `wished`."""
        plain = re.sub(r"[^A-Za-z0-9]+", "_", wished).strip("_")[:LONGEST]
        plain = plain if plain[:1].isalpha() else f"v{plain}"
        name, count = plain, 1
        while name in self._taken:
            count += 1
            name = f"{plain}_{count}"
        self._taken.add(name)
        return Code(name)

    def forget_locals(self, kept: Iterable[str]) -> None:
        """The next function may use the names of the last one again, but for constants and what is `kept`."""
        self._taken = {*_RESERVED_NAMES, *self.constants, *kept}

    def join_values(self, values: Iterable[object]) -> Any:
        """The expressions `values` with commas between."""
        return Code(", ".join(map(self.text, values)))

    def constant(self, value: object, wished: str = "") -> Code:
        """A name by which the generated code reaches `value`, like `wished`."""
        if (name := self._constant_of.get(id(value))) is None:
            name = self._constant_of[id(value)] = self.name(wished or _constant_name(value))
            self.constants[name] = value
        return name

    def text(self, value: object) -> str:
        """`value` as generated code: a `Code` as it is, None, bools and integers as literals, tuples and lists of such as such, and
        all else as a constant."""
        if type(value) is Code:
            return value
        if value is None or type(value) in (bool, int):
            return str(value)
        if type(value) is tuple:
            return f"({', '.join(map(self.text, value))}{',' if len(value) == 1 else ''})"
        if type(value) is list:
            return f"[{', '.join(map(self.text, value))}]"
        return self.constant(value)

    def code(self, template: str, *given: object) -> Any:
        """The expression `template`, a literal of the caller's, with `text` of each of `given` for its braces."""
        return Code(template.format(*map(self.text, given)))

    def emit(self, template: str, *given: object) -> None:
        """One line of code, by `code`."""
        self.lines.append(self.indent + template.format(*map(self.text, given)))

    def remark(self, said: str) -> None:
        """Put the comment `said` behind the last line."""
        if not said.isprintable():
            said = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in said)
        self.lines[-1] += f"  # {said}"

    @contextmanager
    def indent_block(self) -> Iterator[None]:
        """Lines of a block."""
        before, self.indent = self.indent, self.indent + "    "
        try:
            yield
        finally:
            self.indent = before

    @contextmanager
    def when(self, condition: object) -> Iterator[None]:
        """Lines that run where the value `condition` is true; always where it is None."""
        if condition is None:
            yield
            return
        self.emit("if {}:", condition)
        with self.indent_block():
            yield

    def calls(self, function: Callable, *given: object, **named: object) -> Any:
        """The expression that calls `function` on `given` and `named`: a method of a class in `UNIT_OF` on its instance, any other
        function on the program first. What may wait (it returns a `Thread`) is waited for. TypeError for arguments that `function`
        does not take."""
        head = _head(function, len(given), *named)
        parts = [self.text(each) for each in given] + [f"{name}={self.text(each)}" for name, each in named.items()]
        if not bound(function):
            return Code(f"{head}{self.constant(function)}({', '.join(['m', *parts])})")
        return Code(f"{head}({', '.join(parts)})")


@cache
def _head(function: Callable, count: int, *names: str) -> str:
    """What stands before the arguments of a call of `function` on `count` values and `names`, and before a constant that it is."""
    signature = _signature(function)
    try:
        signature.bind(None, *[None] * count, **dict.fromkeys(names))
    except TypeError as error:
        raise TypeError(f"a lowering calls {function.__qualname__}{signature}: {error}") from None
    return f"{'yield from ' if suspends(function) else ''}{bound(function)}"


def _constant_name(value: object) -> str:
    """What the constant `value` is called: an operation by its line of the tile program, from 1."""
    if isinstance(value, Operation):
        return f"op{value.line + 1}"
    if isinstance(value, np.dtype):
        return value.name
    said = getattr(value, "__qualname__", None) or getattr(value, "__name__", None) or "constant"
    return said.replace("<locals>.", "").replace("<lambda>", "function")


def compile_code(source: str) -> CodeType:
    """The code of generated Python, which `run` gives its file name."""
    return compile(source, "<generated>", "exec")


def run(code: CodeType, source: str, name: str, constants: Mapping[str, object], owner: object) -> dict[str, Any]:
    """The globals of `code`, which is `source` compiled, after its run among `constants`. Tracebacks and debuggers show its lines
    under the file name `name` as long as `owner` lives."""
    globals_ = dict(constants)
    exec(_in_file(code, name), globals_)
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    weakref.finalize(owner, linecache.cache.pop, name, None).atexit = False
    return globals_


def _in_file(code: CodeType, name: str) -> CodeType:
    """`code`, and all code inside it, as of the file `name`."""
    inside = (_in_file(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=tuple(inside))


@cache
def _signature(function: Callable) -> inspect.Signature:
    return inspect.signature(function)


@cache
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


__all__ = ["UNIT_OF", "Code", "Writer", "bound", "compile_code", "gives_nothing", "run", "suspends"]
