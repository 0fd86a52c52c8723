"""mbarriers, the commits that signal them, and partitions (PTX ISA 9.7.13.15, 9.7.16.7)."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("ttng.init_barrier")
def init_barrier(t: Translator, op: Operation) -> None:
    t.emit(f"m.init_barrier({t.constant(op)}, {t.value(op.operands[0])}, {op.integer('count')})")


@lowers("ttng.inval_barrier")
def invalidate(t: Translator, op: Operation) -> None:
    t.emit(f"m.barriers.invalidate({t.constant(op)}, {t.value(op.operands[0])})")


@lowers("ttng.wait_barrier")
def wait_barrier(t: Translator, op: Operation) -> None:
    barrier, phase, condition = op.segments()[:3]
    guard = f"if {t.value(condition[0])}: " if condition else ""
    t.emit(f"{guard}yield from m.wait({t.constant(op)}, {t.value(barrier[0])}, {t.value(phase[0])})")


@lowers("ttng.barrier_expect")
def expect(t: Translator, op: Operation) -> None:
    t.emit(f"if {t.value(op.operands[1])}: m.expect({t.constant(op)}, {t.value(op.operands[0])}, {op.integer('size')})")


@lowers("ttng.arrive_barrier")
def arrive(t: Translator, op: Operation) -> None:
    guard = f"if {t.value(op.operands[1])}: " if len(op.operands) > 1 else ""
    t.emit(f"{guard}m.arrive({t.constant(op)}, {t.value(op.operands[0])}, {op.integer('count', 1)})")


@lowers("ttng.tc_gen5_commit")
def commit(t: Translator, op: Operation) -> None:
    barrier, when, descriptors = op.segments()
    if descriptors:
        raise NotModelled(op, "multicast")
    guard = f"if {t.value(when[0])}: " if when else ""
    t.emit(f"{guard}m.tensor_core_commit({t.constant(op)}, {t.value(barrier[0])})")


@lowers("ttg.warp_specialize")
def specialize(t: Translator, op: Operation) -> None:
    """The default region sees the program's values; the partitions get theirs by name."""
    inner = op.regions[1][0].operations[0]
    t.nested(f"d{t.number()}", op.regions[0])
    default = t.last
    partitions = []
    for region in inner.regions:
        t.nested(f"p{t.number()}", region)
        partitions.append(f"{t.last}(m, {t.values(inner.operands)})" if inner.operands else f"{t.last}(m)")
    if (size := op.integer("allocation.size", 0)) and "allocation.offset" in op.attributes:
        t.emit(f"m.scratch({t.constant(op)}, {op.integer('allocation.offset')}, {size})")
    given = "".join(p + ", " for p in partitions)
    found = f"yield from m.specialize({t.constant(op)}, {default}(m), [{given}])"
    t.emit(f"{t.target(op)}{found}")


@lowers("ttg.warp_yield", "ttg.warp_return")
def end(t: Translator, op: Operation) -> None:
    t.emit(f"return {t.values(op.operands)}")
