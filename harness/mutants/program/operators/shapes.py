"""Shapes, order of axes, and what is put together or taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.mutants.program.edits import Edit, Offer, in_place
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site


def _shapes(site: Site) -> tuple[tuple[int, ...], tuple[int, ...]]:
    kinds: tuple[Type | None, ...] = site.op.inputs[0], site.op.outputs[0]
    return tuple(kinds[0].shape if kinds[0] else ()), tuple(kinds[1].shape if kinds[1] else ())


@changes("tt.trans", "ttg.memdesc_trans")
def order(site: Site) -> Iterator[Offer]:
    """Another order of axes that gives the same shape."""
    now = site.op.integers("order")
    source, target = _shapes(site)
    for other in permutations(range(len(now))):
        if list(other) != now and tuple(source[axis] for axis in other) == target:
            line = site.line.with_values(order=f"array<i32: {', '.join(map(str, other))}>")
            yield offer(site, "order of axes", "layout", in_place(site, line), " ".join(map(str, other)))
            return


@changes("tt.join", "tt.cat", "tt.gather")
def swap_join_operands(site: Site) -> Iterator[Offer]:
    """Operands in the other order."""
    first, second = site.op.operands[:2]
    if site.op.operand_types[0] == site.op.operand_types[1] and first != second:
        yield offer(site, "operands exchanged", "layout", in_place(site, site.line.with_operands((second, first))))


@changes("tt.split")
def swap_split_results(site: Site) -> Iterator[Offer]:
    """Results in the other order."""
    first, second = site.op.results
    _, last = site.region
    edit = Edit({}, {first: second, second: first}, (site.op.line + 1, last))
    yield offer(site, "results exchanged", "layout", edit, after=f"{second}, {first}")


@changes("tt.scan")
def direction(site: Site) -> Iterator[Offer]:
    """From the other end."""
    if "reverse" in site.op.attributes:
        other = "false" if site.op.flag("reverse") else "true"
        edit = in_place(site, site.line.with_values(reverse=other))
        yield offer(site, "direction of a scan", "reduction", edit)
