"""Widths of accesses and bank conflicts, line by line: the PTX of a launch, executed thread by thread, its addresses counted.

Shared memory has 32 banks. Successive 32-bit words lie in successive banks, a bank serves one word a cycle, and threads that want
the same word share it (CUDA C++ Programming Guide, "Shared Memory" of the compute capabilities). So a warp needs at least as many
cycles as the fullest bank has words, and at best its words over 32. ldmatrix and stmatrix are counted matrix by matrix, 8 rows of
16 bytes. Global memory is served in sectors of 32 bytes (CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from bitverdict.harness.emulator.device_probe import LaunchRun
from bitverdict.harness.emulator.memory.byte_arrays import copy_of
from bitverdict.harness.emulator.memory.global_memory import Region
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from bitverdict.harness.ptx_machine.program import ThreadStep

WARP, BANKS, WORD, SECTOR = 32, 32, 4, 32
_ACCESS_OPCODES = ("ld", "ldu", "st", "atom", "red", "ldmatrix", "stmatrix", "cp")


@dataclass(eq=False)
class AccessCount:
    """What the warps of a launch took by instructions of one kind for an `operation` of a line: `width` bytes a thread, `requests`
    of warps, which take at least so many `transactions`: cycles of shared memory, sectors of global memory; `ideal` at best."""

    location: str
    operation: str
    space: str
    instruction: str
    width: int
    requests: int = 0
    transactions: int = 0
    ideal: int = 0


class MemoryFacts(NamedTuple):
    """`counts` in the order of the PTX, and why there are none, or what stands not in them."""

    counts: list[AccessCount]
    remark: str = ""

    def conflicts(self) -> list[AccessCount]:
        """Those of shared memory that banks slow down."""
        return [count for count in self.counts if count.space == "shared" and count.transactions > count.ideal]


@dataclass(eq=False)
class _Counter:
    """`operations` of the tile program by their line in it, which the PTX names."""

    operations: dict[int, Operation]
    counts: dict[tuple[str, str], AccessCount] = field(default_factory=dict)

    def __call__(self, space: str, step: ThreadStep, threads: np.ndarray, addresses: np.ndarray, size: int) -> None:
        opcode = step.statement.opcode
        if opcode.partition(".")[0] not in _ACCESS_OPCODES or "bulk" in opcode:
            return
        op = self.operations.get(int(step.place.rpartition(":")[2] or 0) - 1)  # (`assembly.ptx`: line n is n + 1 there)
        location, name = ("", "") if op is None else (op.location, op.name)
        count = self.counts.setdefault((step.place, opcode), AccessCount(location, name, space, opcode, size))
        warps = threads // WARP
        unit = WORD if space == "shared" else SECTOR
        first, last = addresses // unit, (addresses + size - 1) // unit
        spans = np.arange(int((last - first).max(initial=0)) + 1)
        units = first[:, None] + spans
        warp_units = np.unique(np.stack([np.broadcast_to(warps[:, None], units.shape), units])[:, units <= last[:, None]], axis=1)
        numbers, which = np.unique(warp_units[0], return_inverse=True)
        count.requests += len(numbers)
        if space == "shared":
            by_bank = np.bincount(which * BANKS + warp_units[1] % BANKS, minlength=len(numbers) * BANKS).reshape(-1, BANKS)
            count.transactions += int(by_bank.max(axis=1).sum())
            count.ideal += int((-(-by_bank.sum(axis=1) // BANKS)).sum())
        else:
            count.transactions += warp_units.shape[1]
            count.ideal += int(sum(_least_sectors(addresses[warps == number], size) for number in numbers))


def _least_sectors(addresses: np.ndarray, size: int) -> int:
    """Sectors that the bytes of a warp would fill."""
    return -(-len(np.unique(addresses)) * size // SECTOR)


@dataclass(eq=False)
class FactsSource:
    """A launch and the bytes from before it, of which the facts are made when they are asked for."""

    run: LaunchRun
    bytes_before: list[tuple[Region, np.ndarray]]

    @classmethod
    def before(cls, run: LaunchRun) -> FactsSource:
        return cls(run, [(region, copy_of(region.raw)) for region in run.regions])

    def facts(self) -> MemoryFacts:
        return self._facts

    @cached_property
    def _facts(self) -> MemoryFacts:
        counter = _Counter({op.line: op for op in self.run.translation.operations})
        twin = PtxTwin(observe=counter)
        result = twin.result_of(self.run, [(region, copy_of(words)) for region, words in self.bytes_before])
        if result.not_run:
            return MemoryFacts([], f"its PTX was not executed: {result.not_run}")
        return MemoryFacts(list(counter.counts.values()), "wgmma, tcgen05 and TMA take shared memory by descriptors: not counted")


def fact_lines(facts: MemoryFacts) -> Iterator[str]:
    """A line for each count, then the remark."""
    for count in facts.counts:
        unit = "sectors" if count.space == "global" else "cycles"
        excess = f", {count.ideal} at best" if count.transactions > count.ideal else ""
        conflict = " (bank conflicts)" if excess and count.space == "shared" else ""
        place = count.location.rpartition("/")[2]
        asked = f"{count.width} bytes a thread, {count.requests} requests of warps"
        yield f"{place:<20} {count.operation:<20} {count.instruction:<20} {asked}, {count.transactions} {unit}{excess}{conflict}"
    if facts.remark:
        yield facts.remark


__all__ = ["AccessCount", "FactsSource", "MemoryFacts", "fact_lines"]
