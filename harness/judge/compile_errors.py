"""What Triton's compiler refuses, told by its innermost message and the line of the kernel that it means.

The front end raises one `CompilationError` a function it was in, each the cause of the one before, and only the innermost says what
is wrong. The passes behind it raise one sentence for everything and print what is wrong, with its line, on standard error.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bitverdict.harness.model.paths import source_line
from bitverdict.harness.model.verdict import Outcome, Verdict

GENERIC = re.compile(r"PassManager::run failed|error encountered during parsing")
_DIAGNOSTIC = re.compile(r"(.+?\.py):(\d+):\d+: (error|warning|note|remark): (.*)")


@dataclass(frozen=True)
class CompileRefusal:
    """`message`: one line. `line`: (file, line), None where it is not known. `calls`: those that led there, outermost first."""

    message: str
    line: tuple[str, int] | None
    calls: tuple[tuple[str, int], ...]


def refused_by_front_end(error: BaseException) -> CompileRefusal:
    """What the chain of CompilationErrors that begins with `error` says, innermost first."""
    chain = [error]
    while (cause := chain[-1].__cause__) is not None and _is_compilation_error(cause):
        chain.append(cause)
    functions = {function.src: function for function in _functions(error)}
    lines = [_line_of(link, functions) for link in chain]
    return CompileRefusal(_message(chain[-1]), lines[-1], tuple(line for line in lines[:-1] if line is not None))


def says_nothing(verdict: Verdict) -> bool:
    """Whether it is a refusal whose exception names neither what is wrong nor where."""
    return verdict.outcome is Outcome.REFUSED and verdict.failed and bool(GENERIC.search(verdict.message))


def named_by_compiler(verdict: Verdict, printed_lines: Sequence[str]) -> Verdict:
    """The verdict of a refusal that `says_nothing`, with the first error that the compiler printed: its sentence and its line."""
    for place, text in enumerate(printed_lines):
        diagnostic = _DIAGNOSTIC.match(text)
        if diagnostic is None or diagnostic[3] != "error":
            continue
        sentence = [diagnostic[4]]
        for more in printed_lines[place + 1 :]:
            if not more.strip() or more[0].isspace() or _DIAGNOSTIC.match(more):  # the source line, its caret, the next finding
                break
            sentence.append(more)
        return replace(verdict, message=" ".join(sentence)[:400], location=source_line(diagnostic[1], diagnostic[2]))
    return verdict


def _is_compilation_error(error: BaseException) -> bool:
    return any(kind.__name__ == "CompilationError" for kind in type(error).__mro__)


def _message(innermost: BaseException) -> str:
    cause = innermost.__cause__
    said = getattr(innermost, "error_message", None) or cause or ""
    asserted = traceback.extract_tb(cause.__traceback__)[-1:] if cause else []
    lines = str(said).strip().splitlines() or [each.line or "" for each in asserted]
    return next(filter(None, lines + str(innermost).strip().splitlines()), type(innermost).__name__)


def _line_of(link: object, functions: Mapping[str, object]) -> tuple[str, int] | None:
    function: Any = functions.get(getattr(link, "src", None) or "")
    node: Any = getattr(link, "node", None)
    if function is None or not hasattr(node, "lineno"):
        return None
    decorators = next(place for place, text in enumerate(function.raw_src) if text.lstrip().startswith("def "))
    return function.fn.__code__.co_filename, function.starting_line_number + decorators + node.lineno - 1


def _functions(error: BaseException) -> Iterator[Any]:
    """The kernel that was compiled, and every jitted function that its globals reach: Triton strips the traceback of the others."""
    kernels: list[Any] = [getattr(frame.f_locals.get("self"), "fn", None) for frame, _ in traceback.walk_tb(error.__traceback__)]
    todo, seen = [kernel for kernel in kernels if _is_jitted(kernel)], set[int]()
    while todo:
        function = todo.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        yield function
        names = function.fn.__globals__
        found = [names[name] for name in function.fn.__code__.co_names if name in names]
        modules = [value for value in found if type(value).__name__ == "module"]
        found += [getattr(module, name, None) for module in modules for name in function.fn.__code__.co_names]
        todo += [value for value in found if _is_jitted(value)]


def _is_jitted(value: object) -> bool:
    return hasattr(value, "starting_line_number")
