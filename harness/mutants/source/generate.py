"""Source mutants of a kernel, in an order that depends on its text alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import libcst as cst

from bitverdict.harness.model.paths import shown
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import GeneratedMutant, Kind
from bitverdict.harness.mutants.source.operators import OPERATORS
from bitverdict.harness.mutants.source.places import FILES_LEFT_OUT, File, Function, places, reached

LONGEST = 160  # characters of a text that a person reads


def generate(kernel: Kernel) -> Iterator[GeneratedMutant]:
    """Every source mutant of `kernel`: by file, function, place in it, and operator."""
    paths = [Path(str(module.__file__)).resolve() for module in kernel.modules()]
    files = [
        File(path, shown(path), path.read_text()) for path in paths if not (kernel.file is None and path.stem in FILES_LEFT_OUT)
    ]
    root = kernel.address.rpartition(":")[2] if kernel.file is not None else ""
    for function in reached(files, root):
        yield from of_function(kernel.address, function)


def of_function(kernel: str, function: Function) -> Iterator[GeneratedMutant]:
    """The mutants of one function; of two with one text the first."""
    numbers: Counter[str] = Counter()
    met: set[tuple[int, int, str]] = set()
    for place in places(function):
        for each in OPERATORS.values():
            for change in each.changes(place):
                start, end = function.file.span(change.node)
                of = function.file.text[start:end]
                if (start, end, change.by) in met or change.by == of:
                    continue
                met.add((start, end, change.by))
                before, after = _told(function.file, change.node, start, end, change.by)
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
                    edit={"start": start, "end": end, "of": of, "by": change.by},
                )
                numbers[each.name] += 1


STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement, cst.Decorator)


def _told(file: File, node: cst.CSTNode, start: int, end: int, by: str) -> tuple[str, str]:
    """The statement around `node` before and after, each on one line; of a long one what lies around the edit."""
    around = next((each for each in (node, *file.ancestors(node)) if isinstance(each, STATEMENTS)), node)
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
