"""Tensor memory (PTX ISA 9.7.16): its columns are allocated by a warp, and warps load and store the lanes of their quarter.

128 lanes of 512 columns of 32 bits a CTA. An address has the lane in its upper half and the column in its lower one. tcgen05.ld and
tcgen05.st go on their own time until the tcgen05.wait of their warp: until then nobody may write what the one reads, or touch what
the other writes. A register that tcgen05.ld gives is there where an instruction reads it (9.7.16.6.4.5). What threads do in tensor
memory is ordered by the same barriers as in shared memory: tcgen05.fence is needed only beside `.relaxed` ones (9.7.16.6.3).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from bitverdict.harness.emulator.async_rules import TCGEN05_MMA
from bitverdict.harness.ptx_machine.access import other_end, raise_race, store_shared
from bitverdict.harness.ptx_machine.memory import Conflict, Judge
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.thread_order import WARP, Order

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

LANES, COLUMNS = 128, 512
UNWRITTEN = 0xFFFFFFFF
RULE = "PTX ISA 9.7.16.6, memory consistency model of tcgen05"


@dataclass(eq=False)
class WarpAccess:
    """A tcgen05.ld or tcgen05.st of whole warps that was not waited for: `cells` [threads, n], and the words that will be there."""

    step: ThreadStep
    threads: np.ndarray
    cells: np.ndarray
    words: np.ndarray | None
    number: int


@dataclass(eq=False)
class PipeFlight:
    """A tcgen05.mma or tcgen05.cp of `ctas` that `thread` issued, until a commit behind it was waited for: the units of shared
    memory and the cells that it reads, and the cells that it writes."""

    step: ThreadStep
    thread: int
    ctas: tuple[int, ...]
    units: np.ndarray
    reads: np.ndarray
    writes: np.ndarray
    number: int


@dataclass(eq=False)
class TensorSpace:
    """Tensor memory of the CTAs of a batch. A cell is one column of one lane; those of a column lie side by side."""

    words: np.ndarray  # (cells,) uint32
    is_written: np.ndarray  # (cells,) since it was allocated
    judge: Judge
    in_flight: np.ndarray  # (cells,) number of the operation that writes it on its own time, 0 for none
    is_read: np.ndarray  # (cells,) likewise of one that reads it
    allocation_of: np.ndarray  # (CTAs, columns) number of the allocation, 0 for none
    has_permit: np.ndarray  # (CTAs,) whether it may still allocate
    steps: dict[int, ThreadStep] = field(default_factory=dict)  # of operations in flight, by number
    accesses: list[WarpAccess] = field(default_factory=list)
    flights: list[PipeFlight] = field(default_factory=list)
    allocations: int = 0

    @classmethod
    def empty(cls, ctas: int, order: Order) -> TensorSpace:
        cells = ctas * COLUMNS * LANES
        words, judge = np.full(cells, UNWRITTEN, np.uint32), Judge(order, cells, 1, by_warp=True)
        in_flight, is_read = np.zeros((2, cells), np.int32)
        allocation_of = np.zeros((ctas, COLUMNS), np.int32)
        return cls(words, np.zeros(cells, bool), judge, in_flight, is_read, allocation_of, np.ones(ctas, bool))

    def cells(self, step: ThreadStep, ctas: np.ndarray, lanes: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """The cells of `lanes` and `columns`, which are broadcast with `ctas`. A fault where one was not allocated."""
        outside = (columns < 0) | (columns >= COLUMNS) | (lanes < 0) | (lanes >= LANES)
        is_bad = outside | (self.allocation_of[ctas, np.where(outside, 0, columns)] == 0)
        if is_bad.any():
            bad = [int(np.broadcast_to(each, is_bad.shape)[is_bad][0]) for each in (columns, lanes)]
            message = f"{step.statement.opcode} at column {bad[0]}, lane {bad[1]} of tensor memory, which is not allocated"
            raise fault("illegal address", message, step)
        return (ctas * COLUMNS + columns) * LANES + lanes

    def check_flight(self, step: ThreadStep, cells: np.ndarray, *, writes: bool, in_pipe: bool = False) -> None:
        """A race where an operation that was not waited for writes `cells`, or reads them where these are to be written. `in_pipe`:
        behind the operations of the tensor core, which follow one another."""
        if not self.steps:
            return
        for marks, does in ((self.in_flight, "writes"), *(((self.is_read, "reads"),) if writes else ())):
            for number in np.unique(marks[cells]).tolist():
                if not number or (in_pipe and self.steps[number].statement.opcode.startswith(PIPE)):
                    continue
                other = self.steps[number]
                message = f"{step.statement.opcode} of tensor memory that {_brief(other)} in flight {does}: it was not waited for"
                rule = TCGEN05_MMA.rule.sentence if other.statement.opcode.startswith(PIPE) else RULE
                raise fault("race", message, step, rule=rule, **other_end(other))

    def mark(self, step: ThreadStep, number: int, reads: np.ndarray, writes: np.ndarray) -> None:
        self.steps[number] = step
        self.is_read[reads], self.in_flight[writes] = number, number

    def unmark(self, operations: Sequence[tuple[int, np.ndarray, np.ndarray]]) -> None:
        """The operations (number, cells that it reads, cells that it writes) are over. What one that is still in flight reads too
        stays marked for that."""
        for number, reads, writes in operations:
            for marks, cells in ((self.is_read, reads), (self.in_flight, writes)):
                marks[cells[marks[cells] == number]] = 0
        readers = [(each.number, each.reads) for each in self.flights]
        readers += [(each.number, each.cells.reshape(-1)) for each in self.accesses if each.words is None]
        for number, cells in readers:
            self.is_read[cells[self.is_read[cells] == 0]] = number


PIPE = ("tcgen05.mma", "tcgen05.cp")


def _brief(step: ThreadStep) -> str:
    return f"a {'.'.join(step.statement.opcode.split('.')[:2])}"


def raise_tensor_race(machine: Threads, step: ThreadStep, conflict: Conflict, verb: str) -> NoReturn:
    column, lane = divmod(conflict.unit, LANES)
    raise_race(machine, step, conflict, f"column {column % COLUMNS}, lane {lane} of tensor memory", verb)


# -- allocation -----------------------------------------------------------------------------------------------------------------
@instruction("tcgen05")
def _allocation(reader: StatementReader) -> ThreadStep | None:
    kind, operands = reader.modifiers[0], reader.operands
    if kind == "fence::after_thread_sync":
        return ThreadStep(reader.statement, (), (), lambda: None)
    if kind == "fence::before_thread_sync":
        return ThreadStep(reader.statement, (), (), lambda: None, execute=_fence)
    if kind not in ("alloc", "dealloc", "relinquish_alloc_permit"):
        return None
    reader.accept(kind, "cta_group::1", "cta_group::2", "sync", "aligned", "shared::cta", "b32")
    if kind == "relinquish_alloc_permit":

        def relinquish(active: Active, step: ThreadStep) -> None:
            tensor_of(active).has_permit[active.machine.cta[active.threads]] = False

        return ThreadStep(reader.statement, (), (), lambda: None, execute=relinquish)
    place = reader.address(operands[0]) if kind == "alloc" else (reader.operand(operands[0], "u32"), 0)
    count = reader.operand(operands[1], "u32")
    act = _allocate if kind == "alloc" else _deallocate

    def execute(active: Active, step: ThreadStep) -> None:
        warps = active.whole_warps(step)
        places, counts = (active.read(each)[warps[:, 0]].astype(np.int64) for each in (place[0], count))
        for thread, own, columns in zip(active.threads[warps[:, 0]].tolist(), places.tolist(), counts.tolist(), strict=True):
            if columns not in (32, 64, 128, 256, 512):
                raise fault("illegal instruction", f"{step.statement.opcode} of {columns} columns: 32, 64, 128, 256 or 512", step)
            act(active.machine, step, thread, own + place[1], columns)

    reads = tuple(each for each in (place[0], count) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (), lambda: None, execute=execute, size=32 if kind == "alloc" else 0)


def _fence(active: Active, step: ThreadStep) -> None:
    active.machine.order.fence(active.threads)


def tensor_of(active: Active) -> TensorSpace:
    assert active.machine.tensor is not None
    return active.machine.tensor


def _allocate(machine: Threads, step: ThreadStep, thread: int, place: int, count: int) -> None:
    """The first columns that are free and aligned to their number; their address goes to `place` of shared memory."""
    tensor, cta = machine.tensor, int(machine.cta[thread])
    assert tensor is not None
    if not tensor.has_permit[cta]:
        raise fault("illegal instruction", f"{step.statement.opcode} behind tcgen05.relinquish_alloc_permit", step)
    columns = tensor.allocation_of[cta]
    free = [start for start in range(0, COLUMNS, count) if not columns[start : start + count].any()]
    if not free:
        message = f"{step.statement.opcode} of {count} columns waits for {int((columns > 0).sum())} columns that its own CTA has"
        raise fault("deadlock", message, step)
    tensor.allocations += 1
    columns[free[0] : free[0] + count] = tensor.allocations
    cells = slice((cta * COLUMNS + free[0]) * LANES, (cta * COLUMNS + free[0] + count) * LANES)
    tensor.words[cells], tensor.is_written[cells] = UNWRITTEN, False
    address = np.array([place & 0xFFFFFFFF])
    store_shared(machine, step, np.array([thread]), address, np.array([[free[0]]], np.uint32))


def _deallocate(machine: Threads, step: ThreadStep, thread: int, address: int, count: int) -> None:
    tensor, cta = machine.tensor, int(machine.cta[thread])
    assert tensor is not None
    columns = tensor.allocation_of[cta]
    number = columns[address] if 0 <= address < COLUMNS else 0
    if not number or not np.array_equal(np.flatnonzero(columns == number), np.arange(address, address + count)):
        message = f"{step.statement.opcode} of {count} columns from {address:#x} on, which no tcgen05.alloc has given"
        raise fault("illegal address", message, step)
    cells = np.arange((cta * COLUMNS + address) * LANES, (cta * COLUMNS + address + count) * LANES)
    tensor.check_flight(step, cells, writes=True)
    used = cells[tensor.is_written[cells]]
    if conflict := tensor.judge.write(step, np.full(len(used), thread), used, 1):
        raise_tensor_race(machine, step, conflict, "frees")
    columns[columns == number] = 0


def refuse_unfinished(machine: Threads) -> None:
    """No CTA ends while its tensor core works, or before its columns are given back."""
    tensor = machine.tensor
    if tensor is None:
        return
    if tensor.flights:
        step = tensor.flights[0].step
        message = f"the CTA ends while {step.statement.opcode} is in flight: it was not waited for"
        raise fault("race", message, step, rule=TCGEN05_MMA.rule.sentence)
    if tensor.allocation_of.any():
        steps = (step for block in machine.kernel.blocks for step in block.steps)
        step = next(step for step in steps if isinstance(step, ThreadStep) and "tcgen05.alloc" in step.statement.opcode)
        count = int((tensor.allocation_of > 0).sum(axis=1).max())
        message = f"a CTA ends with {count} columns of tensor memory: no tcgen05.dealloc gives them to the next one, which waits"
        raise fault("deadlock", message, step)


# -- loads and stores of warps ----------------------------------------------------------------------------------------------------
def fragment(shape: str, repeats: int, split: int, *, is_packed: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(rows, columns) [32 lanes of the warp, registers] that tcgen05.ld and tcgen05.st of a shape reach (PTX ISA 9.7.16.2.3.1); of
    registers that are packed [32, 2 registers]. `split`: the column at which lanes from 16 on begin, of 16x32bx2."""
    lane = np.arange(WARP)[:, None]
    registers = {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    repeat, place = divmod(np.arange(repeats * registers)[None], registers)
    rows, columns = {
        "32x32b": (lane, repeat),
        "16x64b": (8 * (lane & 1) + lane // 4, 2 * repeat + (lane >> 1 & 1)),
        "16x128b": (lane // 4 + 8 * place, 4 * repeat + lane % 4),
        "16x256b": (lane // 4 + 8 * (place // 2), 8 * repeat + 2 * (lane % 4) + place % 2),
        "16x32bx2": (lane % 16, repeat),
    }[shape]
    rows, columns = np.broadcast_arrays(rows, columns)
    if is_packed:
        rows, columns = np.repeat(rows, 2, axis=1), (2 * columns[:, :, None] + np.arange(2)).reshape(WARP, -1)
    return rows, columns + split * (lane // 16)


@instruction("tcgen05")
def _warp_access(reader: StatementReader) -> ThreadStep | None:
    """tcgen05.ld, tcgen05.st and their waits. `.pack::16b` and `.unpack::16b`: a register has the lower halves of two columns."""
    kind, names = reader.modifiers[0], reader.modifiers
    if kind in ("wait::ld", "wait::st"):
        reader.accept(kind, "sync", "aligned")
        return ThreadStep(reader.statement, (), (), lambda: None, execute=_wait, options=kind == "wait::ld")
    if kind not in ("ld", "st"):
        return None
    shape, repeats = names[3], re.fullmatch(r"x(\d+)", names[4])
    halves = "pack::16b" if kind == "ld" else "unpack::16b"
    reader.accept(kind, "sync", "aligned", "32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2", names[4], halves, "b32")
    if repeats is None:
        return None
    place, *split, vector = reader.operands if kind == "st" else (*reader.operands[1:], reader.operands[0])
    base, offset = reader.address(place)
    registers = [reader.operand(name, "b32") for name in reader.names(vector)]
    is_packed = halves in names
    rows, columns = fragment(shape, int(repeats[1]), int(split[0], 0) if split else 0, is_packed=is_packed)
    if len(registers) * (1 + is_packed) != rows.shape[1] or bool(split) != (shape == "16x32bx2"):
        return None

    def execute(active: Active, step: ThreadStep) -> None:
        machine, tensor = active.machine, tensor_of(active)
        warps = active.whole_warps(step)
        threads = active.threads[warps]  # (warps, 32)
        addresses = active.read(base)[warps].astype(np.int64) + offset
        lane, column = addresses >> 16, addresses & 0xFFFF
        quarter = threads[:, :1] % machine.shape.threads // WARP % 4
        reach = int(rows.max())
        if (addresses != addresses[:, :1]).any() or ((lane < 32 * quarter) | (lane + reach >= 32 * quarter + 32)).any():
            message = (
                f"{step.statement.opcode} at {int(addresses[0, 0]):#x}: a warp reaches one address, in its own quarter of lanes"
            )
            raise fault("illegal instruction", message, step)
        ctas = machine.cta[threads][:, :, None]
        cells = tensor.cells(step, ctas, lane[:, :, None] + rows, column[:, :, None] + columns)  # (warps, 32, n)
        cells, owners = cells.reshape(threads.size, -1), threads.reshape(-1)
        flat, of_threads = cells.reshape(-1), np.repeat(owners, cells.shape[1])
        tensor.check_flight(step, flat, writes=kind == "st")
        number = machine.new_number()
        if kind == "ld":
            if conflict := tensor.judge.with_writer(of_threads, flat, tensor.judge.shadow.slots(flat)):
                raise_tensor_race(machine, step, conflict, "reads")
            words = tensor.words[cells]
            if is_packed:
                words = (words[:, ::2] & np.uint32(0xFFFF)) | words[:, 1::2] << np.uint32(16)
            for place, name in enumerate(registers):
                active.write(name, np.ascontiguousarray(words[:, place]))
            tensor.mark(step, number, flat, flat[:0])
            tensor.accesses.append(WarpAccess(step, owners, cells, None, number))
            return
        if conflict := tensor.judge.write(step, of_threads, flat, 1):
            raise_tensor_race(machine, step, conflict, "writes")
        stored = np.stack([active.read(name) for name in registers], axis=1)
        if is_packed:
            stored = np.stack([stored & np.uint32(0xFFFF), stored >> np.uint32(16)], axis=2).reshape(len(stored), -1)
        tensor.mark(step, number, flat[:0], flat)
        tensor.accesses.append(WarpAccess(step, owners, cells, stored, number))

    names_read = tuple(name for name in (base, *(registers if kind == "st" else ())) if isinstance(name, str))
    writes = tuple(name for name in registers if isinstance(name, str)) if kind == "ld" else ()
    return ThreadStep(reader.statement, names_read, writes, lambda: None, execute=execute)


def _wait(active: Active, step: ThreadStep) -> None:
    """What these warps have loaded, or stored, is over."""
    machine, tensor = active.machine, tensor_of(active)
    waits = np.zeros(machine.lanes, bool)
    waits[active.threads] = True
    operations = []
    earlier, tensor.accesses = tensor.accesses, []
    for access in earlier:
        is_over = waits[access.threads] & ((access.words is None) == step.options)
        if not is_over.all():
            parts = {"threads": access.threads[~is_over], "cells": access.cells[~is_over]}
            tensor.accesses.append(replace(access, **parts, words=None if access.words is None else access.words[~is_over]))
        else:
            del tensor.steps[access.number]
        if is_over.any():
            operations.append(_finish_access(tensor, access, is_over))
    tensor.unmark(operations)


def _finish_access(tensor: TensorSpace, access: WarpAccess, is_over: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    cells = access.cells[is_over].reshape(-1)
    threads = np.repeat(access.threads[is_over], access.cells.shape[1])
    if access.words is None:
        tensor.judge.read(access.step, threads, cells, 1)
        return access.number, cells, cells[:0]
    tensor.words[cells], tensor.is_written[cells] = access.words[is_over].reshape(-1), True
    tensor.judge.write(access.step, threads, cells, 1)
    return access.number, cells[:0], cells


__all__ = ["COLUMNS", "LANES", "PIPE", "PipeFlight", "TensorSpace", "raise_tensor_race", "refuse_unfinished", "tensor_of"]
