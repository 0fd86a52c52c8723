"""Which kernel is mutated, and of which files it consists: the module of its launcher, and what that imports beside it."""

from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from bitverdict.harness.model.addresses import add_search_path, imported_names, load, resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import KERNELS, is_foreign, is_ours, kernels_with_a_contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError, no_such_kernel
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.watched_files import repository_of


@dataclass(frozen=True)
class Kernel:
    """What is mutated. `address`: a stem of ``kernels/``, or FILE:NAME of a user's test, contract or launcher. `like`: the kernel
    whose contract judges a launcher; empty where the address itself leads to a contract."""

    address: str
    like: str = ""

    @property
    def file(self) -> Path | None:
        """The user's file; None of a kernel of ours."""
        place = self.address.rpartition(":")[0]
        return Path(place).resolve() if place.endswith(".py") else None

    @property
    def contract_address(self) -> str:
        return self.like or self.address

    @property
    def launcher(self) -> str:
        """The address of a user's launcher, where a case names it; else empty."""
        return self.address if self.like else ""

    @property
    def root(self) -> str:
        """The function that all edited code of a user's is reached from; of a test made with `like` its launcher."""
        if self.file is None:
            return ""
        found = load(self.address) if self.like else None
        return str(getattr(found, "__name__", "")) or self.address.rpartition(":")[2]

    def contract(self) -> Contract:
        """The contract that says what is expected. UsageError where there is none."""
        if self.file is not None:
            add_search_path([str(self.file.parent)])
        return resolve(self.contract_address)

    def cases(self, target: Target) -> list[Case]:
        """The cases that every run judges on `target`."""
        if self.file is None:
            return self.contract().required(target)
        self.contract()
        return CaseSource(self.contract_address, target, launcher=self.launcher).required()

    def module(self) -> ModuleType:
        """The module that an edit is executed in last: of a shipped kernel its own, else that of the address."""
        if self.file is None:
            if self.address not in (known := kernels_with_a_contract()):
                raise UsageError(f"mutate {self.address}: {no_such_kernel(self.address, known)}; or give FILE:FUNCTION")
            return import_module(f"bitverdict.kernels.{self.address}")
        add_search_path([str(self.file.parent)])
        load(self.address, unwrap=False)
        return next(each for each in _modules() if Path(str(each.__file__)).resolve() == self.file)

    def modules(self) -> tuple[ModuleType, ...]:
        """The modules that the kernel is made of, each after those that it imports; the last one is `module`."""
        return _in_order(self.module(), self.file)


def _modules() -> list[ModuleType]:
    """The modules of this process that are files."""
    return [each for each in list(sys.modules.values()) if isinstance(getattr(each, "__file__", None), str)]


def _in_order(root: ModuleType, file: Path | None) -> tuple[ModuleType, ...]:
    inside = KERNELS if file is None else repository_of(file)
    modules_by_name: dict[str, ModuleType] = {}

    def visit(module: ModuleType, above: tuple[str, ...]) -> None:
        for name in imports(module):
            found = sys.modules.get(name)
            path = Path(str(getattr(found, "__file__", None) or "/")).resolve()
            own = path.suffix == ".py" and path.is_relative_to(inside) and (file is None or not (is_foreign(path) or is_ours(path)))
            if found is not None and own and name not in modules_by_name and name not in above and path.name != "__init__.py":
                visit(found, (*above, name))
        modules_by_name[module.__name__] = module

    visit(root, (root.__name__,))
    return tuple(modules_by_name.values())


@functools.cache
def imports(module: ModuleType) -> tuple[str, ...]:
    """The names of modules that the source of `module` imports, wherever in it."""
    package = (module.__spec__.parent if module.__spec__ is not None else None) or ""
    return tuple(dict.fromkeys(imported_names(Path(str(module.__file__)).read_text(), package)))
