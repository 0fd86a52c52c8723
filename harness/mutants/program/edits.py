"""A change of a tile program's text, made at one operation, and the text that it gives.

Of each line of a mutant it is known which one of the right program it was, so that what the compiler decided about it still holds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bitverdict.harness.emulator.frontend.edited_programs import EditedProgram
from bitverdict.harness.mutants.program.lines import Line
from bitverdict.harness.mutants.program.tile_program import Site, is_tensor

MUTANT_VALUE = "%mutant"  # names of values that an edit adds


@dataclass(frozen=True)
class Edit:
    """Lines by number that others take the place of; values that are called by another's name from `region` on."""

    lines: Mapping[int, tuple[str, ...]]
    renames: Mapping[str, str] = field(default_factory=dict)
    region: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Offer:
    """One mutant of one operation: what `operator` makes of it. `variant` tells it from others of the operator there."""

    operator: str
    family: str
    variant: str
    edit: Edit
    after: str
    """The operation as a person reads it."""
    floats: bool = False
    """It changes arithmetic of floats: which sums are fused must be asked anew."""


def apply_offer(offer: Offer, site: Site) -> EditedProgram:
    """The program of `site` with the edit of `offer`."""
    edit = offer.edit
    rename_pattern = re.compile("|".join(rf"{re.escape(name)}(?![\w.#$-])" for name in edit.renames)) if edit.renames else None
    first, last = edit.region
    lines: list[str] = []
    source_lines: list[int] = []
    for number, line in enumerate(site.program.lines):
        for each in edit.lines.get(number, (line,)):
            if rename_pattern is not None and first <= number <= last:
                each = rename_pattern.sub(lambda found: edit.renames[found[0]], each)
            lines.append(each)
            source_lines.append(number)
    return EditedProgram("\n".join(lines), tuple(source_lines), offer.floats)


# -- what operators are written with ------------------------------------------------------------------------------------
def in_place(site: Site, *lines: Line) -> Edit:
    """`lines` in the place of the operation."""
    return Edit({site.op.line: tuple(line.text for line in lines)})


def drop_operation(site: Site) -> Edit:
    """The operation taken out: nothing uses a result of it."""
    return Edit({site.op.line: ()})


def replaced_by(site: Site, values: Mapping[str, str]) -> Edit:
    """The operation taken out; for each of its results another value of its type."""
    return Edit({site.op.line: ()}, dict(values), site.region)


def constant(site: Site, kind: str, number: str, name: str = MUTANT_VALUE) -> Line:
    """An operation before `site` that makes the constant `number`, of the type `kind`: "1", "1.000000e+00", "true"."""
    if is_tensor(kind):
        value = f"dense<{number}> : {kind}"
    else:
        value = number if kind == "i1" else f"{number} : {kind}"
    return Line(
        site.line.indent, name, "arith.constant", (), "", {"value": value}, None, (), kind, site.line.end or " loc(unknown)"
    )


def make_line(site: Site, name: str, operation: str, operands: tuple[str, ...], kind: str, **properties: str) -> Line:
    """An operation before `site` whose operands and result are all of the type `kind`."""
    types = (kind,) * len(operands)
    return Line(site.line.indent, name, operation, operands, "", properties or None, None, types, kind, site.line.end)


_WRAPS = {"overflowFlags": "#arith.overflow<none>"}


def shift_operand(site: Site, place: int, by: int = 1) -> Edit:
    """The integer operand at `place` and `by` (or less it, where negative)."""
    kind, value = site.op.operand_types[place], site.op.operands[place]
    one = constant(site, kind, str(abs(by)))
    more = make_line(site, f"{MUTANT_VALUE}_1", "arith.addi" if by > 0 else "arith.subi", (value, MUTANT_VALUE), kind, **_WRAPS)
    return in_place(site, one, more, site.line.with_operand(place, more.results))


def with_constant(site: Site, place: int, number: str) -> Edit:
    """The constant `number` for the operand at `place`."""
    one = constant(site, site.op.operand_types[place], number)
    return in_place(site, one, site.line.with_operand(place, one.results))


def negate_operand(site: Site, place: int) -> Edit:
    """The opposite of the boolean operand at `place`."""
    kind = site.op.operand_types[place]
    true = constant(site, kind, "true")
    other = make_line(site, f"{MUTANT_VALUE}_1", "arith.xori", (site.op.operands[place], MUTANT_VALUE), kind)
    return in_place(site, true, other, site.line.with_operand(place, other.results))


def brief(line: Line) -> str:
    """`line` as a person reads it: no types, no location, no sizes of groups."""
    given = {**(line.properties or {}), **(line.attributes or {})}
    shown_properties = ", ".join(
        f"{name} = {value}" if value else name
        for name, value in given.items()
        if name not in ("operandSegmentSizes", "resultSegmentSizes", "overflowFlags", "fastmath")
        and not name.startswith("allocation")
    )
    head = f"{line.results} = " if line.results else ""
    operands = f" {', '.join(line.operands)}" if line.operands else ""
    return f"{head}{line.name}{operands}{f' {{{shown_properties}}}' if shown_properties else ''}"
