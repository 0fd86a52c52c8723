"""Clusters of CTAs (PTX ISA 3.2, 9.7.13.4): their barrier, addresses in the shared memory of a peer, and when a peer is there.

An address of shared memory has the rank of its CTA in the cluster from bit 24 on, which compilers rely on: they clear that bit to
reach the even CTA of a pair. CTAs of a cluster are neighbours in the machine, rank by rank, and lie in one batch.

A peer's shared memory may be used once its CTA has begun, and until it ends (CUDA C++ Programming Guide, distributed shared
memory). That it has begun a barrier of the cluster tells. Before it ends one of its threads must know of each such use: by a
barrier of the cluster, or by an mbarrier that the user arrives at behind it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.ptx_machine.access import SHARED_WINDOW
from bitverdict.harness.ptx_machine.mbarriers import Knowledge, merge
from bitverdict.harness.ptx_machine.program import StatementReader, ThreadStep, fault, instruction
from bitverdict.harness.ptx_machine.shared_space import RANK_BITS
from bitverdict.harness.ptx_machine.thread_order import WARP

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Active, Threads


@dataclass(eq=False)
class ClusterPhases:
    """How often each thread has arrived at its cluster's barrier and has waited there; what the arrivals of a phase, from 1, have
    released, by cluster and phase. `uses`: by CTA and warp of its cluster the last epoch in which a thread of another CTA used
    this one's shared memory, and the step; `landings`: of the last asynchronous operation that another CTA's mbarrier counts."""

    lanes: int
    ctas: int
    warps: int
    arrivals: np.ndarray = field(init=False)
    waits: np.ndarray = field(init=False)
    knowledge: dict[tuple[int, int], Knowledge | None] = field(default_factory=dict)
    uses: np.ndarray = field(init=False)
    steps: dict[tuple[int, int], ThreadStep] = field(default_factory=dict)
    landings: dict[int, tuple[int, ThreadStep]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrivals, self.waits = np.zeros((2, self.lanes), np.int32)
        self.uses = np.zeros((self.ctas, self.warps), np.int32)


def reach_peers(machine: Threads, step: ThreadStep, threads: np.ndarray, ctas: np.ndarray, *, is_async: bool) -> None:
    """`threads` use the shared memory of `ctas`, some of which are not theirs. A race where such a one may not have begun, or has
    ended. `is_async`: what is used lands later, and is known by its mbarrier."""
    is_remote = machine.cta[threads] != ctas
    threads, ctas = threads[is_remote], ctas[is_remote]
    phases = machine.cluster_phases
    is_live = np.any(machine.live.reshape(-1, machine.shape.threads), axis=1)
    for is_wrong, reason in ((phases.waits[threads] == 0, "may not have begun: no barrier of the cluster lies before"),
                             (np.logical_not(is_live[ctas]), "has ended: nothing orders its end behind this")):  # fmt: skip
        if is_wrong.any():
            raise _peer_race(machine, step, int(threads[is_wrong.argmax()]), int(ctas[is_wrong.argmax()]), reason)
    if is_async:
        return
    warps = threads // WARP
    np.maximum.at(phases.uses, (ctas, warps % phases.warps), machine.order.epoch[warps])
    for user in np.unique(ctas * phases.warps + warps % phases.warps).tolist():
        phases.steps[divmod(user, phases.warps)] = step


def leave(machine: Threads, threads: np.ndarray) -> None:
    """`threads` have ended. A race where that ends a CTA of which a peer may still use the shared memory."""
    phases, size = machine.cluster_phases, machine.shape.threads
    ended = np.unique(machine.cta[threads])
    for cta in ended[~machine.live.reshape(-1, size)[ended].any(axis=1)].tolist():
        known_epochs = machine.order.known[cta * size : (cta + 1) * size].max(axis=0)
        unknown = np.flatnonzero(known_epochs[:-1] < phases.uses[cta])
        if len(unknown):
            first_thread = (cta - cta % machine.shape.cluster_ctas) * size
            user = first_thread + int(unknown[0]) * WARP
            step = phases.steps[cta, int(unknown[0])]
            raise _peer_race(machine, step, user, cta, "may have ended: nothing orders its end behind this")
        if cta in phases.landings and known_epochs[-1] < phases.landings[cta][0]:
            step = phases.landings[cta][1]
            raise _peer_race(machine, step, cta * size, cta, "may have ended: it does not know that this is complete")


def _peer_race(machine: Threads, step: ThreadStep, thread: int, cta: int, reason: str) -> Exception:
    n, size = machine.shape.cluster_ctas, machine.shape.threads
    who = f"{step.statement.opcode} by thread {thread % size} of rank {thread // size % n}"
    message = f"{who} uses the shared memory of rank {cta % n} of its cluster, which {reason}"
    return fault("race", message, step, thread=thread, rule="CUDA C++ Programming Guide, distributed shared memory")


# -- the barrier of a cluster -------------------------------------------------------------------------------------------------
@dataclass(eq=False)
class ClusterWait:
    """Threads that wait until all threads of their cluster that have not ended have arrived as often as they have."""

    step: ThreadStep

    def __str__(self) -> str:
        return "the barrier of its cluster"

    def passes(self, machine: Threads, is_parked: np.ndarray) -> np.ndarray:
        phases, of_cluster = machine.cluster_phases, machine.order.threads
        arrivals = np.where(machine.live, phases.arrivals, np.iinfo(np.int32).max).reshape(-1, of_cluster).min(axis=1)
        return np.flatnonzero(is_parked & (arrivals[machine.all // of_cluster] > phases.waits))

    def acquire(self, machine: Threads, ready_threads: np.ndarray) -> None:
        phases, of_cluster = machine.cluster_phases, machine.order.threads
        phases.waits[ready_threads] += 1
        for cluster in np.unique(ready_threads // of_cluster).tolist():
            here = ready_threads[ready_threads // of_cluster == cluster]
            if (knowledge := phases.knowledge.get((cluster, int(phases.waits[here[0]])))) is not None:
                machine.order.acquire(here, *knowledge)


def _arrive(active: Active, step: ThreadStep) -> None:
    machine, threads = active.machine, active.threads
    phases, of_cluster = machine.cluster_phases, machine.order.threads
    _hold_to_turn(machine, step, threads, phases.arrivals[threads] != phases.waits[threads], "arrives twice without a wait between")
    phases.arrivals[threads] += 1
    for cluster in np.unique(threads // of_cluster).tolist():
        here = threads[threads // of_cluster == cluster]
        key = cluster, int(phases.arrivals[here[0]])
        released = machine.order.release(here, is_relaxed="relaxed" in step.statement.opcode)
        phases.knowledge[key] = merge(phases.knowledge.get(key), released)
        for barrier in machine.mbarriers.values():
            if barrier.is_fenced and barrier.initialiser in here:
                barrier.is_fenced, barrier.met_phase = False, key[1]


def _wait(active: Active, step: ThreadStep) -> None:
    machine, threads = active.machine, active.threads
    phases = machine.cluster_phases
    _hold_to_turn(machine, step, threads, phases.arrivals[threads] == phases.waits[threads], "waits without having arrived")
    machine.parking.append((ClusterWait(step), threads))


def _hold_to_turn(machine: Threads, step: ThreadStep, threads: np.ndarray, is_wrong: np.ndarray, what: str) -> None:
    if is_wrong.any():
        thread = int(threads[is_wrong.argmax()])
        message = f"thread {thread % machine.shape.threads} {what} at its cluster's barrier"
        raise fault("barrier misuse", message, step, thread=thread)


@instruction("barrier")
def _cluster_barrier(reader: StatementReader) -> ThreadStep | None:
    """barrier.cluster.arrive, which releases unless it is relaxed, and barrier.cluster.wait, which acquires."""
    names = reader.modifiers
    if names[0] != "cluster":
        return None
    reader.accept("cluster", "arrive", "wait", "aligned", "release", "relaxed", "acquire")
    if "wait" in names:
        return ThreadStep(reader.statement, (), (), lambda: None, execute=_wait, ends_block=True)
    return ThreadStep(reader.statement, (), (), lambda: None, execute=_arrive)


# -- addresses ----------------------------------------------------------------------------------------------------------------
@instruction("mapa", "getctarank")
def _map_address(reader: StatementReader) -> ThreadStep | None:
    """mapa: the address of the same byte in the CTA of a rank; getctarank: the rank of an address. Generic ones without a space."""
    names, (target, source, *rest) = reader.modifiers, reader.operands
    kind = names[-1]
    reader.accept("shared::cluster", kind)
    window = np.uint64(0 if "shared::cluster" in names else SHARED_WINDOW)
    place, rank = reader.operand(source, kind), reader.operand(rest[0], "u32") if rest else None

    def execute(active: Active, step: ThreadStep) -> None:
        addresses = active.read(place).astype(np.uint64) - window
        if rank is None:
            active.write(target, (addresses >> np.uint64(RANK_BITS)).astype(np.uint32))
            return
        mapped = addresses & np.uint64((1 << RANK_BITS) - 1) | active.read(rank).astype(np.uint64) << np.uint64(RANK_BITS)
        active.write(target, (mapped + window).astype(np.uint32 if kind == "u32" else np.uint64))

    reads = tuple(each for each in (place, rank) if isinstance(each, str))
    return ThreadStep(reader.statement, reads, (target,), lambda: None, execute=execute)


@instruction("mov")
def _wide_address(reader: StatementReader) -> ThreadStep | None:
    """mov.u64 of the address of a variable of shared memory, which a register of 32 bits holds here."""
    target, source = reader.operands
    if source.startswith("%") or source not in reader.function.registers or reader.modifiers[-1] not in ("u64", "b64", "s64"):
        return None

    def execute(active: Active, step: ThreadStep) -> None:
        active.write(target, active.read(source).astype(np.uint64))

    return ThreadStep(reader.statement, (source,), (target,), lambda: None, execute=execute)


__all__ = ["ClusterPhases", "leave", "reach_peers"]
