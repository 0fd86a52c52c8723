"""Translated programs on disk: a later process runs what an earlier one translated.

A translation is Python source, its compiled form, and the objects that the source names: operations, types, arrays, and functions
that lowerings made. It is written with `pickle`, of which it may hold little: functions and classes of the emulator, of `reference`
and NumPy's go by name, and a function that a lowering made by the place of its code in the source and by what it closes over. No
code of a function is in an entry, only that of the generated Python. What cannot be written so is translated in every process.

An entry depends on the tile program, target and options, on every source file of the emulator and of `reference`, and on the
releases of Triton (its own digest), NumPy and Python. One that cannot be read is made again. So is kept the PTX of programs whose
words it decides (`ptx`).
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import io
import marshal
import pickle
import sys
import types
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

import numpy as np
from triton._C.libtriton import get_cache_invalidating_env_vars

from bitverdict.harness.emulator import disk_store
from bitverdict.harness.emulator.compiler_digest import digest
from bitverdict.harness.emulator.frontend import assembly
from bitverdict.harness.emulator.frontend.translate import TranslatedProgram, load_code
from bitverdict.harness.emulator.frontend.translator import Translator
from bitverdict.harness.model import architectures
from bitverdict.harness.model.paths import EMULATOR, REFERENCE

_OURS = ("bitverdict.harness.emulator.", "bitverdict.reference.", "bitverdict.harness.model.architectures")
_PICKLABLE_NAMES = {
    "builtins": {
        "set",
        "frozenset",
        "slice",
        "range",
        "complex",
        "bytearray",
        "getattr",
        "bool",
        "int",
        "float",
        "abs",
        "min",
        "max",
    },
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "functools": {"partial"},
    "operator": {"itemgetter", "attrgetter", "methodcaller"},
    "copyreg": {"__newobj__", "_reconstructor"},
}
_NUMPY_MAKES = {"_reconstruct", "scalar", "_frombuffer", "_ufunc_reconstruct"}
_EMPTY = "an empty cell"  # what a variable holds that a function closes over and that has no value yet
skip_reasons: Counter[str] = Counter()
"""Why translations of this process were not written, or not read, with how many."""


class _Unpicklable(Exception):
    """Something that does not go to disk."""


# -- functions ----------------------------------------------------------------------------------------------------------
@cache
def _codes(module: str) -> dict[tuple[str, int], list[types.CodeType]]:
    """All code of `module`'s source by qualified name and first line.

    Read by Python's own loader: under pytest the module's loader may be one that rewrites assertions, which has no `get_code`.
    """
    file = importlib.import_module(module).__file__
    whole = SourceFileLoader(module, file).get_code(module) if file is not None else None
    codes_by_name: dict[tuple[str, int], list[types.CodeType]] = {}
    waiting = [whole] if whole is not None else []
    while waiting:
        code = waiting.pop()
        codes_by_name.setdefault((code.co_qualname, code.co_firstlineno), []).append(code)
        waiting += [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return codes_by_name


def _function(module: str, qualname: str, line: int, which: int, cells: int) -> types.FunctionType:
    """The function whose code stands at `line` of `module`, with `cells` variables of others, which are not set yet."""
    if not module.startswith(_OURS):
        raise _Unpicklable(f"a function of {module}")
    code = _codes(module)[qualname, line][which]
    return types.FunctionType(code, vars(sys.modules[module]), code.co_name, None, tuple(types.CellType() for _ in range(cells)))


def _fill(function: types.FunctionType, state: tuple) -> None:
    function.__defaults__, function.__kwdefaults__, contents, more = state
    function.__dict__.update(more)
    for cell, (empty, value) in zip(function.__closure__ or (), contents, strict=True):
        if not empty:
            cell.cell_contents = value


def _content(cell: types.CellType) -> tuple[bool, Any]:
    try:
        return False, cell.cell_contents
    except ValueError:
        return True, None


def _by_name(thing: Any) -> bool:
    """Whether `thing` is what its module holds under its qualified name."""
    found: Any = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


class _Pickler(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, types.FunctionType) and not _by_name(thing):
            return self._reduce_closure(thing)
        named = isinstance(thing, types.FunctionType | type) or (
            isinstance(thing, types.BuiltinFunctionType) and isinstance(thing.__self__, types.ModuleType)
        )
        if named and not _may_be_named(thing):
            raise _Unpicklable(f"{thing.__module__}.{thing.__qualname__}, which is none of the emulator's")
        if type(thing) is object or isinstance(thing, Translator | types.ModuleType):
            raise _Unpicklable(f"an object of {type(thing).__qualname__}")
        return NotImplemented

    @staticmethod
    def _reduce_closure(thing: types.FunctionType) -> tuple:
        """A function that another one made."""
        code, module = thing.__code__, thing.__globals__.get("__name__", "")
        where = code.co_qualname, code.co_firstlineno
        alike = _codes(module).get(where, []) if module.startswith(_OURS) else []
        if code not in alike:
            raise _Unpicklable(f"the function {module}.{thing.__qualname__}, whose code stands in no file of the emulator")
        cells = thing.__closure__ or ()
        state = (thing.__defaults__, thing.__kwdefaults__, tuple(map(_content, cells)), dict(thing.__dict__))
        return _function, (module, *where, alike.index(code), len(cells)), state, None, None, _fill


def _may_be_named(thing: object) -> bool:
    module, name = getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", "")
    if f"{module}.".startswith(_OURS) or name in _PICKLABLE_NAMES.get(module, ()):
        return True
    numpy = module == "numpy" or module.startswith("numpy.")
    return numpy and (isinstance(thing, type) or name in _NUMPY_MAKES or getattr(np, name, None) is thing) and name not in _FILES


_FILES = {"load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile", "memmap", "fromregex"}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """What an entry names, where it may name it. `_Unpicklable` for anything else."""
        if not (f"{module}.".startswith(_OURS) or module in _PICKLABLE_NAMES or module == "numpy" or module.startswith("numpy.")):
            raise _Unpicklable(f"{module}.{name}")
        thing = super().find_class(module, name)
        if isinstance(thing, np.ufunc) or _may_be_named(thing) or (module in _PICKLABLE_NAMES and name in _PICKLABLE_NAMES[module]):
            return thing
        raise _Unpicklable(f"{module}.{name}")


# -- entries ------------------------------------------------------------------------------------------------------------
def _sources() -> Iterator[Path]:
    for room in (EMULATOR, REFERENCE):
        yield from sorted(path for path in room.rglob("*") if path.is_file() and path.suffix != ".pyc")
    yield Path(str(architectures.__file__))


def _digest() -> str:
    """Of the sources that decide what a translation is. Taken when this is imported, as they are."""
    told = hashlib.sha256()
    for path in _sources():
        told.update(f"{path.name} ".encode() + hashlib.sha256(path.read_bytes()).digest())
    return told.hexdigest()


TRANSLATOR = _digest()


def key(
    text: str,
    *,
    arch: str,
    fuses_sums: bool,
    flushes: bool,
    is_doubted: bool,
    ptx: int,
    encloses: bool = False,
    real_values: frozenset[str] | None = None,
) -> str:
    """The name of the entry of one translation; `ptx`: the PTX version that widths of accesses are asked for."""
    reals = "" if real_values is None else f" real values {' '.join(sorted(real_values))}"
    options = f"{arch} {fuses_sums} {flushes} {is_doubted} {ptx} {encloses}{reals}"
    return _key_of(options, text)


def _key_of(options: str, text: str) -> str:
    environment = sorted(get_cache_invalidating_env_vars().items())
    return disk_store.key_of(TRANSLATOR, digest(), np.__version__, sys.version, str(environment), options, text)


def serialize(ready: TranslatedProgram) -> bytes | None:
    """`ready` as an entry; None, with the reason in `skip_reasons`, where it holds what does not go to disk."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, protocol=5).dump((ready, marshal.dumps(ready.code)))
    except (_Unpicklable, pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        skip_reasons[str(error)] += 1
        return None
    return zlib.compress(buffer.getvalue(), 1)


def read(entry: bytes) -> TranslatedProgram | None:
    """The translation in `entry`; None where it cannot be read."""
    try:
        ready, code = _Unpickler(io.BytesIO(zlib.decompress(entry))).load()
        return load_code(ready, marshal.loads(code))
    except _Unpicklable as error:
        skip_reasons[f"read: {error}"] += 1
    except Exception:  # whatever a stale or foreign entry leads to: it is made again
        pass
    return None


@contextmanager
def _without_collections() -> Iterator[None]:
    """What is made inside stays: a collection would walk through all of torch and free nothing, in two thirds of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def load_or_translate(name: str, make: Callable[[], TranslatedProgram]) -> TranslatedProgram:
    """The translation whose entry is `name` (`key`), from disk, or made now and written."""
    with _without_collections():
        entry = disk_store.read_entry(name)
        if entry is not None and (ready := read(entry)) is not None:
            return ready
        ready = make()
    if disk_store.place() is not None and (entry := serialize(ready)) is not None:
        disk_store.keep(name, entry)
    return ready


@lru_cache(maxsize=64)
def ptx(text: str, capability: int, *, fuses_sums: bool, flushes: bool) -> str:
    """The PTX of the tile program `text` (`assembly.ptx`), from disk, or made now and written. NotAssembled where the compiler
    refuses."""
    if disk_store.place() is None:
        return assembly.ptx(text, capability, fuses_sums=fuses_sums, flushes=flushes)
    name = _key_of(f"PTX {capability} {assembly.options_key(capability, fuses_sums=fuses_sums, flushes=flushes)}", text)
    if (entry := disk_store.read_entry(name)) is not None:
        with suppress(zlib.error, UnicodeDecodeError):
            return zlib.decompress(entry).decode()
    made = assembly.ptx(text, capability, fuses_sums=fuses_sums, flushes=flushes)
    disk_store.keep(name, zlib.compress(made.encode(), 1))
    return made


__all__ = ["TRANSLATOR", "key", "load_or_translate", "ptx", "read", "serialize", "skip_reasons"]
