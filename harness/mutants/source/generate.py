"""Source mutants of a kernel, in an order that depends on its text alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst

from bitverdict.harness.model.paths import shown
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import GeneratedMutant, Kind
from bitverdict.harness.mutants.source.literals import Decided, decided
from bitverdict.harness.mutants.source.operators import OPERATORS
from bitverdict.harness.mutants.source.places import FILES_LEFT_OUT, File, Function, places, reached

NOTHING = Decided()
LONGEST = 160  # characters of a text that a person reads


def generate(kernel: Kernel) -> Iterator[GeneratedMutant]:
    """Every source mutant of `kernel`: by file, function, place in it, and operator."""
    paths = [Path(str(module.__file__)).resolve() for module in kernel.modules()]
    files = [
        File(path, shown(path), path.read_text()) for path in paths if not (kernel.file is None and path.stem in FILES_LEFT_OUT)
    ]
    functions = reached(files, kernel.root)
    settled = decided(files, functions)
    for function in functions:
        yield from of_function(kernel.address, function, settled.get(function, NOTHING))


def of_function(kernel: str, function: Function, settled: Decided = NOTHING) -> Iterator[GeneratedMutant]:
    """The mutants of one function; of two with one text the first, and none that changes nothing of what is `settled`."""
    numbers: Counter[str] = Counter()
    met: set[tuple[int, int, str]] = set()
    for place in places(function, settled.dead):
        for each in OPERATORS.values():
            for change in each.changes(place):
                start, end = function.file.span(change.node)
                of = function.file.text[start:end]
                by = _as_long(change.by, of)
                if (start, end, change.by) in met or change.by in (of, settled.same.get(change.node)):
                    continue
                met.add((start, end, change.by))
                around = _statement(function.file, change.node)
                before, after = _told(function.file, around, start, end, change.by)
                yield GeneratedMutant(
                    id=f"{kernel}/{function.name}/{each.name}/{numbers[each.name]}",
                    kernel=kernel,
                    kind=Kind.SOURCE,
                    operator=each.name,
                    family=each.family,
                    file=function.file.shown,
                    line=function.file.line(change.node),
                    before=before,
                    after=after,
                    edit={"start": start, "end": end, "of": of, "by": by, **_where(function, around)},
                )
                numbers[each.name] += 1


STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Decorator)


def _statement(file: File, node: cst.CSTNode) -> cst.CSTNode:
    """The statement around `node`; of a node of a decorator the decorator."""
    return next((each for each in (node, *file.ancestors(node)) if isinstance(each, STATEMENTS)), node)


def _where(function: Function, around: cst.CSTNode) -> dict[str, Any]:
    """What tells whether a case reaches an edit: first and last lines of its statement (of a compound one of its head) and of its
    function, and what kind of code it is."""
    positions, node = function.file.positions, function.node
    last = positions[around].end.line
    if isinstance(around, cst.BaseCompoundStatement):
        last = max(positions[around].start.line, positions[around.body].start.line - 1)
    return {
        "device": "constexpr" if isinstance(around, cst.Decorator) else function.device,
        "statement": [positions[around].start.line, last],
        "function": [positions[node].start.line, positions[node].end.line],
    }


def _as_long(by: str, of: str) -> str:
    """`by` with as many line breaks as `of`, where they fit, so that the lines after it keep their numbers."""
    missing = "\n" * (of.count("\n") - by.count("\n"))
    if by.endswith(")"):
        return f"{by[:-1]}{missing})"
    return by + missing if by == "pass" else by


def _told(file: File, around: cst.CSTNode, start: int, end: int, by: str) -> tuple[str, str]:
    """The statement `around` an edit before and after, each on one line; of a long one what lies around the edit."""
    first, last = file.span(around)
    if isinstance(around, cst.BaseCompoundStatement):
        last = file.span(around.body)[0]
    head, tail = file.text[first:start], file.text[end:last]
    if (room := LONGEST - max(end - start, len(by))) < len(head) + len(tail):
        side = max(room // 2, 20)
        head, tail = head if len(head) <= side else f"… {head[-side:]}", tail if len(tail) <= side else f"{tail[:side]} …"
    return _line(f"{head}{file.text[start:end]}{tail}"), _line(f"{head}{by}{tail}")


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
