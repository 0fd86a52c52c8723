"""The same function for several programs at once (`execution.program_batches`): which values differ by program, and their code.

A value that differs has one more axis in front, a row for each program; what is the same for all is held and computed once, as
ever. Elementwise operations take their ordinary lowerings: NumPy joins the two kinds of values. Scalars that differ are arrays of
one axis, so they take the lowerings of tensors. What moves elements has a lowering here. A program with any other operation, or
whose programs may wait for one another, has no such code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.execution.program_batches import Batch
from bitverdict.harness.emulator.execution.threads import moved_places
from bitverdict.harness.emulator.frontend.generated_code import register_in
from bitverdict.harness.emulator.frontend.lowerings.regions import lift_scalars
from bitverdict.harness.emulator.frontend.lowerings.shapes import gather_words
from bitverdict.harness.emulator.frontend.translator import LOWERINGS, Translator
from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes
from bitverdict.harness.emulator.mlir_reader import Function, Operation, Program
from bitverdict.harness.emulator.mlir_types import Type

if TYPE_CHECKING:
    from bitverdict.harness.emulator.numerics.real_values import TileValue

_ELEMENTWISE = (
    "arith.", "math.", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.precise_", "tt.mulhiui", "tt.extern_elementwise",
    "tt.approx_divf", "tt.ptr_to_int", "tt.int_to_ptr", "tti.experimental_fpsan_",
)  # fmt: skip
_CHECKS = ("cf.assert", "tt.assert", "llvm.intr.assume")
_UNIFORM_OPERATIONS = (
    "tt.make_range",
    "tt.get_num_programs",
    "ub.poison",
    "ttg.remark",
    "ttg.barrier",
    "ttg.local_barrier",
    "gpu.barrier",
    "tt.debug_barrier",
)
_FOLDS = ("tt.reduce", "tt.scan")
_OWN = ("tt.get_program_id", "tt.load", "tt.store")  # whatever their operands are
_CONTROL = ("tt.return", "cf.br", "cf.cond_br")
MOVES: dict[str, Callable[[Batches, Operation], None]] = {}


class NotBatched(Exception):
    """The function has no form for several programs."""


def moves(*names: str) -> Callable[[Callable[[Batches, Operation], None]], Callable[[Batches, Operation], None]]:
    """Register how the operations `names` are written where their operands differ by program."""
    return register_in(MOVES, *names)


class Batches:
    """What the translator asks while it writes a function for several programs."""

    def __init__(self, t: Translator, function: Function) -> None:
        self.t = t
        self.varying = {result for op in _entry_operations(function) if op.name == "tt.get_program_id" for result in op.results}
        self._spread()

    def _spread(self) -> None:
        """Whatever is made of what differs differs."""
        t, before = self.t, -1
        while before != len(self.varying):
            before = len(self.varying)
            for name, op in t.defined.items():
                if any(each in self.varying for each in op.operands):
                    self.varying.add(name)
            for name, given in t.incoming.items():
                if any(each in self.varying for each in given):
                    self.varying.add(name)

    def differs(self, op: Operation) -> bool:
        return any(name in self.varying for name in op.operands)

    # -- code ---------------------------------------------------------------------------------------------------------
    def lower(self, op: Operation) -> None:
        """Write `op`."""
        t = self.t
        if op.name in _OWN or (op.name in MOVES and self.differs(op)):
            MOVES[op.name](self, op)
        elif op.name in _CHECKS or not self.differs(op):
            LOWERINGS[op.name](t, op)
            return
        elif op.name in _FOLDS:
            self._fold(op)
        else:
            with self.arrays(op, spread=False):
                LOWERINGS[op.name](t, lift_scalars(op))
        if self.differs(op):
            self.varying.update(op.results)

    @contextmanager
    def rows_of_fold(self, op: Operation, enclosed_names: Iterable[str]) -> Iterator[int]:
        """While entered, all operands of the fold `op` have a row for each program, if any has: how many axes that is. NotBatched
        where one of `enclosed_names` would be spread, by whose identity its enclosure is known."""
        if not self.differs(op):
            yield 0
            return
        if not self.varying.issuperset(enclosed_names):
            raise NotBatched("a fold of values that may be enclosed, of which some are the same for all programs")
        with self.arrays(op, spread=True):
            yield 1

    def _fold(self, op: Operation) -> None:
        inside = {name for block in op.regions[0] for each in block.operations for name in each.operands}
        if inside & self.varying:
            raise NotBatched("a combination that uses a value of the program")
        with self.arrays(op, spread=True):
            self.t.leading = 1
            try:
                LOWERINGS[op.name](self.t, op)
            finally:
                self.t.leading = 0

    @contextmanager
    def arrays(self, op: Operation, *, spread: bool) -> Iterator[None]:
        """While entered, scalars among the operands of `op` that are the same for all programs are arrays without axes; with
        `spread` all such operands have a row for each program."""
        t, before = self.t, {}
        for name, kind in zip(op.operands, op.inputs, strict=True):
            if name in self.varying or name in before or kind is None or (kind.kind == "tensor" and not spread):
                continue
            before[name] = value = t.value(name)
            t.names[name] = self.row(value, kind) if spread else t.code("{}({}, {})", np.asarray, value, kind.dtype)
        try:
            yield
        finally:
            t.names.update(before)

    def row(self, value: TileValue, kind: Type) -> Any:
        """`value`, of the type `kind` and the same for all programs, once for each."""
        return self.t.calls(Batch.spread, value, kind.shape, kind.dtype)

    def branch_values(self, arguments: Iterable[str], given: Iterable[str]) -> Any:
        """What a branch gives for `arguments`, with commas between."""
        values = []
        for argument, name in zip(arguments, given, strict=True):
            value, kind = self.t.value(name), self.t.types.get(argument)
            if argument in self.varying and name not in self.varying and kind is not None:
                value = self.row(value, kind)
            if kind is None or kind.kind != "token":
                values.append(value)
        return self.t.join_values(values)

    def condition(self, name: str) -> Any:
        """The condition of a branch."""
        value = self.t.value(name)
        return self.t.calls(Batch.common_condition, value) if name in self.varying else value


# -- what moves elements ------------------------------------------------------------------------------------------------
@moves("tt.get_program_id")
def _identity(b: Batches, op: Operation) -> None:
    b.t.assign(op, b.t.code("m.programs[{}]", op.integer("axis")))


@moves("arith.select")
def _select(b: Batches, op: Operation) -> None:
    t, condition = b.t, op.operands[0]
    with b.arrays(op, spread=False):
        chosen, yes, no = t.operands(op, "condition", "true", "false")
        if t.operand(op, 0).kind == "scalar" and (axes := len(t.result(op).shape)) and condition in b.varying:
            chosen = t.code("{}.reshape({})", chosen, (-1, *[1] * axes))
        t.assign(op, t.apply(np.where, chosen, yes, no))


@moves("tt.splat")
def _splat(b: Batches, op: Operation) -> None:
    shape = b.t.result(op).shape
    b.t.call(op, repeated_rows, shape)


def repeated_rows(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`value` (count,) at each place of `shape`: (count, *shape)."""
    return np.broadcast_to(value.reshape(-1, *[1] * len(shape)), (len(value), *shape))


@moves("tt.unsplat")
def _unsplat(b: Batches, op: Operation) -> None:
    b.t.call(op, first_of_rows)


def first_of_rows(value: np.ndarray) -> np.ndarray:
    return value.reshape(len(value), -1)[:, 0]


@moves("tt.expand_dims")
def _expand(b: Batches, op: Operation) -> None:
    b.t.assign(op, b.t.code("{}.reshape({})", b.t.value(op.operands[0]), (-1, *b.t.result(op).shape)))


@moves("tt.broadcast")
def _broadcast(b: Batches, op: Operation) -> None:
    b.t.call(op, broadcast_rows, b.t.result(op).shape)


def broadcast_rows(value: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.broadcast_to(value, (len(value), *shape))


@moves("tt.reshape")
def _reshape(b: Batches, op: Operation) -> None:
    if "allow_reorder" not in op.attributes or op.operand_types == op.result_types:
        _expand(b, op)
        return
    source, target = b.t.operand(op, 0), b.t.result(op)
    places = moved_places(*((kind.shape, b.t.program.expand(kind.layout)) for kind in (source, target)))
    if places is None:
        raise NotBatched("allow_reorder")
    b.t.call(op, taken_of_rows, places, (-1, *target.shape))


def taken_of_rows(value: np.ndarray, places: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return value.reshape(len(value), -1)[:, places].reshape(shape)


@moves("tt.trans")
def _transpose(b: Batches, op: Operation) -> None:
    order = (0, *(axis + 1 for axis in op.integers("order")))
    b.t.assign(op, b.t.code("{}.transpose({})", b.t.value(op.operands[0]), order))


@moves("tt.join")
def _join(b: Batches, op: Operation) -> None:
    with b.arrays(op, spread=True):
        LOWERINGS[op.name](b.t, op)


@moves("tt.split", "ttg.convert_layout")
def _lower_unchanged(b: Batches, op: Operation) -> None:
    LOWERINGS[op.name](b.t, op)


@moves("tt.gather")
def _gather(b: Batches, op: Operation) -> None:
    with b.arrays(op, spread=True):
        b.t.call(op, gather_words, op.integer("axis") + 1)


@moves("tt.addptr")
def _add_pointer(b: Batches, op: Operation) -> None:
    t, size = b.t, b.t.result(op).itemsize
    pointer, offset = t.operands(op, "pointer", "offset")
    if (made := t.scaled.get((offset, size))) is None:
        made = t.scaled[offset, size] = t.name(f"{offset}_bytes")
        t.emit("{} = {}({}, {}, dtype={})", made, np.multiply, offset, size, np.int64)
    t.assign(op, t.code("{} + {}", pointer, made))


@moves("tt.load")
def _load(b: Batches, op: Operation) -> None:
    t, kind = b.t, b.t.result(op)
    pointer, mask, fill_value = t.operands(op, "pointer", "mask?", "other?")
    if op.flag("isVolatile") or not t.operand(op, 0).pointers:
        raise NotBatched("a volatile load")
    if b.differs(op):
        t.machine(op, Batch.load, pointer, mask, fill_value, kind.dtype, kind.shape)
        return
    t.machine(op, Batch.load_once, pointer, mask, fill_value, kind.dtype, kind.kind == "scalar")


@moves("tt.store")
def _store(b: Batches, op: Operation) -> None:
    t, kind = b.t, b.t.operand(op, 1)
    pointer, value, mask = t.operands(op, "pointer", "value", "mask?")
    if op.operands[0] not in b.varying:
        raise NotBatched("all programs store to one place")
    t.machine(op, Batch.store, pointer, value, mask, kind.dtype, kind.shape)


# -- the function -------------------------------------------------------------------------------------------------------
def write_batch_form(t: Translator, program: Program) -> tuple[str, str]:
    """Write the entry of `program` for several programs at once: (its name, ""). Where it has no such form: ("", why), and
    nothing is written."""
    function = program.entry
    if why := _serial_reason(t, program):
        return "", why
    lines, done_count, blocks = len(t.lines), len(t.done), len(t.blocks)
    t.begin()
    t.forget_locals(t.functions.values())
    t.scan(function.blocks)
    t.undefined = UndefinedLanes(t, function.blocks, program) or None
    t.batches = Batches(t, function)
    if t.enclosing is not None:
        t.enclosing.begin(function)
    if t.reals is not None:
        t.reals.begin(function.blocks)
    try:
        name = t.name(f"{function.name}_batch")
        t.function(name, function.blocks)
    except Exception as error:  # the program has a form of its own, which was written
        del t.lines[lines:], t.numbers[lines:], t.done[done_count:], t.blocks[blocks:]
        t.indent = ""
        return "", f"{type(error).__name__}: {error}"
    finally:
        t.batches = None
    return name, ""


HELD_ACCESSES, ONE_PROGRAM = "accesses are held to their widths", "all programs do the same"


def _serial_reason(t: Translator, program: Program) -> str:
    """Why several programs cannot run at once, as far as the names of the operations say."""
    facts, operations = t.facts, {op.name for op in _entry_operations(program.entry)}
    known = {*MOVES, *_CHECKS, *_UNIFORM_OPERATIONS, *_FOLDS, *_CONTROL}
    if left := sorted(name for name in operations if name not in known and not name.startswith(_ELEMENTWISE)):
        return ", ".join(left)
    if len(program.functions) > 1 or t.ctas > 1 or facts.synchronises or facts.agents > 1:
        return "calls, clusters, partitions or atomics"
    if t.accesses is not None:
        return HELD_ACCESSES
    return "" if "tt.get_program_id" in operations else ONE_PROGRAM


def _entry_operations(function: Function) -> list[Operation]:
    """The operations of `function`, those of combinations left out."""
    return [op for block in function.blocks for op in block.operations]


__all__ = ["Batches", "NotBatched", "write_batch_form"]
