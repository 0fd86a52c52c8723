"""Triton's front end while mutants are compiled: which lines it visits, and what it has made of other sources already.

The front end takes a tenth of a compilation. Where what it makes of a mutant is what it made of the right kernel, locations left
out, the rest of the compilation is the right kernel's. So a mutant is compiled only for those specialisations that it changes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from triton.compiler import ASTSource

Lines = frozenset[tuple[str, int]]
"""(file, line) pairs."""


@dataclass(frozen=True)
class CompiledFiles:
    """The files of a compiled kernel by name, and Triton's digest of it."""

    files: dict[str, str]
    digest: str


class _KnownSource(BaseException):
    """What the front end made was compiled before."""

    def __init__(self, compiled: CompiledFiles) -> None:
        self.compiled = compiled


@dataclass
class FrontEnd:
    """`compiled` holds by what the front end made of a source what came of it. `lines` holds by the text of a tile program the
    lines that were visited on the way to it. Kept by a process for one kernel."""

    compiled_by_source: dict[str, CompiledFiles] = field(default_factory=dict)
    lines: dict[str, Lines] = field(default_factory=dict)
    _mode: str = ""
    _visited_lines: set[tuple[str, int]] = field(default_factory=set)
    _source_texts: dict[int, str] = field(default_factory=dict)

    @contextmanager
    def record_compiles(self) -> Iterator[None]:
        """What is compiled inside is remembered."""
        with self._patch_compiler("recording"):
            yield

    @contextmanager
    def reuse_compiles(self) -> Iterator[None]:
        """What is compiled inside is taken from what is remembered, where the front end makes the same of it."""
        with self._patch_compiler("reusing"):
            yield

    @contextmanager
    def _patch_compiler(self, mode: str) -> Iterator[None]:
        import triton
        from triton.compiler import compiler
        from triton.compiler.code_generator import CodeGenerator
        from triton.experimental.gluon._runtime import GluonASTSource

        originals = [(source, source.__dict__["make_ir"]) for source in (compiler.ASTSource, GluonASTSource)]
        visit, compile = CodeGenerator.visit, triton.compiler.compile
        for source, original in originals:
            source.make_ir = self._front_end(original)
        if mode == "recording":
            CodeGenerator.visit = self._wrap_visit(visit)
        triton.compiler.compile = self._wrap_compile(compiler)  # a kernel keeps it from its first launch on
        self._mode = mode
        try:
            yield
        finally:
            self._mode = ""
            CodeGenerator.visit, triton.compiler.compile = visit, compile
            for source, original in originals:
                source.make_ir = original

    def _front_end(self, original: Any) -> Any:
        def make_ir(source: object, target: object, options: Any, functions: Any, modules: Any, context: Any) -> Any:
            self._visited_lines.clear()
            module = original(source, target, options, functions, modules, context)
            key = key_of(module, options, target)
            if self._mode == "reusing" and key in self.compiled_by_source:
                raise _KnownSource(self.compiled_by_source[key])
            self._source_texts[id(source)] = key
            return module

        return make_ir

    def _wrap_visit(self, visit: Any) -> Any:
        def visit_and_note(generator: Any, node: Any) -> Any:
            if node is not None and hasattr(node, "lineno"):
                self._visited_lines.add((generator.file_name, generator.begin_line + node.lineno))
            return visit(generator, node)

        return visit_and_note

    def _wrap_compile(self, compiler: Any) -> Any:
        def compile(src: Any, target: object = None, options: Any = None, _env_vars: Any = None) -> Any:
            self._source_texts.clear()
            try:
                compiled_kernel = compiler.compile(src, target=target, options=options, _env_vars=_env_vars)
            except _KnownSource as known:
                return compiler.CompiledKernel(src, known.compiled.files, known.compiled.digest)
            if self._mode == "recording":
                if id(src) not in self._source_texts:
                    _front_end_alone(src, compiled_kernel.metadata.target, options, compiler)
                text = _program(compiled_kernel.metadata_group)
                self.compiled_by_source[self._source_texts[id(src)]] = CompiledFiles(
                    dict(compiled_kernel.metadata_group), compiled_kernel.hash
                )
                self.lines[text] = self.lines.get(text, frozenset()) | frozenset(self._visited_lines)
            return compiled_kernel

        return compile


def _front_end_alone(source: ASTSource, target: object, options: Any, compiler: Any) -> None:
    """Run the front end on a source that was found in Triton's cache, as `compile` would have."""
    from triton._C.libtriton import ir

    backend = compiler.make_backend(target)
    parsed = backend.parse_options(dict(options or {}))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source.make_ir(target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context)


def _program(files: dict[str, str]) -> str:
    """The tile program, which stands where the machine code would: `kernel.asm` would make that first."""
    (path,) = (path for name, path in files.items() if name.endswith((".cubin", ".hsaco")))
    return Path(path).read_bytes().decode()


def key_of(module: Any, options: Any, target: Any) -> str:
    """What the compilation of `module`, as the front end made it, depends on; no locations."""
    told = f"{target.arch}\0{options.hash()}\0{module.str_nodebug()}"
    return hashlib.sha256(told.encode()).hexdigest()


def _nested_pattern(depth: int) -> str:
    """A pattern of what stands in parentheses, with others inside it."""
    plain = r"[^()\"]|\"(?:[^\"\\]|\\.)*\""
    return rf"(?:{plain}|\({_nested_pattern(depth - 1)}\))*" if depth else rf"(?:{plain})*"


_PLACES = re.compile(rf" loc\({_nested_pattern(4)}\)")


def without_places(program: str) -> str:
    """The text of a tile program without its locations: equal for two programs that compute the same way."""
    kept = (line for line in program.split("\n") if not line.startswith(("#loc", "// fences before lowering: ")))
    return _PLACES.sub("", "\n".join(kept))
