"""mbarriers of threads (PTX ISA 9.7.13.15) and the fence between the proxies (8.6).

An arrival releases what its thread knows and has done; who waits for the phase acquires what all arrivals released, and the copies
that the phase has counted. A wait parks its threads until the phase is complete: copies that it counts land then, and no earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.ptx.opcodes import Words
from bitverdict.harness.ptx_machine.access import other_end, raise_race
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.shared_space import OWN, PEERS
from bitverdict.harness.ptx_machine.synchronisation import finish_copies

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads

_SEMANTICS = ("acquire", "release", "relaxed", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64")


Act = Callable[..., int | None]  # at the barrier of some threads; the phase that they arrive in
Knowledge = tuple[np.ndarray, np.ndarray | None]  # what is known, and what is known to be fenced


def merge(one: Knowledge | None, other: Knowledge | None) -> Knowledge | None:
    if one is None or other is None:
        return one or other
    return np.maximum(one[0], other[0]), None if one[1] is None or other[1] is None else np.maximum(one[1], other[1])


@dataclass(eq=False)
class BulkWrite:
    """A copy of the async proxy into shared memory that has not landed: `words` for the bytes at `offsets` of all shared memory."""

    step: ThreadStep
    offsets: np.ndarray
    words: np.ndarray  # uint8
    units: np.ndarray
    number: int
    source_cta: int = -1  # whose shared memory it reads, at these units
    source_units: np.ndarray | None = None


@dataclass(eq=False)
class Mbarrier:
    """One mbarrier object of a CTA: `phase` phases are complete; `arrivals` and `bytes` are missing for the next one. What came in
    the open phase is `open_phase`; what its completion makes known to waiters is `knowledge`. `flights` have not landed."""

    step: ThreadStep
    count: int
    open_phase: Knowledge | None = None
    knowledge: Knowledge | None = None
    flights: list[BulkWrite] = field(default_factory=list)
    commits: list[Callable[[int], ThreadStep]] = field(default_factory=list)  # tcgen05.commit: ends what it covers, in an epoch
    phase: int = 0
    arrivals: int = 0
    bytes: int = 0
    async_epoch: int = 0  # of what was counted
    initialiser: int = -1  # thread
    is_fenced: bool = False  # by the fence.mbarrier_init of that thread, which has not met its cluster since
    met_phase: int = 0  # of the cluster's barrier: who has waited for it knows of this mbarrier; 0: none

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.arrivals} of {self.count} arrivals and {self.bytes} bytes missing"

    def land(self, machine: Threads, cta: int) -> None:
        """What is in flight to this barrier is in, and counted."""
        space, flights, self.flights = machine.shared, self.flights, []
        machine.changes += bool(flights or self.commits)
        cluster = cta // machine.shape.cluster_ctas
        for flight in flights:
            machine.order.async_epoch[cluster] += 1
            self.async_epoch = int(machine.order.async_epoch[cluster])
            space.raw.reshape(-1)[flight.offsets] = flight.words
            space.in_flight[flight.units] = 0
            del space.steps[flight.number]
            space.judge.land(flight.step, flight.units, self.async_epoch)
            self.bytes -= len(flight.words)
            for other in {int(flight.offsets[0]) // space.raw.shape[1], flight.source_cta} - {cta, -1}:
                machine.cluster_phases.landings[other] = self.async_epoch, flight.step
            if flight.source_units is not None:
                space.is_read[flight.source_units[space.is_read[flight.source_units] == flight.number]] = 0
        self.settle(flights[-1].step if flights else self.step)
        commits, self.commits = self.commits, []
        for end in commits:
            machine.order.async_epoch[cluster] += 1
            self.async_epoch = int(machine.order.async_epoch[cluster])
            self.arrive(end(self.async_epoch), 1)

    def arrive(self, step: ThreadStep, count: int) -> None:
        """`count` arrivals, which may complete the phase."""
        if count > self.arrivals:
            raise _misuse(step, f"{count} arrivals at a barrier that expects {self.arrivals} more in this phase", self)
        self.arrivals -= count
        self.settle(step)

    def settle(self, step: ThreadStep) -> None:
        """Complete the open phase where nothing is missing."""
        if self.arrivals:
            return
        if self.bytes < 0 and not self.flights:
            raise _misuse(step, f"{-self.bytes} bytes more arrived at a barrier than it expects in this phase", self)
        if self.bytes == 0:
            self.phase += 1
            self.arrivals = self.count
            self.knowledge, self.open_phase = merge(self.knowledge, self.open_phase), None


def _misuse(step: ThreadStep, message: str, barrier: Mbarrier | None = None) -> Any:
    return fault("barrier misuse", message, step, **(other_end(barrier.step) if barrier else {}))


def barrier_at(machine: Threads, step: ThreadStep, cta: int, address: int) -> Mbarrier:
    barrier = machine.mbarriers.get((cta, address))
    if barrier is None:
        raise _misuse(step, f"{step.statement.opcode} at byte {address} of shared memory, where no barrier is initialised")
    return barrier


def by_barrier(active: Active, step: ThreadStep, base: str | Words, offset: int) -> Iterator[tuple[int, int, np.ndarray]]:
    """(CTA, byte of a barrier in its shared memory, positions of the active threads that name it)."""
    addresses = (active.read(base).astype(np.int64) + offset) & 0xFFFFFFFF
    peer_access = PEERS if "shared::cluster" in step.statement.opcode else OWN
    ctas, places = active.machine.shared.split(step, active.threads, addresses, peer_access)
    keys = ctas << 32 | places
    for key in np.unique(keys).tolist():
        yield key >> 32, key & 0xFFFFFFFF, np.flatnonzero(keys == key)


def hold_to_init(machine: Threads, step: ThreadStep, cta: int, address: int, threads: np.ndarray) -> None:
    """The barrier was initialised before: by one of these threads, or by one that they have met since, if only at a relaxed barrier
    of the cluster behind a fence.mbarrier_init."""
    space, barrier = machine.shared, barrier_at(machine, step, cta, address)
    if barrier.met_phase:
        threads = threads[machine.cluster_phases.waits[threads] < barrier.met_phase]
    units = np.full(len(threads), (cta * space.raw.shape[1] + address) // space.judge.unit)
    if conflict := space.judge.with_writer(threads, units, space.judge.shadow.slots(units)):
        raise_race(machine, step, conflict, "shared memory", "uses the barrier at", space.judge)


@instruction("mbarrier")
def _mbarrier(reader: StatementReader) -> ThreadStep | None:
    kind, operands, statement = reader.modifiers[0], reader.operands, reader.statement
    if "noComplete" in reader.modifiers:
        return None
    if kind == "init":
        reader.accept("init", *_SEMANTICS)
        return _simple(reader, operands[0], operands[1], _init)
    if kind == "inval":
        reader.accept("inval", *_SEMANTICS)
        return _simple(reader, operands[0], None, _invalidate)
    if kind in ("expect_tx", "complete_tx"):
        reader.accept(kind, *_SEMANTICS)
        return _simple(reader, operands[0], operands[1], _expect if kind == "expect_tx" else _complete_bytes)
    if kind == "arrive":
        expects = "expect_tx" in reader.modifiers
        reader.accept("arrive", "expect_tx", *_SEMANTICS)
        return _simple(
            reader, operands[1], operands[2] if len(operands) > 2 else None, _expect_arrive if expects else _arrive, operands[0]
        )
    if kind not in ("try_wait", "test_wait"):
        return None
    reader.accept(kind, "parity", *_SEMANTICS)
    predicate, (base, offset) = operands[0], reader.address(operands[1])
    target_phase = reader.operand(operands[2], "u32" if "parity" in reader.modifiers else "b64")
    is_parity, blocks = "parity" in reader.modifiers, kind == "try_wait"

    def execute(active: Active, step: ThreadStep) -> None:
        machine = active.machine
        parity = active.read(target_phase).astype(np.int64)
        passes, waits = np.zeros(len(active.threads), bool), []
        for cta, address, positions in by_barrier(active, step, base, offset):
            barrier = barrier_at(machine, step, cta, address)
            hold_to_init(active.machine, step, cta, address, active.threads[positions])
            barrier.land(machine, cta)
            passed = (barrier.phase - 1 & 1) == (parity[positions] & 1) if is_parity else barrier.phase != parity[positions]
            passes[positions] = passed
            acquire(machine, barrier, active.threads[positions[passed]])
            waits.append((barrier, cta, positions, parity[positions]))
        if blocks and not passes.all():
            barriers, barrier_numbers, target_phases = _wanted_phases(active, waits)
            barrier_numbers[active.threads[passes]] = -1
            wait = PhaseWait(step, predicate, is_parity, barriers, barrier_numbers, target_phases)
            machine.parking.append((wait, active.threads[~passes]))
            passes[:] = True
        active.write(predicate, passes)

    reads = tuple(each for each in (base, target_phase) if isinstance(each, str))
    return ThreadStep(statement, reads, (predicate,), lambda: None, execute=execute, ends_block=blocks)


def _wanted_phases(
    active: Active, waits: list[tuple[Mbarrier, int, np.ndarray, np.ndarray]]
) -> tuple[list[tuple[Mbarrier, int]], np.ndarray, np.ndarray]:
    """The barriers, which of them each thread waits at (-1: none), and for which parity or phase."""
    barrier_numbers, target_phase = np.full(active.machine.lanes, -1), np.zeros(active.machine.lanes, np.int64)
    for number, (_, _, positions, parity) in enumerate(waits):
        barrier_numbers[active.threads[positions]] = number
        target_phase[active.threads[positions]] = parity
    return [(barrier, cta) for barrier, cta, _, _ in waits], barrier_numbers, target_phase


@dataclass(eq=False)
class PhaseWait:
    """Threads that wait: each at its one of `barriers`, until the phase of the parity `target_phases` is complete."""

    step: ThreadStep
    predicate: str
    is_parity: bool
    barriers: list[tuple[Mbarrier, int]]
    barrier_numbers: np.ndarray
    target_phases: np.ndarray

    def __str__(self) -> str:
        return f"an mbarrier ({self.barriers[self.barrier_numbers[self.barrier_numbers >= 0][0]][0]})"

    def passes(self, machine: Threads, is_parked: np.ndarray) -> np.ndarray:
        """Which of those parked here may go on."""
        may_pass = np.zeros(machine.lanes, bool)
        for number, (barrier, cta) in enumerate(self.barriers):
            barrier.land(machine, cta)
            here = is_parked & (self.barrier_numbers == number)
            may_pass |= here & (
                ((barrier.phase - 1) & 1) == (self.target_phases & 1) if self.is_parity else barrier.phase != self.target_phases
            )
        return np.flatnonzero(may_pass)

    def acquire(self, machine: Threads, ready_threads: np.ndarray) -> None:
        for number, (barrier, _) in enumerate(self.barriers):
            acquire(machine, barrier, ready_threads[self.barrier_numbers[ready_threads] == number])
        self.barrier_numbers[ready_threads] = -1


def acquire(machine: Threads, barrier: Mbarrier, threads: np.ndarray) -> None:
    """`threads`, of one cluster, have seen the last phase of `barrier` complete."""
    if not len(threads):
        return
    if barrier.knowledge is not None:
        machine.order.acquire(threads, *barrier.knowledge)
    machine.order.known[threads, -1] = np.maximum(machine.order.known[threads, -1], barrier.async_epoch)


def _simple(reader: StatementReader, place: str, value: str | None, act: Act, target: str = "_") -> ThreadStep:
    """A step that does `act` at the barrier of each thread, with the values [threads] of its operand; 1 where it has none."""
    base, offset = reader.address(place)
    operand = np.ones(1, np.uint32) if value is None else reader.operand(value, "u32")

    def execute(active: Active, step: ThreadStep) -> None:
        values = active.read(operand).astype(np.int64)
        states = np.zeros(len(active.threads), np.uint64)
        for cta, address, positions in by_barrier(active, step, base, offset):
            states[positions] = act(active, step, cta, address, positions, values[positions]) or 0
        active.write(target, states)

    reads = tuple(each for each in (base, operand) if isinstance(each, str))
    return ThreadStep(
        reader.statement, reads, () if target == "_" else (target,), lambda: None, execute=execute, size=64 if act is _init else 0
    )


def _init(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, counts: np.ndarray) -> None:
    machine, threads = active.machine, active.threads[positions]
    if (cta, address) in machine.mbarriers:
        other = machine.mbarriers[cta, address]
        raise _misuse(step, f"{step.statement.opcode} at byte {address} of shared memory, where a barrier lives already", other)
    offsets = machine.shared.flat_offsets(step, threads[:1], address + machine.shared.ranks(np.array([cta])), 8, "write")
    if conflict := machine.shared.judge.write(step, threads[:1], offsets, 8):
        raise_race(machine, step, conflict, "shared memory", "writes", machine.shared.judge)
    machine.mbarriers[cta, address] = Mbarrier(step, int(counts[0]), arrivals=int(counts[0]), initialiser=int(threads[0]))


def _invalidate(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, _: np.ndarray) -> None:
    barrier_at(active.machine, step, cta, address)
    del active.machine.mbarriers[cta, address]


def _expect(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, sizes: np.ndarray) -> None:
    hold_to_init(active.machine, step, cta, address, active.threads[positions])
    barrier_at(active.machine, step, cta, address).bytes += int(sizes.sum())


def _complete_bytes(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, sizes: np.ndarray) -> None:
    barrier = barrier_at(active.machine, step, cta, address)
    barrier.bytes -= int(sizes.sum())
    barrier.settle(step)


def _expect_arrive(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, sizes: np.ndarray) -> int:
    barrier_at(active.machine, step, cta, address).bytes += int(sizes.sum())
    return _arrive(active, step, cta, address, positions, np.ones_like(sizes))


def _arrive(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, counts: np.ndarray) -> int:
    """Arrivals of threads of one cluster; the phase that they arrive in."""
    machine = active.machine
    barrier, phase = barrier_at(machine, step, cta, address), machine.mbarriers[cta, address].phase
    hold_to_init(active.machine, step, cta, address, active.threads[positions])
    released = machine.order.release(active.threads[positions], is_relaxed="relaxed" in step.statement.opcode)
    barrier.open_phase = merge(barrier.open_phase, released)
    barrier.arrive(step, int(counts.sum()))
    return phase


@instruction("cp")
def _arrive_behind_copies(reader: StatementReader) -> ThreadStep | None:
    """cp.async.mbarrier.arrive: an arrival once the thread's earlier cp.async are complete, for which the phase waits beyond its
    count; with .noinc one of its count."""
    if "mbarrier" not in reader.modifiers or "bulk" in reader.modifiers:
        return None
    reader.accept("async", "mbarrier", "arrive", "noinc", *_SEMANTICS)
    is_counted = "noinc" in reader.modifiers

    def act(active: Active, step: ThreadStep, cta: int, address: int, positions: np.ndarray, counts: np.ndarray) -> int:
        if not is_counted:
            barrier_at(active.machine, step, cta, address).arrivals += int(counts.sum())
        finish_copies(active.machine, active.threads[positions], -1)
        return _arrive(active, step, cta, address, positions, counts)

    return _simple(reader, reader.operands[0], None, act)


def _fence_init(active: Active, step: ThreadStep) -> None:
    for barrier in active.machine.mbarriers.values():
        barrier.is_fenced |= not barrier.met_phase and barrier.initialiser in active.threads


@instruction("fence")
def _proxy_fence(reader: StatementReader) -> ThreadStep | None:
    """fence.proxy.async orders generic writes before what the async proxy does, fence.mbarrier_init the inits of its threads before
    the next barrier of the cluster; the fences of tensor maps order what is at once here."""
    names = reader.modifiers
    if "tensormap::generic" in names:
        return ThreadStep(reader.statement, (), (), lambda: None)
    if "mbarrier_init" in names:
        return ThreadStep(reader.statement, (), (), lambda: None, execute=_fence_init)
    if names[:2] != ["proxy", "async"] and names[:2] != ["proxy", "async::generic"]:
        return None
    reader.accept("proxy", "async", "shared::cta", "shared::cluster", "global")

    def execute(active: Active, step: ThreadStep) -> None:
        if names[-1] != "global":
            active.machine.order.fence_proxy(active.threads)

    return ThreadStep(reader.statement, (), (), lambda: None, execute=execute)


__all__ = ["BulkWrite", "Mbarrier", "barrier_at", "by_barrier", "hold_to_init"]
