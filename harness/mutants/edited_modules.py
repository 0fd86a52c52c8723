"""A kernel's source with a mutant's edit, executed in memory: nothing is written, and imported modules stay as they are.

The edited module has the name and the file of the right one, so that a failure names the kernel's own lines. What imports it within
the kernel is executed anew too. Triton reads the source of a kernel from `linecache`, which holds the edited text meanwhile.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from bitverdict.harness.model import addresses
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import display_path
from bitverdict.harness.mutants.kernels import Kernel, imports
from bitverdict.harness.mutants.record import GeneratedMutant

TEXT = "__edited_text__"  # in an edited module: what it was executed from


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
    target = next((each for each in modules if display_path(Path(str(each.__file__)).resolve()) == mutant.file), None)
    if target is None:
        raise StaleMutant(f"{mutant.file}: no file of {kernel.address}: generate the mutants anew")
    text = edited_text(Path(str(target.__file__)).read_text(), mutant.edit)
    made: dict[str, ModuleType] = {}
    for module in modules[modules.index(target) :]:
        if module is target or not made.keys().isdisjoint(imports(module)):
            made[module.__name__] = execute_module(module, text if module is target else None, made)
    return made


def right_modules(kernel: Kernel) -> dict[str, ModuleType]:
    """The modules of `kernel` as they are, executed anew: Triton has compiled nothing of them."""
    made: dict[str, ModuleType] = {}
    for module in kernel.modules():
        made[module.__name__] = execute_module(module, None, made)
    return made


def execute_module(module: ModuleType, text: str | None, neighbours: Mapping[str, ModuleType]) -> ModuleType:
    """`module` executed from `text`, or from its file where that is None; imports find the modules `neighbours`."""
    file = str(module.__file__)
    text = Path(file).read_text() if text is None else text
    new_module = ModuleType(module.__name__, module.__doc__)
    vars(new_module)[TEXT] = text
    for name in ("__file__", "__spec__", "__package__", "__loader__", "__path__"):
        if hasattr(module, name):
            setattr(new_module, name, getattr(module, name))
    saved_lines = linecache.cache.get(file)
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)  # no time of a file: it stays as it is
    try:
        with swap_modules({**neighbours, module.__name__: new_module}):
            exec(compile(text, file, "exec"), vars(new_module))
    finally:
        if saved_lines is None:
            del linecache.cache[file]
        else:
            linecache.cache[file] = saved_lines
    return new_module


@contextmanager
def swap_modules(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """While entered, imports find `modules` by their names."""
    before: list[tuple[str, ModuleType | None, Any]] = []
    for name, module in modules.items():
        package, _, stem = name.rpartition(".")
        above = sys.modules.get(package)
        before.append((name, sys.modules.get(name), getattr(above, stem, None)))
        sys.modules[name] = module
        if above is not None and hasattr(above, stem):
            setattr(above, stem, module)
    try:
        yield
    finally:
        for name, earlier, attribute in before:
            package, _, stem = name.rpartition(".")
            if earlier is None:
                del sys.modules[name]
            else:
                sys.modules[name] = earlier
            if attribute is not None:
                setattr(sys.modules[package], stem, attribute)


def contract_of(kernel: Kernel, modules: Mapping[str, ModuleType]) -> Contract:
    """The contract that launches the kernel of the edited `modules`."""
    if kernel.file is None:
        made = sys.modules[type(kernel.contract()).__module__]
        return made.contract(modules[f"bitverdict.kernels.{kernel.address}"])  # type: ignore[attr-defined]
    if kernel.like:
        return kernel.contract()  # its cases name the launcher, which `launching` exchanges
    found = attrgetter(kernel.address.rpartition(":")[2])(modules[kernel.module().__name__])
    return getattr(found, "__contract__", found)


def launch_context(kernel: Kernel, modules: Mapping[str, ModuleType]) -> AbstractContextManager[None]:
    """What is entered around a launch: imports find the edited `modules`. A user's launcher is found before (`judge_context`)."""
    return nullcontext() if kernel.launcher else swap_modules(modules)


@contextmanager
def judge_context(kernel: Kernel, modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """What is entered around the judgement of a case: the address of a user's launcher leads to the edited `modules`."""
    if not kernel.launcher:
        yield
        return
    module = kernel.module()

    def load_launcher() -> Any:
        return _launcher(kernel, execute_module(module, vars(modules[module.__name__])[TEXT], modules))

    with (
        swap_modules(modules),
        addresses.substitute_object(kernel.launcher, _launcher(kernel, modules[module.__name__]), load_launcher),
    ):
        yield


def _launcher(kernel: Kernel, module: ModuleType) -> Any:
    found = attrgetter(kernel.launcher.rpartition(":")[2])(module)
    return getattr(found, "__launcher__", found)
