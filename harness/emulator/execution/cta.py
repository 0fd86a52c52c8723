"""One program (CTA) of a launch while it runs: its identity, its on-chip memories, its agents, what it has in flight.

The translated code calls the methods of `Machine`; each checks what the operation it stands for may rely on, then moves the bits.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.async_rules import CP_ASYNC, AsyncKind, Proxy
from bitverdict.harness.emulator.execution.async_ops import Flights, InFlight, Schedule
from bitverdict.harness.emulator.execution.mbarriers import Barriers
from bitverdict.harness.emulator.execution.partitions import MOST_AGENTS, Agent, Footprints, Thread, drive
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorOperations
from bitverdict.harness.emulator.execution.tma import BulkCopies
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.global_atomics import GlobalAtomics
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.global_order import ORDINARY
from bitverdict.harness.emulator.memory.onchip import Outside, Space, View
from bitverdict.harness.emulator.memory.proxy_fences import ProxyVisibility
from bitverdict.harness.emulator.memory.tensor_maps import Descriptor
from bitverdict.harness.emulator.timeline import Timeline

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation

TENSOR_BYTES = 128 * 512 * 4
PARITY = "parity of a wait"


class Machine(BulkCopies, GlobalAtomics, TensorOperations):
    """`shared` bytes of shared memory; tensor memory only when `tensor` columns are asked for."""

    def __init__(
        self,
        memory: GlobalMemory,
        grid: tuple[int, int, int],
        schedule: Schedule,
        *,
        shared: int,
        tensor: int,
        blocks: int,
        step_limit: int,
        written: frozenset[str] = frozenset(),
        end: str = "",
    ) -> None:
        self.memory, self.grid, self.schedule = memory, grid, schedule
        self.shared = Space("shared memory", shared)
        self.tensor = Space("tensor memory", TENSOR_BYTES if tensor else 0)
        self.written = written  # where the author wrote a proxy fence
        self.end = end  # the line where a program ends
        self.compilers = False  # what happens on the chip is the compiler's doing: the kernel is written in Triton
        self.either_row = False  # the caller does not care which of two rows scattered to one place stays
        self.together = False  # programs of the launch run turn by turn
        self.acts = 0  # what this program has done that another agent or program can notice
        self.runs = [0] * blocks
        self.steps, self.step_limit = 0, step_limit
        self.notes = memory.order.notes
        self.proxies = ProxyVisibility(shared, self.notes)
        self.false_hints: dict[tuple[str, str], str] = {}  # (line, what was promised) -> what is not so
        self.start(0)

    def start(self, number: int) -> None:
        """Become program `number` of the grid: fresh, poisoned memories, one agent, nothing in flight."""
        x, y, _ = self.grid
        self.number = number
        self.program = (number % x, number // x % y, number // (x * y))
        self.shared.reset()
        self.proxies.reset()
        if self.tensor.size:
            self.tensor.reset()
        self.timeline = Timeline()
        self.flights = Flights(self.schedule, self.record)
        self.barriers = Barriers(self.flights, self.tell)
        self.agent = Agent(0, "the program", _first_clock(self.memory.order.clock_length))
        self._admit(self.agent)
        self.flights.agents = [self.agent]
        self.footprints: dict[str, Footprints] = {}
        self.tensor_maps: dict[int, Descriptor] = {}  # descriptors the program made, by their place in scratch memory
        self.unfenced_maps: set[int] = set()

    def another(self) -> Machine:
        """A machine for another program of the launch: it has on-chip memories of its own, and counts and notes where this does."""
        made = copy.copy(self)
        made.shared = Space(self.shared.name, self.shared.size)
        made.proxies = ProxyVisibility(self.shared.size, self.notes)
        made.tensor = Space(self.tensor.name, self.tensor.size)
        return made

    def run(self, thread: Thread) -> Thread:
        """Run the program that `thread` is to its end; yields where another program may, or must, run."""
        self.agent.thread = thread
        yield from drive([self.agent], self.flights, self._turn, self.barriers.state)
        self.flights.finish(self.end)
        self.meet()

    def _turn(self, agent: Agent) -> None:
        self.agent = agent

    def _admit(self, agent: Agent) -> None:
        agent.place = self.program
        self.memory.order.admit(agent, self.number)

    def specialize(self, op: Operation, default: Thread, partitions: list[Thread]) -> Thread:
        """warp_specialize: the default region and each partition run as agents of their own, until all have ended."""
        parent, outer = self.agent, self.flights.agents
        if len(outer) > 1 or len(partitions) + 1 > MOST_AGENTS:
            raise EmulatedFault("not modelled", f"{op.name} inside another, or with {len(partitions)} partitions", op.location)
        names = ["the default partition", *(f"partition {i}" for i in range(len(partitions)))]
        self.meet()
        known = parent.release()
        agents = [Agent(i, name, known.copy()) for i, name in enumerate(names)]
        for agent, thread in zip(agents, [default, *partitions], strict=True):
            agent.thread = thread
            agent.clock[agent.number] = parent.clock[agent.number] + 1  # above what an earlier one of its number left
            self._admit(agent)
        default_agent = agents[0]
        default_agent.groups, default_agent.released = parent.groups, parent.released
        for flight in self.flights.pending:
            if parent.number in flight.known:
                flight.known.update(a.number for a in agents)
        self.flights.agents = agents
        if not self.schedule.timeless:
            self.footprints = {space.name: Footprints(space, len(agents)) for space in (self.shared, self.tensor)}
        yield from drive(agents, self.flights, self._turn, self.barriers.state)
        self.agent, self.flights.agents, self.footprints = parent, outer, {}
        for agent in agents:
            self.memory.order.meet(agent)
            parent.acquire(agent.release())
        parent.clock[0] += 1
        self._admit(parent)
        self.flights.pending = [f for f in self.flights.pending if not f.known]  # what one of them knew, the join knows
        return default_agent.result

    # -- bookkeeping --------------------------------------------------------------------------------------------------
    def record(self, what: str, flight: InFlight) -> None:
        """An operation was issued, or landed: a line of the timeline."""
        if what == "issued":
            flight.number = self.steps
            touched = [f"reads {view}" for view in flight.reads] + [f"writes {view}" for view in flight.writes]
            said = f"issued: {', '.join(touched)}" if touched else "issued"
            self.timeline.add(self.steps, self.agent.name, flight.kind.name, flight.op.location, said)
        else:
            said = f"{what}, issued at step {flight.number}"
            self.timeline.add(self.steps, "the hardware", flight.kind.name, flight.op.location, said)

    def tell(self, what: str, op: Operation, said: str) -> None:
        """What the running agent did, for the timeline."""
        self.timeline.add(self.steps, self.agent.name, what, op.location, said)

    def state(self, collides: str = "", other: str = "") -> dict[str, Any]:
        """Where the program is, for a finding: what is in flight, its barriers, the end of the timeline."""
        flying = [f"{f.kind.name} at {f.op.location} ({'landed' if f.landed else 'not landed'})" for f in self.flights.pending]
        return {
            "program": str(self.program),
            "schedule": self.schedule.text,
            "in flight": flying[-20:],
            "barriers": self.barriers.state(),
            "timeline": self.timeline.lines(collides, other),
        }

    def tick(self, block: int, operations: int) -> None:
        self.runs[block] += 1
        self.steps += operations
        if self.steps > self.step_limit:
            raise EmulatedFault("timeout", f"program {self.program}: more than {self.step_limit} operations in one launch")

    def note(self, op: Operation) -> None:
        self.notes.add((op.name, op.location))

    def check(self, op: Operation, condition: np.ndarray | bool) -> None:
        if not np.all(condition):
            message = op.attributes.get("message", op.attributes.get("msg", "")).strip('"')
            raise EmulatedFault("device assert", message, op.location, {"operation": op.brief, "program": str(self.program)})

    # -- global memory ------------------------------------------------------------------------------------------------
    def load(self, op: Operation, pointer: Any, mask: Any, other: Any, dtype: np.dtype, single: bool) -> Any:
        """tt.load; a `single` element as a Python int or a 0-d array."""
        held = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        if single:
            pointer = np.array([pointer], np.int64)
            mask = None if mask is None else np.array([bool(mask)])
            other = None if other is None else np.asarray(other, dtype).reshape(1)
        found = self.memory.load(op, pointer, mask, other, held, self.agent)
        if dtype == np.bool_:
            found = found != 0
        if not single:
            return found
        return found[0] if dtype.kind in "fu" else int(found[0])

    def store(self, op: Operation, pointer: Any, value: Any, mask: Any, dtype: np.dtype) -> None:
        """tt.store, of a tensor or of one element."""
        pointer = np.atleast_1d(np.asarray(pointer, np.int64))
        mask = None if mask is None else np.atleast_1d(mask)
        value = np.atleast_1d(np.asarray(value, dtype))
        if dtype == np.bool_:
            value = value.astype(np.uint8)
        self.acts += 1
        self.memory.store(op, pointer, value, mask, self.agent)

    # -- shared and tensor memory -------------------------------------------------------------------------------------
    def allocate(
        self,
        op: Operation,
        tensor: bool,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        pieces: tuple[int, ...] | None,
        value: np.ndarray | None,
        spread: int = 1,
    ) -> View:
        """local_alloc and tmem_alloc: a view, written when there is a `value`, unknown otherwise."""
        view = View(self.tensor if tensor else self.shared, offset, shape, strides, dtype, pieces, spread)
        if value is not None:
            self.write(op, view, value)
        else:
            view.known[...] = 0  # no access yet: what is still in flight here may be waited for before the first one
        return view

    def scratch(self, op: Operation, offset: int, size: int) -> None:
        """The lowering of `op` uses `size` bytes of shared memory for itself: what was there is lost."""
        if size:
            view = View(self.shared, offset, (size,), (1,), np.dtype(np.uint8))
            self._touch(op, view, write=True)
            view.known[...] = 0

    def meet(self) -> None:
        """bar.sync: all threads of the running agent meet."""
        self.memory.order.meet(self.agent)

    def meet_warps(self) -> None:
        """Values go from thread to thread, but none from one warp to another."""
        self.memory.order.meet_warps(self.agent)

    def index(self, op: Operation, view: View, at: int) -> View:
        """Buffer `at` of an allocation of several. Beyond them it is an address that nothing may be done with."""
        if 0 <= at < view.shape[0]:
            return view.index(at)
        said = f"index {at} of a descriptor of {view.shape[0]} buffers at {view}"
        return Outside(view.shape[1:], view.dtype, said, {"other operation": op.brief, "other location": op.location})

    def begin(
        self,
        op: Operation,
        kind: AsyncKind,
        *,
        reads: tuple[View, ...] = (),
        writes: tuple[View, ...] = (),
        in_turn: tuple[View, ...] = (),
        barriers: tuple[int, ...] = (),
    ) -> InFlight:
        """An asynchronous operation that is about to be issued: the agent must know what it `reads` to be there, and nobody may
        still use what it `writes`. What it reads `in_turn` the operations before it in its pipe may still write. `barriers` are the
        bytes of the mbarriers that it will arrive at."""
        through_async = kind.proxy is Proxy.ASYNC
        for view in reads:
            self._touch(op, view, write=False, keep=False)
            if through_async and view.space is self.shared:
                self.proxies.async_read(op, view, self.agent)
        for view in writes:
            if self.footprints:
                self.footprints[view.space.name].touch(self.agent, op, view, write=True, keep=False)
            if view.space is self.shared:
                self.barriers.overwritten(op, view)
                if through_async:
                    self.proxies.async_write(op, view, self.agent, partitions=bool(self.footprints))
        return InFlight(op, kind, self.agent.number, reads=(*reads, *in_turn), writes=writes, barriers=barriers)

    def issue(self, flight: InFlight, land: Callable[[], None]) -> InFlight:
        """`flight`, whose data `land` moves, is in the air from here on."""
        self.acts += 1
        flight.landing = land
        return self.flights.issue(self.agent, flight)

    def _touch(self, op: Operation, view: View, *, write: bool, keep: bool = True) -> None:
        """An access: held against what is in flight, and against other partitions."""
        if keep:
            self.tell("ordinary store" if write else "ordinary load", op, f"{'writes' if write else 'reads'} {view}")
        if write:
            self.flights.write(self.agent, op, view)
            if view.space is self.shared:
                self.barriers.overwritten(op, view)
        else:
            self.flights.read(self.agent, op, view)
            if view.space is self.shared:
                self.barriers.read(op, view)
        if self.footprints:
            self.footprints[view.space.name].touch(self.agent, op, view, write=write, keep=keep)

    def read(self, op: Operation, view: View) -> np.ndarray:
        self._touch(op, view, write=False)
        if self.footprints and view.space is self.shared:
            self.proxies.generic_read(op, view, self.agent)
        return view.get()

    def write(self, op: Operation, view: View, value: np.ndarray) -> None:
        self.acts += 1
        self._touch(op, view, write=True)
        view.put(value)
        if view.space is self.shared:
            self.wrote(op, view)

    # -- proxies ------------------------------------------------------------------------------------------------------
    def wrote(self, op: Operation, view: View) -> None:
        """Ordinary stores (or cp.async) wrote `view`: the async proxy may not read it before a proxy fence."""
        if not self.schedule.timeless:
            self.proxies.generic_write(op, view, self.agent)

    def fence(self, op: Operation, written: bool = False) -> None:
        """fence.proxy.async of shared memory: what this agent knows to be written becomes visible to the async proxy. `written`: by
        the author, which else follows from its line."""
        self.tell("proxy fence", op, "generic reads and writes so far are ordered before the async proxy")
        alone = len(self.flights.agents) == 1
        self.proxies.proxy_fence(self.agent, by_author=written or op.location in self.written, alone=alone)

    # -- cp.async (PTX ISA 9.7.9.25.3) --------------------------------------------------------------------------------
    def copy(self, op: Operation, pointer: np.ndarray, view: View, mask: np.ndarray | None, undefined: bool) -> None:
        """cp.async: addresses are checked at issue, the source is read at landing. `undefined`: where the mask is False, by the
        language, whatever the instruction writes there."""
        zero, agent = np.zeros((), view.dtype), self.agent
        self.memory.look(op, pointer, mask, view.dtype.itemsize, agent, ORDINARY, CP_ASYNC.proxy)
        flight = self.begin(op, CP_ASYNC, writes=(view,))

        def land() -> None:
            view.put(self.memory.load(op, pointer, mask, zero, view.dtype, agent, None))
            if undefined and mask is not None and not mask.all():
                view.leave_undefined(~mask, (op.location,))

        self.issue(flight, land)

    def commit_copies(self) -> None:
        """cp.async.commit_group."""
        self.agent.groups.commit(CP_ASYNC.group)

    def wait_copies(self, most: int) -> None:
        """cp.async.wait_group: all but the last `most` committed groups are complete. What they wrote counts as written by whoever
        waited for them."""
        for flight in self.flights.wait_group(self.agent, CP_ASYNC.group, most):
            if flight.kind.proxy is Proxy.GENERIC:
                self.wrote(flight.op, flight.writes[0])

    # -- mbarriers ----------------------------------------------------------------------------------------------------
    def init_barrier(self, op: Operation, view: View, count: int) -> None:
        if self.footprints:
            self.footprints[view.space.name].touch(self.agent, op, view, write=True)
        self.barriers.init(self.agent, op, view, count)

    def arrive(self, op: Operation, view: View, count: int) -> None:
        """mbarrier.arrive by one thread, behind a barrier of all (as compiled: bar.sync)."""
        self.acts += 1
        self.meet()
        self.barriers.arrive(op, view, count, self._known_flights(), self.agent.release())

    def expect(self, op: Operation, view: View, size: int) -> None:
        """As `arrive`."""
        self.acts += 1
        self.meet()
        self.barriers.expect(op, view, size, self._known_flights(), self.agent.release())

    def _known_flights(self) -> list[InFlight]:
        return [f for f in self.flights.pending if self.agent.number in f.known]

    def wait(self, op: Operation, view: View, parity: int) -> Thread:
        """mbarrier.try_wait.parity. ptxas shifts the parity left by 31, so that its lowest bit decides: what the compiler writes is
        executed as that, with a note. An author is held to PTX."""
        if self.compilers and parity not in (0, 1):
            self.notes.add((PARITY, op.location))
            parity &= 1
        return self.barriers.wait(self.agent, op, view, parity)


def _first_clock(others: int) -> np.ndarray:
    clock = np.zeros(MOST_AGENTS + others, np.int32)
    clock[0] = 1
    return clock
