"""Results of which each lane may have another word: the code that carries their copies, thread by thread.

A value is held as one array in logical order, so one word stands for all threads that hold copies of it. After a reduction whose
two sides may not be exchanged (Welford's, or a sum whose first shuffle is a fused multiply-add) the copies may differ. Each value
that such a result can reach has a variable beside it: the words of all threads (`thread_copies`), or None while all copies are the
same. Arithmetic, moves inside a thread, shuffles, branches and further reductions carry it on. A store takes the value itself,
which is the word of the thread that stores. Shared memory holds one word for each element, so copies end there. Any other use
holds the copies to be the same, when it runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.execution.threads import moved_places
from bitverdict.harness.emulator.frontend.shared_stores import SharedStores
from bitverdict.harness.emulator.frontend.thread_copies import (
    Place,
    convert_copies,
    everywhere,
    held_elements,
    move_copies,
    require_agreement,
)
from bitverdict.harness.emulator.mlir_reader import Block, Operation, nested_operations
from bitverdict.harness.emulator.mlir_types import Type, parse_type

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import Translator

SPREAD = "bitverdict.spread"
"""The operation, of no program, that makes the copies of a value: what it moves is seen through as other moves are."""
_ELEMENTWISE = (
    "arith.", "math.", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.precise_", "tt.approx_divf", "tt.extern_elementwise",
    "tti.experimental_fpsan_",
)  # fmt: skip
_MOVES = ("tt.splat", "tt.unsplat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "ttg.convert_layout")
_BY_THEIR_THREAD = ("tt.store", "tt.atomic_rmw")
_OF_ELEMENTS = ("tt.reduce", "tt.scan", "tt.map_elementwise")  # their regions compute one element from others


class LaneWords:
    """The values of one function whose copies may differ."""

    def __init__(self, t: Translator) -> None:
        self.t = t
        self.held: set[str] = set()
        self._inside: set[str] = set()  # what the regions of _OF_ELEMENTS define

    @cached_property
    def stores(self) -> SharedStores:
        return SharedStores(self.t.program, self.t.backend.capability(self.t.arch))

    def begin(self, blocks: list[Block], sources: list[Operation]) -> None:
        """Find what the results of `sources`, reductions of these blocks, can reach."""
        self.held = {name for op in sources for name in op.results}
        if not sources:
            return
        operations = list(nested_operations(blocks))
        inner = [
            each for op in operations if op.name in _OF_ELEMENTS for region in op.regions for each in nested_operations(region)
        ]
        self._inside = {name for op in inner for name in op.results}
        operations = [op for op in operations if self._inside.isdisjoint(op.results)]
        size = 0
        while size != len(self.held):
            size = len(self.held)
            for op in operations:
                if not self.held.isdisjoint(op.operands) and (_arithmetic(op) or _move(op) or op.name == "tt.reduce"):
                    self.held.update(op.results)
            for name, given in self.t.incoming.items():
                if not self.held.isdisjoint(given):
                    self.held.add(name)

    # -- names --------------------------------------------------------------------------------------------------------
    def words(self, name: str) -> Any:
        """The variable that holds the copies of the value `name`; None where they are the same."""
        return self.t.value(f"{name}~lanes") if name in self.held else None

    def place(self, kind: Type) -> Place:
        return Place(kind.shape, self.t.program.expand(kind.layout)) if kind.kind == "tensor" else Place()

    def copies_differ(self, op: Operation) -> Any:
        """The condition that copies of an operand of `op` differ."""
        first, *others = dict.fromkeys(name for name in op.operands if name in self.held)
        found = self.t.code("{} is not None", self.words(first))
        for name in others:
            found = self.t.code("{} or {} is not None", found, self.words(name))
        return found

    def hand_over(self, arguments: list[str], given: list[str]) -> None:
        """What a branch does besides handing over values."""
        pairs = [(self.words(a), self.words(g)) for a, g in zip(arguments, given, strict=True) if a in self.held]
        if pairs:
            self.t.emit("{} = {}", tuple(a for a, _ in pairs), tuple(g for _, g in pairs))

    # -- code ---------------------------------------------------------------------------------------------------------
    def follow(self, op: Operation) -> None:
        """Behind the code of `op`, or before it where it is a branch: carry the copies on, or hold them to be the same."""
        if not self.held or (op.results and op.results[0] in self._inside):
            return
        if op.name in _OF_ELEMENTS:
            used = [name for region in op.regions for inner in nested_operations(region) for name in inner.operands]
            used += [] if op.name == "tt.reduce" else op.operands
            for name in dict.fromkeys(used):
                self.require_equal_copies(op, name)
        if self.held.isdisjoint(op.operands) or op.name in (*_BY_THEIR_THREAD, *_OF_ELEMENTS, SPREAD):
            return
        if _arithmetic(op):
            self.t.emit("{} = None", self.words(op.results[0]))
            with self.t.when(self.copies_differ(op)):
                self._arithmetic(op)
        elif _move(op) or _through_memory(op):
            self._move_copies(op)
        else:
            names = op.operands[:1] if op.name == "cf.cond_br" else [] if op.successors else op.operands
            for name in dict.fromkeys(names):
                self.require_equal_copies(op, name)

    def _move_copies(self, op: Operation, operand_number: int = 0) -> None:
        """`op`, which moves copies: from each of its operand `which` what stands for that result."""
        t = self.t
        name, into = op.operands[operand_number], op.results[operand_number]
        if name not in self.held:
            if into in self.held:
                t.emit("{} = None", self.words(into))
            return
        source, target = self.place(t.operand(op, operand_number)), self.place(t.require_type(op, op.outputs[operand_number]))
        words, moved_words = self.words(name), self.words(into) or t.name("same")
        t.emit("{} = None", moved_words)
        with t.when(t.code("{} is not None", words)):
            if op.name == "ttg.convert_layout":
                made = t.calls(convert_copies, op, words, source, target, self.stores if _through_memory(op) else None)
            elif op.name == "tt.splat":
                made = t.calls(everywhere, op, words, target)
            else:
                made = t.calls(move_copies, op, words, source, target, _places(op, source, target))
            t.emit("{}, {} = {}", t.value(into), moved_words, made)

    def carry_past_reduction(self, op: Operation) -> None:
        """Carry copies on behind the reduction `op` along an axis of one element."""
        for which in range(len(op.operands)):
            self._move_copies(op, which)

    def carry_past_move(self, op: Operation) -> None:
        """Carry on the copies of a factor that the move `op`, of no program, brings to where its product is."""
        if op.name != SPREAD and not self.held.isdisjoint(op.operands):
            self.held.update(op.results)
            self.t.types[op.results[0]] = op.outputs[0]
            self._move_copies(op)

    def require_equal_copies(self, op: Operation, name: str) -> None:
        """Hold the copies of `name` to be the same."""
        if name not in self.held:
            return
        kind = self.t.require_type(op, self.t.types.get(name))
        self.t.emit("{}", self.t.calls(require_agreement, op, self.t.value(name), self.words(name), self.place(kind)))

    def spread(self, op: Operation) -> Operation:
        """`op` on the copies of its operands, which the code has from here on."""
        names, kinds = [], []
        for name, input_type in zip(op.operands, op.inputs, strict=True):
            kind = self.t.require_type(op, input_type)
            fresh, text = f"{name}~spread", self._text(kind)
            if fresh not in self.t.defined:
                self.t.defined[fresh] = replace(
                    op, name=SPREAD, operands=[name], results=[fresh], operand_types=[kind.text], result_types=[text], regions=[]
                )
                self.t.types[fresh] = parse_type(text)
                self.t.users[fresh] = self.t.users.get(name, [])
            self.t.operation(self.t.defined[fresh], [], {})
            names.append(fresh)
            kinds.append(text)
        results = [f"{name}~lanes" for name in op.results]
        outputs = [self._text(self.t.require_type(op, input_type)) for input_type in op.outputs]
        return replace(op, operands=names, results=results, operand_types=kinds, result_types=outputs)

    def _text(self, kind: Type) -> str:
        """The type of the copies of a value of the type `kind`."""
        threads, registers = held_elements(self.place(kind)).shape
        return f"tensor<{threads}x{registers}x{kind.element}, {self.t.program.expand(kind.layout) or 'of each thread'}>"

    def _arithmetic(self, op: Operation) -> None:
        """`op` once more, on the copies."""
        t = self.t
        if _summed_narrow(t, op):
            for name in dict.fromkeys(op.operands):
                self.require_equal_copies(op, name)
            return
        with self.write_on_copies():
            again = self.spread(op)
            t.types[again.results[0]], t.defined[again.results[0]] = parse_type(again.result_types[0]), again
            t.operation(again, [], {})

    @contextmanager
    def write_on_copies(self) -> Iterator[None]:
        """While entered, code is written on copies: of what is undefined, or hinted at, the value's own code keeps account."""
        t = self.t
        before, t.undefined, t.accesses = (t.undefined, t.accesses), None, None
        try:
            yield
        finally:
            t.undefined, t.accesses = before


def _arithmetic(op: Operation) -> bool:
    return op.name.startswith(_ELEMENTWISE) and len(op.results) == 1 and not op.regions


def _summed_narrow(t: Translator, op: Operation) -> bool:
    """Whether `op` may be computed in the format that its operands are widened from: it is then no operation of its own."""
    users, sources = t.users.get(op.results[0], []), [t.defined.get(name) for name in op.operands]
    narrowed = len(users) == 1 and users[0].name == "arith.truncf" and op.name in ("arith.addf", "arith.subf")
    return narrowed and all(source is not None and source.name == "arith.extf" for source in sources)


def _through_memory(op: Operation) -> bool:
    return op.name == "ttg.convert_layout" and "allocation.offset" in op.attributes


def _move(op: Operation) -> bool:
    """Whether `op` moves copies from thread to thread, or inside them."""
    return op.name in _MOVES and not _through_memory(op)


def _places(op: Operation, source: Place, target: Place) -> np.ndarray | None:
    """(elements,) the element of the operand that each of the result of `op` is, row-major; None where they have one number."""
    if op.name == "tt.reshape" and "allow_reorder" in op.attributes and op.operand_types != op.result_types:
        return moved_places((source.shape, source.layout), (target.shape, target.layout))
    if op.name in ("tt.expand_dims", "tt.reshape", "tt.reduce", "tt.unsplat"):
        return None
    numbers = np.arange(prod(source.shape)).reshape(source.shape)
    return (
        np.broadcast_to(numbers, target.shape) if op.name == "tt.broadcast" else numbers.transpose(op.integers("order"))
    ).ravel()


__all__ = ["SPREAD", "LaneWords"]
