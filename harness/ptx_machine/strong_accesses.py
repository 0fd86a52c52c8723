"""Strong loads, stores and atomics: a word of memory tells who reads it what its writer has released (PTX ISA 8.8 and 8.10.4).

A release makes known what its thread knows and has done; a relaxed write makes known what was so at the last fence before it. Who
reads the word acquires that: at once, or at its next fence where the read is relaxed. An atomic adds to what the word tells, a
store replaces it. Words are kept by cluster: the order between clusters is not checked where a kernel has such accesses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from bitverdict.harness.ptx_machine.program import KernelProgram, StatementReader
    from bitverdict.harness.ptx_machine.thread_order import Order, Rows

_READS = re.compile(r"(ld\b.*\.(relaxed|acquire)|atom)\b")
_ACQUIRES = re.compile(r"(ld|atom)\b.*\.(acquire|acq_rel)\b|(membar|fence)\b(?!\.proxy|\.mbarrier)")


@dataclass(frozen=True)
class Semantics:
    """What an access is in the memory model."""

    is_strong: bool
    acquires: bool
    releases: bool


def semantics_of(reader: StatementReader) -> Semantics:
    names = {"relaxed", "acquire", "release", "acq_rel"} & set(reader.modifiers)
    is_atomic = reader.statement.opcode.startswith(("atom", "red"))
    return Semantics(bool(names) or is_atomic, bool(names & {"acquire", "acq_rel"}), bool(names & {"release", "acq_rel"}))


@lru_cache(maxsize=64)
def orders_by_words(program: KernelProgram) -> bool:
    """Whether a thread may learn from a word what another has done: something acquires, and something takes what was read."""
    steps = [step for block in program.blocks for step in block.steps]
    taken = {name for step in steps for name in (*step.reads, step.guard) if isinstance(name, str)}
    taken |= {block.branch[0] for block in program.blocks if block.branch}
    is_read = any(_READS.match(step.statement.opcode) and taken.intersection(step.writes) for step in steps)
    return is_read and any(_ACQUIRES.match(step.statement.opcode) for step in steps)


@dataclass(eq=False)
class ReleasedWords:
    """What words of memory tell to the threads of `order`."""

    order: Order
    released_rows: dict[tuple[int, int], Rows] = field(default_factory=dict)  # by cluster and address

    def _keys(self, threads: np.ndarray, addresses: np.ndarray) -> Iterator[tuple[int, int]]:
        return zip((threads // self.order.threads).tolist(), addresses.tolist(), strict=True)

    def note_read(self, threads: np.ndarray, addresses: np.ndarray, semantics: Semantics) -> None:
        """Each of `threads` has read the word at its address."""
        if not self.released_rows:
            return
        rows = [self.released_rows.get(key) for key in self._keys(threads, addresses)]
        positions = [position for position, row in enumerate(rows) if row is not None]
        if positions:
            known, fenced = zip(*(row for row in rows if row is not None), strict=True)
            released = np.stack(known), None if self.order.fenced is None else np.stack(fenced)
            self.order.acquire_rows(threads[positions], released, waits_for_fence=not semantics.acquires)

    def note_write(self, threads: np.ndarray, addresses: np.ndarray, semantics: Semantics, *, adds: bool) -> None:
        """Each of `threads` has written the word at its address, which it has read before if it `adds`."""
        if adds and not semantics.releases and self.order.at_fence is None:
            return
        known, fenced = self.order.release_rows(threads, is_relaxed=not semantics.releases)
        for number, key in enumerate(self._keys(threads, addresses)):
            row: Rows = known[number], None if fenced is None else fenced[number]
            earlier = self.released_rows.get(key) if adds else None
            if earlier is not None:
                proxies = None if row[1] is None or earlier[1] is None else np.maximum(row[1], earlier[1])
                row = np.maximum(row[0], earlier[0]), proxies
            self.released_rows[key] = row


__all__ = ["ReleasedWords", "Semantics", "orders_by_words", "semantics_of"]
