"""Asynchronous operations: TMA and cp.async copies, tensor cores, their coordinates, predicates, groups and waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from bitverdict.harness.mutants.program.copy_groups import NO_WAIT
from bitverdict.harness.mutants.program.edits import (
    Offer,
    drop_operation,
    in_place,
    negate_operand,
    replaced_by,
    shift_operand,
    with_constant,
)
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site

_MMA = ("a", "b", "d", "token?", "use", "enabled", "barriers*", "conditions*")
_SCALED_MMA = ("a", "b", "d", "token?", "a_scale", "b_scale", "use", "enabled", "barriers*", "conditions*")
_NAMES = {
    "ttng.async_tma_copy_global_to_local": ("descriptor", "starts*", "offsets*", "barrier", "target", "enabled"),
    "ttng.async_tma_gather": ("descriptor", "rows", "column", "barrier", "target", "enabled"),
    "ttng.async_tma_copy_local_to_global": ("descriptor", "starts*", "source"),
    "ttng.async_tma_scatter": ("descriptor", "rows", "column", "source"),
    "ttng.tc_gen5_mma": _MMA,
    "ttng.tc_gen5_mma_scaled": _SCALED_MMA,
    "ttng.barrier_expect": ("barrier", "enabled"),
    "ttng.arrive_barrier": ("barrier", "enabled?"),
    "ttng.wait_barrier": ("barrier", "phase", "enabled?", "dependencies*"),
    "ttng.tc_gen5_commit": ("barrier", "enabled?", "descriptors*"),
    "ttng.tmem_store": ("view", "token?", "value", "enabled"),
}


def places(site: Site) -> dict[str, list[int]]:
    """Where the operands of each group stand."""
    found, at = {}, 0
    for name, group in site.op.operands_by_name(*_NAMES[site.op.name]).items():
        found[name] = list(range(at, at + len(group)))
        at += len(group)
    return found


@changes(*_NAMES)
def predicate(site: Site) -> Iterator[Offer]:
    """Done where it should not be; done where it should not be, and nowhere else."""
    at = places(site)
    for group in ("enabled", "conditions", "use"):
        for place in at.get(group, ()):
            known_value = site.constant(site.op.operands[place])
            name, family = ("accumulate flag", "accumulator") if group == "use" else ("predicate", "predicate")
            variant = f"{group} {place - at[group][0]}"
            if known_value is None:
                yield offer(site, f"{name} dropped", family, with_constant(site, place, "true"), variant)
                yield offer(site, f"{name} inverted", family, negate_operand(site, place), variant)
            else:
                other = "false" if known_value == "true" else "true"
                yield offer(site, f"{name} inverted", family, with_constant(site, place, other), variant)


@changes(
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather", "ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter"
)
def coordinates(site: Site) -> Iterator[Offer]:
    """One element further; in the other order."""
    at = places(site)
    starts = at.get("starts", []) + at.get("column", [])
    for number, place in enumerate(starts):
        yield offer(site, "coordinate off by one", "descriptor", shift_operand(site, place), f"coordinate {number}")
    for rows in at.get("rows", ()):
        yield offer(site, "row off by one", "descriptor", shift_operand(site, rows))
    for number, (one, other) in enumerate(pairwise(starts)):
        operands = list(site.op.operands)
        if operands[one] == operands[other]:
            continue
        operands[one], operands[other] = operands[other], operands[one]
        edit = in_place(site, site.line.with_operands(tuple(operands)))
        yield offer(site, "coordinates exchanged", "descriptor", edit, f"coordinates {number} and {number + 1}")


@changes("ttng.tc_gen5_mma_scaled")
def scales(site: Site) -> Iterator[Offer]:
    """The scales of the other operand; elements of another format."""
    at = places(site)
    first_scale, second_scale = at["a_scale"][0], at["b_scale"][0]
    operands, types = list(site.op.operands), list(site.op.operand_types)
    for name, first, second in (("scales exchanged", first_scale, second_scale), ("operands exchanged", at["a"][0], at["b"][0])):
        if types[first] == types[second] and operands[first] != operands[second]:
            turned = list(operands)
            turned[first], turned[second] = turned[second], turned[first]
            edit = in_place(site, site.line.with_operands(tuple(turned)))
            yield offer(site, name, "scale" if first == first_scale else "layout", edit)
    if types[first_scale] == types[second_scale]:
        for place, by in ((first_scale, second_scale), (second_scale, first_scale)):
            edit = in_place(site, site.line.with_operand(place, operands[by]))
            yield offer(site, "scale of the other operand", "scale", edit, f"operand {place}")
    for which in ("a_type", "b_type"):
        number = site.op.integer(which)
        if number in (0, 1):  # e4m3, e5m2
            line = site.line.with_values(**{which: f"{1 - number} : i32"})
            yield offer(site, "format exchanged", "cast", in_place(site, line), which)


@changes("ttng.tc_gen5_mma")
def operands(site: Site) -> Iterator[Offer]:
    """A for B, where the types let it."""
    first, second = site.op.operands[:2]
    if site.op.operand_types[0] == site.op.operand_types[1] and first != second:
        line = site.line.with_operands((second, first, *site.op.operands[2:]))
        yield offer(site, "operands exchanged", "layout", in_place(site, line))


@changes("ttg.memdesc_index")
def stage(site: Site) -> Iterator[Offer]:
    """Another buffer of a ring."""
    told = site.constant(site.op.operands[1])
    if told is None:
        yield offer(site, "stage off by one", "index", shift_operand(site, 1))
        yield offer(site, "stage fixed", "index", with_constant(site, 1, "0"))
    else:
        number = int(told.split(" ")[0])
        other = number - 1 if number else 1
        if other < int(site.op.operand_types[0].partition("<")[2].partition("x")[0]):
            yield offer(site, "stage off by one", "index", with_constant(site, 1, str(other)))


# -- groups and waits ---------------------------------------------------------------------------------------------------
_WAIT_COUNTS = {"ttg.async_wait": "num", "ttng.async_tma_store_wait": "pendings", "ttng.warp_group_dot_wait": "pendings"}


@changes(*_WAIT_COUNTS)
def change_wait(site: Site) -> Iterator[Offer]:
    """A wait that lets one more group be in flight, or all of them."""
    attribute = _WAIT_COUNTS[site.op.name]
    number = site.op.integer(attribute)
    line = site.line.with_values(**{attribute: f"{number + 1} : i32"})
    yield offer(site, "wait count off by one", "wait", in_place(site, line))
    if site.op.name == "ttng.warp_group_dot_wait":
        edit = replaced_by(site, dict(zip(site.op.results, site.op.operands, strict=True)))
        yield offer(site, "wait dropped", "wait", edit)
    elif site.users:
        yield offer(site, "wait dropped", "wait", in_place(site, site.line.with_values(**{attribute: f"{NO_WAIT} : i32"})))
    else:
        yield offer(site, "wait dropped", "wait", drop_operation(site))


@changes("ttg.async_commit_group")
def commit(site: Site) -> Iterator[Offer]:
    """Copies that are of the next group; where the token is used, one of a wait for nothing."""
    if not site.users:
        yield offer(site, "commit dropped", "commit", drop_operation(site))
        return
    line = replace(site.line, name="ttg.async_wait", operands=(), types=(), properties={"num": f"{NO_WAIT} : i32"})
    yield offer(site, "commit dropped", "commit", in_place(site, line), after="(taken out)")


@changes("ttg.async_copy_global_to_local")
def copy(site: Site) -> Iterator[Offer]:
    """Nothing is copied."""
    if not site.users:
        yield offer(site, "write dropped", "write", drop_operation(site))
        return
    line = replace(site.line, name="ttg.async_wait", operands=(), types=(), properties={"num": f"{NO_WAIT} : i32"})
    yield offer(site, "write dropped", "write", in_place(site, line), after="(taken out)")
