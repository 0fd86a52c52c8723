"""Time: asynchronous operations are issued, land when the schedule says, and may be relied on only after what PTX says orders them.

Two things are kept apart. *Landing* moves the data: at issue (eager), when something waits for it (latest), or in between (drawn).
*Completion* is knowledge: an operation is in flight until a wait of the program has covered it, landed or not. A touch of memory
that an operation in flight still writes, or an overwrite of memory it still reads, is a race under every schedule.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from harness.emulator.faults import EmulatedFault
from harness.emulator.memory import View

if TYPE_CHECKING:
    from harness.emulator.program import Operation


class InFlight:
    """One asynchronous operation. `pipe` names the unit that executes its operations in the order of issue ("" for none)."""

    __slots__ = ("complete", "kind", "landed", "landing", "number", "op", "pipe", "reads", "value", "writes")

    def __init__(
        self, op: Operation, kind: str, pipe: str, reads: list[View], writes: list[View], landing: Callable[[], None]
    ) -> None:
        self.op, self.kind, self.pipe, self.reads, self.writes, self.landing = op, kind, pipe, reads, writes, landing
        self.landed = self.complete = False
        self.number = 0
        self.value: Any = None


class PendingTensor:
    """Registers that a wgmma in flight still writes: only its wait, or a wgmma behind it, may touch them."""

    def __init__(self, operation: InFlight) -> None:
        self.operation = operation

    def __array__(self, *_: object, **__: object) -> object:
        raise EmulatedFault(
            "race",
            f"registers are read while the {self.operation.kind} that writes them is in flight",
            self.operation.op.location,
            {"operation": self.operation.op.brief},
        )


class Schedule:
    """When operations land: "eager", "latest" or "drawn:<schedule_seed>" (ValueError for anything else)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.draw: random.Random | None = None
        if text.startswith("drawn:") and text[6:].lstrip("-").isdigit():
            self.draw = random.Random(int(text[6:]))
        elif text not in ("eager", "latest"):
            raise ValueError(f"schedule {text!r}: must be 'eager', 'latest' or 'drawn:<integer>'")
        self.eager = text == "eager"

    def lands_now(self) -> bool:
        return self.eager or (self.draw is not None and self.draw.random() < 0.5)

    def programs(self, count: int) -> list[int] | range:
        """The order in which the programs of a grid run."""
        if self.draw is None:
            return range(count) if self.eager else range(count - 1, -1, -1)
        order = list(range(count))
        self.draw.shuffle(order)
        return order


class Flights:
    """All operations in flight of one program, and the groups that order them."""

    def __init__(self, schedule: Schedule, record: Callable[[str, InFlight], None]) -> None:
        self.schedule, self.record = schedule, record
        self.pending: list[InFlight] = []
        self.copies: list[InFlight] = []  # cp.async issued since the last commit
        self.copy_groups: list[list[InFlight]] = []
        self.dots: list[InFlight] = []  # wgmma groups, one operation each

    def issue(self, flight: InFlight) -> InFlight:
        """Put `flight` in the air; a race when what it touches is still touched by another that nothing orders before it."""
        for earlier in self.pending:
            if earlier.pipe and earlier.pipe == flight.pipe and _accumulate(earlier, flight):
                continue
            for view in flight.reads:
                self._collide(earlier.writes, view, flight.op, earlier, "reads", "writes")
            for view in flight.writes:
                self._collide(earlier.writes, view, flight.op, earlier, "writes", "writes")
                self._collide(earlier.reads, view, flight.op, earlier, "overwrites", "reads")
        self.pending.append(flight)
        self.record("issued", flight)
        if self.schedule.lands_now():
            self.land(flight)
        elif self.schedule.draw is not None:
            for other in list(self.pending):
                if self.schedule.lands_now():
                    self.land(other)
        return flight

    def land(self, flight: InFlight) -> None:
        """Move the data of `flight`, after that of everything before it in its pipe."""
        if flight.landed:
            return
        if flight.pipe:
            for earlier in self.pending:
                if earlier is flight:
                    break
                if earlier.pipe == flight.pipe and not earlier.landed:
                    earlier.landed = True
                    earlier.landing()
                    self.record("landed", earlier)
        flight.landed = True
        flight.landing()
        self.record("landed", flight)

    def complete(self, flight: InFlight) -> None:
        """The program has waited for `flight`: it may be relied on from here."""
        if not flight.complete:
            self.land(flight)
            flight.complete = True
            self.pending.remove(flight)

    def read(self, op: Operation, view: View) -> None:
        """The program reads `view`: a race with what is in flight, or an uninitialised read."""
        for flight in self.pending:
            self._collide(flight.writes, view, op, flight, "reads", "writes")
        if not (view.known == view.full).all():
            raise EmulatedFault(
                "uninitialised read",
                f"{op.name} reads {view}, of which "
                f"{int((view.known != view.full).sum())} of {view.known.size} elements were never written",
                op.location,
                {"operation": op.brief},
            )

    def write(self, op: Operation, view: View) -> None:
        """The program overwrites `view`: a race with what is in flight there."""
        for flight in self.pending:
            self._collide(flight.writes, view, op, flight, "writes", "writes")
            self._collide(flight.reads, view, op, flight, "overwrites", "reads")

    def _collide(self, views: list[View], view: View, op: Operation, flight: InFlight, verb: str, busy: str) -> None:
        for other in views:
            if other.overlaps(view):
                raise EmulatedFault(
                    "race",
                    f"{op.name} {verb} {view} while the {flight.kind} issued at {flight.op.location or 'an unknown line'} still "
                    f"{busy} {other}: no wait orders them",
                    op.location,
                    {
                        "operation": op.brief,
                        "other operation": flight.op.brief,
                        "other location": flight.op.location,
                        "other landed": flight.landed,
                        "schedule": self.schedule.text,
                    },
                )

    # -- cp.async (PTX ISA 9.7.9.25.3) --------------------------------------------------------------------------------
    def commit_copies(self) -> None:
        self.copy_groups.append(self.copies)
        self.copies = []

    def wait_copies(self, most: int) -> None:
        """cp.async.wait_group: all but the last `most` committed groups are complete."""
        while len(self.copy_groups) > most:
            for flight in self.copy_groups.pop(0):
                self.complete(flight)

    # -- wgmma (PTX ISA 9.7.15.7) -------------------------------------------------------------------------------------
    def wait_dots(self, most: int) -> None:
        """wgmma.wait_group: all but the last `most` are complete."""
        while len(self.dots) > most:
            self.complete(self.dots.pop(0))

    def finish(self) -> None:
        """The program has ended: whatever is still in the air lands."""
        for flight in list(self.pending):
            self.complete(flight)


def _accumulate(earlier: InFlight, later: InFlight) -> bool:
    """Whether what the two share is an accumulator, which their pipe hands on in order (and their operands are only read)."""
    return earlier.kind == later.kind
