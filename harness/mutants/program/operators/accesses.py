"""Accesses to memory: masks, what a masked load gives, what is stored at all, and atomic updates."""

from __future__ import annotations

from collections.abc import Iterator

from bitverdict.harness.mutants.program.edits import Offer, drop_operation, in_place, negate_operand, with_constant
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site, is_float

_MASK_AT = {  # operation -> names of its operands (`Operation.operands_by_name`)
    "tt.load": ("pointer", "mask?", "other?"),
    "tt.store": ("pointer", "value", "mask?"),
    "ttg.async_copy_global_to_local": ("pointer", "view", "mask?", "other?"),
    "tt.atomic_rmw": ("pointer", "value", "mask?"),
}


@changes(*_MASK_AT)
def change_mask(site: Site) -> Iterator[Offer]:
    """Without its mask; where it is not set; with something else where it is not set."""
    names = _MASK_AT[site.op.name]
    groups = site.op.operands_by_name(*names)
    if not groups["mask"]:
        return
    mask_place = names.index("mask?")
    lost = (mask_place, mask_place + 1) if groups.get("other") else (mask_place,)
    line = site.line.without_operands(*lost)
    if "operandSegmentSizes" in site.op.attributes:
        sizes = [len(group) if i < mask_place else 0 for i, group in enumerate(groups.values())]
        line = line.with_values(operandSegmentSizes=f"array<i32: {', '.join(map(str, sizes))}>")
    yield offer(site, "mask dropped", "mask", in_place(site, line))
    yield offer(site, "mask inverted", "mask", negate_operand(site, mask_place))
    if groups.get("other"):
        kind = site.op.operand_types[mask_place + 1]
        number = "1.000000e+00" if is_float(kind) else "true" if kind.endswith("i1") else "1"
        told = site.constant(groups["other"][0]) or ""
        if number.removesuffix("00000e+00") in told.partition(" : ")[0] and is_float(kind):
            number = "2.000000e+00"
        yield offer(site, "other value changed", "mask", with_constant(site, mask_place + 1, number))


@changes(
    "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_store", "ttg.local_store", "ttng.tmem_store", "ttng.tmem_copy",
    "ttng.async_tma_copy_local_to_global", "ttng.async_tma_scatter", "ttng.async_tma_reduce", "ttg.local_scatter",
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled",
)  # fmt: skip
def drop_write(site: Site) -> Iterator[Offer]:
    """Nothing is written."""
    if not site.users:
        yield offer(site, "write dropped", "write", drop_operation(site))


"""Numbers of tt.atomic_rmw: and, or, xor, add, fadd, max, min, umax, umin, exch from 1 on."""


@changes("tt.atomic_rmw")
def update(site: Site) -> Iterator[Offer]:
    """Another update of the same word."""
    number = site.op.integer("atomic_rmw_op")
    other = {1: 2, 2: 1, 3: 1, 4: 6, 5: 10, 6: 7, 7: 6, 8: 9, 9: 8, 10: 5}.get(number)
    if other is not None:
        line = site.line.with_values(atomic_rmw_op=f"{other} : i32")
        yield offer(site, "atomic exchanged", "atomic", in_place(site, line))
