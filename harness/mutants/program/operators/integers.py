"""Integers: indices, offsets, strides, bounds, masks, and the constants that they are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bitverdict.harness.mutants.program.edits import Offer, in_place, replaced_by, shift_operand, with_constant
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site, is_boolean, is_integer, is_tensor

_EXCHANGES = {
    "arith.addi": "arith.subi", "arith.subi": "arith.addi", "arith.muli": "arith.addi", "arith.divsi": "arith.remsi",
    "arith.divui": "arith.remui", "arith.remsi": "arith.divsi", "arith.remui": "arith.divui", "arith.minsi": "arith.maxsi",
    "arith.maxsi": "arith.minsi", "arith.minui": "arith.maxui", "arith.maxui": "arith.minui", "arith.andi": "arith.ori",
    "arith.ori": "arith.andi", "arith.xori": "arith.andi", "arith.shli": "arith.shrui", "arith.shrui": "arith.shli",
    "arith.shrsi": "arith.shli", "arith.extsi": "arith.extui", "arith.extui": "arith.extsi",
}  # fmt: skip
_WRAPPING_OPERATIONS = ("arith.addi", "arith.subi", "arith.muli", "arith.shli")
_DROP_NAMES = {  # operands of which the operation may be left with one alone
    "arith.addi": "term dropped", "arith.subi": "term dropped", "arith.muli": "factor dropped", "arith.remsi": "remainder dropped",
    "arith.remui": "remainder dropped", "arith.divsi": "division dropped", "arith.minsi": "limit dropped",
    "arith.maxsi": "limit dropped", "arith.andi": "term dropped", "arith.ori": "term dropped", "arith.xori": "term dropped",
}  # fmt: skip
_EITHER_OPERAND = ("arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.minsi", "arith.maxsi")
_NONCOMMUTATIVE_OPERATIONS = ("arith.subi", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui")


def family(site: Site, place: int = 0) -> str:
    """What the integers of `site` are for, as far as the names of values and its users tell."""
    if site.around in ("tt.reduce", "tt.scan"):
        return "reduction"
    if any(is_boolean(kind) for kind in site.op.result_types):
        return _kind_of_condition(site)
    names = " ".join((*site.op.operands, *site.op.results))
    return "stride" if "stride" in names else "index"


def _kind_of_condition(site: Site) -> str:
    if any(is_tensor(kind) for kind in site.op.result_types):
        return "mask"
    branches = [op for op in site.users if op.name == "cf.cond_br"]
    return "trip count" if branches and site.block.label in site.program.loops else "predicate"


@changes(*_EXCHANGES)
def exchange_operation(site: Site) -> Iterator[Offer]:
    """Another operation on the same operands."""
    replacement = _EXCHANGES[site.op.name]
    line = site.line.with_name(replacement)
    if site.op.name in _WRAPPING_OPERATIONS and replacement not in _WRAPPING_OPERATIONS:
        line = line.__class__(**vars(line) | {"properties": None})
    elif replacement in _WRAPPING_OPERATIONS and site.op.name not in _WRAPPING_OPERATIONS:
        line = line.__class__(**vars(line) | {"properties": {"overflowFlags": "#arith.overflow<none>"}})
    name = "extension exchanged" if replacement.startswith("arith.ext") else "operation exchanged"
    yield offer(site, name, "cast" if replacement.startswith("arith.ext") else family(site), in_place(site, line))


@changes(*_DROP_NAMES)
def keep_one_operand(site: Site) -> Iterator[Offer]:
    """One operand in the place of the result."""
    masks = site.op.name in ("arith.andi", "arith.ori") and is_boolean(site.op.result_types[0])
    name = "mask dropped" if masks and family(site) == "mask" else _DROP_NAMES[site.op.name]
    for place in (0, 1) if site.op.name in _EITHER_OPERAND else (0,):
        value = site.op.operands[place]
        if site.op.operands[0] == site.op.operands[1] and place:
            continue
        edit = replaced_by(site, {site.op.results[0]: value})
        yield offer(site, name, family(site), edit, f"operand {place}", f"{value} alone")


@changes(*_NONCOMMUTATIVE_OPERATIONS)
def swap_operands(site: Site) -> Iterator[Offer]:
    """Operands in the other order."""
    first, second = site.op.operands
    if first != second:
        line = site.line.with_operands((second, first))
        yield offer(site, "operands exchanged", family(site), in_place(site, line))


# eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge
_STRICTNESS_SWAPS = {2: 3, 3: 2, 4: 5, 5: 4, 6: 7, 7: 6, 8: 9, 9: 8}
_INVERSE_PREDICATES = {0: 1, 1: 0, 2: 5, 3: 4, 4: 3, 5: 2, 6: 9, 7: 8, 8: 7, 9: 6}


@changes("arith.cmpi")
def comparison(site: Site) -> Iterator[Offer]:
    """One more or one less, or the opposite."""
    predicate, kind = site.op.integer("predicate"), _kind_of_condition(site)
    if predicate in _STRICTNESS_SWAPS:
        line = site.line.with_values(predicate=f"{_STRICTNESS_SWAPS[predicate]} : i64")
        yield offer(site, f"{kind} off by one", kind, in_place(site, line), "by the comparison")
        yield offer(
            site, f"{kind} off by one", kind, shift_operand(site, 1, -1 if predicate in (2, 3, 6, 7) else 1), "by the bound"
        )
    if kind != "trip count":  # a loop that goes on where it should end: its comparison off by one says enough
        line = site.line.with_values(predicate=f"{_INVERSE_PREDICATES[predicate]} : i64")
        yield offer(site, f"{kind} inverted", kind, in_place(site, line))


_TAKE_ARGUMENTS = (
    "tt.splat", "arith.muli", "arith.addi", "arith.subi", "arith.cmpi", "arith.divsi", "arith.remsi", "arith.extsi", "arith.minsi",
    "tt.addptr", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global", "ttng.async_tma_gather",
    "ttng.async_tma_scatter", "ttng.tensormap_create", "tt.load", "tt.store", "tt.atomic_rmw",
)  # fmt: skip


@changes(*_TAKE_ARGUMENTS)
def argument(site: Site) -> Iterator[Offer]:
    """Another argument of the kernel, of the same type: the next one."""
    order = [name for name, _ in site.function.blocks[0].arguments]
    for place, value in enumerate(site.op.operands):
        others = site.exchangeable_arguments(value)
        alike = [name for name in others if "stride" in name] if "stride" in value else others
        if not alike:
            continue
        other = next((name for name in alike if order.index(name) > order.index(value)), alike[0])
        edit = in_place(site, site.line.with_operand(place, other))
        if "stride" in value:
            yield offer(site, "stride exchanged", "stride", edit, f"operand {place}")
        else:
            yield offer(site, "argument exchanged", "argument", edit, f"operand {place}")


_CONSTANT = re.compile(r"(?:dense<(?P<dense>[^\[\"<>]+)> : tensor.*|(?P<plain>true|false|-?\d+ : i\d+))$")


@changes("arith.constant")
def constant_changed(site: Site) -> Iterator[Offer]:
    """One more; the opposite of a boolean."""
    value = site.op.attributes["value"]
    found = _CONSTANT.match(value)
    number = found and (found["dense"] or found["plain"]).partition(" ")[0]
    if not site.users or not number or not is_integer(site.op.result_types[0]):
        return
    changed = {"true": "false", "false": "true"}.get(number)
    if changed is None:
        if not re.fullmatch(r"-?\d+", number):
            return
        changed = str(int(number) + 1)
    line = site.line.with_values(value=value.replace(number, changed, 1))
    yield offer(site, "constant changed", "constant", in_place(site, line))


@changes(*_EXCHANGES)
def constant_here(site: Site) -> Iterator[Offer]:
    """One more for a constant that others use, too."""
    for place, value in enumerate(site.op.operands):
        told, kind = site.constant(value), site.op.operand_types[place]
        if told is None or is_boolean(kind) or sum(value in op.operands for op in site.program.users.get(value, ())) < 2:
            continue
        if found := re.match(r"(?:dense<)?(-?\d+)(?:>| :)", told):
            edit = with_constant(site, place, str(int(found[1]) + 1))
            yield offer(site, "constant changed here", "constant", edit, f"operand {place}")


@changes("tt.addptr")
def offset(site: Site) -> Iterator[Offer]:
    """The element after the one that is meant, or no offset at all."""
    yield offer(site, "offset off by one", "index", shift_operand(site, 1))
    edit = replaced_by(site, {site.op.results[0]: site.op.operands[0]})
    yield offer(site, "offset dropped", "index", edit, "", f"{site.op.operands[0]} alone")


@changes("tt.make_range")
def range_moved(site: Site) -> Iterator[Offer]:
    """A range that begins at one."""
    start, end = site.op.integer("start"), site.op.integer("end")
    line = site.line.with_values(start=f"{start + 1} : i32", end=f"{end + 1} : i32")
    yield offer(site, "index off by one", "index", in_place(site, line))


@changes("tt.get_program_id", "tt.get_num_programs")
def program_axis(site: Site) -> Iterator[Offer]:
    """Another axis of the grid."""
    axis = site.op.integer("axis")
    for other in (each for each in (0, 1, 2) if each != axis):
        yield offer(
            site, "axis exchanged", "program id", in_place(site, site.line.with_values(axis=f"{other} : i32")), f"axis {other}"
        )


@changes("arith.select")
def choice(site: Site) -> Iterator[Offer]:
    """The other value, or always one of them."""
    condition, yes, no = site.op.operands
    line = site.line.with_operands((condition, no, yes))
    yield offer(site, "choice inverted", "predicate", in_place(site, line))
    for name, value in (("true", yes), ("false", no)):
        edit = replaced_by(site, {site.op.results[0]: value})
        yield offer(site, "choice dropped", "predicate", edit, f"always {name}", f"{value} alone")
