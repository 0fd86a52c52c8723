"""Threads that poll: loops that read memory until another thread has changed it, and how one that nothing ends is told.

`Threads.changes` counts what any thread has changed beside its registers. A group of threads that comes back to the head of a loop
with the registers that it had there, while nothing was changed, is put aside until something is: it would run the same steps on the
same memory again. Where all threads that can run are aside, they are let go on, and where they then stand as they stood before,
with nothing changed between, no schedule ends the loops: memory is constant, and so each thread does the same for ever. Of the
registers those count on which a branch, an address or a stored word depends, in the blocks that ran: no count of attempts.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.ptx.opcodes import Words
from bitverdict.harness.ptx_machine.program import KernelProgram, ThreadStep, fault
from bitverdict.harness.ptx_machine.thread_order import WARP

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.threads import Threads

_POLL = re.compile(r"(ld|atom|mbarrier\.test_wait)\b")
_SEES_OTHER_CTAS = re.compile(r"(ld|atom)\b(?!.*\.(shared|param|local|const)\b)")
_ONLY_READS = re.compile(
    r"(ldu?|mov|cvta|min|max|shfl|elect|match|vote|redux|activemask|ldmatrix|mma|membar|fence|nanosleep|prefetchu?|discard"
    r"|applypriority|createpolicy|mapa|getctarank|setmaxnreg|griddepcontrol|bar(rier)?(\.cta)?\.(sync|red|warp)"
    r"|mbarrier\.(test|try)_wait|st(?!\.async)|atom|red(?!\.async))\b"
)
"""Instructions that change nothing but registers, or say themselves whether they have (`Threads.changes`)."""
Registers = dict[str, Words]  # arrays that nothing writes into: a snapshot is a copy of the table


@cache
def changes_state(opcode: str) -> bool:
    """Whether an instruction changes anything but registers, and does not say itself whether it has."""
    return _ONLY_READS.match(opcode) is None


@dataclass(eq=False)
class Visit:
    """Threads at the head of a loop, or all of them (`lanes` None) where nobody could run: where each stood, and its registers."""

    lanes: np.ndarray
    places: list[object]
    registers: Registers
    count: int = 0
    different_register: str = ""  # by which a later visit differed: looked at first


class Polls:
    """The polling threads of `machine`: `asides` by the head of the loop at which they wait for a change."""

    def __init__(self, machine: Threads) -> None:
        self.machine = machine
        blocks, order = machine.kernel.blocks, machine.kernel.order
        edges = ((start, end) for start, block in enumerate(blocks) for end in (block.target, block.next_block) if end >= 0)
        self.loop_heads = frozenset(end for start, end in edges if order[end] <= order[start])
        self.deciding_registers: dict[frozenset[int], tuple[str, ...]] = {}  # by blocks
        self.asides: dict[int, list[np.ndarray]] = {}
        self.visits: dict[tuple[int, int, int], Visit] = {}  # by head, first thread and their count
        self.meeting: Visit | None = None
        self.blocks: set[int] = set()  # that ran since the last change, or since `meeting`
        self.changes = 0

    def puts_aside(self, head: int, lanes: np.ndarray) -> bool:
        """Whether `lanes` come back to the loop's `head` as they were there, and wait from now on."""
        key = head, int(lanes[0]), len(lanes)
        visit = self.visits.get(key)
        if visit is None or not np.array_equal(visit.lanes, lanes):
            self.visits[key] = Visit(lanes, [], dict(self.machine.registers))
            return False
        if not self._recurs(visit, lanes, []):
            return False
        self.asides.setdefault(head, []).append(lanes)
        return True

    def ran(self, number: int, lanes_by_block: dict[int, list[np.ndarray]]) -> None:
        """Block `number` has run; what it changed lets the threads aside go on."""
        if self.machine.changes == self.changes:
            self.blocks.add(number)
            return
        self.changes, self.meeting = self.machine.changes, None
        self.blocks.clear()
        self.visits.clear()
        if self.asides:
            self._go_on(lanes_by_block)

    def choose(self, lanes_by_block: dict[int, list[np.ndarray]]) -> list[int]:
        """The blocks that may run next: while threads are aside, first those of other warps, as theirs may have to meet them."""
        if not self.asides:
            return list(lanes_by_block)
        waits = np.zeros(self.machine.lanes // WARP, bool)
        for lanes in (part for parts in self.asides.values() for part in parts):
            waits[lanes // WARP] = True
        free = [number for number, parts in lanes_by_block.items() if not any(waits[part // WARP].any() for part in parts)]
        return free or list(lanes_by_block)

    def resume(self, lanes_by_block: dict[int, list[np.ndarray]]) -> None:
        """Nobody can run but those aside: they go on. A deadlock where they have stood so before."""
        machine = self.machine
        if machine.changes != self.changes:  # by a copy that has landed for those who are parked
            self.ran(-1, lanes_by_block)
            return
        stand: list[object] = [
            *((head, np.sort(np.concatenate(parts))) for head, parts in sorted(self.asides.items())),
            *((barrier, resume.copy()) for barrier, resume in machine.parked.items()),
        ]
        lanes = np.flatnonzero(machine.live)
        if self.meeting is None:
            self.meeting = Visit(lanes, stand, dict(machine.registers))
            self.blocks.clear()
        elif self._recurs(self.meeting, lanes, stand):
            raise self._deadlock()
        self._go_on(lanes_by_block)

    def _go_on(self, lanes_by_block: dict[int, list[np.ndarray]]) -> None:
        for head, parts in self.asides.items():
            lanes_by_block.setdefault(head, []).extend(parts)
        self.asides, self.visits = {}, {}  # each runs its loop once before it is held to a visit again

    def _recurs(self, visit: Visit, lanes: np.ndarray, places: list[object]) -> bool:
        """Whether `lanes` stand as at `visit`, which is brought up to date at powers of two (Brent's search for a cycle)."""
        visit.count += 1
        is_same = _same_places(visit.places, places) and self._same_registers(visit, lanes)
        if not is_same and visit.count & (visit.count - 1) == 0:
            visit.places, visit.registers = places, dict(self.machine.registers)
        return is_same

    def _same_registers(self, visit: Visit, lanes: np.ndarray) -> bool:
        registers = self.machine.registers
        if visit.different_register and not _same_words(visit.registers, registers, visit.different_register, lanes):
            return False
        if (blocks := frozenset(self.blocks)) not in self.deciding_registers:
            self.deciding_registers[blocks] = registers_that_decide(self.machine.kernel, blocks)
        names = self.deciding_registers[blocks]
        different = next((name for name in names if not _same_words(visit.registers, registers, name, lanes)), "")
        visit.different_register = different or visit.different_register
        return not different

    def _deadlock(self) -> EmulatedFault:
        machine = self.machine
        head, parts = min(self.asides.items(), key=lambda item: machine.kernel.order[item[0]])
        loop = sorted(self.blocks, key=lambda number: (machine.kernel.order[number] < machine.kernel.order[head], number))
        steps = [step for number in loop for step in machine.kernel.blocks[number].steps if isinstance(step, ThreadStep)]
        polls = [step for step in steps if _POLL.match(step.statement.opcode)]
        cta, thread = divmod(int(parts[0][0]), machine.shape.threads)
        cta += machine.memory.first_thread // machine.shape.threads
        who = f"thread {thread} of CTA {cta}"
        if machine.has_later_ctas and any(_SEES_OTHER_CTAS.match(step.statement.opcode) for step in polls):
            return fault("not modelled", f"{who} waits in a loop for what a CTA may do that has not begun", polls[0])
        message = f"{who} loops for ever: no thread that can go on changes what it reads"
        return fault("deadlock", message, (polls or steps)[0], thread=thread) if steps else EmulatedFault("deadlock", message)


def registers_that_decide(kernel: KernelProgram, numbers: frozenset[int]) -> tuple[str, ...]:
    """Registers on which branches, and what reaches memory or other threads, depend in the blocks `numbers`."""
    blocks = [kernel.blocks[number] for number in numbers]
    steps = [step for block in blocks for step in block.steps]
    names = {block.branch[0] for block in blocks if block.branch}
    for step in steps:
        if isinstance(step, ThreadStep):
            names |= {name for name in (*step.reads, step.guard) if isinstance(name, str)}
    count = -1
    while count < len(names):
        count = len(names)
        for step in steps:
            if not names.isdisjoint(step.writes):
                names |= {name for name in (*step.reads, step.base, step.guard) if isinstance(name, str)}
    return tuple(names - {""})


def _same_places(places: list[object], places_now: list[object]) -> bool:
    return len(places) == len(places_now) and all(
        a[0] == b[0] and np.array_equal(a[1], b[1])  # type: ignore[index]
        for a, b in zip(places, places_now, strict=True)
    )


def _same_words(then: Registers, now: Registers, name: str, lanes: np.ndarray) -> bool:
    before, after = then.get(name), now.get(name)
    if before is after:
        return True
    if before is None or after is None:
        return False
    before, after = (words if len(words) == 1 else words[lanes] for words in (before, after))
    return bool((before == after).all())
