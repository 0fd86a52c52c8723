"""A kernel's source with a mutant's edit, executed in memory: nothing is written, and imported modules stay as they are.

The edited module has the name and the file of the right one, so that a failure names the kernel's own lines. What imports it within
the kernel is executed anew too. Triton reads the source of a kernel from `linecache`, which holds the edited text meanwhile.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from bitverdict.harness.model import addresses
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import shown
from bitverdict.harness.mutants.kernels import Kernel, imports
from bitverdict.harness.mutants.record import GeneratedMutant


class StaleMutant(ValueError):
    """The source is not the one that the mutant was generated from."""


def edited_text(text: str, edit: Mapping[str, Any]) -> str:
    """`text` with the span of `edit` replaced. StaleMutant where the span holds another text than the edit was made for."""
    start, end = edit["start"], edit["end"]
    if text[start:end] != edit["of"]:
        raise StaleMutant(f"characters {start} to {end} are {text[start:end]!r}, must be {edit['of']!r}: generate the mutants anew")
    return text[:start] + edit["by"] + text[end:]


def edited_module(kernel: Kernel, mutant: GeneratedMutant) -> dict[str, ModuleType]:
    """The modules of `kernel` that have the edit or import one that has, executed anew, by their names. Raises what they raise."""
    modules = kernel.modules()
    (target,) = (each for each in modules if shown(Path(str(each.__file__)).resolve()) == mutant.file)
    made: dict[str, ModuleType] = {}
    for module in modules[modules.index(target) :]:
        if module is target or not made.keys().isdisjoint(imports(module)):
            text = Path(str(module.__file__)).read_text()
            if module is target:
                text = edited_text(text, mutant.edit)
            made[module.__name__] = executed(module, text, made)
    return made


def executed(module: ModuleType, text: str, beside: Mapping[str, ModuleType]) -> ModuleType:
    """`module` executed from `text`, where imports find the modules `beside`."""
    file = str(module.__file__)
    again = ModuleType(module.__name__, module.__doc__)
    for name in ("__file__", "__spec__", "__package__", "__loader__", "__path__"):
        if hasattr(module, name):
            setattr(again, name, getattr(module, name))
    earlier = linecache.cache.get(file)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # no time of a file: it stays as it is
    try:
        with swapped({**beside, module.__name__: again}):
            exec(compile(text, file, "exec"), vars(again))
    finally:
        if earlier is None:
            del linecache.cache[file]
        else:
            linecache.cache[file] = earlier
    return again


@contextmanager
def swapped(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """While entered, imports find `modules` by their names."""
    before: list[tuple[str, ModuleType | None, Any]] = []
    for name, module in modules.items():
        package, _, last = name.rpartition(".")
        above = sys.modules.get(package)
        before.append((name, sys.modules.get(name), getattr(above, last, None)))
        sys.modules[name] = module
        if above is not None and hasattr(above, last):
            setattr(above, last, module)
    try:
        yield
    finally:
        for name, earlier, attribute in before:
            package, _, last = name.rpartition(".")
            if earlier is None:
                del sys.modules[name]
            else:
                sys.modules[name] = earlier
            if attribute is not None:
                setattr(sys.modules[package], last, attribute)


def contract_of(kernel: Kernel, modules: Mapping[str, ModuleType]) -> Contract:
    """The contract that launches the kernel of the edited `modules`."""
    if kernel.file is None:
        made = sys.modules[type(kernel.contract()).__module__]
        return made.contract(modules[f"bitverdict.kernels.{kernel.address}"])  # type: ignore[attr-defined]
    if kernel.like:
        return kernel.contract()  # a case names the launcher: `launching`
    found = attrgetter(kernel.address.rpartition(":")[2])(modules[kernel.module().__name__])
    return getattr(found, "__contract__", found)


@contextmanager
def launching(kernel: Kernel, modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """While entered, the launcher's address leads to that of the edited `modules`, and so do imports."""
    with swapped(modules):
        if not kernel.launcher:
            yield
            return
        earlier = addresses._known.get(kernel.launcher)
        addresses.know(kernel.launcher, attrgetter(kernel.launcher.rpartition(":")[2])(modules[kernel.module().__name__]))
        try:
            yield
        finally:
            if earlier is None:
                addresses._known.pop(kernel.launcher)
            else:
                addresses.know(kernel.launcher, earlier)
