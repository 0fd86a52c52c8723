"""Where a kernel's source may be edited: the functions that its launchers reach, without what decides nothing of the kernel.

A *launcher* is a function from which a kernel (a function under ``jit``) is reached by name. What a launcher reaches is included:
itself, kernels, what kernels call, and helpers on the host. Left out are docstrings, assertions, ``raise``, annotations,
preconditions (``require``, ``Problem``, ``Config``), what a device prints, and the body of a test.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import libcst as cst
from libcst import matchers
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, ParentNodeProvider, PositionProvider

SKIPPED_CALLS = (
    "require",
    "require_features",
    "Problem",
    "Config",
    "static_assert",
    "static_print",
    "device_print",
    "device_assert",
    "print",
)
FILES_LEFT_OUT = ("clauses", "element_types", "features")
"""Files of ``kernels/`` that say what is legal and what types are called."""
JIT = ("jit", "constexpr_function")
TESTS = ("judged", "test")


@dataclass(eq=False)
class Function:
    """A function of a file. `device`: "triton" or "gluon" of code that is compiled, "constexpr" of what
    Python executes for the compiler, "" of the host's."""

    name: str
    """Qualified, as in "Attention.forward"."""
    node: cst.FunctionDef
    file: File
    device: str

    @property
    def parameters(self) -> tuple[str, ...]:
        taken = self.node.params
        return tuple(each.name.value for each in (*taken.posonly_params, *taken.params, *taken.kwonly_params))

    @property
    def is_test(self) -> bool:
        return any(_last_name(each.decorator) in TESTS for each in self.node.decorators)


@dataclass(eq=False)
class File:
    """A file of the kernel, parsed. `report_name`: its name in reports."""

    path: Path
    report_name: str
    text: str
    functions: dict[str, Function] = field(default_factory=dict)
    import_modules: dict[str, str] = field(default_factory=dict)
    """The last name of the module that each name is imported from, by ``from module import name``."""

    def __post_init__(self) -> None:
        self.wrapped = MetadataWrapper(cst.parse_module(self.text), unsafe_skip_copy=True)
        self.parents: Mapping[cst.CSTNode, cst.CSTNode] = self.wrapped.resolve(ParentNodeProvider)  # type: ignore[assignment]
        self.spans: Mapping = self.wrapped.resolve(ByteSpanPositionProvider)
        self.positions: Mapping = self.wrapped.resolve(PositionProvider)
        self._bytes = self.text.encode()
        self._ascii = len(self._bytes) == len(self.text)
        self._find(self.wrapped.module.body, "")
        for each in matchers.findall(self.wrapped.module, matchers.ImportFrom()):
            if isinstance(each, cst.ImportFrom) and each.module is not None and not isinstance(each.names, cst.ImportStar):
                self.import_modules |= {name.evaluated_alias or name.evaluated_name: _last_name(each.module) for name in each.names}

    def _find(self, body: Sequence[cst.CSTNode], inside: str) -> None:
        for node in body:
            if isinstance(node, cst.FunctionDef):
                name = f"{inside}{node.name.value}"
                self.functions[name] = Function(name, node, self, _device(node))
            elif isinstance(node, cst.ClassDef):
                self._find(node.body.body, f"{inside}{node.name.value}.")
            elif isinstance(node, cst.If):
                self._find(node.body.body, inside)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """The characters of `node` in the file's text: from, to."""
        found = self.spans[node]
        start, end = found.start, found.start + found.length
        if self._ascii:
            return start, end
        return len(self._bytes[:start].decode()), len(self._bytes[:end].decode())

    def code(self, node: cst.CSTNode) -> str:
        """The text of `node`, in its parentheses where it has some: a span leaves them out."""
        start, end = self.span(node)
        return f"({self.text[start:end]})" if getattr(node, "lpar", ()) else self.text[start:end]

    def line(self, node: cst.CSTNode) -> int:
        return self.positions[node].start.line

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around `node`, the nearest first."""
        while (above := self.parents.get(node)) is not None:
            yield above
            node = above


def _device(node: cst.FunctionDef) -> str:
    for each in node.decorators:
        code = _dotted_name(each.decorator)
        if code.rpartition(".")[2] in JIT:
            return "constexpr" if code.endswith("constexpr_function") else "gluon" if "gluon" in code else "triton"
    return ""


def _dotted_name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Call):
        return _dotted_name(node.func)
    if isinstance(node, cst.Attribute):
        return f"{_dotted_name(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _last_name(node: cst.BaseExpression) -> str:
    return _dotted_name(node).rpartition(".")[2]


@dataclass(eq=False)
class Place:
    """A node that may be edited, and the function that it stands in."""

    node: cst.CSTNode
    function: Function

    @property
    def file(self) -> File:
        return self.function.file

    @property
    def device(self) -> str:
        return self.function.device

    def code(self, node: cst.CSTNode | None = None) -> str:
        return self.file.code(self.node if node is None else node)


def callee_name(node: cst.CSTNode) -> str:
    """The last name of what a call calls, as "load" of ``tl.load(...)``; empty of anything else."""
    return _last_name(node.func) if isinstance(node, cst.Call) else ""


def reachable_functions(files: Sequence[File], root: str = "") -> list[Function]:
    """The functions that are mutated, in the order of the files and their lines. `root`: the one name in the last file that all is
    reached from, or where that file only imports it, in another one; else every launcher of the last file."""
    graph = {function: _named_functions(function, files) for file in files for function in file.functions.values()}

    def reachable_from(function: Function) -> dict[Function, None]:
        reached_functions: dict[Function, None] = {}
        waiting = [function]
        while waiting:
            if (each := waiting.pop()) not in reached_functions:
                reached_functions[each] = None
                waiting += graph[each]
        return reached_functions

    named = lambda each: each.name == root or each.name.startswith(f"{root}.")
    last = files[-1].functions.values()
    roots = [each for each in last if (named(each) if root else not each.device)]
    roots = roots or [each for file in files for each in file.functions.values() if root and named(each)]
    found: dict[Function, None] = {}
    for each in roots:
        met = reachable_from(each)
        if any(one.device for one in met):
            found |= met
    return [function for file in files for function in file.functions.values() if function in found and not function.is_test]


def _named_functions(function: Function, files: Sequence[File]) -> list[Function]:
    """The functions that `function` names: its file's own first, then those of the file that the name is imported from, else those
    of every file that have the name."""
    names = _Names()
    function.node.body.visit(names)
    functions = []
    for name in names.seen:
        come_from = function.file.import_modules.get(name)
        others = [file for file in files if file.path.stem == come_from] or files
        own = [each for each in function.file.functions.values() if name in (each.name, each.name.partition(".")[0])]
        functions += own or [
            each for file in others for each in file.functions.values() if name in (each.name, each.name.partition(".")[0])
        ]
    return functions


class _Names(cst.CSTVisitor):
    def __init__(self) -> None:
        self.seen: dict[str, None] = {}

    def visit_Call(self, node: cst.Call) -> bool:
        return callee_name(node) not in SKIPPED_CALLS

    def visit_Name(self, node: cst.Name) -> None:
        self.seen[node.value] = None


def places(function: Function, dead: Collection[cst.CSTNode] = ()) -> Iterator[Place]:
    """Every node of `function` that may be edited, in the order of the text; of its decorators the heuristics. What is `dead`, or
    stands inside such a node, is left out."""
    walked = _Walk(function, dead)
    for each in function.node.decorators:
        if _last_name(each.decorator) == "heuristics":
            each.decorator.visit(walked)
    function.node.body.visit(walked)
    yield from walked.found


class _Walk(cst.CSTVisitor):
    def __init__(self, function: Function, dead: Collection[cst.CSTNode]) -> None:
        self.function, self.dead, self.found = function, dead, list[Place]()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if node in self.dead:
            return False
        if isinstance(node, cst.Raise | cst.Assert | cst.Annotation | cst.FormattedString | cst.Decorator | cst.Comment):
            return False
        if isinstance(node, cst.Expr) and isinstance(node.value, cst.SimpleString | cst.ConcatenatedString):
            return False
        if callee_name(node) in SKIPPED_CALLS:
            return False
        if isinstance(node, cst.If) and _only_raises(node):
            return False
        if isinstance(node, cst.BaseExpression | cst.BaseStatement | cst.BaseSmallStatement):
            self.found.append(Place(node, self.function))
        return True


def _only_raises(node: cst.If) -> bool:
    """Whether an ``if`` is a precondition."""
    last: cst.CSTNode = node.body.body[-1]
    if isinstance(last, cst.SimpleStatementLine):
        last = last.body[-1]
    return isinstance(last, cst.Raise) and node.orelse is None
