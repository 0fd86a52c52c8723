"""The operators by the operations that they change."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bitverdict.harness.mutants.program.edits import Edit, Offer, brief
from bitverdict.harness.mutants.program.lines import Line, line_of
from bitverdict.harness.mutants.program.tile_program import Site

Operator = Callable[[Site], Iterator[Offer]]
_OPERATORS: dict[str, list[Operator]] = {}


def changes(*operations: str) -> Callable[[Operator], Operator]:
    """Register an operator of `operations`."""

    def register(function: Operator) -> Operator:
        for name in operations:
            _OPERATORS.setdefault(name, []).append(function)
        return function

    return register


def offer(site: Site, operator: str, family: str, edit: Edit, variant: str = "", after: str = "", *, floats: bool = False) -> Offer:
    """What `operator` offers at `site`. `after` is what a person reads; without it the last line of the edit."""
    if not after:
        lines = edit.lines.get(site.op.line, ())
        after = brief(_readable_line(line_of(lines[-1]), lines[:-1])) if lines else "(taken out)"
    return Offer(operator, family, variant, edit, after, floats)


def _readable_line(line: Line, before: tuple[str, ...]) -> Line:
    """`line` with what the lines before it make written in the place of their values."""
    texts: dict[str, str] = {}
    for text in before:
        definition = line_of(text)
        operand_texts = [texts.get(value, value) for value in definition.operands]
        if definition.name == "arith.constant":
            value = (definition.properties or {})["value"]
            texts[definition.results] = value.partition(" : ")[0].removeprefix("dense<").removesuffix(">")
        elif definition.name in _SIGNS:
            texts[definition.results] = f"({operand_texts[0]} {_SIGNS[definition.name]} {operand_texts[1]})"
        else:
            texts[definition.results] = f"{definition.name}({', '.join(operand_texts)})"
    return line.with_operands(tuple(texts.get(value, value) for value in line.operands))


_SIGNS = {"arith.addi": "+", "arith.subi": "-", "arith.xori": "^"}


def offers(site: Site) -> Iterator[Offer]:
    """All mutants of the operation at `site`, in an order that depends on nothing else."""
    from bitverdict.harness.mutants.program.operators import (  # noqa: F401  (they fill the table)
        accesses,
        asynchronous,
        barriers,
        floats,
        integers,
        loops,
        shapes,
    )  # fmt: skip

    for operator in _OPERATORS.get(site.op.name, ()):
        yield from operator(site)
