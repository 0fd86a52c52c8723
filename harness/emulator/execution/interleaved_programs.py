"""The programs of a launch that may wait for one another: which are resident, whose turn it is, and when nobody can go on.

A program runs until it waits, or is about to make an atomic under a drawn schedule. The others that are resident then run: under
"eager" the one that began first, under "latest" the one that begins next, drawn in between. Programs beyond what the GPU holds
begin in the order of their numbers when one ends, as hardware dispatches them.

Programs of one multiprocessor share its tensor memory. The compiler has each take its columns where it begins, before it does
anything else, and give them back where it ends. Who finds too few waits. PTX names no order among those that wait
(tcgen05.alloc): under "eager" the one that began first is given what is free, under "latest" the one that began last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

from bitverdict.harness.emulator.execution.async_ops import Schedule
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.partitions import Stuck, Thread, Turn, Wait
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.residency import Residency

MOST_WAITS_SHOWN = 20  # waits in a report
MOST_LOOKS = 20_000  # at the same words, one after another, while no program does anything else


@dataclass(eq=False)
class ResidentProgram:
    """A program that is resident: its CTA, its multiprocessor, what it waits for (by agent), that it only looks for a change, and
    whether it has its tensor memory; without it does nothing yet."""

    cta: Cta
    thread: Thread
    multiprocessor: int
    holds: bool
    waits: dict[str, Wait] = field(default_factory=dict)
    spins: bool = False

    def can_run(self) -> bool:
        return self.holds and (not self.waits or any(blocked.passes() for blocked in self.waits.values()))


class Programs:
    """The programs of one launch, `resident` of them at once. `begin` makes the thread of a program on a CTA."""

    def __init__(self, cta: Cta, schedule: Schedule, resident: Residency, begin: Callable[[Cta], Thread]) -> None:
        self.schedule, self.resident, self.begin = schedule, resident, begin
        self.current = cta
        self.idle = [cta]
        self.live: list[ResidentProgram] = []
        self.resident_on = [0] * resident.multiprocessors
        self.steps = self.looks = 0
        self.waiting: deque[int] = deque()  # programs that have not begun

    def run_in_turn(self, numbers: Iterable[int]) -> None:
        """Run the programs `numbers`, none of which can wait for another, each to its end."""
        self.waiting = deque(numbers)
        while self.waiting:
            self.current.launch.begun_count += 1
            self.current.start(self.waiting.popleft())
            deque(self.begin(self.current), maxlen=0)

    def cancel(self) -> int | None:
        """Take the next program out of the launch that a GPU would not have begun by now; None where all have."""
        first = max(self.resident.programs - self.current.launch.begun_count, 0)
        if first >= len(self.waiting):
            return None
        found = self.waiting[first]
        del self.waiting[first]
        return found

    def run_together(self, numbers: Iterable[int]) -> None:
        """Run the programs `numbers` to their ends. Raises EmulatedFault "deadlock" when nobody can go on."""
        self.waiting = unstarted_programs = deque(numbers)
        while unstarted_programs or self.live:
            runnable = [each for each in self.live if each.can_run()]
            room = bool(unstarted_programs) and len(self.live) < self.resident.programs
            if not runnable and not room:
                if not self._land():
                    self._deadlock(unstarted_programs)
                continue
            chosen = self._choose(runnable, room)
            running = self._admit(unstarted_programs.popleft()) if chosen is None else chosen
            if running.holds:
                self._turn(running)

    def _choose(self, able: list[ResidentProgram], room: bool) -> ResidentProgram | None:
        """Whose turn it is; None for a program that has not begun. Those that only look for a change come last, one by one."""
        busy = [each for each in able if not each.spins]
        if not busy and not room:
            return able[0]
        if self.schedule.draw is not None:
            at = self.schedule.pick(len(busy) + room)
            return busy[at] if at < len(busy) else None
        if self.schedule.eager:
            return busy[0] if busy else None
        return None if room else busy[-1]

    def _admit(self, number: int) -> ResidentProgram:
        """Program `number` begins, on the first of the multiprocessors that have the fewest programs."""
        self.current.launch.begun_count += 1
        place = self.resident_on.index(min(self.resident_on))
        cta = self.idle.pop() if self.idle else self.current.sibling()
        cta.start(number)
        cta.state.together = True
        found = ResidentProgram(cta, self.begin(cta), place, self.resident_on[place] < self.resident.holders)
        self.live.append(found)
        self.resident_on[place] += 1
        return found

    def _turn(self, program: ResidentProgram) -> None:
        self.current = program.cta
        self.current.state.steps = self.steps
        try:
            signal = next(program.thread)
        except StopIteration:
            self.live.remove(program)
            self.idle.append(program.cta)
            self._give_back(program.multiprocessor)
            self._progress()
        else:
            program.waits = signal.waits if isinstance(signal, Stuck) else {}
            program.spins = signal is Turn.SPINS
            if program.spins:
                self._look()
                self.live.append(self.live.pop(self.live.index(program)))
            else:
                self._progress()
        self.steps = self.current.state.steps

    def _give_back(self, multiprocessor: int) -> None:
        """A program of `multiprocessor` has ended: another has its tensor memory."""
        self.resident_on[multiprocessor] -= 1
        if queue := [each for each in self.live if each.multiprocessor == multiprocessor and not each.holds]:
            queue[self.schedule.pick(len(queue))].holds = True

    def _look(self) -> None:
        self.looks += 1
        if self.looks > MOST_LOOKS:
            agent = self.current.state.agent
            message = f"{MOST_LOOKS} times in a row programs found the words they had found before, program {agent.program} last"
            raise EmulatedFault("timeout", message)

    def _progress(self) -> None:
        self.looks = 0
        for each in self.live:
            each.spins = False

    def _land(self) -> bool:
        """Let what is in flight come, where everybody waits; whether anything was."""
        flying = [(each.cta, f) for each in self.live for f in each.cta.flights.pending if not f.landed]
        for cta, flight in flying:
            cta.flights.land(flight)
        return bool(flying)

    def _deadlock(self, unstarted_programs: deque[int]) -> NoReturn:
        waits = {
            f"program {program.cta.number}, {name}": f"{blocked.op.location}: {blocked.describe()}"
            for program in self.live
            for name, blocked in program.waits.items()
        }
        queue = [program for program in self.live if not program.holds]
        first_wait = next(blocked for program in self.live for blocked in program.waits.values())
        lines = sorted({blocked.op.location for program in self.live for blocked in program.waits.values()})
        summary = "; ".join(f"{who} waits at {wait}" for who, wait in list(waits.items())[:3])
        summary += f"; and {len(waits) - 3} more" if len(waits) > 3 else ""
        for program in queue:
            waits[f"program {program.cta.number}, before it begins"] = self._holders_of(program)
        shown = dict(list(waits.items())[:MOST_WAITS_SHOWN])
        details: dict[str, Any] = {"operation": first_wait.op.brief, "waits": shown, "waiting lines": lines}
        message = f"no program can move, and nothing is left that could: {summary}"
        if queue:
            message = (
                f"needs tensor memory of programs that wait: {self.resident.holders} of each multiprocessor can have their "
                f"{self.resident.columns} columns at once, they wait, and {len(queue)} wait for theirs, "
                f"program {queue[0].cta.number} first"
                f"{f' (and {len(unstarted_programs)} have not begun)' if unstarted_programs else ''}: {summary}"
            )
            details["remedy"] = (
                f"launch no more programs than have their tensor memory together "
                f"({self.resident.concurrent_programs}), or wait only for "
                "programs that have begun: number them by an atomic add, not by program_id"
            )
        elif unstarted_programs:
            message = (
                f"needs programs resident together: {self.resident.programs} of the launch can be ({self.resident.reason}), they "
                f"wait, and {len(unstarted_programs)} have not begun, program {unstarted_programs[0]} first: {summary}"
            )
            details["remedy"] = "launch no more programs than are resident together, or wait only for programs of lower numbers"
        raise EmulatedFault("deadlock", message, first_wait.op.location, details)

    def _holders_of(self, queued: ResidentProgram) -> str:
        """What `queued` waits for, and of whom."""
        place = queued.multiprocessor
        holders = [each.cta.number for each in self.live if each.multiprocessor == place and each.holds]
        have = f"programs {', '.join(map(str, holders))} have" if len(holders) > 1 else f"program {holders[0]} has"
        return f"tcgen05.alloc: {self.resident.columns} columns of multiprocessor {place}, where {have} theirs"
