"""Source mutants of a kernel, in an order that depends on its text alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import libcst as cst

from bitverdict.harness.model.paths import display_path
from bitverdict.harness.mutants.kernels import Kernel
from bitverdict.harness.mutants.record import GeneratedMutant, Kind
from bitverdict.harness.mutants.source.literals import LiteralDecisions, decide_literals
from bitverdict.harness.mutants.source.operators import OPERATORS
from bitverdict.harness.mutants.source.places import FILES_LEFT_OUT, File, Function, places, reachable_functions

NO_DECISIONS = LiteralDecisions()
LONGEST = 160  # characters of a text that a person reads


def generate(kernel: Kernel) -> Iterator[GeneratedMutant]:
    """Every source mutant of `kernel`: by file, function, place in it, and operator."""
    paths = [Path(str(module.__file__)).resolve() for module in kernel.modules()]
    files = [
        File(path, display_path(path), path.read_text())
        for path in paths
        if not (kernel.file is None and path.stem in FILES_LEFT_OUT)
    ]
    functions = reachable_functions(files, kernel.root)
    settled = decide_literals(files, functions)
    for function in functions:
        yield from of_function(kernel.address, function, settled.get(function, NO_DECISIONS))


def of_function(kernel: str, function: Function, decisions: LiteralDecisions = NO_DECISIONS) -> Iterator[GeneratedMutant]:
    """The mutants of one function; of two with one text the first, and none that changes nothing of what is `settled`."""
    numbers: Counter[str] = Counter()
    seen_edits: set[tuple[int, int, str]] = set()
    for place in places(function, decisions.dead):
        for mutation in OPERATORS.values():
            for change in mutation.changes(place):
                start, end = function.file.span(change.node)
                old_text = function.file.text[start:end]
                new_text = _pad_line_breaks(change.new_text, old_text)
                if (start, end, change.new_text) in seen_edits or change.new_text in (
                    old_text,
                    decisions.replacements.get(change.node),
                ):
                    continue
                seen_edits.add((start, end, change.new_text))
                around = _statement(function.file, change.node)
                before, after = _statement_texts(function.file, around, start, end, change.new_text)
                yield GeneratedMutant(
                    id=f"{kernel}/{function.name}/{mutation.name}/{numbers[mutation.name]}",
                    kernel=kernel,
                    kind=Kind.SOURCE,
                    operator=mutation.name,
                    family=mutation.family,
                    file=function.file.report_name,
                    line=function.file.line(change.node),
                    before=before,
                    after=after,
                    edit={"start": start, "end": end, "of": old_text, "by": new_text, **_where(function, around)},
                )
                numbers[mutation.name] += 1


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


def _pad_line_breaks(by: str, of: str) -> str:
    """`by` with as many line breaks as `of`, where they fit, so that the lines after it keep their numbers."""
    missing = "\n" * (of.count("\n") - by.count("\n"))
    if by.endswith(")"):
        return f"{by[:-1]}{missing})"
    return by + missing if by == "pass" else by


def _statement_texts(file: File, around: cst.CSTNode, start: int, end: int, new_text: str) -> tuple[str, str]:
    """The statement `around` an edit before and after, each on one line; of a long one what lies around the edit."""
    first, last = file.span(around)
    if isinstance(around, cst.BaseCompoundStatement):
        last = file.span(around.body)[0]
    head, tail = file.text[first:start], file.text[end:last]
    if (room := LONGEST - max(end - start, len(new_text))) < len(head) + len(tail):
        side = max(room // 2, 20)
        head, tail = head if len(head) <= side else f"… {head[-side:]}", tail if len(tail) <= side else f"{tail[:side]} …"
    return _line(f"{head}{file.text[start:end]}{tail}"), _line(f"{head}{new_text}{tail}")


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
