"""Lanes that a load leaves undefined: its mask is False there and it has no `other`.

The compiled program has zero in them, and that is what is computed with. Triton promises nothing, so where such a lane decides what
is stored, an advice says so. Which lanes of a value are undefined is carried beside it, in a variable of its own (a bool array of
the value's shape, or None for none), and only for values that such a load can reach: a program without one carries nothing.

A lane of a result is undefined where one of its operands' is; a select takes over what it chooses; False and undefined is False;
a reduction or a product is undefined wherever it takes in an undefined lane. It is followed through registers, shared memory and
tensor memory. What goes through a call or into a partition, is a scale of a product, or is indexed by another value, is not
followed: there is no advice then.

The same is done for lanes that a load takes from elsewhere, because a hint was not true (`hints.check`), where all that they may
come to is followed. One of them that reaches a store, an address or a branch is a failure.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.advice import Advice, Note
from bitverdict.harness.emulator.frontend.stop_compiler import language_of
from bitverdict.harness.emulator.memory.onchip import View
from bitverdict.harness.emulator.memory.undefined_masks import UndefinedMasks
from bitverdict.harness.emulator.mlir_reader import Block, Operation, Program, nested_operations

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.execution.cta_state import CtaState
    from bitverdict.harness.emulator.execution.program_batches import Batch
    from bitverdict.harness.emulator.frontend.translator import Translator

Lanes = np.ndarray | None
"""Bool, of the shape of the value that it belongs to, 0-d for a scalar; in a batch of programs that differ, with a row for each."""
_ELEMENTWISE = (
    "arith.", "math.", "tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.ptr_to_int", "tt.int_to_ptr", "tt.precise_",
    "tt.mulhiui", "tt.extern_elementwise", "tti.experimental_fpsan_",
)  # fmt: skip
_DOTS = ("tt.dot", "ttng.warp_group_dot")
_MOVES = ("ttg.convert_layout", "ttng.warp_group_dot_wait")
_SHAPES = ("tt.splat", "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split")
_FOLDS = ("tt.reduce", "tt.scan")
_READS = ("ttg.local_load", "ttng.tmem_load")
_WRITES: dict[str, tuple[int, int | None]] = {  # the operand that is written, and the view: an operand, or None for the result
    "ttg.local_store": (0, 1),
    "ttg.local_alloc": (0, None),
    "ttng.tmem_store": (-2, 0),
    "ttng.tmem_alloc": (0, None),
}
_LOADS = ("tt.load", "ttg.async_copy_global_to_local")
_ENDS = ("tt.store", "tt.atomic_rmw", "tt.atomic_cas", "ttg.async_copy_global_to_local")
_ON_CHIP = (
    *_READS, *_WRITES, *_DOTS, *_MOVES, "ttng.tc_gen5_mma", "ttg.async_copy_global_to_local", "ttg.memdesc_index",
    "ttg.memdesc_subslice", "ttg.memdesc_trans", "ttg.local_dealloc", "ttng.async_tma_copy_global_to_local",
    "ttng.async_tma_copy_local_to_global", "ttng.init_barrier", "ttng.inval_barrier", "ttng.barrier_expect", "ttng.wait_barrier",
    "ttng.arrive_barrier", "ttng.tc_gen5_commit",
)  # fmt: skip
"""What may have to do with memory on the chip in a function whose lanes are all followed."""


def _leaves_undefined(op: Operation) -> bool:
    """Whether `op` leaves lanes undefined: it has a mask and no `other`."""
    if op.name not in _LOADS:
        return False
    names = ("pointer", "mask?", "other?") if op.name == "tt.load" else ("pointer", "view", "mask?", "other?")
    groups = op.operands_by_name(*names)
    return bool(groups["mask"]) and not groups["other"]


class UndefinedLanes:
    """Which values of one function can have undefined lanes, and the code that carries them."""

    def __init__(self, t: Translator, blocks: list[Block], program: Program) -> None:
        self.t = t
        self.sources: dict[str, set[str]] = {}  # value -> lines of the loads that it may depend on
        self.memory: set[str] = set()  # the same of shared memory
        self.displaced = self._displaced_loads(blocks, program)  # loads (by id) of which elements may come from elsewhere
        self.unwritten = self._unwritten_loads(blocks, program)  # loads (by id) of tensor memory that may be unwritten
        loads = [op for op in nested_operations(blocks) if _leaves_undefined(op)]
        if any(op.name != "tt.load" for op in loads) and language_of(program.text.encode()) == "gluon":
            loads = [op for op in loads if op.name == "tt.load"]  # cp.async writes zeros, and its author asked for cp.async
        self.masked = {id(op) for op in loads}
        if loads:
            self._spread(blocks, loads)
            if UndefinedMasks(t, self, _ELEMENTWISE).stay(blocks):
                self.sources.clear()
        if followed := self.displaced | self.unwritten:
            self._spread(blocks, [op for op in nested_operations(blocks) if id(op) in followed])

    def _displaced_loads(self, blocks: list[Block], program: Program) -> set[int]:
        """The loads that move several elements at once, where something that the compiler was told may be untrue, and where all
        that they may come to is followed."""
        loads = [op for op in nested_operations(blocks) if op.name in _LOADS and op.line in (self.t.accesses or ())]
        return self._if_followed(blocks, program, loads)

    def _unwritten_loads(self, blocks: list[Block], program: Program) -> set[int]:
        """The loads of tensor memory whose first write has a predicate, where the compiler put both there and all that they may
        come to is followed."""
        loads: list[Operation] = []
        first_writes: dict[str, str] = {}  # by memory descriptor: the predicate of its first write, "" for none
        for op in nested_operations(blocks):
            if op.name == "ttng.tmem_load":
                predicate = self.t.defined.get(first_writes.get(op.operands[0], ""))
                loads += [op] if predicate is not None and predicate.name != "arith.constant" else []
            elif op.name == "ttng.tmem_store":
                first_writes.setdefault(op.operands[0], op.operands[-1])
            elif op.name == "ttng.tc_gen5_mma":
                groups = op.operands_by_name("a", "b", "d", "token?", "use", "enabled", "barriers*", "conditions*")
                first_writes.setdefault(groups["d"][0], groups["enabled"][0])
            elif op.name == "ttng.tmem_alloc" and op.operands:
                first_writes[op.results[0]] = ""
        return self._if_followed(blocks, program, loads if language_of(program.text.encode()) == "triton" else [])

    def _if_followed(self, blocks: list[Block], program: Program, loads: list[Operation]) -> set[int]:
        """`loads` (by id) where all that they may come to is followed; none where something is not."""
        if not loads or len(program.functions) > 1:
            return set()
        self._spread(blocks, loads)
        whole = all(self._follows(op) for op in nested_operations(blocks))
        self.sources.clear()
        self.memory.clear()
        return {id(op) for op in loads} if whole else set()

    def _follows(self, op: Operation) -> bool:
        """Whether lanes that reach `op` are followed past it, or end there."""
        if op.successors:
            return True
        if self.memory and op.name not in _ON_CHIP and any(self.t.kind_of(name) == "memdesc" for name in op.operands):
            return False
        given = any(name in self.sources for name in op.operands)
        return not given or op.name in (*_ENDS, *_WRITES) or _is_followed(op)

    def __bool__(self) -> bool:
        return bool(self.sources or self.memory)

    def _spread(self, blocks: list[Block], loads: list[Operation]) -> None:
        for op in loads:
            for name in op.results[:1]:
                if op.name in ("tt.load", "ttng.tmem_load"):
                    self.sources[name] = {op.location}
            if op.name != "tt.load":
                self.memory.add(op.location)
        while True:
            before = (sum(map(len, self.sources.values())), len(self.memory))
            for op in nested_operations(blocks):
                source_loads = set[str]().union(*(self.sources.get(name, ()) for name in op.operands))
                if op.name in _WRITES and op.operands:
                    self.memory |= self.sources.get(op.operands[_WRITES[op.name][0]], set())
                if op.name in (*_READS, *_DOTS):
                    source_loads |= self.memory if any(self.t.kind_of(name) == "memdesc" for name in op.operands) else set()
                if source_loads and _is_followed(op):
                    for name in op.results:
                        if self.t.kind_of(name) != "token":
                            self.sources.setdefault(name, set()).update(source_loads)
            for name, given in self.t.incoming.items():
                source_loads = set[str]().union(*(self.sources.get(each, ()) for each in given))
                if source_loads:
                    self.sources.setdefault(name, set()).update(source_loads)
            if before == (sum(map(len, self.sources.values())), len(self.memory)):
                return

    # -- the code -----------------------------------------------------------------------------------------------------
    def lanes(self, name: str) -> Any:
        """The variable that holds the undefined lanes of the value `name`, or None."""
        return self.t.value(f"{name}~undefined") if name in self.sources else None

    def hand_over(self, arguments: Iterable[str], given: Iterable[str]) -> None:
        """What a branch does besides handing over values."""
        pairs = [(self.lanes(a), self.lanes(g)) for a, g in zip(arguments, given, strict=True) if a in self.sources]
        if pairs:
            self.t.emit("{} = {}", tuple(a for a, _ in pairs), tuple(g for _, g in pairs))

    def follow(self, op: Operation) -> None:
        """The code that carries lanes past `op`, after its own."""
        t = self.t
        source_loads = sorted(set[str]().union(*(self.sources.get(name, ()) for name in op.operands)))
        if self.displaced and op.name in _LOADS and source_loads:
            t.emit("{}", t.calls(note_dependence, op, source_loads, *self._address(op), advises=False))
        if op.name in ("tt.store", "tt.atomic_rmw", "tt.atomic_cas") and source_loads:
            groups = [op.operands] if op.name == "tt.atomic_cas" else [op.operands[:2], op.operands[2:]]
            lanes = t.apply(union, *(self.lanes(name) for name in groups[0]))
            masks = [each for name in groups[1] for each in (t.value(name), self.lanes(name))] if len(groups) > 1 else []
            t.emit("{}", t.calls(note_dependence, op, source_loads, lanes, *masks))
        elif op.name in _WRITES and op.operands and self.memory:
            source, into = _WRITES[op.name]
            target = op.results[0] if into is None else op.operands[into]
            if op.operands[source] in self.sources:
                with t.when(t.value(op.operands[-1]) if op.name == "ttng.tmem_store" else None):
                    t.emit("{}", t.apply(mark, t.value(target), self.lanes(op.operands[source]), source_loads))
        elif op.results and op.results[0] in self.sources:
            targets = [self.lanes(name) for name in op.results if name in self.sources]
            t.emit("{} = {}", targets if len(targets) > 1 else targets[0], self._rule(op))

    def _address(self, op: Operation) -> list[Any]:
        """Of a load: undefined lanes of its pointer, its mask, and those of its mask."""
        names = ("pointer", "mask?", "other?") if op.name == "tt.load" else ("pointer", "view", "mask?", "other?")
        groups = op.operands_by_name(*names)
        return [
            self.lanes(groups["pointer"][0]),
            *(each for name in groups["mask"] for each in (self.t.value(name), self.lanes(name))),
        ]

    def check_branch(self, op: Operation, condition: str) -> None:
        """The code that looks at what a branch depends on."""
        if condition in self.sources:
            self.t.emit("{}", self.t.calls(note_dependence, op, sorted(self.sources[condition]), self.lanes(condition)))

    def _rule(self, op: Operation) -> Any:
        t = self.t
        operand_lanes = [self.lanes(name) for name in op.operands]

        def for_all_results(lanes: Any) -> Any:
            return lanes if len(op.results) == 1 else t.code("({},) * {}", lanes, len(op.results))

        if op.name == "tt.load":
            pointer, mask, other = (
                group[0] if group else None for group in op.operands_by_name("pointer", "mask?", "other?").values()
            )
            parts = [None if name is None else of(name) for name in (mask, other) for of in (t.value, self.lanes)]
            found = t.apply(lanes_of_load, self.lanes(pointer or ""), *parts)
            return t.apply(union, found, t.displaced_lanes_of(op)) if id(op) in self.displaced else found
        if op.name in _READS:
            return t.apply(lanes_of_view, t.value(op.operands[0]))
        if op.name in _DOTS:
            parts = [t.apply(lanes_of_view, t.value(n)) if t.kind_of(n) == "memdesc" else self.lanes(n) for n in op.operands[:3]]
            return t.apply(lanes_of_product, *parts, t.result(op).shape)
        if op.name == "arith.select":
            axes = 0 if t.operand(op, 0).kind == "tensor" else len(t.result(op).shape)  # of what a scalar chooses
            return t.apply(lanes_of_select, axes, t.value(op.operands[0]), *operand_lanes)
        if op.name in ("arith.andi", "arith.ori") and t.result(op).bits == 1:
            both = [each for name, lanes in zip(op.operands, operand_lanes, strict=True) for each in (t.value(name), lanes)]
            return t.apply(lanes_of_logic, op.name == "arith.ori", *both)
        if op.name in _FOLDS:
            run = lanes_of_reduction if op.name == "tt.reduce" else lanes_of_scan
            axis = op.integer("axis") - len(t.operand(op, 0).shape)  # from behind: a batch has an axis in front
            return for_all_results(t.apply(run, t.apply(union, *operand_lanes), axis, op.flag("reverse")))
        if op.name in _SHAPES:
            order = tuple(op.integers("order")) if op.name == "tt.trans" else ()
            shapes = t.operand(op, 0).shape, () if op.outputs[0] is None else op.outputs[0].shape
            return t.apply(lanes_of_move, op.name, *shapes, order, *operand_lanes)
        if op.name in _MOVES:
            return operand_lanes[0] if len(op.results) == 1 else tuple(operand_lanes[: len(op.results)])
        return for_all_results(t.apply(union, *operand_lanes))


def _is_followed(op: Operation) -> bool:
    return op.name.startswith(_ELEMENTWISE) or op.name in (*_DOTS, *_MOVES, *_SHAPES, *_FOLDS, *_READS, "tt.load")


# -- what the code calls: lanes in, lanes out ---------------------------------------------------------------------------
def union(*given: Lanes) -> Lanes:
    """Undefined where one of `given` is; their shapes broadcast."""
    found: Lanes = None
    for lanes in given:
        if lanes is not None:
            found = lanes if found is None else found | lanes
    return found


def _lanes_or_none(lanes: np.ndarray) -> Lanes:
    return lanes if lanes.any() else None


def lanes_of_load(pointer: Lanes, mask: Any, of_mask: Lanes, fill_value: Any, fill_lanes: Lanes) -> Lanes:
    """Of a load: where it reads nothing and is given nothing else, and where it reads from an undefined place."""
    if mask is None:
        return pointer
    inside = np.asarray(mask, np.bool_)
    if pointer is None and of_mask is None and (fill_lanes is None if fill_value is not None else inside.all()):
        return None
    outside = ~inside if fill_value is None else (None if fill_lanes is None else ~inside & fill_lanes)
    found = union(outside, None if pointer is None else pointer & inside, of_mask)
    return None if found is None else _lanes_or_none(found)


def lanes_of_select(added_axes: int, condition: Any, of_condition: Lanes, yes_lanes: Lanes, no_lanes: Lanes) -> Lanes:
    """Of a select of what has `added_axes` more than its condition."""
    of_condition = None if of_condition is None else _with_axes(of_condition, added_axes)
    if yes_lanes is None and no_lanes is None:
        return of_condition
    nothing = np.zeros((), np.bool_)
    sides = (nothing if lanes is None else lanes for lanes in (yes_lanes, no_lanes))
    taken = np.where(_with_axes(condition, added_axes), *sides)
    return union(taken, of_condition)


def _with_axes(value: np.ndarray | bool, axes: int) -> np.ndarray:
    """`value` with as many `axes` of one element behind its own."""
    return np.asarray(value, np.bool_).reshape((*np.shape(value), *[1] * axes))


def lanes_of_logic(absorbing: bool, a: Any, of_a: Lanes, b: Any, of_b: Lanes) -> Lanes:
    """Of `and` (`or` where `absorbing`) of two truth values: one that is defined and `absorbing` decides alone."""
    alone_a, alone_b = (np.equal(x, absorbing) if u is None else np.equal(x, absorbing) & ~u for x, u in ((a, of_a), (b, of_b)))
    found = union(None if of_a is None else of_a & ~alone_b, None if of_b is None else of_b & ~alone_a)
    return None if found is None else _lanes_or_none(found)


def lanes_of_product(a: Lanes, b: Lanes, c: Lanes, shape: tuple[int, ...]) -> Lanes:
    """Of a product (M, N) of a (M, K) and b (K, N), added to c (M, N)."""
    rows = None if a is None else np.broadcast_to(a.any(-1, keepdims=True), shape)
    columns = None if b is None else np.broadcast_to(b.any(-2, keepdims=True), shape)
    found = union(rows, columns, c)
    return None if found is None else _lanes_or_none(found)


def undefined_product(a: View, b: View, d: View, use: Any) -> Lanes:
    """Of a product of a and b in memory, added to d where `use`."""
    return lanes_of_product(a.undefined_lanes(), b.undefined_lanes(), d.undefined_lanes() if use else None, d.shape)


def lanes_of_reduction(lanes: Lanes, axis: int, _reverse: bool) -> Lanes:
    return None if lanes is None else np.asarray(lanes.any(axis))


def lanes_of_scan(lanes: Lanes, axis: int, reverse: bool) -> Lanes:
    if lanes is None:
        return None
    along = np.flip(lanes, axis) if reverse else lanes
    found = np.logical_or.accumulate(along, axis)
    return np.flip(found, axis) if reverse else found


def lanes_of_move(name: str, before: tuple[int, ...], after: tuple[int, ...], order: tuple[int, ...], *given: Lanes) -> Any:
    """Of an operation that gives lanes another place."""
    if all(lanes is None for lanes in given):
        return (None, None) if name == "tt.split" else None
    rows = next((lanes.shape[:1] for lanes in given if lanes is not None and lanes.ndim > len(before)), ())  # of a batch
    full_lanes = [np.broadcast_to(np.False_ if lanes is None else lanes, (*rows, *before)) for lanes in given]
    if name == "tt.join":
        return np.stack(full_lanes, -1)
    if name == "tt.split":
        return full_lanes[0][..., 0], full_lanes[0][..., 1]
    if name == "tt.trans":
        return full_lanes[0].transpose(*range(len(rows)), *(len(rows) + axis for axis in order))
    if prod(before) == prod(after):
        return full_lanes[0].reshape((*rows, *after))
    return np.broadcast_to(_with_axes(full_lanes[0], len(after) - len(before)), (*rows, *after))


def lanes_of_view(view: View) -> Lanes:
    """Of what lies in shared memory, in the shape of `view`."""
    return view.undefined_lanes()


def mark(view: View, lanes: Lanes, loads: list[str]) -> None:
    """What was just written to `view` is undefined in `lanes`, by the `loads`."""
    if lanes is not None:
        view.leave_undefined(np.broadcast_to(lanes, view.shape), loads)


def note_dependence(
    m: Cta | CtaState | Batch,
    op: Operation,
    loads: Iterable[str],
    lanes: Lanes,
    mask: Any = None,
    of_mask: Lanes = None,
    *,
    advises: bool = True,
) -> None:
    """Note that `op`, a store or a branch, depends on a lane that the `loads` left undefined: one of `lanes` where `mask`. A
    failure where they took it from elsewhere."""
    if mask is not None and lanes is not None:
        lanes = lanes & np.asarray(mask, np.bool_)
    found = union(lanes, of_mask)
    if found is None or not found.any():
        return
    if faults := [m.launch.displaced_loads[load] for load in loads if load in m.launch.displaced_loads]:
        others = "".join(f", or what {fault.location} takes likewise," for fault in faults[1:])
        hints = [said for fault in faults for said in fault.details.get("hints", ())]
        said = f"{faults[0].message}; it{others} decides what {op.location} does"
        raise type(faults[0])(faults[0].outcome, said, faults[0].location, faults[0].details | ({"hints": hints} if hints else {}))
    if advises:
        m.notes.add(note_of(op, loads))


def note_of(op: Operation, loads: Iterable[str]) -> Note:
    """The advice on what `op` does with lanes that the `loads` left undefined."""
    what = "the way taken here" if op.successors else "what is stored here"
    return Note(Advice.UNDEFINED_LANES, op.location, (what, " and ".join(sorted(loads))))
