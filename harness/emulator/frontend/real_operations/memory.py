"""Loads and stores: global, shared and tensor memory, atomics.

Before an operation that writes, its real values are given to the memory (`RealAccess.give`); behind one that reads they are asked
for. What copies between memories carry along needs no code here."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries, gives
from bitverdict.harness.emulator.memory.real_access import RealAccess, load_real, note_decision, withheld
from bitverdict.harness.emulator.mlir_reader import Operation


def _give(r: CarriedReals, op: Operation, value: str, *decides: str) -> None:
    """`op` writes `value`, where and if the values `decides` say."""
    t, kind = r.t, r.kind(value)
    t.emit("{}", t.calls(RealAccess.give, op, kind.element, t.value(value), r.real_of(value), r.taints(decides)))


def _hold_read(r: CarriedReals, op: Operation) -> None:
    """What the first result of `op` carries, as memory held it."""
    t, name = r.t, op.results[0]
    found = t.calls(RealAccess.real_of_last_read, op, t.value(name), r.kind(name).element)
    r.hold(op, found if len(op.results) == 1 else (found, *[None] * (len(op.results) - 1)))


def _hold_decision(r: CarriedReals, op: Operation, *names: str) -> None:
    """Where `op` reads or writes, or whether it does, follows from `names`."""
    whole = (name for name in names if name in r.carried and not r.kind(name).is_float)
    if (taints := r.taints(whole)) is not None:
        r.t.emit("{}", r.t.calls(note_decision, op, taints))


@gives(
    "ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_copy_local_to_global",
    "ttng.async_tma_gather", "ttng.async_tma_scatter", "ttng.async_tma_reduce", "ttng.tensormap_create", "ttg.memdesc_index",
    "ttg.local_gather", "ttng.tc_gen5_mma", "ttng.tc_gen5_mma_scaled", "ttng.wait_barrier", "ttng.arrive_barrier",
    "ttng.barrier_expect", "tt.atomic_load", "tt.atomic_poll",
)  # fmt: skip
def places(r: CarriedReals, op: Operation) -> None:
    """What has no data of its own, but for the places that it moves some from or to."""
    _hold_decision(r, op, *op.operands)


@carries("tt.load")
def load(r: CarriedReals, op: Operation) -> None:
    t, names, element = r.t, op.operands_by_name("pointer", "mask?", "other?"), r.t.result(op).element
    if t.result(op).pointers:
        element = "i64"
    mask, other = (next(iter(names[each]), None) for each in ("mask", "other"))
    where = None if mask is None else t.value(mask)
    hangs = r.taints((op.operands[0], mask))
    r.hold(op, t.calls(load_real, op, t.value(op.results[0]), t.value(op.operands[0]), where, r.real_of(other), hangs, element))


@gives("tt.store")
def store(r: CarriedReals, op: Operation) -> None:
    pointer, value, *mask = op.operands
    _hold_decision(r, op, pointer)
    _give(r, op, value, *mask)


@carries("tt.store")
def behind_store(r: CarriedReals, op: Operation) -> None:
    pointer, _, mask = r.t.operands(op, "pointer", "value", "mask?")
    if (hangs := r.taints(op.operands[2:])) is not None:
        r.t.emit("{}", r.t.calls(withheld, op, pointer, mask, hangs, r.kind(op.operands[1]).itemsize))


@gives("ttg.local_store")
def store_shared(r: CarriedReals, op: Operation) -> None:
    _give(r, op, op.operands[0])


@gives("ttg.local_alloc", "ttng.tmem_alloc")
def allocate(r: CarriedReals, op: Operation) -> None:
    if op.operands:
        _give(r, op, op.operands[0])


@gives("ttng.tmem_store")
def store_tensor(r: CarriedReals, op: Operation) -> None:
    names = op.operands_by_name("view", "token?", "value", "enabled")
    _hold_decision(r, op, *names["enabled"])
    with r.t.when(r.t.value(names["enabled"][0])):
        _give(r, op, names["value"][0])


@gives("ttg.local_scatter")
def scatter(r: CarriedReals, op: Operation) -> None:
    _hold_decision(r, op, op.operands[2])
    _give(r, op, op.operands[1])


@carries("ttg.local_load", "ttg.local_gather", "ttng.tmem_load")
def read(r: CarriedReals, op: Operation) -> None:
    _hold_read(r, op)


@gives("tt.atomic_rmw", "tt.atomic_store", "ttg.local_atomic_scatter_rmw")
def before_update(r: CarriedReals, op: Operation) -> None:
    _hold_decision(r, op, op.operands[0], *op.operands[2:])
    _give(r, op, op.operands[1])


@gives("tt.atomic_cas")
def before_swap(r: CarriedReals, op: Operation) -> None:
    _hold_decision(r, op, op.operands[0])
    _give(r, op, op.operands[2], op.operands[1])


@carries("tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "ttg.local_atomic_scatter_rmw")
def update(r: CarriedReals, op: Operation) -> None:
    _hold_read(r, op)


@carries("tt.atomic_poll")
def poll(r: CarriedReals, op: Operation) -> None:
    r.hold(op, None)
