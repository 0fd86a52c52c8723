"""Asynchronous copies: cp.async by groups, TMA through descriptors, tcgen05.cp into tensor memory."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.async_copies import AsyncCopies
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore
from bitverdict.harness.emulator.execution.threads import WARP
from bitverdict.harness.emulator.execution.tma import Tma
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.releases import installed_release


def _column(t: Translator, op: Operation, column: int) -> int:
    """Coordinate `column` in bytes: a tensor map of fp4 beside fp8 counts nibbles, and releases differ in who doubles the bytes."""
    counts = installed_release().doubles_columns and "fp4Padded = true" in t.program.expand(op.operand_types[0])
    return t.apply(_bytes_of_nibbles, column) if counts else column


def _bytes_of_nibbles(column: int) -> int:
    return column if column % 2 else column // 2  # an odd one is off a multiple of 16 bytes, as no whole byte is


@lowers("ttg.async_copy_global_to_local")
def copy(t: Translator, op: Operation) -> None:
    """Elements whose mask is False become zero: the instruction is issued with a source size of 0, whatever `other` says. AMD's
    compiler stores `other` itself."""
    pointer, view, mask, other = t.operands(op, "pointer", "view", "mask?", "other?")
    if t.backend.copies_to_lds and other is not None:
        raise NotModelled(op, "with what masked lanes are to have")
    elsewhere = t.check_vectors(op, pointer, mask)
    undefined = t.undefined is not None and id(op) in t.undefined.masked
    t.machine(op, AsyncCopies.copy, pointer, view, mask, undefined, elsewhere, t.backend.copies_to_lds)


@lowers("ttg.async_commit_group")
def commit(t: Translator, op: Operation) -> None:
    t.machine_without_op(op, AsyncCopies.commit)


@lowers("ttng.async_copy_mbarrier_arrive")
def arrive(t: Translator, op: Operation) -> None:
    """Each thread arrives; where the barrier is told to expect as many more, their number does not matter."""
    (barrier,) = t.operands(op, "barrier")
    counted = "noIncrement" in op.attributes
    if counted and t.facts.agents > 1:
        raise NotModelled(op, "without an increment, in a program of several partitions: how many threads arrive")
    threads = t.program.integer("ttg.num-warps", 4) * WARP if counted else 1
    t.machine(op, AsyncCopies.arrive, barrier, threads, increments=not counted)


@lowers("ttg.async_wait")
def wait(t: Translator, op: Operation) -> None:
    t.machine_without_op(op, AsyncCopies.wait, op.integer("num") % (1 << 32))  # -1 waits for none: seen on an H200


@lowers("ttng.async_tma_copy_global_to_local")
def bulk_load(t: Translator, op: Operation) -> None:
    pixels = ("offsets*",) if "operandSegmentSizes" in op.attributes else ()  # else of a release without im2col
    names = "descriptor", "starts*", *pixels, "barrier", "target", "enabled"
    descriptor, starts, *offset_groups, barrier, target, is_enabled = t.operands(op, *names)
    offsets, starts = offset_groups[0] if offset_groups else (), (*starts[:-1], _column(t, op, starts[-1]))
    if offsets:
        if t.ctas > 1:
            raise NotModelled(op, "im2col in a cluster")
        t.machine(op, Tma.load_pixels, descriptor, starts, offsets, barrier, target, is_enabled)
        return
    held = t.split(t.type_of(op, "target", names))
    shared = "multicast" in op.attributes and held.copies > 1
    t.machine(op, Tma.load, descriptor, starts, barrier, target, is_enabled, len(held.starts), shared)


@lowers("ttng.async_tma_gather")
def bulk_gather(t: Translator, op: Operation) -> None:
    names = "descriptor", "rows", "column", "barrier", "target", "enabled"
    descriptor, rows, column, barrier, target, enabled = t.operands(op, *names)
    held = t.split(t.type_of(op, "target", names))
    shared = "multicast" in op.attributes and held.copies > 1
    t.machine(op, Tma.gather, descriptor, rows, _column(t, op, column), barrier, target, enabled, len(held.starts), shared)


@lowers("ttng.async_tma_copy_local_to_global")
def bulk_store(t: Translator, op: Operation) -> None:
    descriptor, starts, source = t.operands(op, "descriptor", "starts*", "source")
    t.machine(op, Tma.store, descriptor, (*starts[:-1], _column(t, op, starts[-1])), source)


@lowers("ttng.async_tma_scatter")
def bulk_scatter(t: Translator, op: Operation) -> None:
    descriptor, rows, column, source = t.operands(op, "descriptor", "rows", "column", "source")
    t.machine(op, Tma.scatter, descriptor, rows, _column(t, op, column), source)


@lowers("ttng.async_tma_store_wait")
def bulk_store_wait(t: Translator, op: Operation) -> None:
    t.machine_without_op(op, Tma.store_wait, op.integer("pendings"), read="read_only" in op.attributes)


@lowers("ttng.tmem_copy")
def tensor_core_copy(t: Translator, op: Operation) -> None:
    source, target, barrier = t.operands(op, "source", "target", "barrier?")
    if t.operand(op, 0).shape != t.operand(op, 1).shape:
        raise NotModelled(op, "between shapes")
    t.machine(op, TensorCore.copy, source, target, barrier)
