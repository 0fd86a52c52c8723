"""What an address names: a kernel's stem, ``package.module:NAME`` or ``path/file.py:NAME``.

NAME may have dots, as in ``path/file.py:TestRows.test_softmax``. What holds a contract or stands for a launcher, because a function
was decorated by one of the public functions, is taken for that: by its attributes `__contract__` and `__launcher__`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.machinery import SourceFileLoader
from importlib.util import resolve_name
from operator import attrgetter
from pathlib import Path
from types import CodeType
from typing import Any

from bitverdict.harness.model import sealing
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import is_ours, kernels_with_a_contract
from bitverdict.harness.model.supervision import stage
from bitverdict.harness.model.usage import UsageError, did_you_mean, no_such_kernel

while_importing: Callable[[str], AbstractContextManager[None]] = lambda address: nullcontext()
"""Entered with an address while its file is imported. The judge puts in what `torch.cuda` then says, and keeps to the file what it
sets of Triton (`bitverdict.harness.judge.devices`)."""
before_importing: Callable[[], None] = lambda: None
"""Called before a module that an address names is imported, and before imports look in a user's folder. The command line puts in
the start of the workers' server."""

_MOVED_CONTRACTS = {
    "bitverdict.harness.contracts.described.given:CONTRACT": "bitverdict.harness.contracts.described.given_launch:CONTRACT"
}
"""Addresses of contracts in cases that were stored before their modules had other names."""


def resolve(address: str) -> Contract:
    """The contract at `address`: a kernel's stem, ``package.module:NAME`` or ``path/file.py:NAME``.

    Raises ValueError (value, rule, remedy) for an address that leads nowhere.
    """
    if ":" not in address:
        name = f"bitverdict.harness.contracts.{address}"
        if name not in sys.modules and address in kernels_with_a_contract():
            before_importing()
        try:
            contract = importlib.import_module(name).CONTRACT
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
            lacking = no_such_kernel(address, kernels_with_a_contract())
            raise UsageError(f"contract {address!r}: {lacking}; or give package.module:NAME or path/file.py:NAME") from None
    else:
        contract = load(_MOVED_CONTRACTS.get(address, address))
    contract = getattr(contract, "__contract__", contract)
    if not isinstance(contract, Contract):
        raise UsageError(
            f"contract {address!r}: is a {type(contract).__name__}, must be a bitverdict.harness.model.contract.Contract"
        )
    return contract


def place_of(address: str) -> str:
    """The module or the absolute path that `address` leads to; a kernel's stem is its own place."""
    place = address.rpartition(":")[0] or address
    return str(Path(place).resolve()) if place.endswith(".py") else place


_loaded_objects: dict[str, Any] = {}
_fresh_loaders: dict[str, Callable[[], Any]] = {}


def register_loaded(address: str, loaded: object) -> None:
    """Have `address` lead to `loaded` in this process, whose module is imported already, maybe by another name."""
    _loaded_objects[address] = loaded


@contextmanager
def substitute_object(address: str, found: object, afresh: Callable[[], object]) -> Iterator[None]:
    """While entered, `address` leads to `found`, and to what `afresh` gives where its module is asked for anew."""
    before = address in _loaded_objects, _loaded_objects.get(address)
    _loaded_objects[address], _fresh_loaders[address] = found, afresh
    try:
        yield
    finally:
        del _fresh_loaders[address], _loaded_objects[address]
        if before[0]:
            _loaded_objects[address] = before[1]


def add_search_path(folders: Iterable[str]) -> None:
    """Have imports look in `folders` first, in their order; those that are looked in already stay where they are."""
    if missing := [folder for folder in folders if folder not in sys.path]:
        before_importing()
        sys.path[:0] = missing
        importlib.invalidate_caches()


def load(address: str, *, unwrap: bool = True) -> Any:
    """The object at ``package.module:NAME`` or ``path/file.py:NAME``; a file is imported once per process.

    Of what stands for a launcher it is the launcher, if `unwrap`. A sealed file (`bitverdict.harness.model.sealing`) is not
    imported: its address leads to what stands for it here."""
    if sealing.is_sealed(address):
        return sealing.stand_in_for(address)
    found = _loaded_objects.get(address) or _load(address)
    return getattr(found, "__launcher__", found) if unwrap else found


def _load(address: str) -> Any:
    place, _, name = address.rpartition(":")
    if not place or not name:
        raise UsageError(f"address {address!r}: must be package.module:NAME or path/file.py:NAME")
    module = load_module(place, address)
    try:
        return attrgetter(name)(module)
    except AttributeError:
        public = [n for n, value in vars(module).items() if not n.startswith("_") and _may_be_named(value, module)]
        shown = ", ".join(public[:12]) or "no function and no contract"
        raise UsageError(f"address {address!r}: {place} has no {name}{did_you_mean(name, public)}; it has {shown}") from None


def load_module(place: str, address: str) -> Any:
    """The module at ``package.module`` or ``path/file.py``, a file once per process; errors name `address`."""
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise UsageError(f"address {address!r}: there is no file {place}; give a path to an existing Python file")
        try:
            return _load_file(path, address)
        except (Exception, SystemExit) as error:  # a script that exits would end the run with its own status, nothing judged
            raise UsageError(f"address {address!r}: {place} cannot be imported: {_where(error, path)}; fix the file") from error
    else:
        try:
            return sys.modules.get(place) or _import(place, address)
        except ModuleNotFoundError as error:
            raise UsageError(f"address {address!r}: cannot import {place} ({error}); give path/file.py:NAME for a file") from error
        except (Exception, SystemExit) as error:
            said = _where(error, Path())
            raise UsageError(f"address {address!r}: {place} cannot be imported: {said}; fix the module") from error


def _may_be_named(value: Any, module: Any) -> bool:
    """Whether an address may lead to it: a function of the module's own that is no kernel, or a contract."""
    own = callable(value) and getattr(value, "__module__", None) == module.__name__ and not hasattr(value, "starting_line_number")
    return own or isinstance(value, Contract)


def load_afresh(address: str) -> Any:
    """The object at `address`, of a module that is imported anew: it remembers nothing of earlier calls."""
    if address in _fresh_loaders:
        return _fresh_loaders[address]()
    place, _, name = address.rpartition(":")
    module = sys.modules.get(place)
    path = Path(place).resolve() if place.endswith(".py") else Path(str(module.__file__ if module else place))
    found = attrgetter(name)(_load_file(path, address, sibling=place if module else ""))
    stands_for = getattr(found, "__launcher__", None)
    return found if stands_for is None else stands_for.fresh_launcher()


def is_importing() -> bool:
    """Whether a file that an address names is being imported, in this thread or another: what it calls is not asked of it."""
    return bool(_import_stack)


def _where(error: BaseException, path: Path) -> str:
    """The error in one line, with the line of the file at `path` that raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{type(error).__name__}: {said}" + (f" (line {line})" if line else "")


def _import(place: str, address: str) -> Any:
    before_importing()
    with stage(f"address {address!r}: importing {place}", "fix the module"), _note_import(address), while_importing(address):
        return importlib.import_module(place)


def package_of(path: Path) -> str:
    """The package of the file at `path`, by the name that this process imports it by; empty where it lies in none."""
    names, folder = [], path.parent
    while (folder / "__init__.py").is_file():
        names.append(folder.name)
        folder = folder.parent
    package = ".".join(reversed(names))
    if not package or is_ours(path):
        return ""
    try:
        found = importlib.import_module(package)
    except Exception:  # the file will say what is wrong, if it needs the package
        return ""
    return package if str(path.parent) in {str(Path(each).resolve()) for each in getattr(found, "__path__", ())} else ""


_import_stack: list[str] = []


@contextmanager
def _note_import(address: str) -> Iterator[None]:
    _import_stack.append(address)
    try:
        yield
    finally:
        _import_stack.remove(address)


class _TextLoader(SourceFileLoader):
    """Takes what the file says now: Python's bytecode beside it stands for any text of one size and second."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_file(path: Path, address: str, *, sibling: str | None = None) -> Any:
    """The module of the file at `path`, once per process. `sibling`: anew, beside the module of that name, if it has one."""
    before_importing()
    package = package_of(path)
    name = f"{package}{'.' if package else ''}_loaded_{path.stem}_{abs(hash(str(path))):x}"
    if sibling is not None:
        name = f"{sibling or name}_again_{len(sys.modules)}"
    if name in sys.modules:
        return sys.modules[name]
    sealing.refuse(path)
    spec = importlib.util.spec_from_file_location(name, path, loader=None if is_ours(path) else _TextLoader(name, str(path)))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before execution: triton.jit and dataclasses look their module up

    try:
        with stage(f"address {address!r}: importing {path.name}", "fix the file"), _note_import(address), while_importing(address):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def imported_names(source: str, package: str) -> Iterator[str]:
    """The absolute names of modules that `source` imports, wherever in it, and of what may be modules.

    `package`: the dotted name of the package that holds the module; relative imports count from it. Raises SyntaxError where
    `source` is no Python, and ImportError where a relative import leads out of `package`.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
