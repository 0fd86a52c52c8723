"""One program (CTA) of a launch while it runs: its identity, its on-chip memories, what it has in flight.

The translated code calls the methods of `Machine`; each checks what the operation it stands for may rely on, then moves the bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from harness.emulator.asynchrony import Flights, InFlight, PendingTensor, Schedule
from harness.emulator.barriers import Barriers
from harness.emulator.faults import EmulatedFault
from harness.emulator.memory import GlobalMemory, Space, View

if TYPE_CHECKING:
    from harness.emulator.program import Operation

TENSOR_BYTES = 128 * 512 * 4
TIMELINE = 200


class Machine:
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
    ) -> None:
        self.memory, self.grid, self.schedule = memory, grid, schedule
        self.shared = Space("shared memory", shared)
        self.tensor = Space("tensor memory", TENSOR_BYTES if tensor else 0)
        self.runs = [0] * blocks
        self.steps, self.step_limit = 0, step_limit
        self.timeline: deque[str] = deque(maxlen=TIMELINE)
        self.notes: set[tuple[str, str]] = set()
        self.start(0)

    def start(self, number: int) -> None:
        """Become program `number` of the grid: fresh, poisoned memories, nothing in flight."""
        x, y, _ = self.grid
        self.number = number
        self.program = (number % x, number // x % y, number // (x * y))
        self.shared.reset()
        if self.tensor.size:
            self.tensor.reset()
        self.flights = Flights(self.schedule, self.record)
        self.barriers = Barriers(self.flights)

    def record(self, what: str, flight: InFlight) -> None:
        if what == "issued":
            flight.number = self.steps
        self.timeline.append(
            f"program {self.program} step {self.steps}: {flight.kind} {what} ({flight.op.location}, issued at step {flight.number})"
        )

    def tick(self, block: int, operations: int) -> None:
        self.runs[block] += 1
        self.steps += operations
        if self.steps > self.step_limit:
            raise EmulatedFault("timeout", f"program {self.program}: more than {self.step_limit} operations in one launch")

    def note(self, op: Operation) -> None:
        self.notes.add((op.name, op.location))

    def check(self, op: Operation, condition: np.ndarray | bool) -> None:
        if not np.all(condition):
            raise EmulatedFault(
                "device assert",
                op.attributes.get("message", op.attributes.get("msg", "")).strip('"'),
                op.location,
                {"operation": op.brief, "program": str(self.program)},
            )

    # -- global memory ------------------------------------------------------------------------------------------------
    def load(
        self, op: Operation, pointer: np.ndarray, mask: np.ndarray | None, other: np.ndarray | None, dtype: np.dtype, single: bool
    ):
        memory_type = np.dtype(np.uint8) if dtype == np.bool_ else dtype
        if single:
            pointer = np.array([pointer], np.int64)
            mask = None if mask is None else np.array([bool(mask)])
            other = None if other is None else np.asarray(other, dtype).reshape(1)
        found = self.memory.load(op, pointer, mask, other, memory_type, str(self.program))
        if dtype == np.bool_:
            found = found != 0
        if not single:
            return found
        return found[0] if dtype.kind in "fu" else int(found[0])

    def store(self, op: Operation, pointer: np.ndarray, value: np.ndarray, mask: np.ndarray | None, dtype: np.dtype) -> None:
        pointer = np.atleast_1d(np.asarray(pointer, np.int64))
        if mask is not None:
            mask = np.atleast_1d(mask)
        value = np.atleast_1d(np.asarray(value, dtype))
        if dtype == np.bool_:
            value = value.astype(np.uint8)
        self.memory.store(op, pointer, value, mask, str(self.program), self.number)

    # -- shared and tensor memory -------------------------------------------------------------------------------------
    def allocate(
        self,
        op: Operation,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        value: np.ndarray | None,
    ) -> View:
        return self._fresh(op, View(self.shared, offset, shape, strides, dtype), value)

    def allocate_tensor(
        self,
        op: Operation,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        value: np.ndarray | None,
    ) -> View:
        return self._fresh(op, View(self.tensor, offset, shape, strides, dtype), value)

    def _fresh(self, op: Operation, view: View, value: np.ndarray | None) -> View:
        if value is not None:
            self.write(op, view, value)
        else:
            view.known[...] = 0
        return view

    def release(self, op: Operation, view: View) -> None:
        """The compiler may lay something else here from now on."""

    def scratch(self, op: Operation, offset: int, size: int) -> None:
        """The lowering of `op` uses `size` bytes of shared memory for itself: what was there is lost."""
        if size:
            view = View(self.shared, offset, (size,), (1,), np.dtype(np.uint8))
            self.flights.write(op, view)
            view.known[...] = 0

    def index(self, op: Operation, view: View, at: int) -> View:
        if not 0 <= at < view.shape[0]:
            raise EmulatedFault(
                "illegal address",
                f"index {at} of a descriptor of {view.shape[0]} buffers at {view}",
                op.location,
                {"operation": op.brief},
            )
        return view.index(at)

    def read(self, op: Operation, view: View) -> np.ndarray:
        self.flights.read(op, view)
        return view.array.copy()

    def write(self, op: Operation, view: View, value: np.ndarray) -> None:
        self.flights.write(op, view)
        view.array[...] = value
        view.known[...] = view.full

    # -- asynchronous operations --------------------------------------------------------------------------------------
    def copy(self, op: Operation, pointer: np.ndarray, view: View, mask: np.ndarray | None) -> None:
        """cp.async: addresses are checked at issue, the source is read at landing."""
        zero = np.zeros((), view.dtype)
        self.memory.load(op, pointer, mask, zero, view.dtype, str(self.program))

        def land() -> None:
            view.array[...] = self.memory.load(op, pointer, mask, zero, view.dtype, str(self.program))
            view.known[...] = view.full

        self.flights.copies.append(self.flights.issue(InFlight(op, "cp.async", "", [], [view], land)))

    def warp_group_dot(
        self,
        op: Operation,
        run: Callable,
        a: np.ndarray | View,
        b: View,
        c: np.ndarray | PendingTensor,
        use: object,
        is_async: bool,
    ) -> np.ndarray | PendingTensor:
        """wgmma: operands in shared memory are read until its group is waited for; the result is registers in flight."""
        reads = [v for v in (a, b) if isinstance(v, View)]
        for view in reads:
            self.flights.read(op, view)

        def land() -> None:
            before = c.operation.value if isinstance(c, PendingTensor) else c
            left = a.array if isinstance(a, View) else a
            flight.value = run(left, b.array, before if use else np.zeros_like(before))

        flight = InFlight(op, "wgmma", "wgmma", reads, [], land)
        self.flights.issue(flight)
        self.flights.dots.append(flight)
        if is_async:
            return PendingTensor(flight)
        self.flights.wait_dots(0)
        return flight.value

    @staticmethod
    def arrived(value: object) -> object:
        """`value` after a wait: registers no longer in flight are ordinary again."""
        return value.operation.value if isinstance(value, PendingTensor) and value.operation.complete else value

    def tensor_core_mma(
        self, op: Operation, run: Callable, a: View, b: View, d: View, use: object, signals: tuple, is_async: bool
    ) -> None:
        """tcgen05.mma and the commit behind it: operands are read, and the accumulator written, until a barrier it signals is
        waited for."""
        flights = self.flights
        for view in (a, b):
            flights.read(op, view)
        if use and not any(f.kind == "tcgen05.mma" and any(w.overlaps(d) for w in f.writes) for f in flights.pending):
            flights.read(op, d)

        def land() -> None:
            if use and not (d.known == d.full).all():
                raise EmulatedFault(
                    "uninitialised read",
                    f"{op.name} accumulates on {d}, which was never written",
                    op.location,
                    {"operation": op.brief},
                )
            d.array[...] = run(a.array, b.array, d.array if use else np.zeros_like(d.array))
            d.known[...] = d.full
            earlier = [f for f in flights.pending if f.pipe == "tcgen05" and f.number <= flight.number and f.landed]
            for barrier, when in signals:
                if when:
                    self.barriers.arrive(op, barrier, 1, earlier)

        flight = InFlight(op, "tcgen05.mma", "tcgen05", [a, b], [d], land)
        flights.issue(flight)
        if not is_async:
            flights.complete(flight)

    def finish(self) -> None:
        self.flights.finish()
