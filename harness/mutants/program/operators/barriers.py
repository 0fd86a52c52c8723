"""mbarriers, fences and meetings of threads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bitverdict.harness.mutants.program.edits import MUTANT_VALUE, Offer, constant, drop_operation, in_place, make_line
from bitverdict.harness.mutants.program.operators.table import changes, offer
from bitverdict.harness.mutants.program.tile_program import Site

_DROP_NAMES = {
    "ttng.wait_barrier": ("wait dropped", "wait"),
    "ttng.arrive_barrier": ("arrival dropped", "phase"),
    "ttng.barrier_expect": ("byte count dropped", "byte count"),
    "ttng.tc_gen5_commit": ("commit dropped", "commit"),
    "ttng.init_barrier": ("barrier not initialised", "phase"),
    "ttng.fence_async_shared": ("fence dropped", "fence"),
    "ttng.fence": ("fence dropped", "fence"),
    "ttng.tensormap_fenceproxy_acquire": ("fence dropped", "fence"),
    "ttng.cluster_barrier": ("meeting of CTAs dropped", "fence"),
    "ttng.async_copy_mbarrier_arrive": ("arrival dropped", "phase"),
}


@changes(*_DROP_NAMES)
def drop_barrier_operation(site: Site) -> Iterator[Offer]:
    """The operation taken out."""
    name, family = _DROP_NAMES[site.op.name]
    if not site.users:
        yield offer(site, name, family, drop_operation(site))


@changes("ttng.wait_barrier")
def phase(site: Site) -> Iterator[Offer]:
    """The other parity."""
    kind, value = site.op.operand_types[1], site.op.operands[1]
    told = site.constant(value)
    one = constant(site, kind, "1" if told is None or told.startswith("0") else "0")
    if told is not None:
        yield offer(site, "phase flipped", "phase", in_place(site, one, site.line.with_operand(1, MUTANT_VALUE)))
        return
    other = make_line(site, f"{MUTANT_VALUE}_1", "arith.xori", (value, MUTANT_VALUE), kind)
    yield offer(site, "phase flipped", "phase", in_place(site, one, other, site.line.with_operand(1, other.results)))


@changes("ttng.barrier_expect")
def byte_count(site: Site) -> Iterator[Offer]:
    """Half of the bytes, and twice as many."""
    size = site.op.integer("size")
    for variant, other in (("half", size // 2), ("twice", 2 * size)):
        line = site.line.with_values(size=f"{other} : i32")
        yield offer(site, "byte count changed", "byte count", in_place(site, line), variant)


@changes("ttng.init_barrier")
def arrivals(site: Site) -> Iterator[Offer]:
    """A barrier that waits for one arrival more."""
    line = site.line.with_values(count=f"{site.op.integer('count') + 1} : i32")
    yield offer(site, "arrival count off by one", "phase", in_place(site, line))


@changes("ttng.arrive_barrier")
def arrives_twice(site: Site) -> Iterator[Offer]:
    """Two arrivals for one."""
    if "count" in site.op.attributes:
        line = site.line.with_values(count=f"{site.op.integer('count') + 1} : i32")
        yield offer(site, "arrival count off by one", "phase", in_place(site, line))


@changes("ttng.tc_gen5_commit", "ttng.arrive_barrier")
def signal_twice(site: Site) -> Iterator[Offer]:
    """Signalled once more."""
    yield offer(site, "signalled twice", "phase", in_place(site, site.line, replace(site.line)), after="(done twice)")
