"""Which copies of what a load found decide anything: of the threads that load an element, those whose own word reaches a store, an
address or a branch.

Where a tile has fewer elements than a program has threads, several threads load each element. The compiler predicates no load by
that, but every store, atomic and asynchronous copy (`emitRedundantThreadPredicate`): of the threads that hold an element the one
does it whose number has zeros in all bits that do not matter. So what a copy loads may reach nothing. A copy is followed backwards
from what threads do with their own words: inside a thread by elementwise operations, inside a warp by shuffles (a reduction, a
scan, a gather or a conversion without room in shared memory). Through shared memory, and by what is not known here, every copy
may be the one that counts.

What is demanded of a value is a number: the bits in which the numbers of the threads may differ from 0 whose words decide anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from bitverdict.harness.emulator.execution.threads import WARP, owners
from bitverdict.harness.emulator.frontend.program_facts import ATOMICS, POLLS, ProgramFacts, elementwise
from bitverdict.harness.emulator.mlir_reader import Operation

_PREDICATED_OPERATIONS = frozenset({"tt.store", "ttg.async_copy_global_to_local", *ATOMICS}) - frozenset(POLLS)
_INSIDE_THREADS = (
    "tt.splat", "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split",
    "tt.cat",
)  # fmt: skip
_BY_SHUFFLES = ("tt.reduce", "tt.scan", "tt.gather", "ttg.convert_layout")


class DemandedCopies:
    """What is demanded of the values of one program whose threads have numbers of the bits `every`."""

    def __init__(self, facts: ProgramFacts, every: int) -> None:
        self.facts, self.every = facts, every
        self.lanes = facts.program.integer("ttg.threads-per-warp", WARP) - 1

    def bits_of(self, op: Operation) -> int:
        """The bits in which threads differ that look at what the load `op` found."""
        return self._union(op.results) if op.name == "tt.load" else self.every

    def _union(self, values: list[str]) -> int:
        bits = 0
        for value in values:
            bits |= self._bits.get(value, 0)
        return bits

    @cached_property
    def _bits(self) -> dict[str, int]:
        bits: dict[str, int] = {}
        self._bits = bits  # `_operands` reads it
        changes = True
        while changes:
            changes = False
            for op in reversed(self.facts.operations):
                for value, demanded in self._operands(op):
                    if demanded & ~bits.get(value, 0):
                        bits[value] = bits.get(value, 0) | demanded
                        changes = True
        return bits

    def _operands(self, op: Operation) -> Iterator[tuple[str, int]]:
        """What `op` demands of its operands, as far as it is known what is demanded of its results."""
        if op.successors:
            yield from self._branch_demands(op)
        elif op.name == "tt.load":
            kept = op.operands_by_name("pointer", "mask?", "other?")[
                "other"
            ]  # each thread loads: of its address and where its mask is
            yield from ((value, self._union(op.results) if value in kept else self.every) for value in op.operands)
        else:
            bits = self._demanded_bits(op)
            yield from ((value, bits) for value in op.operands)

    def _demanded_bits(self, op: Operation) -> int:
        if op.name in _PREDICATED_OPERATIONS:
            kind = op.inputs[0]
            return self.every if kind is None else self.every & ~owners(kind, self.facts.program.expand(kind.layout)).copies
        if elementwise(op) or op.name in _INSIDE_THREADS:
            return self._union(op.results)
        if op.name in _BY_SHUFFLES and "allocation.offset" not in op.attributes:
            return self._union(op.results) | self.lanes
        return self.every

    def _branch_demands(self, op: Operation) -> Iterator[tuple[str, int]]:
        if op.name == "cf.cond_br":
            yield op.operands[0], self.every  # each thread goes the way that its own word says
        for label, given in zip(op.successors, op.branch_operands(), strict=True):
            for argument, value in zip(self.facts.arguments_of(op, label), given, strict=True):
                yield value, self._bits.get(argument, 0)
