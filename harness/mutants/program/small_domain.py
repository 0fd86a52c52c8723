"""Whether a mutant computes the same integers as the kernel for all values of a small domain: indices, masks, bounds, branches.

What an operation with an effect takes, and what a branch hands on, is a formula of arguments, program ids, lanes, and what loops
carry or loads give. Two programs that take the same everywhere do the same, turn by turn. The formulas of both are evaluated for
every combination of the domain: numbers about zero and about the constants in them. A pointer is compared where its mask is set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import parse_type
from bitverdict.harness.mutants.program import ranges
from bitverdict.harness.mutants.program.canonical import is_pure
from bitverdict.harness.mutants.program.tile_program import TileProgram

MAX_COMBINATIONS = 1 << 21  # combinations of values that are looked at
_MASKED_OPERANDS = {
    "tt.load": ("pointer", "mask?", "other?"),
    "tt.store": ("pointer", "value", "mask?"),
    "ttg.async_copy_global_to_local": ("pointer", "view", "mask?", "other?"),
    "tt.atomic_rmw": ("pointer", "value", "mask?"),
}
Leaf = tuple[str, ...]
_CONSTANT = re.compile(r"(?:dense<)?(-?\d+|true|false)(?:>| :|$)")


class NoProof(Exception):
    """The programs differ in what is no formula of integers, or in too many of them."""


def same_on_small_domain(right: TileProgram, mutant: TileProgram, came_from: tuple[int, ...]) -> bool:
    """Whether both programs take the same wherever an operation has an effect. `came_from`: for each line of `mutant` that of
    `right`."""
    changed = _changed_names(right, mutant, came_from)
    try:
        return all(_agree(right, mutant, changed, *pair) for pair in _pairs(right, mutant, changed, came_from))
    except NoProof:
        return False


def _pairs(
    right: TileProgram, mutant: TileProgram, changed_names: set[str], came_from: tuple[int, ...]
) -> Iterator[tuple[Operation, Operation]]:
    """The operations with an effect of both programs, beside one another; those whose operands cannot differ are left out."""
    ones = [(op, op.line) for op in right.program.operations() if not is_pure(op)]
    others = [(op, came_from[op.line]) for op in mutant.program.operations() if not is_pure(op)]
    if [(op.name, line) for op, line in ones] != [(op.name, line) for op, line in others]:
        raise NoProof
    for (one, _), (other, _) in zip(ones, others, strict=True):
        if one.attributes != other.attributes or one.operand_types != other.operand_types:
            raise NoProof
        if one.operands != other.operands or not changed_names.isdisjoint(one.operands):
            yield one, other


def _changed_names(right: TileProgram, mutant: TileProgram, came_from: tuple[int, ...]) -> set[str]:
    """Values that the two programs may compute otherwise, by name."""
    operations = list(mutant.program.operations())
    found = {name for op in operations if right.lines[came_from[op.line]] != mutant.lines[op.line] for name in op.results}
    while True:
        more = {name for op in operations if is_pure(op) and not found.isdisjoint(op.operands) for name in op.results} - found
        if not more:
            return found
        found |= more


def _agree(right: TileProgram, mutant: TileProgram, changed: set[str], right_op: Operation, mutant_op: Operation) -> bool:
    """Whether the effect `one` takes what `other` takes."""
    domain = _Domain()
    formulas = [_Formula(right, domain, set()), _Formula(mutant, domain, changed)]
    groups = right_op.operands_by_name(*_MASKED_OPERANDS[right_op.name]) if right_op.name in _MASKED_OPERANDS else {}
    values = list(zip(right_op.operands, mutant_op.operands, right_op.operand_types, strict=True))
    for formula, names in zip(formulas, (right_op.operands, mutant_op.operands), strict=True):
        for name, (_, _, kind) in zip(names, values, strict=True):
            formula.look(name, _axes(kind))
    domain.close()
    where = np.ones((), bool)
    pairs = [(formulas[0].values_of(a, _axes(kind)), formulas[1].values_of(b, _axes(kind)), kind) for a, b, kind in values]
    if groups.get("mask"):
        place = list(groups).index("mask")
        where = pairs[place][0]
        if np.any(where != pairs[place][1]):
            return False
        where = where.astype(bool)
    return not any(np.any((a != b) & where if "!tt.ptr" in kind else a != b) for a, b, kind in pairs)


def _axes(kind: str) -> tuple[str, ...]:
    found = parse_type(kind)
    return tuple(str(axis) for axis in range(len(found.shape))) if found is not None and found.kind == "tensor" else ()


class _Domain:
    """The values of each leaf of the formulas: an axis of the arrays for each."""

    def __init__(self) -> None:
        self.leaves: dict[Leaf, np.ndarray] = {}
        self.constants: set[int] = set()
        self.opaque: dict[Leaf, int] = {}

    def close(self) -> None:
        """All leaves are known: give each its values. NotShown where all together are too many."""
        about = {0, 1, 2, 3, 4, 5}
        constants = [number for number in sorted(self.constants) if 2 <= number <= 1024]
        for number in constants:
            about |= {number - 1, number, number + 1, 2 * number - 1, 2 * number, 2 * number + 1}
        about |= {a * b * times + more for a in constants for b in constants for times in (1, 2) for more in (0, 1)}
        numbers = np.array(sorted(about), np.int64)
        for leaf, lanes in self.leaves.items():
            if not lanes.size:
                self.leaves[leaf] = numbers if leaf[0] != "boolean" else np.array([0, 1], np.int64)
        if prod(values.size for values in self.leaves.values()) > MAX_COMBINATIONS:
            raise NoProof

    def values(self, leaf: Leaf) -> np.ndarray:
        place = list(self.leaves).index(leaf)
        shape = [1] * len(self.leaves)
        shape[place] = -1
        return self.leaves[leaf].reshape(shape)

    def unknown(self, leaf: Leaf) -> np.ndarray:
        """A value that is no integer, or a base of pointers: the same in both programs or not."""
        return np.array(self.opaque.setdefault(leaf, (len(self.opaque) + 1) << 40), np.int64)


class _Formula:
    """The values of one program over a domain."""

    def __init__(self, program: TileProgram, domain: _Domain, changed: set[str]) -> None:
        self.program, self.domain, self.changed = program, domain, changed
        self.known: dict[tuple[str, tuple[str, ...]], np.ndarray] = {}

    def look(self, name: str, axes: tuple[str, ...]) -> None:
        """Note the leaves and constants that `name` is made of."""
        stack, seen = [(name, axes)], set()
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            op, inner = self._definer(item[0]), item[1]
            if op is None or not self._follows(op):
                leaf = self._leaf(item[0], inner, op)
                if leaf is not None:
                    self.domain.leaves.setdefault(leaf, np.array([], np.int64))
            elif op.name == "tt.make_range":
                count = op.integer("end") - op.integer("start")
                self.domain.leaves[("lane", *inner, str(count))] = np.arange(count, dtype=np.int64)
                self.domain.constants.add(count)
            elif op.name == "arith.constant":
                self.domain.constants.add(abs(self._number(op)))
            else:
                stack += [(operand, self._inside(op, inner)) for operand in op.operands]

    def values_of(self, name: str, axes: tuple[str, ...]) -> np.ndarray:
        """The values of `name`, whose axes are those of what takes it."""
        key = name, axes
        if key not in self.known:
            self.known[key] = self._evaluate(name, axes)
        return self.known[key]

    def _evaluate(self, name: str, axes: tuple[str, ...]) -> np.ndarray:
        op = self._definer(name)
        if op is None or not self._follows(op):
            leaf = self._leaf(name, axes, op)
            return self.domain.values(leaf) if leaf is not None else self.domain.unknown((name, *axes))
        if op.name == "arith.constant":
            return np.array(self._number(op), np.int64)
        if op.name == "tt.make_range":
            count = op.integer("end") - op.integer("start")
            return self.domain.values(("lane", *axes, str(count))) + op.integer("start")
        given = [self.values_of(operand, self._inside(op, axes)) for operand in op.operands]
        return _wrap_to_type(_RULES[op.name](op, *given), op.result_types[0])

    def _definer(self, name: str) -> Operation | None:
        """The operation that makes `name`; None for an argument. NotShown where several regions have one of the name."""
        found = self.program.definers.get(name, [])
        if len(found) + len(self.program.arguments.get(name, ())) != 1:
            raise NoProof
        return found[0] if found else None

    @staticmethod
    def _follows(op: Operation) -> bool:
        if op.name == "arith.constant":
            return ranges.type_range(op.result_types[0]) is not None and _CONSTANT.match(op.attributes["value"]) is not None
        return op.name == "tt.make_range" or (
            op.name in _RULES and ("!tt.ptr" in op.result_types[0] or ranges.type_range(op.result_types[0]) is not None)
        )

    def _leaf(self, name: str, axes: tuple[str, ...], op: Operation | None) -> Leaf | None:
        """What stands for a value that no formula makes; None where it is no integer. NotShown for one that may differ."""
        if name in self.changed:
            raise NoProof
        kind = self.program.arguments[name][0] if op is None else op.result_types[op.results.index(name)]
        found = ranges.type_range(kind)
        if found is None:
            return None
        told = f"{op.name} {op.attributes.get('axis')}" if op is not None and op.name == "tt.get_program_id" else name
        return "boolean" if found == ranges.Range(0, 1) else "number", told, *axes

    @staticmethod
    def _number(op: Operation) -> int:
        found = _CONSTANT.match(op.attributes["value"])
        assert found is not None
        return {"true": 1, "false": 0}.get(found[1]) if found[1] in ("true", "false") else int(found[1])  # type: ignore[return-value]

    @staticmethod
    def _inside(op: Operation, axes: tuple[str, ...]) -> tuple[str, ...]:
        """The axes of an operand of `op`, by those of its result."""
        if op.name == "tt.splat":
            return ()
        if op.name == "tt.expand_dims":
            axis = op.integer("axis")
            return (*axes[:axis], *axes[axis + 1 :])
        if op.name == "tt.trans":
            order = op.integers("order")
            return tuple(axes[order.index(place)] for place in range(len(order)))
        return axes


def _wrap_to_type(values: np.ndarray, kind: str) -> np.ndarray:
    """`values` as an integer of the type `kind` holds them."""
    found = ranges.type_range(kind)
    if found is None:
        return values
    count = found.high - found.low + 1
    return values & 1 if count == 2 else (values - found.low) % count + found.low if count < 1 << 64 else values


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Toward zero, as arith.divsi; 0 where that is not defined."""
    safe = np.where(b == 0, 1, b)
    return np.where(b == 0, 0, np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe)))


def _select(condition: np.ndarray, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    return np.where(condition.astype(bool), yes, no)


_RULES: dict[str, Callable[..., np.ndarray]] = {
    "tt.splat": lambda op, a: a,
    "tt.expand_dims": lambda op, a: a,
    "tt.broadcast": lambda op, a: a,
    "tt.trans": lambda op, a: a,
    "ttg.convert_layout": lambda op, a: a,
    "arith.extsi": lambda op, a: -a if ranges.type_range(op.operand_types[0]) == ranges.Range(0, 1) else a,
    "arith.extui": lambda op, a: np.where(a < 0, a + (1 << _bits(op)), a),
    "arith.trunci": lambda op, a: a,
    "arith.addi": lambda op, a, b: a + b,
    "arith.subi": lambda op, a, b: a - b,
    "arith.muli": lambda op, a, b: a * b,
    "arith.divsi": lambda op, a, b: _divide(a, b),
    "arith.remsi": lambda op, a, b: a - b * _divide(a, b),
    "arith.minsi": lambda op, a, b: np.minimum(a, b),
    "arith.maxsi": lambda op, a, b: np.maximum(a, b),
    "arith.andi": lambda op, a, b: a & b,
    "arith.ori": lambda op, a, b: a | b,
    "arith.xori": lambda op, a, b: a ^ b,
    "arith.select": lambda op, c, a, b: _select(c, a, b),
    "arith.cmpi": lambda op, a, b: _compare(op.integer("predicate"), a, b).astype(np.int64),
    "tt.addptr": lambda op, a, b: a + b,
}


def _bits(op: Operation) -> int:
    found = ranges.type_range(op.operand_types[0])
    assert found is not None
    return (found.high - found.low + 1).bit_length() - 1


def _compare(predicate: int, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    signed = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
    if predicate < len(signed):
        return signed[predicate](a, b)
    unsigned = (np.less, np.less_equal, np.greater, np.greater_equal)
    return unsigned[predicate - len(signed)](a.astype(np.uint64), b.astype(np.uint64))
