"""Between which two integers a value of a tile program lies, as far as its operations tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import parse_type


@dataclass(frozen=True)
class Range:
    """All integers from `low` to `high`, both taken in."""

    low: int
    high: int

    @property
    def positive(self) -> bool:
        """Whether none is negative."""
        return self.low >= 0

    def within(self, kind: Range) -> Range:
        """Itself where the type's range `kind` holds it, else all of the type: it wraps."""
        return self if kind.low <= self.low and self.high <= kind.high else kind

    def join(self, other: Range) -> Range:
        return Range(min(self.low, other.low), max(self.high, other.high))


def type_range(kind: str) -> Range | None:
    """All that an integer of the type `kind`, or an element of its tensors, can be: as a signed number; None of other types."""
    found = parse_type(kind)
    if found is None or found.pointers or found.kind not in ("scalar", "tensor") or not re.fullmatch(r"i\d+", found.element):
        return None
    bits = int(found.element[1:])
    return Range(0, 1) if bits == 1 else Range(-(1 << bits - 1), (1 << bits - 1) - 1)


_VALUE = re.compile(r"(?:dense<)?(-?\d+|true|false)(?:>| :|$)")
MOST_PROGRAMS = 1 << 16  # of an axis of the grid: launches of more are no part of what is shown
ARGUMENTS = Range(0, 1 << 20)
"""Sizes and strides that are looked at: integer arguments, but for those that launches make negative."""


def result_range(op: Operation, given: Sequence[Range | None]) -> Range | None:
    """Of the first result of `op`, of operands between `given`. None for what is no integer."""
    kind = type_range(op.result_types[0]) if op.results else None
    if kind is None:
        return None
    found = _result_range(op, given)
    return kind if found is None else found.within(kind)


def _result_range(op: Operation, operand_ranges: Sequence[Range | None]) -> Range | None:
    name = op.name
    if name == "arith.constant":
        value = _VALUE.match(op.attributes.get("value", ""))
        number = (
            None if value is None else {"true": 1, "false": 0}.get(value[1]) if value[1] in ("true", "false") else int(value[1])
        )
        return None if number is None else Range(number, number)
    if name == "tt.make_range":
        return Range(op.integer("start"), op.integer("end") - 1)
    if name in ("tt.get_program_id", "tt.get_num_programs"):
        return Range(0, MOST_PROGRAMS - 1 if name == "tt.get_program_id" else MOST_PROGRAMS)
    if name in _MOVE_OPERATIONS:
        return Range(-1, 0) if name == "arith.extsi" and _boolean(op.operand_types[0]) else operand_ranges[0]
    known_ranges = [item for item in operand_ranges if item is not None]
    if not known_ranges or len(known_ranges) < len(operand_ranges):
        return None
    if name == "tt.reduce" and len(known_ranges) == 1 and reduced_by(op) in ("arith.maxsi", "arith.minsi"):
        return known_ranges[0]
    if name == "arith.select":
        return known_ranges[1].join(known_ranges[2])
    if name == "arith.extui":
        return known_ranges[0] if known_ranges[0].positive else None
    if len(known_ranges) == 2 and name in _CONSTANT_FOLDS and all(item.low == item.high for item in known_ranges):
        bits = (type_range(op.result_types[0]) or Range(0, 0)).high.bit_length() + 1
        number = _CONSTANT_FOLDS[name](known_ranges[0].low % (1 << bits), known_ranges[1].low % (1 << bits), bits)
        number -= (number >> bits - 1 & 1) << bits
        return Range(number, number)
    if len(known_ranges) == 2 and name in _BINARY:
        return _BINARY[name](*known_ranges)
    return None


def select_range(op: Operation, definers: Mapping[str, Operation], range_of: Callable[[str], Range | None]) -> Range | None:
    """Of the ``arith.select`` `op`, whose condition leaves each arm some of the numbers that it compares. `definers`: what a value
    comes of, by its name; `range_of`: its range. None where the condition compares nothing with one number."""
    asked = definers.get(op.operands[0])
    if asked is None or asked.name != "arith.cmpi" or (predicate := asked.integer("predicate")) not in _RANGES_LEFT:
        return None
    compared, limit = asked.operands[0], range_of(asked.operands[1])
    every = range_of(compared)
    if limit is None or limit.low != limit.high or every is None:
        return None
    arms = [
        _arm_range(arm, compared, left, definers, range_of)
        for arm, left in zip(op.operands[1:], _RANGES_LEFT[predicate](every, limit.low), strict=True)
    ]
    return arms[0].join(arms[1]) if arms[0] is not None and arms[1] is not None else None


_RANGES_LEFT: dict[
    int, Callable[[Range, int], tuple[Range, Range]]
] = {  # what is left of a range where the predicate holds, and where not
    2: lambda every, by: (Range(every.low, min(every.high, by - 1)), Range(max(every.low, by), every.high)),
    3: lambda every, by: (Range(every.low, min(every.high, by)), Range(max(every.low, by + 1), every.high)),
    4: lambda every, by: (Range(max(every.low, by + 1), every.high), Range(every.low, min(every.high, by))),
    5: lambda every, by: (Range(max(every.low, by), every.high), Range(every.low, min(every.high, by - 1))),
}


def _arm_range(
    arm: str, compared_name: str, left_range: Range, definers: Mapping[str, Operation], range_of: Callable[[str], Range | None]
) -> Range | None:
    """Of `arm`, a value that may be `compared` or its complement, of which `left` is left."""
    if left_range.low > left_range.high:
        return None
    if arm == compared_name:
        return left_range
    op = definers.get(arm)
    if op is not None and op.name == "arith.xori" and op.operands[0] == compared_name and range_of(op.operands[1]) == Range(-1, -1):
        return Range(-1 - left_range.high, -1 - left_range.low)
    return range_of(arm)


def reduced_by(op: Operation) -> str:
    """The one operation that combines two elements of a ``tt.reduce``; empty where more than one does, or one on something else."""
    inside = [each for region in op.regions for block in region for each in block.operations]
    if len(inside) != 2 or len(op.regions) != 1 or inside[1].name != "tt.reduce.return":
        return ""
    both = {name for name, _ in op.regions[0][0].arguments}
    return inside[0].name if set(inside[0].operands) == both and inside[1].operands == inside[0].results else ""


def _boolean(kind: str) -> bool:
    return type_range(kind) == Range(0, 1)


_MOVE_OPERATIONS = (
    "tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "ttg.convert_layout", "arith.extsi", "tt.unsplat",
    "arith.index_cast",
)  # fmt: skip


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(ends), max(ends))


def _quotient(a: Range, b: Range) -> Range | None:
    return Range(a.low // b.high, a.high // b.low) if a.positive and b.low > 0 else None


def _remainder(a: Range, b: Range) -> Range | None:
    return Range(0, min(a.high, b.high - 1)) if a.positive and b.low > 0 else None


def _mask_range(a: Range, b: Range) -> Range | None:
    return Range(0, min(a.high, b.high)) if a.positive and b.positive else None


def _shift_range(a: Range, by: Range, *, left: bool) -> Range | None:
    """By a known number of bits, below the 32 that PTX clamps at."""
    if by.low != by.high or not 0 <= by.low < 32:
        return None
    return Range(a.low << by.low, a.high << by.low) if left else Range(a.low >> by.low, a.high >> by.low)


_BINARY = {
    "arith.shli": lambda a, b: _shift_range(a, b, left=True),
    "arith.shrsi": lambda a, b: _shift_range(a, b, left=False),
    "arith.addi": lambda a, b: Range(a.low + b.low, a.high + b.high),
    "arith.subi": lambda a, b: Range(a.low - b.high, a.high - b.low),
    "arith.muli": _product,
    "arith.divsi": _quotient,
    "arith.remsi": _remainder,
    "arith.andi": _mask_range,
    "arith.minsi": lambda a, b: Range(min(a.low, b.low), min(a.high, b.high)),
    "arith.maxsi": lambda a, b: Range(max(a.low, b.low), max(a.high, b.high)),
}

_CONSTANT_FOLDS: dict[str, Callable[[int, int, int], int]] = {  # of two constants, as unsigned numbers of so many bits
    "tt.mulhiui": lambda a, b, bits: a * b >> bits,
    "arith.xori": lambda a, b, bits: a ^ b,
    "arith.ori": lambda a, b, bits: a | b,
    "arith.andi": lambda a, b, bits: a & b,
    "arith.addi": lambda a, b, bits: (a + b) % (1 << bits),
    "arith.subi": lambda a, b, bits: (a - b) % (1 << bits),
    "arith.muli": lambda a, b, bits: a * b % (1 << bits),
}
