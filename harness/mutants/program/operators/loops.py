"""Loops: how often they turn, and what they carry."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.mutants.program.edits import Offer, in_place, negate_operand, shift_operand, with_constant
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site, is_float, is_integer, is_tensor

_HandedValue = tuple[int, str, str, str]  # place among the operands, value, argument, type


def _handed_values(op: Operation, site: Site) -> Iterator[tuple[str, list[_HandedValue]]]:
    """For each successor of the branch `op` its label and what it is given."""
    arguments = {block.label: block.arguments for block in site.blocks}
    at = 0 if op.name == "cf.br" else 1
    for label, given in zip(op.successors, op.branch_operands(), strict=True):
        listed = [(at + i, value, *arguments[label][i]) for i, value in enumerate(given)]
        at += len(given)
        yield label, listed


def _end_argument(site: Site, label: str) -> str:
    """The argument of the loop at `label` that its end is decided by; empty where none is."""
    header = next(block for block in site.blocks if block.label == label)
    end = header.operations[-1]
    names = {name for name, _ in header.arguments}
    for op in header.operations:
        if end.name == "cf.cond_br" and end.operands[0] in op.results and op.name == "arith.cmpi":
            return next((value for value in op.operands if value in names), "")
    return ""


def _initial(site: Site, label: str, argument: str) -> str | None:
    """What the loop at `label` begins with for `argument`."""
    _, backward = site.program.loops[label]
    for block in site.blocks:
        op = block.operations[-1]
        if op in backward or label not in op.successors:
            continue
        for to, listed in _handed_values(op, site):
            if to == label:
                return next((value for _, value, name, _ in listed if name == argument), None)
    return None


@changes("cf.br", "cf.cond_br")
def change_carried_value(site: Site) -> Iterator[Offer]:
    """What a turn hands to the next one, and the first one to begin with."""
    for label, handed_values in _handed_values(site.op, site):
        if label not in site.program.loops:
            continue
        backward = site.op in site.program.loops[label][1]
        counted = _end_argument(site, label)
        names = _names([argument for _, _, argument, _ in handed_values])
        for variant, (place, value, argument, kind) in zip(names, handed_values, strict=True):
            if argument == counted:
                name = "step off by one" if backward else "first turn left out"
                yield offer(site, name, "trip count", shift_operand(site, place), variant, f"{argument} = {value} + 1")
            elif backward:
                yield from _not_carried(site, label, place, value, argument, kind, variant)
            elif is_float(kind) and is_tensor(kind):
                edit = with_constant(site, place, "1.000000e+00")
                yield offer(site, "accumulator begins with one", "accumulator", edit, variant, f"{argument} = 1", floats=True)


def _names(arguments: list[str]) -> list[str]:
    """What the source calls values, with a number where it calls several so: the same in other programs of the kernel."""
    seen: Counter[str] = Counter()
    found = []
    for argument in arguments:
        seen[name := re.sub(r"_\d+$", "", argument)] += 1
        found.append(f"{name} {seen[name]}")
    return found


def _not_carried(site: Site, label: str, place: int, value: str, argument: str, kind: str, variant: str) -> Iterator[Offer]:
    floats = is_float(kind)
    subject, family = ("accumulator", "accumulator") if floats else ("carried value", "index")
    if value != argument:
        edit = in_place(site, site.line.with_operand(place, argument))
        yield offer(site, f"{subject} not updated", family, edit, variant, f"{argument} = {argument}")
    first = _initial(site, label, argument)
    if first not in (None, value) and floats:
        edit = in_place(site, site.line.with_operand(place, str(first)))
        yield offer(site, f"{subject} begun anew", family, edit, variant, f"{argument} = {first}")
    if is_integer(kind) and not is_tensor(kind) and value != argument:
        yield offer(site, f"{subject} off by one", family, shift_operand(site, place), variant, f"{argument} = {value} + 1")


@changes("cf.cond_br")
def invert_branch(site: Site) -> Iterator[Offer]:
    """The other way, where no comparison can say so."""
    maker = site.definer(site.op.operands[0])
    if maker is None or maker.name != "arith.cmpi" or len(site.program.users[site.op.operands[0]]) > 1:
        yield offer(site, "branch inverted", "predicate", negate_operand(site, 0))
