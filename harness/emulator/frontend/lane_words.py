"""Results of which each lane may have another word: followed until each element takes the word of the thread that holds it.

A value is held as one array in logical order, so one word stands for all threads that hold copies of it. After a reduction whose
two sides may not be exchanged (Welford's, or a sum whose first shuffle is a fused multiply-add) the copies may differ. Such a
result is carried twice. Once it is the word of the thread that stores it. Once it is `wide`, in the shape of the reduced tensor,
where each element stands for the copy of the thread that holds it there. Arithmetic is done on both. A broadcast back to that
shape and layout takes the wide one. Any other use holds the copies to be equal, when it runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type, parse_type
from bitverdict.reference.reduction_order import agree

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translate import Translator

_ELEMENTWISE = (
    "arith.",
    "math.",
    "tt.bitcast",
    "tt.fp_to_fp",
    "tt.clampf",
    "tt.precise_",
    "tt.approx_divf",
    "tt.extern_elementwise",
)
_WIDENS = ("tt.broadcast", "tt.splat")


@dataclass(frozen=True)
class _Held:
    """`wide`: the value with all copies. `dropped`: the narrow value lacks the axis, which else has size one."""

    wide: str
    shape: tuple[int, ...]
    layout: str  # aliases written out
    axis: int
    dropped: bool

    @property
    def place(self) -> tuple[tuple[int, ...], str, int, bool]:
        return self.shape, self.layout, self.axis, self.dropped


class LaneWords:
    """The values of one function whose copies may differ."""

    def __init__(self, t: Translator) -> None:
        self.t = t
        self.held: dict[str, _Held] = {}

    def hold(self, name: str, wide: str, kind: Type, axis: int) -> None:
        """`name` is a result of a reduction of a tensor of `kind` along `axis`, and `wide` has its copies."""
        self.t.types[wide] = kind
        self.held[name] = _Held(wide, kind.shape, self.t.program.expand(kind.layout), axis, True)

    def wanted(self, name: str) -> bool:
        """Whether `name` reaches a broadcast through arithmetic, so that its copies are worth carrying."""
        seen, waiting = set[str](), [name]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            for user in self.t.users.get(at, []):
                if user.name in _WIDENS or _through_memory(user):
                    return True
                if user.name == "tt.expand_dims" or user.name.startswith(_ELEMENTWISE):
                    waiting += user.results
        return False

    def follow(self, op: Operation) -> None:
        """Behind the code of `op`, or before it where it is a branch: carry the copies on, or hold them to be equal."""
        held = [self.held[name] for name in op.operands if name in self.held]
        if not held or op.name == "tt.store":  # each thread stores its own
            return
        one = held[0] if len({each.place for each in held}) == 1 else None
        if one and op.name.startswith(_ELEMENTWISE) and len(op.results) == 1 and not op.regions:
            if self.wanted(op.results[0]):
                self._arithmetic(op, one)
                return
            if not self.t.facts.leaves_its_thread(op):
                return
        elif one and op.name == "tt.expand_dims" and one.dropped and op.integer("axis") == one.axis:
            self.held[op.results[0]] = replace(one, dropped=False)
            return
        elif one and op.name in _WIDENS and one.dropped == (op.name == "tt.splat"):
            found = self.t.result(op)
            if found.shape == one.shape and self.t.program.expand(found.layout) == one.layout:
                self.t.assign(op, self.t.value(one.wide))
                return
        elif one and _through_memory(op):
            self.t.assign(op, self.t.calls(last_copy, op, self.t.value(one.wide), one.axis, one.dropped))
            return
        for each in held:
            self.t.emit("{}", self.t.calls(copies_agree, op, self.t.value(each.wide), each.axis))

    def _arithmetic(self, op: Operation, one: _Held) -> None:
        """`op` once more, on the copies."""
        t = self.t
        operands, kinds = [], []
        for name, found in zip(op.operands, op.inputs, strict=True):
            kind = t.typed(op, found)
            if name in self.held:
                name = self.held[name].wide
            elif kind.kind == "tensor" and one.dropped:
                fresh = f"{name}~{t.name('widened')}"
                t.emit("{} = {}", t.value(fresh), t.apply(np.expand_dims, t.value(name), one.axis))
                name = fresh
            operands.append(name)
            kinds.append(self._wide_type(kind, one) if kind.kind == "tensor" or name == one.wide else kind.text)
        result = t.result(op)
        wide = f"{op.results[0]}~lanes"
        again = replace(op, operands=operands, results=[wide], operand_types=kinds, result_types=[self._wide_type(result, one)])
        t.types[wide], t.defined[wide] = parse_type(again.result_types[0]), again
        t.operation(again, [], {})
        self.held[op.results[0]] = replace(one, wide=wide)

    @staticmethod
    def _wide_type(kind: Type, one: _Held) -> str:
        return f"tensor<{'x'.join(map(str, one.shape))}x{kind.element}, {one.layout}>"


def _through_memory(op: Operation) -> bool:
    """Whether `op` brings a value to another layout through shared memory, where all threads that hold an element store it."""
    return op.name == "ttg.convert_layout" and "allocation.offset" in op.attributes


def last_copy(m: Cta, op: Operation, wide: np.ndarray, axis: int, dropped: bool) -> np.ndarray:
    """What stays where all copies, along `axis` of `wide`, are stored to one place: the last lane's. An advice says where they
    differ."""
    if not agree((wide,), axis):
        m.notes.add(Note(Advice.LANES_DIFFER, op.location))
    return np.take(wide, -1 if dropped else [-1], axis)


def copies_agree(m: Cta, op: Operation, wide: np.ndarray, axis: int) -> None:
    """NotModelled where the copies of a value, along `axis` of `wide`, are not the same words."""
    if not agree((np.asarray(wide),), axis):
        raise NotModelled(op, "on a result of a reduction whose words differ from lane to lane")


__all__ = ["LaneWords", "copies_agree"]
