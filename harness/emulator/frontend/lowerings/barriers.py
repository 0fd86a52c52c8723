"""mbarriers, the commits that signal them, and partitions (PTX ISA 9.7.13.15, 9.7.16.7)."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.cluster_order import CLUSTER, OWN, reach
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.mbarriers import Mbarriers
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("ttng.init_barrier")
def init_barrier(t: Translator, op: Operation) -> None:
    (barrier,) = t.operands(op, "barrier")
    copies = t.split(t.operand(op, 0)).copies if t.ctas > 1 else 1
    t.machine(op, Mbarriers.init, barrier, op.integer("count"), reach(t.ctas, copies))


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
    _own_cta(t, op)
    with t.when(enabled):
        t.machine(op, Mbarriers.expect, barrier, op.integer("size"))


@lowers("ttng.arrive_barrier")
def arrive(t: Translator, op: Operation) -> None:
    barrier, enabled = t.operands(op, "barrier", "enabled?")
    _own_cta(t, op)
    with t.when(enabled):
        t.machine(op, Mbarriers.arrive, barrier, op.integer("count", 1))


def _own_cta(t: Translator, op: Operation) -> None:
    """NotModelled for an arrival that a CTA makes for others than those that share its barrier."""
    if op.integer("fromCTA", t.ctas - 1) != t.ctas - 1 or op.integer("multicastCTA", 0):
        raise NotModelled(op, "an arrival from another CTA (from_cta)")


@lowers("ttng.tc_gen5_commit")
def commit(t: Translator, op: Operation) -> None:
    names = "barrier", "enabled?", "descriptors*"
    barrier, enabled, _descriptors = t.operands(op, *names)
    shared = op.operands_by_name(*names)["descriptors"]
    pair = t.program.attributes.get("ttng.two-ctas") == "true"
    over = CLUSTER if shared else reach(t.ctas, 2) if pair else OWN
    with t.when(enabled):
        t.machine(op, TensorCore.commit, barrier, t.commits(op, shared, multicast=bool(shared)), over)


@lowers("ttng.cluster_barrier")
def cluster_barrier(t: Translator, op: Operation) -> None:
    """barrier.cluster.arrive and .wait by all threads of all CTAs of the cluster. One that is relaxed releases nothing of
    memory."""
    inserted = any(before.name == "ttng.fence_mbarrier_init_release_cluster" for before in t.done[-2:])
    t.machine(op, Cta.meet_cluster, is_relaxed=op.flag("relaxed"), is_inserted=inserted)


@lowers("ttng.cluster_arrive", "ttng.cluster_wait")
def cluster_halves(t: Translator, op: Operation) -> None:
    """The two halves of such a barrier, as Triton 3.7 writes it: one behind the other."""
    is_wait = op.name.endswith("wait")
    arrival, wait = t.program.text.splitlines()[op.line - is_wait :][:2]
    if '"ttng.cluster_arrive"' not in arrival or '"ttng.cluster_wait"' not in wait:
        raise NotModelled(op, "an arrival at the cluster's barrier with something between it and its wait")
    if is_wait:
        t.machine(op, Cta.meet_cluster, is_relaxed="relaxed = true" in arrival, is_inserted=False)


@lowers("ttg.warp_specialize")
def specialize(t: Translator, op: Operation) -> None:
    """The default region sees the program's values; the partitions get theirs by name."""
    inner = op.regions[1][0].operations[0]
    default = t.starts(t.nested_function("default", op.regions[0]))
    partitions = [t.starts(t.nested_function(f"partition_{i}", region), inner.operands) for i, region in enumerate(inner.regions)]
    t.scratch(op)
    called = t.calls(Cta.specialize, op, default, partitions)
    if op.results:
        t.emit("{} = {}", t.result_targets(op), called)
    else:
        t.emit("{}", called)


@lowers("ttg.warp_yield", "ttg.warp_return")
def end(t: Translator, op: Operation) -> None:
    t.emit("return {}" if op.operands else "return", t.handed_out(op.operands))
