"""Contract under test: no string of a tile program is code. Whatever its names, messages, locations and attributes say, it is
translated to the same code with other names, or refused, and nothing that they say is executed."""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend import generated_code
from bitverdict.harness.emulator.frontend.generated_code import Code, Writer
from bitverdict.harness.emulator.frontend.translate import translate
from bitverdict.harness.emulator.mlir_reader import escape, unescape

CHECKOUT = Path(__file__).resolve().parents[3]
RUN = "__import__('os').mkdir('executed')"
SOURCE = """
import triton
import triton.language as tl


@triton.jit(noinline=True)
def doubled(x):
    return x * 2


@triton.jit
def kernel(a, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.device_assert(n < 1000, MESSAGE)
    tl.device_print(PREFIX, n)
    x = tl.load(a + at, mask=at < n, other=0)
    total = tl.sum(x, axis=0)
    for i in range(n):
        x += i
    tl.store(out + at, x + doubled(total), mask=at < n)
"""


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """Runs the test in an empty folder, where nothing may be made."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    yield
    assert list(Path().iterdir()) == []


def written(folder: Path, name: str, message: str = "too many", prefix: str = "n") -> ModuleType:
    """The module of `SOURCE` in a file called `name`."""
    path = folder / name
    path.write_text(SOURCE.replace("MESSAGE", repr(message)).replace("PREFIX", repr(prefix)))
    spec = importlib.util.spec_from_file_location("attacked", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["attacked"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launched(module: ModuleType, n: int = 5, rewrite: Callable[[str], str] | None = None) -> str:
    """The Python of a launch, whose result is right."""
    a, out = torch.arange(8, dtype=torch.int32), torch.full((8,), -1, dtype=torch.int32)
    with emulated("sm_80", options=LaunchOptions(rewrite=rewrite)) as device:
        module.kernel[(1,)](a, out, n, BLOCK=8, debug=True, sanitize_overflow=False)
    right = torch.where(torch.arange(8) < n, a + n * (n - 1) // 2 + 2 * a[:n].sum(), -1)
    assert torch.equal(out, right.to(torch.int32))
    return device.launches[-1].python


@cache
def program(folder: Path) -> str:
    with emulated("sm_80") as device:
        written(folder, "plain.py").kernel[(1,)](
            torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32), 5, BLOCK=8, debug=True, sanitize_overflow=False
        )
    return device.launches[-1].program


def skeleton(source: str) -> str:
    """`source` without its names and comments: what it does."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for name in ("id", "arg", "name"):
            if hasattr(node, name):
                setattr(node, name, "")
    return ast.dump(tree)


# -- from a kernel's own file -------------------------------------------------------------------------------------------
FILES = [
    f'quote"); {RUN} #.py',
    f"line\n{RUN}\n#.py",
    f"return\r{RUN}\r#.py",
    f"backslash\\22); {RUN}; (\\0A.py",
    f"semicolon;{RUN};:1.py",
    f'a":1:1)\n"builtin.module"() ({{\n{RUN}.py',
    "x loc(y) at (z) ü\u2028.py",
]


@pytest.mark.parametrize("name", FILES, ids=range(len(FILES)))
def test_the_name_of_a_kernel_s_file_is_a_comment_and_a_location(tmp_path: Path, name: str) -> None:
    module = written(tmp_path, name)
    plain = launched(written(tmp_path, "plain.py"))
    assert skeleton(launched(module)) == skeleton(plain)
    with pytest.raises(EmulatedFault) as raised:
        launched(module, n=1000)
    assert raised.value.location == f"{tmp_path / name}:{SOURCE[: SOURCE.index('device_assert')].count(chr(10)) + 1}"


@pytest.mark.parametrize("said", [f'"); {RUN}; ("', f"'''\n{RUN}\n'''", f"\\\n{RUN}", "{}{0}%s\u2028ü"], ids=range(4))
def test_messages_and_prefixes_are_text(tmp_path: Path, said: str) -> None:
    """A prefix is of ASCII characters, or Triton refuses it."""
    module = written(tmp_path, "messages.py", said, said.encode("ascii", "replace").decode())
    assert skeleton(launched(module)) == skeleton(launched(written(tmp_path, "plain.py")))
    with pytest.raises(EmulatedFault) as raised:
        launched(module, n=1000)
    assert (raised.value.outcome, raised.value.message) == ("device assert", said)


# -- from an edited tile program ----------------------------------------------------------------------------------------
def values_called(name: str) -> Callable[[str], str]:
    return lambda text: re.sub(r"%x\b", f"%{name}", text)


def function_called(own: str, name: str) -> Callable[[str], str]:
    """The function whose name begins with `own`, by its definition and its calls."""

    def edit(text: str) -> str:
        (found,) = {each for each in re.findall(r'sym_name = "([^"]*)"', text) if each.startswith(own)}
        return text.replace(f'sym_name = "{found}"', f'sym_name = "{name}"').replace(f"callee = @{found}", f'callee = @"{name}"')

    return edit


NAMES = ["class", "m", "block", "int", "op40", "__debug__", "__builtins__", "a-b$c.d", "x;y", "9001"]
NO_NAMES = [f"z{RUN}", "x=1;y"]  # which the reader takes for no values
PROGRAMS: dict[str, Callable[[str], str]] = {
    **{f"value {name}": values_called(name) for name in NAMES},
    **{f"no value {name}": values_called(name) for name in NO_NAMES},
    "kernel": function_called("kernel", f"kernel(m): {RUN} #"),
    "kernel, escaped": function_called("kernel", f"k\\22\\0A{RUN}"),
    "private function": function_called("attacked", f"f(m): {RUN}; return f"),
    "private function, a keyword": function_called("attacked", "lambda"),
    "attribute": lambda text: text.replace("<{axis = 0", f'<{{evil = "\\22); {RUN}; (", axis = 0'),
    "attribute's name": lambda text: text.replace("<{axis = 0", f'<{{"); {RUN}; (" = 1 : i32, axis = 0'),
    "integer": lambda text: text.replace("predicate = 2", f"predicate = {RUN}"),
    "constant": lambda text: re.sub(r"dense<0> : ", f"dense<{RUN}> : ", text),
    "operation": lambda text: text.replace('"arith.addi"', f'"arith.addi;{RUN}"'),
    "layout": lambda text: text.replace("#ttg.blocked<{", f'#ttg.blocked<{{evil = "{RUN}", '),
    "location": lambda text: re.sub(r'loc\("[^"]*"', f'loc("f\\\\0A{RUN}\\\\22"'.replace("\\", "\\\\"), text),
    "assembly": lambda text: re.sub(r'"tt.print"\(([^)]*)\) <{.*?}> : \(.*?\) -> \(\)',
                                    f'"ttg.inline_asm"() <{{asm_string = "\\\\0A{RUN}"}}> : () -> ()', text),
}  # fmt: skip
MODELLED = {name for name in PROGRAMS if name.startswith(("value", "kernel", "private", "attribute", "layout", "location"))}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_edited_program_is_the_same_code_or_refused(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    text = program(tmp_path_factory.getbasetemp())
    changed = PROGRAMS[name](text)
    assert changed != text
    try:
        made = translate(changed, arch="sm_80", fuses_sums=True)
    except (EmulatedFault, ValueError) as refused:
        assert name not in MODELLED, refused
    else:
        assert name in MODELLED and skeleton(made.source) == skeleton(translate(text, arch="sm_80", fuses_sums=True).source)


@pytest.mark.parametrize("name", [f"value {each}" for each in NAMES] + ["private function"])
def test_a_program_with_hostile_names_still_gives_its_result(tmp_path: Path, name: str) -> None:
    launched(written(tmp_path, "plain.py"), rewrite=PROGRAMS[name])


def test_a_writer_that_takes_names_as_they_are_fails(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests above would see."""
    changed = PROGRAMS["value x;y"](program(tmp_path_factory.getbasetemp()))
    monkeypatch.setattr(Writer, "name", lambda self, wished: Code(wished.lstrip("%")))
    monkeypatch.setattr(generated_code, "_constant_name", lambda value: f"k{id(value)}")
    with pytest.raises(SyntaxError):
        translate(changed, arch="sm_80", fuses_sums=True)


def test_strings_go_to_mlir_and_back() -> None:
    for text in (*FILES, *map(chr, range(1, 300)), "plain/file.py"):
        assert unescape(escape(text)) == text and re.fullmatch(r"[ !#-~]*", escape(text))


# -- the lowerings themselves -------------------------------------------------------------------------------------------
SOURCES = [*(CHECKOUT / "harness/emulator/frontend").rglob("*.py"), CHECKOUT / "harness/emulator/memory/undefined_lanes.py"]


def is_literal(node: ast.expr) -> bool:
    """A text of the source, one of two, one of a table, or texts of these in a row."""
    if isinstance(node, ast.JoinedStr):
        return all(is_literal(part.value if isinstance(part, ast.FormattedValue) else part) for part in node.values)
    if isinstance(node, ast.IfExp):
        return is_literal(node.body) and is_literal(node.orelse)
    table = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id.isupper()
    return table or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def test_every_template_of_code_is_a_literal_of_its_lowering() -> None:
    seen = 0
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("emit", "code"):
                inner = ast.unparse(node.func.value) == "super()"
                assert inner or is_literal(node.args[0]), f"{path.name}:{node.lineno}: {ast.unparse(node)}"
                seen += 1
            made = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Code"
            assert not made or path.name in ("generated_code.py", "translator.py"), f"{path.name}:{node.lineno} makes code of text"
    assert seen > 40
