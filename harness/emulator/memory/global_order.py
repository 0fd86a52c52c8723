"""Order in global memory: who touched each place last, and whether one that touches it now knows of that.

Happens-before by clocks (PTX ISA 8, Memory Consistency Model). An *event* is one execution of one operation by one agent, in an
*epoch* of that agent; a barrier of its threads ends an epoch. An agent knows the events of another up to some epoch. It learns
more by an acquire that reads what a release wrote, or what atomic updates made of that (8.8 release and acquire patterns, 8.9.2
observation order): a release leaves a *message*, what its agent knows, with the words that it writes. Causality is transitive
(8.9.5), so messages carry on what their writer had acquired. Two accesses to one place, one of them a write, that are not so
ordered are a race, unless both are atomics whose scopes hold the other (8.7 morally strong).

Inside one program the same holds of threads: what one thread wrote since the last barrier, another one does not know. Which thread
touches an element is a fact of its type (`threads`).

Ordinary loads of storages that no operation of the program may write cost nothing: `Region.changes` says so before the launch.
"""

# One file because the rules of PTX's memory model are one relation over the same marks and messages.
from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.async_rules import Proxy, rule_of
from bitverdict.harness.emulator.execution.threads import SCALAR, WARP, Owners, owners
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.demanded_copies import DemandedCopies
from bitverdict.harness.emulator.memory.byte_arrays import zeros

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.frontend.program_facts import ProgramFacts
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.mlir_reader import Operation

OPEN = np.iinfo(np.int32).max  # epoch of a bulk store that no wait covers: nobody knows of it, its own program included
ALWAYS = OPEN - 1  # what an agent knows of itself
ORDINARY, BULK, NARROW, WIDE_SCOPE, BULK_UPDATE = range(5)
"""Events: weak accesses, those of the async proxy, atomics of scope cta, of gpu or sys, and atomics of the async proxy."""
ASYNC = (BULK, BULK_UPDATE)
STRONG = (WIDE_SCOPE, BULK_UPDATE)  # morally strong relative to one another, whoever makes them (8.7)
MOST_TRACED = 1 << 22  # places of one agent's events since its last barrier, whose threads are remembered
BETWEEN_PROGRAMS = "tl.atomic_add (or another atomic) where programs add to one element, else elements of its own for each program"
MOST_HIDDEN = 256  # reads hidden by others, before those that a later write has answered are dropped
MESSAGE_BYTES = 256 << 20  # of messages, before those that no word carries any more are dropped
RELEASES, ACQUIRES = (3, 4), (2, 4)  # MemSemantic of TritonAttrDefs.td: relaxed 1, acquire 2, release 3, acq_rel 4
CTA = 2  # MemSyncScope: gpu 1, cta 2, system 3
SEMANTICS = {1: "relaxed", 2: "acquire", 3: "release", 4: "acq_rel"}


class Marks:
    """What is remembered of one storage, by places of `unit` bytes: the event that last wrote each, that last updated it by an
    atomic, that last read it (0 for none), and the message that its word carries."""

    def __init__(self, size: int, unit: int) -> None:
        self.size, self.unit = size, unit
        self.ordinary: np.ndarray | None = None  # each: (places,) int32
        self.atomic: np.ndarray | None = None
        self.read: np.ndarray | None = None
        self.message: np.ndarray | None = None
        self.carriers: list[np.ndarray] = []  # places whose words may carry one
        self.crowd: dict[int, np.ndarray] = {}  # reads that another program's read hid -> places
        self.crowded: np.ndarray | None = None  # (places,) bool

    def array_of(self, name: str) -> np.ndarray:
        """The array `name`, made when it is first written."""
        found = getattr(self, name)
        if found is None:
            found = zeros(-(-self.size // self.unit), np.bool_ if name == "crowded" else np.int32)
            setattr(self, name, found)
        return found

    def places(self, offsets: np.ndarray | slice, size: int) -> np.ndarray | slice:
        """The places, flat, of elements of `size` bytes at byte `offsets`: size / unit of them for each. A slice of bytes is of
        neighbours, and gives a slice."""
        if size < self.unit:
            self._refine(size)
        if isinstance(offsets, slice):
            return slice(offsets.start // self.unit, offsets.stop // self.unit)
        offsets = offsets.reshape(-1)
        if size == self.unit:
            return offsets // size if size > 1 else offsets
        return (offsets[:, None] // self.unit + np.arange(size // self.unit)).reshape(-1)

    def _refine(self, unit: int) -> None:
        """Remember by smaller places from now on."""
        times = self.unit // unit
        for name in ("ordinary", "atomic", "read", "message", "crowded"):
            if (found := getattr(self, name)) is not None:
                setattr(self, name, np.repeat(found, times))
        finer = lambda places: (places[:, None] * times + np.arange(times)).reshape(-1)
        self.crowd = {event: finer(places) for event, places in self.crowd.items()}
        self.carriers = [finer(places) for places in self.carriers]
        self.unit = unit


@dataclass(slots=True)
class Access:
    """One access that is being judged: the places `at` (flat; a slice for neighbours) of `region`, those where `inside` (flat, None
    for all); `times` places are one element."""

    op: Operation
    agent: Agent
    region: Region
    index: np.ndarray | slice
    inside: np.ndarray | None
    times: int
    kind: int = ORDINARY
    proxy: Proxy = Proxy.GENERIC
    loads: bool = False

    @property
    def count(self) -> int:
        """How many places."""
        return self.index.stop - self.index.start if isinstance(self.index, slice) else self.index.size

    @property
    def places(self) -> np.ndarray:
        """The places, one by one."""
        return np.arange(self.index.start, self.index.stop) if isinstance(self.index, slice) else self.index

    def elements(self) -> np.ndarray:
        """The element that each place belongs to, those outside the mask left out."""
        found = np.arange(self.count) if self.inside is None else np.flatnonzero(self.inside)
        return found // self.times

    def masked_places(self) -> np.ndarray | slice:
        """The places inside the mask."""
        return self.index if self.inside is None else self.places[self.inside]


@dataclass(slots=True)
class Message:
    """What a release made known, as in `Agent.beyond`, and who released where."""

    epochs: np.ndarray  # (slots,) int32, or (2 * slots,) with what is fenced for the async proxy
    op: Operation
    slot: int


@dataclass
class AgentAtomics:
    """The last atomics of one agent, for the report of a race: its last release, and its last that released nothing."""

    release: tuple[Operation, int] | None = None
    last_relaxed: tuple[Operation, int] | None = None
    saw: list[tuple[Operation, int]] = field(default_factory=list)  # reads that acquired nothing, with their messages


class GlobalOrder:
    """The events of one launch of `programs` programs, each of up to `facts.agents` agents."""

    def __init__(self, programs: int, facts: ProgramFacts, regions: list[Region]) -> None:
        self.facts, self.programs, self.regions = facts, programs, regions
        self.width, self.most_bytes = facts.agents, MESSAGE_BYTES
        self.slots = np.zeros(1024, np.int32)  # (events,) who; event 0 is none
        self.epochs = np.zeros(1024, np.int32)  # (events,)
        self.kinds = np.zeros(1024, np.uint8)  # (events,)
        self.operations: list[Operation | None] = [None]
        self.traces: dict[int, Access] = {}  # of events since the last barrier of their agent
        self.messages: list[Message | None] = [None]
        self.landed: set[int] = set()  # bulk stores that have written, known to anybody or not
        self.synchronised: dict[int, AgentAtomics] = {}
        self.notes: set[Note] = set()
        self.owners: dict[Operation, Owners] = {}

    @cached_property
    def warp(self) -> int:
        """Threads of a warp."""
        return self.facts.program.integer("ttg.threads-per-warp", WARP)

    @cached_property
    def all_threads(self) -> int:
        """The bits that the number of a thread may have."""
        program = self.facts.program
        return self.warp * program.integer("ttg.total-num-warps", program.integer("ttg.num-warps", 4)) - 1

    # -- agents -------------------------------------------------------------------------------------------------------
    @property
    def clock_length(self) -> int:
        """How many epochs of other agents an agent keeps: none where nothing tells it of them, twice as many where the author
        fences the async proxy."""
        if not self.facts.synchronises and self.width == 1:
            return 0
        return self.programs * self.width * (2 if self.facts.fences_proxy else 1)

    def admit(self, agent: Agent, program: int) -> None:
        """`agent` is one of `program` from here on, and knows of itself."""
        agent.program, agent.slot = program, program * self.width + agent.number
        count = self.programs * self.width
        agent.known_epochs, agent.fenced_epochs = agent.beyond[:count], agent.beyond[count:]
        if agent.known_epochs.size:
            agent.known_epochs[agent.slot] = ALWAYS
        agent.segment = agent.warp_segment = len(self.operations)
        agent.traced_events, agent.places = [], 0

    def meet(self, agent: Agent) -> None:
        """A barrier of all threads of `agent`: each knows what the others did before it."""
        agent.segment = agent.warp_segment = len(self.operations)
        agent.wrote = False
        if agent.traced_events:
            self._forget(agent, len(agent.traced_events))
        if self.facts.synchronises:
            agent.joined_epoch = int(agent.clock[agent.number])
            agent.clock[agent.number] += 1

    def meet_warps(self, agent: Agent) -> None:
        """Values went from thread to thread within each warp: what a warp did before is done."""
        agent.warp_segment = len(self.operations)

    def _event(self, access: Access, *, epoch: int | None = None) -> int:
        event = len(self.operations)
        if event == self.slots.size:
            for name in ("slots", "epochs", "kinds"):
                held = getattr(self, name)
                setattr(self, name, np.concatenate([held, np.zeros_like(held)]))
        agent = access.agent
        self.slots[event] = agent.slot
        self.epochs[event] = agent.clock[agent.number] if epoch is None else epoch
        self.kinds[event] = access.kind
        self.operations.append(access.op)
        if access.kind not in ASYNC and self.facts.returns_to:
            self.traces[event] = access
            agent.traced_events.append(event)
            agent.places += access.count
            if agent.places > MOST_TRACED:
                self._forget(agent, len(agent.traced_events) // 2 + 1)
        return event

    def _forget(self, agent: Agent, count: int) -> None:
        """Which threads made the oldest `count` events of `agent` since its last barrier is not asked any more."""
        for event in agent.traced_events[:count]:
            agent.places -= self.traces.pop(event).count
        del agent.traced_events[:count]

    def unknown_events(self, events: np.ndarray, agent: Agent) -> np.ndarray:
        """Which of `events` (0 for none) `agent` does not know of."""
        slots = self.slots.take(events)
        known_epochs = agent.known_epochs
        if not known_epochs.size:
            return ((slots != agent.slot) & (events > 0)) | (self.epochs.take(events) == OPEN)
        if self.width > 1:
            mine = known_epochs[agent.slot - agent.number :][: self.width]
            np.maximum(mine, agent.clock[: self.width], out=mine)
            mine[agent.number] = ALWAYS
        return self.epochs.take(events) > known_epochs.take(slots)

    # -- ordinary accesses --------------------------------------------------------------------------------------------
    def access(
        self,
        op: Operation,
        agent: Agent,
        region: Region,
        offsets: np.ndarray | slice,
        inside: np.ndarray | None,
        size: int,
        kind: int,
    ) -> Access:
        """The access of `op` to elements of `size` bytes at byte `offsets` of `region`, where `inside`."""
        if region.marks is None:
            region.marks = Marks(region.raw.size, size)
        marks = region.marks
        places = marks.places(offsets, size)
        times = max(size // marks.unit, 1)
        flat = None if inside is None else inside.reshape(-1)
        return Access(op, agent, region, places, flat if flat is None or times == 1 else np.repeat(flat, times), times, kind)

    def read(
        self,
        op: Operation,
        agent: Agent,
        region: Region,
        offsets: np.ndarray | slice,
        inside: np.ndarray | None,
        size: int,
        kind: int,
        proxy: Proxy = Proxy.GENERIC,
    ) -> None:
        """An ordinary load, or one of the async proxy. A race when it does not know who wrote what it reads."""
        access = self.access(op, agent, region, offsets, inside, size, kind)
        access.loads, access.proxy = True, proxy
        marks = region.marks
        assert marks is not None
        for events in (marks.ordinary, marks.atomic):
            if events is not None:
                self._hold(access, self._events_at(events, access), "reads", "writes")
        reads = marks.array_of("read")
        before = self._events_at(reads, access)
        event = self._event(access)
        if before.any() and (hidden := self.unknown_events(before, agent)).any():
            for other in np.unique(before[hidden]).tolist():
                where = access.places[hidden & (before == other)]
                marks.crowd[other] = np.concatenate([marks.crowd[other], where]) if other in marks.crowd else where
                marks.array_of("crowded")[where] = True
        reads[access.masked_places()] = event

    def write(
        self, op: Operation, agent: Agent, region: Region, offsets: np.ndarray | slice, inside: np.ndarray | None, words: np.ndarray
    ) -> None:
        """An ordinary store of `words`, unsigned, at byte `offsets` (a slice for neighbours), where `inside`; not made yet. A race
        when it does not know who wrote another word there, or who read there."""
        access = self.access(op, agent, region, offsets, inside, words.dtype.itemsize, ORDINARY)
        marks = region.marks
        assert marks is not None
        region.changes = True
        agent.wrote = agent.wrote or access.count > 1
        mine = marks.array_of("ordinary")
        for events in (mine, marks.atomic):
            if events is not None and (before := self._events_at(events, access)).any():
                self._overwrite(access, before, words)
        self._over_reads(access, marks)
        places = access.masked_places()
        mine[places] = self._event(access)
        if marks.message is not None:
            marks.message[places] = 0

    def _events_at(self, events: np.ndarray, access: Access) -> np.ndarray:
        if isinstance(access.index, slice):
            return events[access.index]
        found = events.take(access.index)
        return found if access.inside is None else np.where(access.inside, found, 0)

    def _hold(self, access: Access, events: np.ndarray, does: str, did: str) -> None:
        """A race of `access` with one of `events` (0 for none, one a place) that its agent, or its thread, does not know of."""
        if not events.any():
            return
        late = self.unknown_events(events, access.agent)
        if late.any():
            self._race(access, int(late.argmax()), int(events[late.argmax()]), does, did)
        if int(events.max()) >= access.agent.segment:
            self._hold_threads(access, events, does, did)
        if access.proxy is Proxy.ASYNC and did == "writes":  # a generic read before TMA writes there has its value already
            self._hold_proxy(access, events, does)

    def _overwrite(self, access: Access, before: np.ndarray, words: np.ndarray) -> None:
        """As `_hold`, but that two who write the same word differ in nothing: an advice, unless one is a bulk store in flight."""
        marks = access.region.marks
        assert marks is not None
        unknown_mask = self.unknown_events(before, access.agent)
        recent = int(before.max()) >= access.agent.segment
        if not recent and not unknown_mask.any():
            return
        old = access.region.words(marks.unit).take(access.places)
        differ = old != words.reshape(-1).view(old.dtype)
        flying = unknown_mask & (self.epochs.take(before) == OPEN)
        if (clash := (unknown_mask & differ) | flying).any():
            at = int(clash.argmax())
            self._race(access, at, int(before[at]), "writes", "writes")
        if unknown_mask.any():
            self.notes.add(Note(Advice.EQUAL_WORDS, access.op.location))
        if recent:
            self._hold_threads(access, np.where(differ, before, 0), "writes", "writes")

    def _over_reads(self, access: Access, marks: Marks) -> None:
        """A race when what `access` writes is read by one it does not know of."""
        if marks.read is not None:
            self._hold(access, self._events_at(marks.read, access), "writes", "reads")
        if not marks.crowd or not (crowded := self._events_at(marks.array_of("crowded"), access)).any():
            return
        events = np.fromiter(marks.crowd, np.int64)
        for event in events[self.unknown_events(events, access.agent)].tolist():
            hit = np.isin(access.places, marks.crowd[event]) & (crowded != 0)
            if hit.any():
                self._race(access, int(hit.argmax()), event, "writes", "reads")
        crowd = marks.array_of("crowded")
        crowd[access.masked_places()] = False
        if len(marks.crowd) > MOST_HIDDEN:
            marks.crowd = {event: places for event, places in marks.crowd.items() if crowd[places].any()}

    # -- threads ------------------------------------------------------------------------------------------------------
    def owners_of(self, op: Operation) -> Owners:
        """Which threads hold the elements of the first operand of `op`."""
        found = self.owners.get(op)
        if found is None:
            kind = op.inputs[0]
            found = SCALAR if kind is None else owners(kind, self.facts.program.expand(kind.layout))
            self.owners[op] = found
        return found

    def _hold_threads(self, access: Access, events: np.ndarray, does: str, did: str) -> None:
        """A race with an event of the same agent since the last barrier, if another thread of it made that."""
        agent = access.agent
        is_one = events[0] == events[-1] and (events == events[0]).all()
        near = (events >= agent.segment) & (self.slots.take(events) == agent.slot)
        for event in (events[:1][near[:1]] if is_one else np.unique(events[near])).tolist():
            earlier_access = self.traces.get(event)
            if earlier_access is None:
                continue
            lanes = np.flatnonzero(near & (events == event))
            in_warps = event < agent.warp_segment or did == "reads"  # a warp has read for all its threads before one of it writes
            if is_one and self._has_same_threads(access, earlier_access):
                differ = np.zeros(lanes.size, np.bool_)
            else:
                there = _elements_at(earlier_access, access.places[lanes])
                mine, theirs = self._threads(access, lanes // access.times), self._threads(earlier_access, there)
                differ = _differ_in_group(mine, theirs, self.warp if in_warps else 1)
            for side_access in (access, earlier_access):
                copies = self._copies(side_access)
                if not _differ_in_group(0, copies, self.warp if in_warps else 1):
                    continue
                if _differ_in_group(0, copies & self.demanded_copies.bits_of(side_access.op), self.warp if in_warps else 1):
                    differ = np.ones(lanes.size, np.bool_)  # a copy in another thread that somebody looks at is another thread
                else:
                    self.notes.add(Note(Advice.REDUNDANT_LOAD, side_access.op.location))
            if differ.any():
                self._race(access, int(lanes[differ.argmax()]), event, does, did, threads=True)

    def _has_same_threads(self, access: Access, earlier_access: Access) -> bool:
        """Whether the same neighbours are touched element by element as `earlier_access` did, each by the same thread."""
        index, other = access.index, earlier_access.index
        are_neighbours = isinstance(index, slice) and isinstance(other, slice) and index == other
        if (
            not are_neighbours
            or access.times != earlier_access.times
            or access.inside is not None
            or earlier_access.inside is not None
            or access.kind in ASYNC
            or earlier_access.kind in ASYNC
        ):
            return False
        return np.array_equal(self.owners_of(access.op).threads, self.owners_of(earlier_access.op).threads)

    def _threads(self, access: Access, elements: np.ndarray) -> np.ndarray:
        """The thread that touches each of `elements`."""
        if access.kind in ASYNC:
            return np.zeros(elements.size, np.int32)  # one thread issues it
        return self.owners_of(access.op).threads[elements]

    def _copies(self, access: Access) -> int:
        """Bits by which threads differ that load the elements of `access` too and go on to more than a store of their own."""
        if access.kind in ASYNC or not access.loads or not self.facts.leaves_its_thread(access.op):
            return 0
        return self.owners_of(access.op).copies & self.all_threads

    @cached_property
    def demanded_copies(self) -> DemandedCopies:
        """Which copies of what a load found decide anything."""
        return DemandedCopies(self.facts, self.all_threads)

    # -- the async proxy ----------------------------------------------------------------------------------------------
    def _hold_proxy(self, access: Access, events: np.ndarray, does: str) -> None:
        """A race of the async proxy with an ordinary store that it knows of, but that no proxy fence has shown it."""
        generic = (events > 0) & ~np.isin(self.kinds.take(events), ASYNC)
        fenced = access.agent.fenced_epochs
        if fenced.size:
            generic &= self.epochs.take(events) > fenced.take(self.slots.take(events))
        if generic.any():
            at = int(generic.argmax())
            self._race(access, at, int(events[at]), does, "writes", proxy=True)

    def fence_proxy(self, agent: Agent) -> None:
        """fence.proxy.async for global memory: what `agent` knows to be written, the async proxy sees."""
        known = self._known_epochs(agent, int(agent.clock[agent.number]))
        np.maximum(agent.fenced_epochs, known[: agent.fenced_epochs.size], out=agent.fenced_epochs)
        agent.clock[agent.number] += 1

    def bulk_write(
        self, op: Operation, agent: Agent, region: Region, offsets: np.ndarray, inside: np.ndarray | None, size: int, proxy: Proxy
    ) -> tuple[int, Access, np.ndarray]:
        """A bulk store is issued: (its event, the access, and the events whose writes it does not know of, which only equal words
        forgive). Nobody may touch its places before a wait for its writes."""
        access = self.access(op, agent, region, offsets, inside, size, BULK)
        marks = region.marks
        assert marks is not None
        region.changes = True
        unordered_events = np.zeros(access.count, np.int32)
        for events in (marks.ordinary, marks.atomic):
            if events is None or not (before := self._events_at(events, access)).any():
                continue
            late = self.unknown_events(before, agent)
            unordered_events = np.where(late, before, unordered_events)
            if proxy is Proxy.ASYNC:
                self._hold_proxy(access, np.where(late, 0, before), "writes")
        self._over_reads(access, marks)
        event = self._event(access, epoch=OPEN)
        marks.array_of("ordinary")[access.masked_places()] = event
        if marks.message is not None:
            marks.message[access.masked_places()] = 0
        return event, access, unordered_events

    def bulk_lands(self, event: int, access: Access, earlier_events: np.ndarray, words: np.ndarray) -> None:
        """The bulk store `event` is about to write `words` (elements,): a race where others that nothing orders with it, the
        `earlier` and those that were issued since, have written other words."""
        marks = access.region.marks
        assert marks is not None and marks.ordinary is not None
        self.landed.add(event)
        since = self._events_at(marks.ordinary, access)
        other_events = np.where(since > event, since, earlier_events)
        if not other_events.any():
            return
        flying = [
            n for n in np.unique(other_events).tolist() if self.kinds[n] == BULK and n not in self.landed
        ]  # they will compare
        other_events = np.where(np.isin(other_events, flying), 0, other_events)
        held = access.region.words(marks.unit)
        differ = (other_events > 0) & (held.take(access.places) != words.view(held.dtype))
        if differ.any():
            at = int(differ.argmax())
            self._race(access, at, int(other_events[at]), "writes", "writes")
        self.notes.add(Note(Advice.EQUAL_WORDS, access.op.location))

    def bulk_update(
        self, op: Operation, agent: Agent, region: Region, offsets: np.ndarray, inside: np.ndarray | None, size: int
    ) -> tuple[int, Access, np.ndarray]:
        """As `bulk_write`, of atomic updates by the async proxy: a race with an ordinary access that `agent` does not know of, or
        with an atomic of scope cta."""
        access = self.access(op, agent, region, offsets, inside, size, BULK_UPDATE)
        access.proxy = Proxy.ASYNC
        marks = region.marks
        assert marks is not None
        region.changes = True
        if marks.ordinary is not None:
            self._hold(access, self._events_at(marks.ordinary, access), "updates", "writes")
        if marks.atomic is not None:
            before = self._events_at(marks.atomic, access)
            self._hold(access, np.where(np.isin(self.kinds.take(before), STRONG), 0, before), "updates", "writes")
        self._over_reads(access, marks)
        event = self._event(access, epoch=OPEN)
        marks.array_of("atomic")[access.masked_places()] = event
        return event, access, np.zeros(0, np.int32)

    def update_lands(self, event: int, access: Access) -> None:
        """The bulk update `event` is about to be made: a race with a bulk store that was issued since."""
        marks = access.region.marks
        assert marks is not None
        self.landed.add(event)
        if marks.ordinary is None:
            return
        since = self._events_at(marks.ordinary, access)
        if (since > event).any():
            at = int((since > event).argmax())
            self._race(access, at, int(since[at]), "updates", "writes")

    def complete(self, event: int, agent: Agent) -> None:
        """`agent` has waited for the writes of a bulk store of its own."""
        self.epochs[event] = agent.clock[agent.number]

    # -- atomics ------------------------------------------------------------------------------------------------------
    def before_atomic(
        self,
        op: Operation,
        agent: Agent,
        region: Region,
        offsets: np.ndarray,
        inside: np.ndarray | None,
        size: int,
        sem: int,
        scope: int,
    ) -> Access:
        """An atomic, or a volatile load, is about to look: a race with an ordinary store it does not know of, or with an atomic
        where one scope leaves the other out. It learns what it acquires."""
        access = self.access(op, agent, region, offsets, inside, size, NARROW if scope == CTA else WIDE_SCOPE)
        access.loads = op.name == "tt.load"
        marks = region.marks
        assert marks is not None
        if marks.ordinary is not None:
            self._hold(access, self._events_at(marks.ordinary, access), "reads", "writes")
        if marks.atomic is not None and (before := self._events_at(marks.atomic, access)).any():
            strong = np.isin(self.kinds.take(before), STRONG)
            apart = self.unknown_events(before, agent) & ~(strong & (access.kind == WIDE_SCOPE))
            if apart.any():
                at = int(apart.argmax())
                self._race(access, at, int(before[at]), "reads", "writes", scope=True)
            if int(before.max()) >= agent.segment:  # atomics are ordered by their place, whichever threads make them
                self._hold_threads(access, np.where(strong & (access.kind == WIDE_SCOPE), 0, before), "reads", "writes")
        if marks.message is not None:
            for number in np.unique(self._events_at(marks.message, access)).tolist():
                if number:
                    self._see(access, number, acquires=sem in ACQUIRES and access.kind == WIDE_SCOPE)
        return access

    def _see(self, access: Access, number: int, *, acquires: bool) -> None:
        """The word that `access` reads carries message `number`."""
        message, agent = self.messages[number], access.agent
        assert message is not None
        if acquires:
            np.maximum(agent.beyond, message.epochs, out=agent.beyond)
            return
        saw = self.synchronised.setdefault(agent.slot, AgentAtomics()).saw
        saw[:] = [*(seen for seen in saw if seen[1] != number), (access.op, number)][-16:]

    def after_atomic(self, access: Access, wrote: np.ndarray | None, sem: int, *, updates: bool) -> None:
        """An atomic has written the places where `wrote` (elements, None for all inside its mask). `updates`: it read them too, so
        that what they carried stays (8.9.2: the chain of atomic operations)."""
        marks, agent = access.region.marks, access.agent
        assert marks is not None
        access.region.changes = True
        if wrote is not None:
            flat = np.repeat(wrote.reshape(-1), access.times)
            access.inside = flat if access.inside is None else access.inside & flat
        if not access.count:
            return
        places = access.places if access.inside is None else access.places[access.inside]
        if not places.size:
            return
        self._over_reads(access, marks)
        event = self._event(access)
        marks.array_of("atomic")[places] = event
        told = self.synchronised.setdefault(agent.slot, AgentAtomics())
        if sem in RELEASES and access.kind == WIDE_SCOPE:
            told.release = access.op, agent.joined_epoch
            self._leave(access, places, self._known_epochs(agent, agent.joined_epoch), updates=updates)
            return
        told.last_relaxed = access.op, agent.joined_epoch
        if agent.released_epochs is not None and access.kind == WIDE_SCOPE:
            self._leave(access, places, agent.released_epochs, updates=updates)
        elif not updates and marks.message is not None:  # a strong write behind a release of one thread carries it on (8.8)
            held = marks.message.take(places)
            own = [n for n in np.unique(held).tolist() if n and (m := self.messages[n]) is not None and m.slot == agent.slot]
            marks.message[places] = np.where(np.isin(held, own), held, 0)

    def _known_epochs(self, agent: Agent, own: int) -> np.ndarray:
        """What `agent` knows, itself up to epoch `own`, for others to learn."""
        told = agent.beyond.copy()
        if self.width > 1:
            mine = told[agent.slot - agent.number :][: self.width]
            np.maximum(mine, agent.clock[: self.width], out=mine)
        told[agent.slot] = own
        return told

    def _leave(self, access: Access, places: np.ndarray, epochs: np.ndarray, *, updates: bool) -> None:
        """The words at `places` carry `epochs` from here on, and what they carried before if the atomic `updates` them."""
        marks, agent = access.region.marks, access.agent
        assert marks is not None
        carried = marks.array_of("message")
        before = carried.take(places) if updates else np.zeros(places.size, np.int32)
        for number in np.unique(before).tolist():
            old = self.messages[number]
            self.messages.append(Message(epochs if old is None else np.maximum(epochs, old.epochs), access.op, agent.slot))
            carried[places[before == number]] = len(self.messages) - 1
        marks.carriers.append(places)
        if len(self.messages) * epochs.nbytes > self.most_bytes:
            self.compact()
            self.most_bytes = max(self.most_bytes, 2 * len(self.messages) * epochs.nbytes)

    def compact(self) -> None:
        """Forget the messages that no word carries any more."""
        held = [r.marks for r in self.regions if r.marks is not None and r.marks.message is not None]
        for marks in held:
            marks.carriers = [np.unique(np.concatenate(marks.carriers))]
        found = [marks.array_of("message")[marks.carriers[0]] for marks in held]
        kept = np.unique(np.concatenate([np.zeros(1, np.int32), *found]))
        for marks, numbers in zip(held, found, strict=True):
            marks.array_of("message")[marks.carriers[0]] = np.searchsorted(kept, numbers)
        self.messages = [self.messages[number] for number in kept.tolist()]
        for told in self.synchronised.values():
            told.saw.clear()

    def fence(self, agent: Agent, *, acquires: bool, releases: bool) -> None:
        """fence.acquire, .release or .acq_rel of scope gpu or sys by each thread: what relaxed reads saw is learnt, and what a
        relaxed write leaves from here on is what is known now (8.8). Of its own agent that is what lies before the last barrier."""
        if acquires:
            told = self.synchronised.setdefault(agent.slot, AgentAtomics())
            for _, number in told.saw:
                if (message := self.messages[number]) is not None:
                    np.maximum(agent.beyond, message.epochs, out=agent.beyond)
            told.saw.clear()
        if releases:
            agent.released_epochs = self._known_epochs(agent, agent.joined_epoch)

    # -- findings -----------------------------------------------------------------------------------------------------
    def _race(
        self,
        access: Access,
        place_number: int,
        event: int,
        does: str,
        did: str,
        *,
        threads: bool = False,
        proxy: bool = False,
        scope: bool = False,
    ) -> NoReturn:
        """`access` at its place number `at` collides with `event`."""
        region, agent, marks = access.region, access.agent, access.region.marks
        earlier_operation, op = self.operations[event], access.op
        assert earlier_operation is not None and marks is not None
        byte = int(access.places[place_number]) * marks.unit - region.low
        place_text = f"byte {byte} of {region.name}"
        other_program = int(self.slots[event]) // self.width
        is_in_flight = int(self.epochs[event]) == OPEN
        rule, cause, remedy = "another program", "", ""
        if proxy:
            message = (
                f"{op.name} of program {agent.program} {does} {place_text} through the async proxy, "
                f"which {earlier_operation.name} of program "
                f"{other_program} wrote through the generic one: no proxy fence between them"
            )
            rule, remedy = "store to global memory", "fence.proxy.async by inline assembly after the store, or an ordinary load"
        elif threads:
            message = (
                f"a thread of program {agent.program} {does} {place_text}, which another thread of it {_past(did)} at "
                f"{earlier_operation.location}: no barrier between them"
            )
            rule, remedy = "another thread", "tl.debug_barrier(), in Gluon gl.barrier(), between the two"
        elif other_program == agent.program and is_in_flight:
            message = (
                f"{op.name} of program {agent.program} {does} {place_text} while the bulk store "
                f"issued at {earlier_operation.location} still "
                "writes it: no wait for its writes orders them"
            )
            rule, remedy = "TMA store's writes", "wait until it has written (tma.store_wait(pendings=0, read_only=False))"
        elif other_program == agent.program:
            message = (
                f"{agent.name} of program {agent.program} {does} {place_text}, which another partition of it {_past(did)}: "
                "no barrier orders them"
            )
            rule = "another partition"
        elif does == did == "writes" and not scope:
            message = f"programs {other_program} and {agent.program} write different values to {place_text}"
            cause, remedy = self._cause(agent, event), BETWEEN_PROGRAMS
        else:
            message = (
                f"program {agent.program} {does} {place_text}, which program {other_program} of "
                f"the same launch {did}: nothing orders them"
            )
            cause, remedy = self._cause(agent, event), "" if scope else BETWEEN_PROGRAMS
            if scope:
                cause = "both are atomics, but one of scope cta leaves out threads of other programs"
        details: dict[str, Any] = {
            "rule": rule_of(rule),
            "operation": op.brief,
            "program": str(agent.place),
            "other operation": earlier_operation.brief,
            "other location": earlier_operation.location,
        }
        details |= {"remedy": remedy} if remedy else {}
        raise EmulatedFault("race", f"{message}; {cause}" if cause else message, op.location, details)

    def _cause(self, agent: Agent, event: int) -> str:
        """Why the atomics of the two programs do not order them."""
        slot, epoch = int(self.slots[event]), int(self.epochs[event])
        other_program = slot // self.width
        other_atomics, mine = self.synchronised.get(slot), self.synchronised.get(agent.slot)
        if not self.facts.synchronises or (other_atomics is None and mine is None):
            return ""
        if epoch == OPEN:
            return f"no wait of program {other_program} covers what the bulk store writes"
        for op, number in mine.saw if mine is not None else []:
            if (message := self.messages[number]) is not None and message.epochs[slot] >= epoch:
                what = "volatile load" if op.name == "tt.load" else f"{op.name} ({SEMANTICS.get(op.integer('sem', 1), '')})"
                return f"the {what} at {op.location} saw what program {other_program} released, and acquires nothing"
        if other_atomics is not None and other_atomics.release is not None and other_atomics.release[1] >= epoch:
            return f"program {agent.program} has acquired nothing that program {other_program} released since"
        if other_atomics is not None and other_atomics.last_relaxed is not None and other_atomics.last_relaxed[1] >= epoch - 1:
            return f"the atomic of program {other_program} at {other_atomics.last_relaxed[0].location} releases nothing"
        if other_atomics is not None and other_atomics.release is not None:
            return f"program {other_program} released at {other_atomics.release[0].location}, before this"
        return f"program {other_program} has released nothing"


def _differ_in_group(mine: Any, theirs: Any, threads: int) -> Any:
    """Where `mine` and `theirs`, numbers of threads, lie in different groups of so many `threads`."""
    return mine // threads != theirs // threads


def _past(verb: str) -> str:
    return {"reads": "read", "writes": "wrote"}[verb]


def _elements_at(earlier: Access, wanted_places: np.ndarray) -> np.ndarray:
    """The element by which `earlier` touched each of `wanted_places`: the first of several."""
    places, elements = earlier.places, earlier.elements()
    places = places if earlier.inside is None else places[earlier.inside]
    if np.array_equal(places, wanted_places) and (places[1:] > places[:-1]).all():
        return elements  # the same places, each once: quicker than to look for them
    order = np.argsort(places, kind="stable")
    return elements[order[np.searchsorted(places[order], wanted_places)]]
