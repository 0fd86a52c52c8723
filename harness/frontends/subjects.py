"""What the words of a command line name: a shipped kernel, a folder, ``FILE``, ``FILE::NAME``, ``FILE:NAME`` or
``package.module:NAME``.

Tests are the functions that `bitverdict.judged` or `bitverdict.test` made. A function that is no test is a launcher: the
mathematics of the shipped kernel that has its name, or alone has its parameters (a note says so), judges it.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bitverdict.harness.model.addresses import add_search_path, load, load_module, resolve
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.decorated_object import root_of
from bitverdict.harness.model.launcher_limits import TRITON_KERNELS, check_launcher
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.usage import UsageError, did_you_mean

_TEST_FILE = re.compile(r"test_.*\.py|.*_test\.py")
_DECORATOR = re.compile(rb"^\s*@(\w+\.)*(judged|test)\b", re.MULTILINE)
_SKIPPED_FOLDERS = re.compile(r"\..*|_.*|build|dist|node_modules|venv|.*\.egg-info")  # as pytest's norecursedirs


@dataclass(frozen=True)
class Subjects:
    """What is judged: `addresses`, which `resolve` and the tests' own sources understand, in the order of the words; and the
    launcher that is judged by the mathematics of the one address, if a word named one."""

    addresses: tuple[str, ...]
    launcher: str = ""


def address_of_word(word: str) -> str:
    """`word` with pytest's ``FILE::CLASS::NAME`` written as an address, ``FILE:CLASS.NAME``."""
    place, separator, names = word.partition(".py::")
    return f"{place}.py:{names.replace('::', '.')}" if separator else word


def find_subjects(words: Sequence[str], command: str, *, sealed: bool = False) -> Subjects:
    """What `words` name. Files are imported, but not those of a `sealed` launcher, whose own name must be a shipped kernel's.
    UsageError, with the lines to write, where a word names nothing to judge."""
    addresses: dict[str, None] = {}
    launchers = []
    for word in map(address_of_word, words):
        if word in kernels_with_a_contract():
            addresses[word] = None
        elif Path(word).is_dir():
            addresses.update(dict.fromkeys(find_tests_below(Path(word))))
        elif word.endswith(".py"):
            addresses.update(dict.fromkeys(find_tests_in(word, command)))
        elif ".py:" in word and (word.rpartition(":")[2] in kernels_with_a_contract() if sealed else is_bare_launcher(word)):
            launchers.append(word)
        else:
            addresses[word] = None
    if not launchers:
        return Subjects(tuple(addresses))
    if addresses or len(launchers) > 1:
        raise UsageError(f"{command} {' '.join(words)}: {launchers[0]} is a launcher, which is judged alone; name one at a time")
    return Subjects((mathematics_of(launchers[0], command, sealed=sealed),), launchers[0])


def find_subject(word: str, command: str) -> str:
    """The one address that `word` names, for a command that takes one."""
    word = address_of_word(word)
    path, is_file = Path(word), word.endswith(".py") and Path(word).is_file()
    if word in kernels_with_a_contract() or not (is_file or path.is_dir()):
        return word
    addresses = find_tests_in(word, command) if is_file else find_tests_below(path)
    if len(addresses) > 1:
        raise UsageError(f"{command} {word}: has {len(addresses)} tests; name one of {', '.join(addresses)}")
    return addresses[0]


def find_subject_or_launcher(word: str, launcher: str, command: str) -> tuple[str, str]:
    """As `find_subject`, and the launcher to judge: `launcher`, or `word` where it names a bare one."""
    if not launcher and (subjects := find_subjects([find_subject(word, command)], command)).launcher:
        return subjects.addresses[0], subjects.launcher
    return find_subject(word, command), launcher


def find_tests_below(folder: Path) -> list[str]:
    """The tests in the test files of `folder`, then those below it, by name. UsageError where there are none."""
    files = [path for path in _test_files(folder) if _DECORATOR.search(path.read_bytes())]
    addresses = [address for path in files for address in find_tests_in(os.path.relpath(path), "run", may_lack=True)]
    if not addresses:
        raise UsageError(
            f"no test of bitverdict in {folder.resolve()} (test_*.py, *_test.py). Write one:\n\n{_example('my_kernel', 'x')}\n"
            "or judge the kernels that bitverdict brings: bitverdict selftest"
        )
    return addresses


def _test_files(folder: Path) -> Iterator[Path]:
    for above, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _SKIPPED_FOLDERS.fullmatch(name))
        yield from (Path(above) / name for name in sorted(files) if _TEST_FILE.fullmatch(name))


def find_tests_in(file: str, command: str, *, may_lack: bool = False) -> list[str]:
    """The addresses of the tests and contracts in `file`, as they stand in it. UsageError for none, unless it `may_lack` them."""
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"{command} {file}: there is no file {file}; give a path to an existing Python file")
    add_search_path((str(root_of(path.resolve())),))
    module = load_module(file, f"{file}:")
    addresses = [f"{file}:{name}" for name in _judged_names(module)]
    if not addresses and not may_lack:
        functions = _functions(path)
        example = _example(*_call_of(functions[0]), module=path.stem) if functions else _example("my_kernel", "x")
        launchers = ", ".join(f"{file}:{function.name}" for function in functions) or "none"
        raise UsageError(
            f"{command} {file}: it has no test of bitverdict. A launcher of it ({launchers}) is judged by a shipped kernel's "
            f"mathematics (bitverdict run matmul --launcher {file}:NAME), or by its own, in a test:\n\n{example}"
        )
    return addresses


def _judged_names(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if hasattr(value, "__bitverdict__") or isinstance(value, Contract):
            if getattr(value, "__module__", module.__name__) == module.__name__ or isinstance(value, Contract):
                yield name
        elif inspect.isclass(value) and value.__module__ == module.__name__:
            yield from (f"{name}.{member}" for member, held in vars(value).items() if hasattr(held, "__bitverdict__"))


def decorated_tests(file: str) -> list[str]:
    """The names of the tests in `file` as its text says, which is not imported; none where it cannot be read."""
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return []
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if any(_DECORATOR.match(f"@{ast.unparse(d)}".encode()) for d in node.decorator_list)]


def is_bare_launcher(address: str) -> bool:
    """Whether a function lies at `address` that is no test and no contract."""
    add_search_path((str(root_of(Path(address.rpartition(":")[0]).resolve())),))
    found = load(address, unwrap=False)
    judged = hasattr(found, "__bitverdict__") or isinstance(getattr(found, "__contract__", found), Contract)
    return callable(found) and not judged


def mathematics_of(launcher: str, command: str, *, sealed: bool = False) -> str:
    """The shipped kernel by which the launcher at an address is judged: of its name, else the only one that takes its parameters.
    UsageError, with a test to write, where there is none. A `sealed` launcher's file is not imported."""
    name, stems = launcher.rpartition(":")[2], kernels_with_a_contract()
    if name in stems:
        return name
    function = None if sealed else load(launcher)
    if type(function).__name__ in TRITON_KERNELS:
        raise UsageError(f"{command} {launcher}: is a Triton kernel; name the function that launches it")
    parameters, options = _parameters(function)
    signatures = {stem: _names_of(resolve(stem).parameters) for stem in stems}
    alike_stems = [stem for stem, (names, known) in signatures.items() if parameters and names == parameters and options <= known]
    if len(alike_stems) == 1:
        check_launcher(resolve(alike_stems[0]), launcher)
        said = f"{launcher} is judged by {alike_stems[0]}'s mathematics, since it has the parameters of that kernel"
        print(f"note: {said}; for its own write a test: docs/your_kernel.md", file=sys.stderr)
        return alike_stems[0]
    several = f"; {', '.join(alike_stems)} take its parameters" if alike_stems else did_you_mean(name, stems)
    raise UsageError(
        f"{command} {launcher}: no shipped kernel is called {name}{several}. Say whose mathematics it has "
        f"(bitverdict {command} KERNEL --launcher {launcher}), or write it down:\n\n"
        f"{_example(name, *parameters, module=Path(launcher.rpartition(':')[0]).stem)}"
    )


def _parameters(function: Callable[..., object] | None) -> tuple[tuple[str, ...], set[str]]:
    """The parameters of `function` that have no default, and those that have one."""
    try:
        signature = inspect.signature(function) if function is not None else inspect.Signature()
    except (TypeError, ValueError):
        return (), set()
    empty = inspect.Parameter.empty
    names = tuple(name for name, parameter in signature.parameters.items() if parameter.default is empty and parameter.kind < 2)
    return names, {name for name, parameter in signature.parameters.items() if parameter.default is not empty}


def _names_of(parameters: str) -> tuple[tuple[str, ...], set[str]]:
    """The same of a contract's `parameters`, such as ``(a, b, *, activation='')``."""
    if not parameters:
        return (), set()
    arguments = ast.parse(f"def launcher{parameters}: ...").body[0].args  # type: ignore[attr-defined]
    count = len(arguments.args) - len(arguments.defaults)
    return tuple(each.arg for each in arguments.args[:count]), {each.arg for each in arguments.args[count:] + arguments.kwonlyargs}


def _functions(path: Path) -> list[ast.FunctionDef]:
    """The public functions of a file that no decorator changes."""
    return [
        node
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("_")
    ]


def _call_of(function: ast.FunctionDef) -> tuple[str, ...]:
    arguments = function.args
    return function.name, *(argument.arg for argument in arguments.args[: len(arguments.args) - len(arguments.defaults)])


def _example(name: str, *parameters: str, module: str = "my_kernel") -> str:
    """A test of the launcher `name` in `module`, to be filled in."""
    names = parameters or ("x",)
    tensors = ", ".join('draw.tensor("fp32", (m, n))' for _ in names)
    return (
        f"    import bitverdict as bv\n    from {module} import {name}\n\n"
        f"    @bv.judged(reference=lambda xp, {', '.join(names)}: ...)  # the mathematics, by the array API: xp.exp, xp.sum\n"
        f"    def test_{name}(draw):\n        m, n = draw.size(1, 9), draw.size(1, 300)\n        return {name}({tensors})\n"
    )
