"""Which classes of numbers a float of a tile program can be of, as far as its operations tell: NaN, infinite, zero, other.

What the operations give is IEEE 754's: infinity by zero, infinity over infinity and zero over zero are NaN, other products and
quotients of numbers are none, and a largest number is none where one of the two is a number. A value that is chosen by a condition
is of the classes that the condition leaves; one that a loop carries is of those that it begins with and that a turn gives it.
"""

from __future__ import annotations

import re

from bitverdict.harness.emulator.mlir_reader import Operation, Program
from bitverdict.harness.emulator.mlir_types import parse_type
from bitverdict.harness.mutants.program import ranges
from bitverdict.harness.mutants.program.ranges import Range

NAN, INFINITE, ZERO, ORDINARY = "nan", "infinite", "zero", "other"
Classes = frozenset[str]
ALL_CLASSES = frozenset({NAN, INFINITE, ZERO, ORDINARY})
NUMBERS = ALL_CLASSES - {NAN}
ORDERED_PREDICATES = {8: 1, 9: 2, 10: 3, 11: 4, 12: 5, 13: 6, 14: 7}
"""Predicates of arith.cmpf that a NaN makes true (uno is 14), by the one that says the same of all other numbers."""
_INFINITY = 0x7F800000  # fp32's word; greater ones, but for the sign, are NaN
_DEEPEST = 48  # operations that are followed, one from another
_SAME_ELEMENTS = ("tt.expand_dims", "tt.broadcast", "tt.splat", "ttg.convert_layout", "arith.extf", "math.absf")
_LITERAL_PATTERNS = {
    ZERO: re.compile(r"(?:dense<)?-?0(?:\.0+e\+00)?(?:>| :|$)"),
    ORDINARY: re.compile(r"(?:dense<)?-?\d+\.\d+e[+-]\d+(?:>| :|$)"),
    INFINITE: re.compile(r"(?:dense<)?0x[7F]F800000(?:> : tensor<(?:\d+x)*f32\b| : f32\b)"),
}


class FloatClasses:
    """The classes of the values of one program."""

    def __init__(self, program: Program) -> None:
        definers: dict[str, list[Operation]] = {}
        for op in program.operations():
            for name in op.results:
                definers.setdefault(name, []).append(op)
        self.made = {name: ops[0] for name, ops in definers.items() if len(ops) == 1}  # regions may use a name again
        """What a value comes of, by its name; none of a name that is used twice."""
        self._carried = {name: ways for name, ways in carried_values(program).items() if name not in definers}
        self._found: dict[str, Classes] | None = None

    def may_be_nan(self, value: str) -> bool:
        """Whether nothing shows that no element of `value` is a NaN."""
        return NAN in self.classes_of(value)

    def classes_of(self, value: str) -> Classes:
        if self._found is None:
            self._found = dict.fromkeys((*self.made, *self._carried), frozenset[str]())
            self._find(self._found)
        return self._found.get(value, ALL_CLASSES)

    def _find(self, classes: dict[str, Classes]) -> None:
        """Of each value the classes that the operations give it, from none of any on until no operation gives another."""
        grows = True
        while grows:
            grows = False
            for name in classes:
                op = self.made.get(name)
                operand_classes = (
                    self._result_classes(op)
                    if op is not None
                    else frozenset[str]().union(*map(self.classes_of, self._carried[name]))
                )
                if not operand_classes <= classes[name]:
                    classes[name], grows = classes[name] | operand_classes, True

    def _result_classes(self, op: Operation) -> Classes:
        """Of what `op` gives."""
        operand_classes = lambda place: self.classes_of(op.operands[place])
        if op.name == "arith.constant":
            said = op.attributes.get("value", "")
            return next((frozenset({one}) for one, written in _LITERAL_PATTERNS.items() if written.match(said)), ALL_CLASSES)
        if op.name in _SAME_ELEMENTS:
            return operand_classes(0)
        if op.name == "tt.bitcast":
            return self._of_words(op)
        if op.name == "arith.mulf":
            return _product(operand_classes(0), operand_classes(1))
        if op.name in ("arith.divf", "tt.precise_divf"):
            return _quotient(operand_classes(0), operand_classes(1))
        if op.name in ("arith.maxnumf", "arith.minnumf"):
            return (
                operand_classes(0) | operand_classes(1)
                if NAN in operand_classes(0) & operand_classes(1)
                else (operand_classes(0) | operand_classes(1)) - {NAN}
            )
        if op.name == "arith.select":
            return self._classes_where(op.operands[0], op.operands[1], operand_classes(1)) | operand_classes(2)
        return ALL_CLASSES

    def _of_words(self, op: Operation) -> Classes:
        """Of integers that are taken for fp32."""
        kind = parse_type(op.result_types[0])
        words = self._range(op.operands[0], 0)
        if kind is None or kind.element != "f32" or words is None or words.low < 0 or words.high >= _INFINITY:
            return ALL_CLASSES
        return frozenset({ORDINARY, ZERO}) if words.low == 0 else frozenset({ORDINARY})

    def _range(self, value: str, depth: int) -> Range | None:
        op = self.made.get(value)
        if op is None or depth > _DEEPEST:
            return None
        return ranges.result_range(op, [self._range(each, depth + 1) for each in op.operands])

    def _classes_where(self, condition: str, value: str, classes: Classes) -> Classes:
        """Those of `classes`, of `value`, that are left where `condition` holds."""
        axes: list[int] = []
        shape = self._shape(condition)
        while (op := self.made.get(condition)) is not None and op.name in ("tt.expand_dims", "tt.broadcast", "ttg.convert_layout"):
            if op.name == "tt.expand_dims":
                axes.append(op.integer("axis"))
            condition = op.operands[0]
        if op is None or shape != self._shape(value):
            return classes
        if op.name == "arith.cmpf" and not axes and value in op.operands and (predicate := op.integer("predicate")) in range(1, 7):
            zeros = [self.classes_of(each) == {ZERO} for each in op.operands if each != value]
            return classes - {NAN} - ({ZERO} if zeros == [True] and predicate in (2, 4, 6) else set())
        if op.name == "arith.cmpi" and op.integer("predicate") == 2 and self._largest_word(op.operands[0], value, axes):
            bound = self._range(op.operands[1], 0)
            if bound is not None and bound.high <= _INFINITY:
                return classes - {NAN, INFINITE}
        return classes

    def _largest_word(self, largest: str, value: str, axes: list[int]) -> bool:
        """Whether `largest` is the largest of the words of `value` without their signs along the axis that `axes` put back."""
        op = self.made.get(largest)
        if op is None or op.name != "tt.reduce" or ranges.reduced_by(op) != "arith.maxsi" or [op.integer("axis")] != axes:
            return False
        masked = self.made.get(op.operands[0])
        if masked is None or masked.name != "arith.andi":
            return False
        mask = self._range(masked.operands[1], 0)
        words = self.made.get(masked.operands[0])
        return (
            mask == Range(0x7FFFFFFF, 0x7FFFFFFF)
            and words is not None
            and words.name == "tt.bitcast"
            and words.operands[0] == value
        )

    def _shape(self, value: str) -> tuple[int, ...] | None:
        op = self.made.get(value)
        kind = parse_type(op.result_types[0]) if op is not None else None
        return tuple(kind.shape) if kind is not None and kind.shape else None


def carried_values(program: Program) -> dict[str, list[str]]:
    """Arguments of blocks that branches go to -> the values that those hand over. None of a name that two blocks use."""
    values_by_name: dict[str, list[list[str]]] = {}
    for function in program.functions.values():
        ends = [block.operations[-1] for block in function.blocks if block.operations]
        for block in function.blocks:
            ways = [
                given
                for end in ends
                for label, given in zip(end.successors, end.branch_operands(), strict=True)
                if label == block.label
            ]
            for place, (name, _) in enumerate(block.arguments):
                values_by_name.setdefault(name, []).append([given[place] for given in ways])
    return {name: blocks[0] for name, blocks in values_by_name.items() if len(blocks) == 1 and blocks[0]}


def _product(a: Classes, b: Classes) -> Classes:
    nan = NAN in a | b or (INFINITE in a and ZERO in b) or (ZERO in a and INFINITE in b)
    return ALL_CLASSES if nan else NUMBERS


def _quotient(a: Classes, b: Classes) -> Classes:
    nan = NAN in a | b or (INFINITE in a and INFINITE in b) or (ZERO in a and ZERO in b)
    return ALL_CLASSES if nan else NUMBERS
