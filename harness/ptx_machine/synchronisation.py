"""Barriers of a CTA and of a warp, fences, and the asynchronous copies of sm_80 (PTX ISA 9.7.13, 9.7.9.25)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import DTYPES, Words, bits
from bitverdict.harness.ptx_machine.program import CLOCKS, StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.thread_order import WARP

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.clusters import ClusterWait
    from bitverdict.harness.ptx_machine.mbarriers import PhaseWait
    from bitverdict.harness.ptx_machine.threads import Active, Copy, Threads


@dataclass(frozen=True)
class Reduction:
    """bar.red: the `operation` (and, or, popc) over the truths of the threads that meet, into the register `target`."""

    operation: str
    target: str
    truths: np.ndarray  # (lanes,)


@dataclass(frozen=True)
class Barrier:
    """A barrier at which threads wait: its number, and how many threads of the CTA it takes; 0: all that have not ended."""

    number: int
    count: int
    step: ThreadStep
    reduction: Reduction | None = None

    def __hash__(self) -> int:
        return hash((self.number, self.count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Barrier) and (self.number, self.count) == (other.number, other.count)

    def __str__(self) -> str:
        return f"barrier {self.number}"


@dataclass(eq=False)
class WarpMeeting:
    """Threads that wait at bar.warp.sync, each for those of its warp that its mask names, with the same mask (PTX ISA 9.7.13.2)."""

    masks: np.ndarray  # (lanes,)
    steps: dict[int, ThreadStep] = field(default_factory=dict)  # by thread

    @property
    def step(self) -> ThreadStep:
        return self.steps[min(self.steps)]

    def __str__(self) -> str:
        return "bar.warp.sync"

    def passes(self, machine: Threads, is_parked: np.ndarray) -> np.ndarray:
        masks, parked = self.masks.reshape(-1, WARP), is_parked.reshape(-1, WARP)
        together = parked[:, None, :] & (masks[:, :, None] == masks[:, None, :])  # (warps, 32, 32)
        present = np.packbits(together, axis=2, bitorder="little").view(np.uint32)[:, :, 0]
        missing = masks & _masks_of_warps(machine.live)[:, None] & ~present
        return np.flatnonzero(is_parked & (missing == 0).reshape(-1))

    def acquire(self, machine: Threads, ready_threads: np.ndarray) -> None:
        for mask in np.unique(self.masks[ready_threads]):
            machine.order.synchronise_warps(ready_threads[self.masks[ready_threads] == mask])
        for thread in ready_threads.tolist():
            del self.steps[thread]


def _masks_of_warps(truths: np.ndarray) -> np.ndarray:
    return np.packbits(truths.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32)[:, 0]


def complete(threads: Threads, barrier: Barrier | WarpMeeting | PhaseWait | ClusterWait, is_parked: np.ndarray) -> np.ndarray:
    """The threads parked at `barrier` whose CTA is complete there."""
    if not isinstance(barrier, Barrier):
        passes: np.ndarray = barrier.passes(threads, is_parked)
        return passes
    ctas = len(threads.live) // threads.shape.threads
    arrived = is_parked.reshape(ctas, -1).sum(axis=1)
    for cta in range(ctas):
        arrived[cta] += sum(count for count, _ in threads.barrier_arrivals.get((cta, barrier.number), ()))
    expected = threads.live.reshape(ctas, -1).sum(axis=1) if not barrier.count else np.full(ctas, barrier.count)
    is_complete = is_parked.reshape(ctas, -1).any(axis=1) & (arrived >= expected)
    return np.flatnonzero(is_parked & is_complete[threads.cta])


def release(threads: Threads, barrier: Barrier | WarpMeeting | PhaseWait | ClusterWait, ready_threads: np.ndarray) -> None:
    """Those who met at `barrier` know of each other."""
    if not isinstance(barrier, Barrier):
        barrier.acquire(threads, ready_threads)
        return
    ctas = np.unique(threads.cta[ready_threads])
    if barrier.reduction is not None:
        _reduce(threads, barrier.reduction, ready_threads)
    for cta in ctas.tolist():
        for _, knowledge in threads.barrier_arrivals.pop((cta, barrier.number), ()):
            threads.order.acquire(ready_threads[threads.cta[ready_threads] == cta], *knowledge)
    if len(ready_threads) == len(ctas) * threads.shape.threads:
        threads.order.synchronise_ctas(ctas)
        return
    for cta in ctas:
        threads.order.synchronise(ready_threads[threads.cta[ready_threads] == cta])


def _reduce(threads: Threads, reduction: Reduction, ready_threads: np.ndarray) -> None:
    count = np.bincount(threads.cta[ready_threads], reduction.truths[ready_threads], threads.lanes // threads.shape.threads)
    met = np.bincount(threads.cta[ready_threads], minlength=len(count))
    results = {"popc": count.astype(np.uint32), "or": count > 0, "and": count == met}[reduction.operation]
    threads.set_register(reduction.target, results[threads.cta[ready_threads]], ready_threads)


def _barriers(active: Active, operands: Sequence[str | Words | None]) -> Iterator[tuple[int, int, np.ndarray]]:
    """(number, threads that it takes, threads that name it) of each barrier: in a register each warp may have another one."""
    words = [np.zeros(1, np.uint32) if operand is None else active.read(operand) for operand in operands]
    if not any(isinstance(operand, str) for operand in operands):
        yield int(words[0][0]), int(words[1][0]), active.threads
        return
    named, which = np.unique(np.stack(np.broadcast_arrays(*words)), axis=1, return_inverse=True)
    which = np.broadcast_to(which.reshape(-1), len(active.threads))
    for place, (number, count) in enumerate(named.T.tolist()):
        yield number, count, active.threads[which == place]


def _arrive_at_barrier(active: Active, step: ThreadStep) -> None:
    """bar.arrive: those who wait there know of these threads, which go on."""
    machine = active.machine
    for number, _, arriving in _barriers(active, step.options):
        for cta in np.unique(machine.cta[arriving]).tolist():
            threads = arriving[machine.cta[arriving] == cta]
            machine.barrier_arrivals.setdefault((cta, number), []).append((len(threads), machine.order.release(threads)))


def _wait_at_barrier(active: Active, step: ThreadStep) -> None:
    for number, count, threads in _barriers(active, step.options):
        active.machine.parking.append((Barrier(number, count, step), threads))


@instruction("bar", "barrier")
def _barrier(reader: StatementReader) -> ThreadStep | None:
    """bar.sync a{, b}, barrier.sync; bar.warp.sync, whose threads wait for one another."""
    statement = reader.statement
    if reader.modifiers[0] == "cluster":
        return None
    if "warp" in reader.modifiers:
        reader.accept("warp", "sync")
        mask = reader.operand(reader.operands[0], "b32")
        masks: tuple[str, ...] = (mask,) if isinstance(mask, str) else ()
        return ThreadStep(statement, masks, (), lambda: None, execute=_meet_in_warp, options=mask, ends_block=True)
    if "red" in reader.modifiers:
        return _reducing_barrier(reader)
    reader.accept("sync", "arrive", "cta", "aligned")
    operands = [reader.operand(text, "u32") for text in reader.operands]
    if "arrive" in reader.modifiers:
        reads = tuple(each for each in operands if isinstance(each, str))
        return ThreadStep(statement, reads, (), lambda: None, execute=_arrive_at_barrier, options=operands)
    options = (operands[0], operands[1] if len(operands) > 1 else None)
    reads = tuple(each for each in options if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=_wait_at_barrier, options=options, ends_block=True)


def _reducing_barrier(reader: StatementReader) -> ThreadStep | None:
    """bar.red.popc.u32 d, a{, b}, p; bar.red.and.pred and .or.pred."""
    operation = next((name for name in ("popc", "and", "or") if name in reader.modifiers), "")
    reader.accept("red", operation, "cta", "aligned", "u32", "pred")
    target, *numbers, truth = reader.operands
    operands = [reader.operand(text, "u32") for text in numbers]
    is_negated, source = truth.startswith("!"), reader.operand(truth.lstrip("!"), "pred")

    def execute(active: Active, step: ThreadStep) -> None:
        truths = np.zeros(active.machine.lanes, bool)
        truths[active.threads] = active.read(source) ^ is_negated
        for number, count, threads in _barriers(active, (*operands, None)[:2]):
            barrier = Barrier(number, count, step, Reduction(operation, target, truths))
            for other in active.machine.parked:
                if other == barrier:
                    assert isinstance(other, Barrier)
                    if other.reduction is None or other.step is not step:
                        raise fault("not modelled", f"{step.statement.opcode} beside another instruction at one barrier", step)
                    other.reduction.truths[threads] = truths[threads]
            active.machine.parking.append((barrier, threads))

    reads = tuple(each for each in (source, *operands) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (target,), lambda: None, execute=execute, ends_block=True)


def _absent_threads(active: Active, members: np.ndarray) -> np.ndarray:
    """Of the mask `members` of each active thread those that are not active with it."""
    present = np.zeros(len(active.machine.live) // WARP, np.uint32)
    np.bitwise_or.at(present, active.threads // WARP, np.uint32(1) << (active.threads % WARP).astype(np.uint32))
    warps = active.threads // WARP
    missing: np.ndarray = members & _masks_of_warps(active.machine.live)[warps] & ~present[warps]
    return missing


def check_together(active: Active, step: ThreadStep, members: np.ndarray) -> None:
    """A fault where a thread of the mask `members` (one word a thread) of its warp is not here with the others."""
    if _absent_threads(active, members).any():
        raise fault("not modelled", f"{step.statement.opcode} where not all threads of its mask are together", step)


def _meet_in_warp(active: Active, step: ThreadStep) -> None:
    machine, members = active.machine, active.read(step.options)
    waits = _absent_threads(active, members) != 0
    if not waits.all():
        machine.order.synchronise_warps(active.threads[~waits])
    if waits.any():
        threads, meeting = active.threads[waits], machine.warp_meeting
        meeting.masks[threads] = members[waits]
        meeting.steps |= dict.fromkeys(threads.tolist(), step)
        machine.parking.append((meeting, threads))


@instruction("membar", "fence")
def _fence(reader: StatementReader) -> ThreadStep | None:
    """A fence orders what a thread does among other threads that synchronise with it, by a relaxed arrival behind it: it moves no
    words."""
    if any(name in ("proxy", "mbarrier_init") for name in reader.modifiers):
        return None

    def execute(active: Active, step: ThreadStep) -> None:
        reaches = "cta" not in reader.modifiers or active.machine.shape.cluster_ctas == 1
        machine = active.machine
        if reaches and (machine.kernel.has_relaxed_arrivals or machine.released_words is not None):
            machine.order.fence(active.threads)

    return ThreadStep(reader.statement, (), (), lambda: None, execute=execute)


@instruction("prefetch", "prefetchu", "nanosleep", "discard", "applypriority")
def _hint(reader: StatementReader) -> ThreadStep:
    return ThreadStep(reader.statement, (), (), lambda: None)


@instruction("mov")
def _clock(reader: StatementReader) -> ThreadStep | None:
    """A clock, which goes on by `LaunchShape.tick` whenever it is read: no word may depend on how fast (`launch.run_on`)."""
    target, name = reader.operands
    if name not in CLOCKS:
        return None
    width, shift = bits(reader.modifiers[-1]), np.uint64(32 * name.endswith("_hi"))

    def execute(active: Active, step: ThreadStep) -> None:
        active.machine.clock += active.machine.shape.tick
        active.machine.changes += 1  # a loop that reads a clock may end by it
        time = np.array([active.machine.clock], np.uint64) >> shift
        active.write(target, np.broadcast_to(time.astype(DTYPES[width]), len(active.threads)))

    return ThreadStep(reader.statement, (), (target,), lambda: None, execute=execute)


@instruction("createpolicy")
def _cache_policy(reader: StatementReader) -> ThreadStep:
    """What a cache keeps changes no word: the register of a policy, which accesses may name, is an opaque one."""
    policy = reader.operands[0]

    def execute(active: Active, step: ThreadStep) -> None:
        active.write(policy, np.zeros(len(active.threads), np.uint64))

    return ThreadStep(reader.statement, (), (policy,), lambda: None, execute=execute)


@instruction("trap")
def _trap(reader: StatementReader) -> ThreadStep:
    def execute(active: Active, step: ThreadStep) -> None:
        raise fault("illegal instruction", "trap", step, thread=int(active.threads[0]))

    return ThreadStep(reader.statement, (), (), lambda: None, execute=execute)


# -- asynchronous copies --------------------------------------------------------------------------------------------------------
def _copy(active: Active, step: ThreadStep) -> None:
    from bitverdict.harness.ptx_machine.access import load_global
    from bitverdict.harness.ptx_machine.threads import Copy

    shared, shared_offset, source, source_offset, size, source_size = step.options
    machine, threads = active.machine, active.threads
    addresses = (active.read(shared).astype(np.int64) & 0xFFFFFFFF) + shared_offset
    offsets = machine.shared.flat_offsets(step, threads, addresses, size, "write")
    taken = np.full(len(threads), size) if source_size is None else np.minimum(active.read(source_size).astype(np.int64), size)
    words = np.zeros((len(threads), size), np.uint8)
    from_memory = (active.read(source) + np.uint64(source_offset % (1 << 64))).astype(np.int64)
    for count in np.unique(taken):
        if count:
            landed_positions = np.flatnonzero(taken == count)
            part = load_global(machine, step, threads[landed_positions], from_memory[landed_positions], 1, int(count))
            words[landed_positions, :count] = part.view(np.uint8).reshape(len(landed_positions), -1)
    machine.copy_numbers += 1
    _mark(machine, step, threads, offsets, size, machine.copy_numbers)
    machine.copies.append(Copy(step, threads, machine.committed[threads].copy(), offsets, words, machine.copy_numbers))


def _mark(machine: Threads, step: ThreadStep, threads: np.ndarray, offsets: np.ndarray, size: int, number: int) -> None:
    """Bytes that a copy will write: none may be read, or written by another, from here on."""
    from bitverdict.harness.ptx_machine.access import raise_race

    space = machine.shared
    conflict = space.judge.write(step, threads, offsets, size)
    if conflict is not None:
        raise_race(machine, step, conflict, "shared memory", "writes", space.judge)
    units = space.units(offsets, size)
    if space.in_flight[units].any():
        raise fault("race", "two asynchronous copies that are in flight write the same bytes of shared memory", step)
    space.in_flight[units] = number
    space.steps[number] = step


def _land(machine: Threads, finished_copies: list[tuple[Copy, np.ndarray]]) -> None:
    space = machine.shared
    for copy, landed_positions in finished_copies:
        size = copy.words.shape[1]
        offsets = copy.offsets[landed_positions]
        places = offsets[:, None] // 4 + np.arange(size // 4)
        space.words(4)[places] = np.ascontiguousarray(copy.words[landed_positions]).view(np.uint32)
        space.in_flight[space.units(offsets, size)] = 0
        space.judge.write(copy.step, copy.threads[landed_positions], offsets, size)


def finish_copies(machine: Threads, threads: np.ndarray, groups_in_flight: int) -> None:
    """Let the copies of `threads` land but those of their last `groups_in_flight` groups; -1: those that are in no group too."""
    waits = np.zeros(machine.lanes, bool)
    waits[threads] = True
    finished_copies, copies_in_flight = [], []
    for copy in machine.copies:
        is_done = waits[copy.threads]
        if groups_in_flight >= 0:
            is_done &= copy.groups < machine.committed[copy.threads] - groups_in_flight
        if not is_done.any():
            copies_in_flight.append(copy)
            continue
        finished_copies.append((copy, np.flatnonzero(is_done)))
        if not is_done.all():
            kept = ~is_done
            parts = {name: getattr(copy, name)[kept] for name in ("threads", "groups", "offsets", "words")}
            copies_in_flight.append(replace(copy, **parts))
    machine.copies = copies_in_flight
    _land(machine, finished_copies)
    for number in {copy.number for copy, _ in finished_copies} - {copy.number for copy in copies_in_flight}:
        del machine.shared.steps[number]


@instruction("cp")
def _cp_async(reader: StatementReader) -> ThreadStep | None:
    """cp.async of 4, 8 or 16 bytes, its groups and waits."""
    statement, modifiers = reader.statement, reader.modifiers
    if modifiers[:1] != ["async"] or "bulk" in modifiers or "mbarrier" in modifiers:
        return None
    if "commit_group" in modifiers:

        def commit(active: Active, step: ThreadStep) -> None:
            active.machine.committed[active.threads] += 1

        return ThreadStep(statement, (), (), lambda: None, execute=commit)
    if "wait_group" in modifiers or "wait_all" in modifiers:
        groups_in_flight = int(reader.operands[0], 0) if reader.operands else -1

        def wait(active: Active, step: ThreadStep) -> None:
            finish_copies(active.machine, active.threads, groups_in_flight)

        return ThreadStep(statement, (), (), lambda: None, execute=wait)
    reader.accept("async", "ca", "cg", "shared", "shared::cta", "global")
    (shared, shared_offset), (source, source_offset) = (reader.address(text) for text in reader.operands[:2])
    size = int(reader.operands[2], 0)
    has_hint = any("cache_hint" in name for name in modifiers)
    rest = reader.operands[3 : len(reader.operands) - has_hint]
    source_size = reader.operand(rest[0], "u32") if rest else None
    options = (shared, shared_offset, source, source_offset, size, source_size)
    reads = tuple(each for each in (shared, source, source_size) if isinstance(each, str))
    return ThreadStep(statement, reads, (), lambda: None, execute=_copy, options=options, size=32)
