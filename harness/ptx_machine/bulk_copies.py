"""Copies of the async proxy: cp.async.bulk, tiles through tensor maps, their groups (PTX ISA 9.7.9.25 to 9.7.9.28, 5.5).

A load of .multicast::cluster writes the same box into several CTAs of the cluster, each of which counts its own bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.async_rules import TMA_LOAD, TMA_STORE, rule_of
from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words
from bitverdict.harness.ptx_machine.access import check_flight, load_global, other_end, raise_race, store_global
from bitverdict.harness.ptx_machine.atomics import operation_of
from bitverdict.harness.ptx_machine.mbarriers import BulkWrite, barrier_at, hold_to_init
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.shared_space import ASYNC_PEERS, OWN, RANK_BITS
from bitverdict.harness.ptx_machine.tensor_maps import DTYPES_OF, Box, CopyStart, tensor_box

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

_CACHES = ("L2::cache_hint",)


@dataclass(eq=False)
class BulkGroupRead:
    """What a bulk store of `thread` reads of shared memory, until its group has been waited for."""

    step: ThreadStep
    thread: int
    group: int
    units: np.ndarray
    number: int


def _operand_parts(text: str) -> list[str]:
    """The parts of "[%rd1, {%r1, %r2}]", or of "{%h1, %h2}"."""
    inside = text.strip().strip("[]")
    head, brace, rest = inside.partition("{")
    parts = [head.strip().rstrip(",").strip()]
    return parts + [part.strip() for part in rest.rstrip("} ").split(",")] if brace else parts


@instruction("cp")
def _bulk(reader: StatementReader) -> ThreadStep | None:
    """cp.async.bulk and cp.reduce.async.bulk, of bytes and of tiles, their groups and waits."""
    names, statement = reader.modifiers, reader.statement
    if "bulk" not in names or "prefetch" in names:
        return None
    if "commit_group" in names:
        return ThreadStep(statement, (), (), lambda: None, execute=_commit)
    if "wait_group" in names:
        reader.accept("async", "bulk", "wait_group", "read")
        return ThreadStep(statement, (), (), lambda: None, execute=_wait, options=int(reader.operands[0], 0))
    reduces = names[0] == "reduce"
    operation = (
        next((name for name in names if name in ("add", "min", "max", "and", "or", "xor", "inc", "dec")), "") if reduces else ""
    )
    rank = next((name for name in names if name in ("1d", "2d", "3d", "4d", "5d")), "")
    kinds = tuple(name for name in names if not rank and name in DTYPES_OF)
    mode = next((name for name in names if name in ("tile::gather4", "tile::scatter4", "im2col")), "tile")
    reader.accept(
        "async", "bulk", "reduce", "tensor", rank, "tile", mode, "global", "shared::cta", "shared::cluster", "bulk_group",
        "mbarrier::complete_tx::bytes", "multicast::cluster", "cta_group::1", "cta_group::2", operation, *kinds, *_CACHES,
    )  # fmt: skip
    if (rank == "") != ("tensor" not in names) or (reduces and not operation):
        return None
    operands = list(reader.operands)
    if "L2::cache_hint" in names:
        operands.pop()
    if len(operands) < 2 or not (names[-1] == "bulk_group" or "bulk_group" in names or "mbarrier::complete_tx::bytes" in names):
        return None
    loads = "mbarrier::complete_tx::bytes" in names
    mask = reader.operand(operands.pop(), "u16") if "multicast::cluster" in names else None
    moves = [reader.operand(text, "u16") for text in _operand_parts(operands.pop())[1:]] if mode == "im2col" and loads else []
    far, near = (operands[1], operands[0]) if loads else (operands[0], operands[1])
    shared = reader.address(near)
    base, *starts = _operand_parts(far)
    tensor = reader.address(f"[{base}]")
    coordinates = [reader.operand(text, "s32") for text in starts]
    barrier = reader.address(operands[-1]) if loads else (np.zeros(1, np.uint32), 0)
    size = None if rank else reader.operand(operands[2], "u32")
    if rank and (len(coordinates), len(moves)) != _counts(mode, int(rank[0]), loads=loads):
        return None
    takes_shared = names.count("shared::cta") + names.count("shared::cluster") == 2  # from the own CTA to a peer
    peer_access = ASYNC_PEERS if "shared::cluster" in names else OWN
    group = 2 if "cta_group::2" in names else 1

    def execute(active: Active, step: ThreadStep) -> None:
        machine = active.machine

        def addresses(place: tuple[str | Words, int]) -> list[int]:
            return (active.read(place[0]).astype(np.int64) + place[1]).tolist()

        coordinate_words = [active.read(each).view(np.int32).tolist() for each in coordinates]
        move_words = [active.read(each).tolist() for each in moves]
        masks = [-1] * len(active.threads) if mask is None else active.read(mask).tolist()
        sizes = [0] * len(active.threads) if size is None else active.read(size).tolist()
        copies = zip(active.threads.tolist(), addresses(shared), addresses(tensor), addresses(barrier), sizes, strict=True)
        for number, (thread, own, far_address, barrier_address, count) in enumerate(copies):
            if rank:
                starts, offsets = ([words[number] for words in table] for table in (coordinate_words, move_words))
                start = CopyStart(mode, starts, offsets[::-1])
                box = tensor_box(machine, step, far_address, start, own & 0xFFFFFFFF, loads)
            else:
                if (far_address | own | count) & 15:
                    raise fault("misaligned address", f"{step.statement.opcode} of {count} bytes: all are multiples of 16", step)
                unit = DTYPES_OF[kinds[0]] if kinds else 16
                positions = np.arange(count // unit)
                box = Box(
                    far_address + unit * positions,
                    None,
                    unit,
                    (own & 0xFFFFFFFF) + unit * positions,
                    np.zeros(unit, np.uint8),
                    "u8",
                )
            if not loads:
                _store(machine, step, thread, box, operation, kinds[0] if kinds else box.kind)
                continue
            words, source_units = (_own_bytes if takes_shared else _loaded_bytes)(machine, step, thread, box)
            ends = box.places[:1], np.array([barrier_address & 0xFFFFFFFF])
            for target_rank, *counted_at in _targets(machine, step, thread, ends, masks[number], peer_access, group):
                places = box.places & ((1 << RANK_BITS) - 1) | target_rank << RANK_BITS
                flight = _begin_write(machine, step, thread, (places, box.size), (counted_at[0], counted_at[1]), words, peer_access)
                if takes_shared:
                    flight.source_cta, flight.source_units = int(machine.cta[thread]), source_units
                    machine.shared.is_read[source_units] = flight.number

    registers = (shared[0], tensor[0], barrier[0], size, mask, *coordinates, *moves)
    reads = tuple(each for each in registers if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=execute, size=32)


def _counts(mode: str, rank: int, *, loads: bool) -> tuple[int, int]:
    """How many coordinates and how many offsets of pixels a copy has."""
    return (5 if "4" in mode else rank), (rank - 2 if mode == "im2col" and loads else 0)


def _targets(
    machine: Threads, step: ThreadStep, thread: int, ends: tuple[np.ndarray, np.ndarray], mask: int, peer_access: int, group: int
) -> list[tuple[int, int, int]]:
    """(rank to which the box goes, CTA and byte of the mbarrier that counts it) of a load whose target and mbarrier are at `ends`
    ([1] each), by `mask` (-1: to the one CTA of that address). The mbarrier lies in the CTA that it counts for; with `group` 2 it
    may lie in the other one of the pair, for each pair alike (PTX ISA, cp.async.bulk.tensor, .cta_group)."""
    threads, n = np.array([thread]), machine.shape.cluster_ctas
    split = machine.shared.split(step, threads, ends[1], ASYNC_PEERS if group == 2 else peer_access)
    (barrier_cta,), (barrier_place,) = (each.tolist() for each in split)
    first_cta = int(machine.cta[thread]) // n * n
    if mask < 0:
        (cta,) = machine.shared.split(step, threads, ends[0], peer_access)[0].tolist()
        if cta // group != barrier_cta // group:
            message = f"{step.statement.opcode} to the CTA of rank {cta % n} counts at the mbarrier of rank {barrier_cta % n}"
            raise fault("barrier misuse", message, step)
        return [(cta - first_cta, barrier_cta, barrier_place)]
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    if not ranks or ranks[-1] >= n:
        raise fault("illegal instruction", f"{step.statement.opcode} to the CTAs {mask:#b} of a cluster of {n}", step)
    parity = (barrier_cta - first_cta) % group
    return [(rank, first_cta + rank // group * group + parity, barrier_place) for rank in ranks]


def _bytes_at(offsets: np.ndarray, size: int) -> np.ndarray:
    return (offsets[:, None] + np.arange(size)).reshape(-1)


def _shared_units(
    machine: Threads, step: ThreadStep, thread: int, places: np.ndarray, size: int, verb: str, peer_access: int = OWN
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets in all of shared memory of elements of `size` bytes at `places`, the units that they lie in)."""
    space = machine.shared
    offsets = space.flat_offsets(step, np.full(len(places), thread), places, size, verb, peer_access)
    return offsets, np.unique(space.units(offsets, size))


def hold_to_proxy(machine: Threads, step: ThreadStep, threads: np.ndarray, units: np.ndarray, verb: str) -> None:
    """A race where one of `threads` lets the async proxy touch its one of `units` and there are generic writes of which it does not
    know that they are over and fenced."""
    judge = machine.shared.judge
    if conflict := judge.with_writer(threads, units, judge.shadow.slots(units)):
        raise_race(machine, step, conflict, "shared memory", verb, judge)
    if conflict := judge.unfenced_write(threads, units):
        message = (
            f"{step.statement.opcode} {verb} byte {conflict.unit * judge.unit} of shared memory through the async proxy, which was "
            "written through the generic one: no fence.proxy.async between them"
        )
        raise fault("race", message, step, rule=rule_of("ordinary store"), **other_end(conflict.other_step))


_NO_UNITS = np.zeros(0, np.int64)


def _loaded_bytes(machine: Threads, step: ThreadStep, thread: int, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of the box in global memory, and none of the units of shared memory."""
    words = np.empty((len(box.places), box.size), np.uint8)
    words[:] = box.padding
    inside = np.arange(len(box.places)) if box.inside is None else np.flatnonzero(box.inside)
    if len(inside):
        loaded = load_global(machine, step, np.full(len(inside), thread), box.addresses[inside], 1, box.size)
        loaded = box.tensor.loaded_values(loaded, None) if box.tensor else loaded
        words[inside] = np.ascontiguousarray(loaded).view(np.uint8).reshape(len(inside), -1)
    return words.reshape(-1), _NO_UNITS


def _own_bytes(machine: Threads, step: ThreadStep, thread: int, box: Box) -> tuple[np.ndarray, np.ndarray]:
    """The bytes at `box.addresses` of the own shared memory, and the units that they lie in."""
    offsets, units = _read_units(machine, step, thread, box.addresses & 0xFFFFFFFF, box.size)
    return machine.shared.raw.reshape(-1)[_bytes_at(offsets, box.size)], units


def _read_units(machine: Threads, step: ThreadStep, thread: int, places: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """`_shared_units` of what the async proxy reads of the own shared memory."""
    offsets, units = _shared_units(machine, step, thread, places, size, "read")
    check_flight(machine, step, units, "read")
    hold_to_proxy(machine, step, np.full(len(units), thread), units, "reads")
    return offsets, units


def _begin_write(
    machine: Threads,
    step: ThreadStep,
    thread: int,
    target: tuple[np.ndarray, int],
    barrier_place: tuple[int, int],
    words: np.ndarray,
    peer_access: int,
) -> BulkWrite:
    """`words` (uint8) will lie at the places of `target`, of as many bytes each, once the mbarrier at (CTA, byte) counts them."""
    space, barrier = machine.shared, barrier_at(machine, step, *barrier_place)
    hold_to_init(machine, step, *barrier_place, np.array([thread]))
    offsets, units = _shared_units(machine, step, thread, *target, "write", peer_access)
    check_flight(machine, step, units, "write")
    hold_to_proxy(machine, step, np.full(len(units), thread), units, "writes")
    if conflict := space.judge.write(step, np.full(len(units), thread), units * space.judge.unit, space.judge.unit):
        raise_race(machine, step, conflict, "shared memory", "writes", space.judge)
    number = machine.new_flight(step)
    space.in_flight[units] = number
    barrier.flights.append(BulkWrite(step, _bytes_at(offsets, target[1]), words, units, number))
    return barrier.flights[-1]


def _store(machine: Threads, step: ThreadStep, thread: int, box: Box, operation: str, kind: str) -> None:
    space = machine.shared
    offsets, units = _read_units(machine, step, thread, box.places, box.size)
    inside = np.arange(len(box.places)) if box.inside is None else np.flatnonzero(box.inside)
    held = space.raw.reshape(-1)[offsets[inside, None] + np.arange(box.size)]  # (elements, bytes)
    if len(inside):
        unit = min(box.size, 8)
        words = np.ascontiguousarray(held).view(DTYPES[8 * unit])
        threads = np.full(len(inside), thread)
        if operation:
            compute = operation_of(operation, kind)
            words = compute(load_global(machine, step, threads, box.addresses[inside], 1, box.size), words)
        either_stays = machine.shape.either_row and "scatter4" in step.statement.opcode
        store_global(machine, step, threads, box.addresses[inside], words, either_stays=either_stays)
    number = machine.new_flight(step)
    space.is_read[units] = number
    machine.bulk_reads.append(BulkGroupRead(step, thread, int(machine.bulk_committed[thread]), units, number))


def _commit(active: Active, step: ThreadStep) -> None:
    active.machine.bulk_committed[active.threads] += 1


def _wait(active: Active, step: ThreadStep) -> None:
    """cp.async.bulk.wait_group: what the bulk stores of these threads read may be overwritten, but for the last groups'."""
    machine, remaining_reads = active.machine, []
    waits = np.zeros(machine.lanes, bool)
    waits[active.threads] = True
    for read in machine.bulk_reads:
        if not waits[read.thread] or read.group >= machine.bulk_committed[read.thread] - step.options:
            remaining_reads.append(read)
            continue
        end_read(machine, read.step, read.thread, read.units, read.number)
    machine.bulk_reads = remaining_reads


def end_read(machine: Threads, step: ThreadStep, thread: int, units: np.ndarray, number: int) -> None:
    """An operation of the async proxy that has been waited for by `thread` has read `units`: from here on as if by that thread."""
    space = machine.shared
    space.is_read[units[space.is_read[units] == number]] = 0
    del space.steps[number]
    space.judge.read(step, np.full(len(units), thread), units * space.judge.unit, space.judge.unit)


def refuse_unfinished(machine: Threads) -> None:
    """No CTA ends before what its bulk operations use of its shared memory has been read and written."""
    space = machine.shared
    unfinished = [step for step in space.steps.values() if "bulk" in step.statement.opcode]
    if unfinished:
        step = unfinished[0]
        loads = "complete_tx::bytes" in step.statement.opcode
        message = f"the CTA ends while {step.statement.opcode} is in flight: it was not waited for"
        raise fault("race", message, step, rule=(TMA_LOAD if loads else TMA_STORE).rule.sentence)


__all__ = ["BulkGroupRead", "end_read", "hold_to_proxy", "refuse_unfinished"]
