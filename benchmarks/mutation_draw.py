"""Which mutants of the project's own code are drawn: where they can change what it does, in proportion to the lines of a file.

Standard library only. A mutant is anything with Cosmic Ray's fields `operator_name`, `start_pos` and `end_pos`, positions being
(line from 1, column in characters from 0). A *place* is where several mutants of one family apply, such as the ten other operators
that a ``+`` can become.
"""

from __future__ import annotations

import ast
import random
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Span = tuple[tuple[int, int], tuple[int, int]]

FAMILIES = (
    ("number", r"core/NumberReplacer"),
    ("comparison", r"core/ReplaceComparisonOperator_"),
    ("operator", r"core/ReplaceBinaryOperator_"),
    ("condition", r"core/(AddNot|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceTrueWithFalse|ReplaceFalseWithTrue)"),
    ("sign", r"core/ReplaceUnaryOperator_"),
    ("flow", r""),  # break and continue, except clauses, loops that do not run, decorators
)
CACHES = {"cache", "lru_cache"}  # without one the same value is computed again
DEVICE = {"jit"}  # triton.jit and gluon.jit: no line of Python is executed there


def family(operator_name: str) -> str:
    """The name of the first of `FAMILIES` that the operator belongs to."""
    return next(name for name, pattern in FAMILIES if re.match(pattern, operator_name))


def left_out(source: str) -> list[Span]:
    """Where a mutant changes nothing that a test on the host could see, or only prose.

    Annotations; functions that Triton compiles; the decorators of caches; f-strings that a `raise` gives to a person.
    """
    lines = source.splitlines()

    def column(line: int, offset: int) -> int:
        return len(lines[line - 1].encode()[:offset].decode(errors="ignore"))

    def span(node: Any) -> Span:
        start, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
        return ((start[0], column(*start)), (end[0], column(*end)))

    found: list[Span] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.arg, ast.AnnAssign)) and node.annotation is not None:
            found.append(span(node.annotation))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            if node.returns is not None:
                found.append(span(node.returns))
            for decorator in node.decorator_list:
                start, end = span(decorator)
                if _name(decorator) in DEVICE:
                    found.append(((start[0], 0), span(node)[1]))
                elif _name(decorator) in CACHES:
                    found.append(((start[0], 0), (end[0] + 1, 0)))
        elif isinstance(node, ast.Raise):
            found += [span(part) for part in ast.walk(node) if isinstance(part, ast.JoinedStr)]
    return found


def _name(decorator: ast.expr) -> str:
    """``triton.jit`` and ``jit(repr=...)`` are both "jit"."""
    named = decorator.func if isinstance(decorator, ast.Call) else decorator
    return named.attr if isinstance(named, ast.Attribute) else getattr(named, "id", "")


def inside(mutant: Any, spans: Iterable[Span]) -> bool:
    """Whether the mutant begins in one of the spans."""
    return any(start <= tuple(mutant.start_pos) < end for start, end in spans)


def shares(lines: Mapping[str, int], count: int) -> dict[str, int]:
    """How many of about `count` mutants each file gets: by its lines, at least one."""
    total = sum(lines.values())
    return {path: max(1, round(count * own / total)) for path, own in lines.items()}


def drawn(mutants: Sequence[Any], count: int, seed: str) -> list[Any]:
    """At most `count` of one file's mutants, each at a place of its own.

    Families take turns, in an order drawn anew each time: most places of a file are numbers, most faults are not.
    """
    chance = random.Random(seed)  # a string: Python's hash of it does not vary between processes
    places: dict[str, dict[Span, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for mutant in mutants:
        places[family(mutant.operator_name)][tuple(mutant.start_pos), tuple(mutant.end_pos)].append(mutant)
    left = {name: chance.sample(sorted(found), len(found)) for name, found in sorted(places.items())}
    chosen: list[Any] = []
    taken: set[Span] = set()
    while len(chosen) < count and any(left.values()):
        for name in chance.sample(sorted(left), len(left)):
            while left[name] and len(chosen) < count:
                place = left[name].pop()
                if place not in taken:
                    taken.add(place)
                    chosen.append(chance.choice(places[name][place]))
                    break
    return chosen
