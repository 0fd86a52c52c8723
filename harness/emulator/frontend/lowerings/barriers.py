"""mbarriers, the commits that signal them, and partitions (PTX ISA 9.7.13.15, 9.7.16.7)."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("ttng.init_barrier")
def init_barrier(t: Translator, op: Operation) -> None:
    (barrier,) = t.operands(op, "barrier")
    t.machine(op, Mbarriers.init, barrier, op.integer("count"))


@lowers("ttng.inval_barrier")
def invalidate(t: Translator, op: Operation) -> None:
    (barrier,) = t.operands(op, "barrier")
    t.machine(op, Mbarriers.invalidate, barrier)


@lowers("ttng.wait_barrier")
def wait_barrier(t: Translator, op: Operation) -> None:
    """What it depends on orders the compiler's passes, and nothing at run time."""
    barrier, phase, enabled, _dependencies = t.operands(op, "barrier", "phase", "enabled?", "dependencies*")
    with t.when(enabled):
        t.machine(op, Mbarriers.wait, barrier, phase)


@lowers("ttng.barrier_expect")
def expect(t: Translator, op: Operation) -> None:
    barrier, enabled = t.operands(op, "barrier", "enabled")
    with t.when(enabled):
        t.machine(op, Mbarriers.expect, barrier, op.integer("size"))


@lowers("ttng.arrive_barrier")
def arrive(t: Translator, op: Operation) -> None:
    barrier, enabled = t.operands(op, "barrier", "enabled?")
    with t.when(enabled):
        t.machine(op, Mbarriers.arrive, barrier, op.integer("count", 1))


@lowers("ttng.tc_gen5_commit")
def commit(t: Translator, op: Operation) -> None:
    barrier, enabled, descriptors = t.operands(op, "barrier", "enabled?", "descriptors*")
    if descriptors:
        raise NotModelled(op, "multicast")
    with t.when(enabled):
        t.machine(op, TensorCore.commit, barrier)


@lowers("ttg.warp_specialize")
def specialize(t: Translator, op: Operation) -> None:
    """The default region sees the program's values; the partitions get theirs by name."""
    inner = op.regions[1][0].operations[0]
    default = t.starts(t.nested("default", op.regions[0]))
    partitions = [t.starts(t.nested(f"partition_{i}", region), inner.operands) for i, region in enumerate(inner.regions)]
    t.scratch(op)
    t.machine(op, Cta.specialize, default, partitions)


@lowers("ttg.warp_yield", "ttg.warp_return")
def end(t: Translator, op: Operation) -> None:
    t.emit("return {}" if op.operands else "return", t.values(op.operands))
