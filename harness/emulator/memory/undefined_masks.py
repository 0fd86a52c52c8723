"""Undefined lanes that cannot reach memory: proved from the text of a function, so that its code need not carry them.

A masked load without `other` leaves lanes outside its mask undefined. Most kernels store under that same mask, and then nothing
undefined is ever stored. A mask is known here by its *key*: the number of what computes it, layouts apart, because the compiler
computes one mask several times. Undefined lanes of a value lie outside the masks of some keys; a store under one of these masks
leaves them out. What is not proved so is followed at run time (`undefined_lanes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bitverdict.harness.emulator.mlir_reader import Block, Operation

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import Translator
    from bitverdict.harness.emulator.memory.undefined_lanes import UndefinedLanes

Key = int
Outside = frozenset[Key] | None
"""Masks outside of which all undefined lanes of a value lie, () for none; None where nothing is known."""
_MOVE_OPERATIONS = ("tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans")
_PLAIN_OPERATIONS = ("tt.make_range", "tt.get_program_id")  # besides what is elementwise: what the operands and attributes decide


class UndefinedMasks:
    """What is known of the undefined lanes of one function, by value."""

    def __init__(self, t: Translator, lanes: UndefinedLanes, elementwise: tuple[str, ...]) -> None:
        self.t, self.lanes, self.elementwise = t, lanes, elementwise
        self.outside: dict[str, Outside] = {}
        self.keys: dict[str, Key] = {}
        self.numbers: dict[tuple, Key] = {}

    def stay(self, blocks: list[Block]) -> bool:
        """Whether no undefined lane of the function can decide what is stored, or which way is taken."""
        if self.lanes.memory:
            return False
        return all(self._harmless(op) for block in blocks for op in block.operations)

    def masks_of(self, name: str) -> Outside:
        """Where the undefined lanes of the value `name` lie."""
        if name not in self.lanes.sources:
            return frozenset()
        if name not in self.outside:
            self.outside[name] = None  # what a loop brings back to itself is not known
            self.outside[name] = self._compute_masks(name)
        return self.outside[name]

    def _compute_masks(self, name: str) -> Outside:
        op = self.t.defined.get(name)
        if op is None or op.regions:
            return None
        if op.name == "tt.load":
            groups = op.operands_by_name("pointer", "mask?", "other?")
            masks = self._union_masks([*groups["pointer"], *groups["mask"], *groups["other"]])
            bare = groups["mask"] and not groups["other"]
            return masks if masks is None or not bare else masks | {self.key(groups["mask"][0])}
        if op.name == "arith.select":
            condition, yes, no = op.operands
            rest, taken = self._union_masks([condition, no]), self.masks_of(yes)
            if rest is None or taken is None:
                return None
            return rest | {key for key in taken if not self._implies(condition, key)}
        if op.name == "ttg.convert_layout":
            return self.masks_of(op.operands[0])
        if op.name in _MOVE_OPERATIONS:
            masks = self.masks_of(op.operands[0])
            return None if masks is None else frozenset(self._computed_key(op, key) for key in masks)
        return self._union_masks(op.operands) if op.name.startswith(self.elementwise) else None

    def _union_masks(self, names: list[str]) -> Outside:
        found: frozenset[Key] = frozenset()
        for name in names:
            if (more := self.masks_of(name)) is None:
                return None
            found |= more
        return found

    def key(self, name: str) -> Key:
        """The mask that the value `name` is."""
        if name not in self.keys:
            op = self.t.defined.get(name)
            if op is not None and op.name == "ttg.convert_layout":
                self.keys[name] = self.key(op.operands[0])
            elif op is None or op.regions or not op.name.startswith((*_MOVE_OPERATIONS, *_PLAIN_OPERATIONS, *self.elementwise)):
                self.keys[name] = self._number("value", name)
            else:
                self.keys[name] = self._computed_key(op, *map(self.key, op.operands))
        return self.keys[name]

    def _computed_key(self, op: Operation, *operands: Key) -> Key:
        kind = op.outputs[0]
        told = tuple(sorted((name, text.partition(" : ")[0]) for name, text in op.attributes.items()))
        element = None if kind is None or op.name in _MOVE_OPERATIONS else (kind.element, kind.pointers)
        return self._number(op.name, told, kind and kind.shape, element, operands)

    def _number(self, *parts: object) -> Key:
        return self.numbers.setdefault(parts, len(self.numbers))

    def _implies(self, mask: str, key: Key) -> bool:
        """Whether `mask` is False wherever the mask of `key` is."""
        if self.key(mask) == key:
            return True
        op = self.t.defined.get(mask)
        return op is not None and op.name == "arith.andi" and any(self._implies(each, key) for each in op.operands)

    def _harmless(self, op: Operation) -> bool:
        if op.successors:
            return op.name == "cf.br" or self.masks_of(op.operands[0]) == frozenset()
        if op.name in ("tt.store", "tt.atomic_rmw"):
            found, masks = self._union_masks(op.operands[:2]), op.operands[2:]
            if found is None or any(self.masks_of(mask) != frozenset() for mask in masks):
                return False
            return all(any(self._implies(mask, key) for mask in masks) for key in found)
        return op.name != "tt.atomic_cas" or self._union_masks(op.operands) == frozenset()


__all__ = ["UndefinedMasks"]
