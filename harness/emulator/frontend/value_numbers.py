"""Value numbers of floats: equal in LLVM's dialect and in the PTX where both compute the same real number.

LLVM's vectoriser moves sums under the marks of other operations, and swaps what they add. So each value gets a number that says
what it computes: a hash of what it is made of, from loaded bytes (`Source`) and constants on, modulo a prime, so it has a sign.
A fused multiply-add is its product and its sum. What a loop carries has a hash of what it begins with and goes on with, refined a
few times. Which sum an instruction computes, and which of its sides it multiplies, is then read off the numbers.

The two texts do not say all alike, so different values have one number where only a rounding, the name of a function, the condition
of a choice or a way through branches differs. The dialect's own `exact` numbers tell them apart: what adds one of them is not read.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np

from bitverdict.harness.emulator.frontend.assembly import Instruction
from bitverdict.harness.emulator.frontend.float_instructions import form_of, kind_and_reads
from bitverdict.harness.emulator.frontend.fold_code import FoldCode
from bitverdict.harness.emulator.frontend.fold_dialect import EMPTY_PATH, SHARED, FoldDialect, Source

PRIME = (1 << 61) - 1
_ROUNDS = 4  # how often what loops carry is refined
_DIALECT = {
    "fadd": "add", "fsub": "sub", "fmul": "mul", "fdiv": "div", "fneg": "neg", "intr.fma": "fma", "intr.fmuladd": "fma",
    "fpext": "copy", "fptrunc": "copy", "intr.maxnum": "max", "intr.maximum": "max", "intr.minnum": "min", "intr.minimum": "min",
    "sitofp": "leaf", "uitofp": "leaf",
}  # fmt: skip
_DIVISION = re.compile(r"\bdiv\.")
_FLOAT_CONSTANT = re.compile(r"\(\s*(?:dense<)?([-\d.eE+]+|0x[0-9A-F]+)>? : (?:vector<\w+x)?(f16|bf16|f32|f64)")
_OPERANDS = re.compile(r"%[\w.$-]+")
_NUMBER = "#"  # the name of what is a number
_SIGNS = {
    "xor.b32": ("0x80000000", "-2147483648", "-2147450880", "0x80008000"), "xor.b16": ("0x8000", "-32768"),
    "and.b32": ("2147483647", "2147450879"), "and.b16": ("32767",), "and.b64": ("9223372034707292159",),
}  # fmt: skip
"""What turns the sign of a float, or of two, or takes it away."""
_LANES = re.compile(r"<(\d+)x")
_FORMS_OF_CVT = re.compile(r"\.b?([fesu]\d+)")
_INTEGRAL = re.compile(r"\.r[nzmp]i\b")  # of what rounds to an integer
_PARAMETER = re.compile(r"_param_(\d+)")
_PLACES = {"add": 2, "sub": 2, "mul": 2, "div": 2, "neg": 1, "fma": 3, "copy": 1}


def hash_number(*parts: int) -> int:
    return hash(tuple(part % PRIME for part in parts)) % PRIME  # Python's hashes of -1 and -2 are equal


def of_float(value: float) -> int:
    """The number of a constant."""
    if not np.isfinite(value):
        return hash_number(1, repr(value) == "inf")
    numerator, denominator = float(value).as_integer_ratio()
    return numerator * pow(denominator, -1, PRIME) % PRIME


Place = Any
Step = tuple[str, Any]  # what a value is, and of what: places, or for a "number" it, for a "leaf" what it is known by


@dataclass
class ValueNumbers:
    """The numbers of one program's values; `step` says what the value at a place is."""

    step: Callable[[Place], Step]
    numbers: dict[Place, int] = field(default_factory=dict)
    extremes: dict[Place, frozenset[int]] = field(default_factory=dict)  # what the largest or smallest is of
    join_numbers: dict[Place, int] = field(default_factory=dict)  # of what loops carry, after the last round
    steps: dict[Place, Step] = field(default_factory=dict)

    def number(self, places: Iterable[Place]) -> None:
        """Number `places` and all that they are made of."""
        self._reach(places)
        joins = [place for place, (kind, _) in self.steps.items() if kind == "join"]
        for _ in range(_ROUNDS if joins else 1):
            self.numbers, self.extremes = {}, {}
            for place in self.steps:
                self._visit(place)
            found = {place: sorted({self.numbers[each] for each in self.steps[place][1]}) for place in joins}
            self.join_numbers = {
                place: numbers[0] if len(numbers) == 1 else hash_number(2, *numbers) for place, numbers in found.items()
            }

    def _reach(self, places: Iterable[Place]) -> None:
        worklist = list(places)
        while worklist:
            place = worklist.pop()
            if place not in self.steps:
                kind, parts = self.steps[place] = self.step(place)
                worklist += parts if kind not in ("number", "leaf") else ()

    def _visit(self, start: Place) -> None:
        stack, entered_places = [start], set[Place]()
        while stack:
            place = stack[-1]
            kind, parts = self.steps[place]
            missing_places = [] if kind in ("number", "leaf", "join") else [each for each in parts if each not in self.numbers]
            if place in self.numbers:
                stack.pop()
            elif missing_places and place not in entered_places:
                entered_places.add(place)
                stack += missing_places
            else:
                for circle_place in missing_places:  # without a join: a number that nothing else has, here or in the other text
                    self.numbers[circle_place] = hash_number(10, *_own_name(circle_place))
                self.numbers[place] = self._compute(place, kind, parts)
                stack.pop()

    def _compute(self, place: Place, kind: str, parts: Any) -> int:
        if kind == "number":
            return int(parts)
        if kind == "leaf":
            return hash_number(3, *parts)
        if kind == "join":
            return self.join_numbers.get(place, 4)
        numbers = [self.numbers[each] for each in parts]
        if kind in ("max", "min"):
            among = frozenset().union(*(self._extremes_of(each, kind) for each in parts))
            self.extremes[place] = among
            return hash_number(5, kind == "max", *sorted(among))
        if kind in ("add", "sub") and 0 in numbers[1:]:  # exactly what is added to zero
            return _ARITHMETIC[kind](*numbers[-2:]) % PRIME
        if kind in _PLACES and len(numbers) == _PLACES[kind]:
            return _ARITHMETIC[kind](*numbers) % PRIME
        return hash_number(6, *(sorted(numbers) if kind in ("add", "mul") else numbers))

    def _extremes_of(self, place: Place, kind: str) -> frozenset[int]:
        while self.steps[place][0] == "copy":
            (place,) = self.steps[place][1]
        return self.extremes[place] if self.steps[place][0] == kind else frozenset({self.numbers[place]})


def magnitude(number: int) -> int:
    """One number for `number` and what it is with the other sign."""
    return min(number % PRIME, -number % PRIME)


_SCALES = frozenset(magnitude(1 << power) for power in range(61))
"""The numbers of the powers of two: of the 61st the number is one again."""
_INTEGERS = 1 << 24
"""A number below is an integer that fp32 has: hashes lie beyond. LLVM folds the weights that a chain of combinations adds up."""


def sum_number(left: int, right: int) -> int:
    """LLVM leaves sums, products and quotients as they stand, but for order, signs, zeros, powers of two and sums of constants."""
    first, second = sorted((left % PRIME, right % PRIME), key=magnitude)
    if not first or magnitude(first) == magnitude(second) or magnitude(second) < _INTEGERS:
        return (first + second) % PRIME
    return _with_sign(hash_number(13, magnitude(first), second if first == magnitude(first) else -second), first)


def product_number(left: int, right: int) -> int:
    if _SCALES.isdisjoint((magnitude(left), magnitude(right))):
        return _with_sign(hash_number(11, *sorted((magnitude(left), magnitude(right)))), left, right)
    return left * right % PRIME


def _quotient(left: int, right: int) -> int:
    if magnitude(right) in _SCALES:
        return left * pow(right, -1, PRIME)
    return _with_sign(hash_number(12, magnitude(left), magnitude(right)), left, right)


def _with_sign(number: int, *factors: int) -> int:
    """`number` with the sign that a product of `factors` has."""
    return number * (-1) ** sum(magnitude(factor) != factor % PRIME for factor in factors) % PRIME


_ARITHMETIC: dict[str, Callable[..., int]] = {
    "add": sum_number, "sub": lambda a, b: sum_number(a, -b), "mul": product_number, "neg": lambda a: -a, "copy": lambda a: a,
    "fma": lambda a, b, c: sum_number(product_number(a, b), c), "div": _quotient,
}  # fmt: skip


def _choice_places(places: list[Place], compared: str = "") -> list[Place]:
    """Two `places` of which one is chosen, in one order whether a comparison or its opposite chooses: LLVM writes either."""
    return places[::-1] if compared in ("ne", "gt", "ge") else places


def _leaf(sources: set[Source]) -> tuple[int, ...]:
    """What a loaded byte is known by; one of shared memory by its address, which LLVM keeps where it loses the line."""
    (source,) = sources
    return source[1:] if source[1] == SHARED else source


def _own_name(place: Place) -> tuple[int]:
    return (crc32(repr(place).encode()),)


def _is_part(dialect: FoldDialect, place: Place) -> bool:
    """Whether the value at `place` is what stands at one place of what it is made of."""
    name, path = place
    operation, rest, _ = dialect.made[name]
    if operation == "bitcast":  # of lanes of one number
        return not path or len(set(_LANES.findall(rest))) == 1
    if operation == "extractelement":
        return dialect.constant(dialect.operands(name)[1]) is not None
    return operation in ("select", "freeze") or operation.startswith(("extract", "insert", "builtin"))


def of_dialect(dialect: FoldDialect, exact: bool = False) -> ValueNumbers:
    """Of a module in LLVM's dialect; a place is a name and a path. PTX does not show which function something is, nor the condition
    of a choice, and a product has one number in whatever order it rounds: with `exact` numbers only what is computed by the same
    operations of the same loads and loop carries is equal."""

    def step(place: Place) -> Step:
        name, path = place
        if name == _NUMBER:
            return "number", path
        if name not in dialect.made:
            handed = {source for source in dialect.handed.get(name, ()) if source != name}
            if name in dialect.parameters and not exact:
                return "leaf", (7, dialect.parameters[name])
            if not handed or (exact and len(handed) > 1):
                return "leaf", _own_name(place) if exact else (8,)
            return "copy" if len(handed) == 1 else "join", [(source, path) for source in handed]
        operation, rest, mark = dialect.made[name]
        kind, operands = _DIALECT.get(operation, ""), dialect.operands(name)
        if operation in ("call_intrinsic", "inline_asm") and _DIVISION.search(rest):
            kind = "div"
        if operation == "mlir.constant":
            constant = _FLOAT_CONSTANT.search(rest)
            return "number", of_float(_parse_constant(constant[1], constant[2])) if constant else crc32(rest.encode()) * exact
        if kind and (not exact or kind == "neg"):  # of what integer something is the float the PTX does not say without a mark
            return kind, (9,) if kind == "leaf" else [(operand, path) for operand in operands]
        is_loaded = operation != "inline_asm" or "ld." in rest or "atom." in rest
        sources, places = dialect.step(name, path) if is_loaded else (set(), [(operand, EMPTY_PATH) for operand in operands])
        if exact:
            if sources or not operands or "has_side_effects" in rest:
                return "leaf", _own_name(place)
            if len(places) == 1 and _is_part(dialect, place):
                return "copy", places
            what = hash_number(crc32((operation + _OPERANDS.sub("", rest)).encode()), crc32(repr(path).encode()))
            exact_kind = kind if kind in ("add", "sub", "mul") else "function"
            return exact_kind, [
                (_NUMBER, what),
                *((each, path if kind or (each, path) in places else EMPTY_PATH) for each in operands),
            ]
        if sources:
            return "leaf", _leaf(sources)
        if len(places) == 1 and operation != "inline_asm" and not operation.startswith(("intr", "call")):
            return "copy", places
        if operation == "select":
            _, compared, _ = dialect.made.get(operands[0], ("", "", mark))
            places = _choice_places(places, compared.strip('" ').partition('"')[0].lstrip("su"))
        return "function", places

    return ValueNumbers(step)


def of_code(code: FoldCode) -> ValueNumbers:
    """Of PTX; a place is a register or constant, which half of it (None for the whole), and of several that write it which one."""

    def step(place: tuple[str, int | None, int | None]) -> Step:
        name, half, writer = place
        makers = code.definitions.get(name, [])
        if not name.startswith("%") and "@" not in name:
            return "number", of_float(_immediate(name, half))
        if not makers:
            return "leaf", (8,)
        if writer is None and len(makers) > 1:
            return "join", [(name, half, i) for i in range(len(makers))]
        maker = makers[writer or 0]
        kind, is_packed = maker.opcode.partition(".")[0], maker.opcode.endswith("x2")
        if maker.opcode.startswith("ld.param") and (found := _PARAMETER.search(maker.reads[0])):
            return "leaf", (7, int(found[1]))
        if maker.opcode in _SIGNS and maker.reads[1] in _SIGNS[maker.opcode]:
            return "neg" if kind == "xor" else "function", [(maker.reads[0], half, None)]
        if kind == "cvt" and (forms := [form[0].replace("e", "f") for form in _FORMS_OF_CVT.findall(maker.opcode)])[0] == "f":
            if forms[-1] != "f":
                return "leaf", (9,)
            if len(maker.reads) == 2 and half is not None:
                return "copy", [(maker.reads[1 - half], None, None)]
            is_rounded = len(forms) == 1 or len(maker.reads) == 2 or _INTEGRAL.search(maker.opcode)
            return "function" if is_rounded else "copy", [(read, half, None) for read in maker.reads]
        if kind == "selp":
            compared = [
                test.opcode.split(".")[1] for test in code.definitions.get(maker.reads[2], ()) if test.opcode.startswith("setp.")
            ]
            return "function", _choice_places([(read, half, None) for read in maker.reads[:2]], *compared[:1])
        if form_of(maker.opcode) and (kind in _PLACES or kind in ("max", "min")):
            kind, reads = kind_and_reads(maker, code.definitions)
            return kind, [(read, half if is_packed else None, None) for read in reads]
        sources, places = code.step(maker, name, half)
        if sources:
            return "leaf", _leaf(sources)
        if kind == "mov" and len(maker.reads) == 1:
            places = [(maker.reads[0], maker.writes.index(name.partition("@")[0]) if len(maker.writes) == 2 else half)]
        is_part = kind in ("mov", "prmt", "cvt") or (kind in ("shl", "shr", "and", "or") and places[0][1] is not None)
        return "copy" if len(places) == 1 and is_part else "function", [(*found_place, None) for found_place in places]

    return ValueNumbers(step)


_FORMS = {"f16": ("<e", 2), "f32": ("<f", 4), "f64": ("<d", 8)}


def _parse_constant(text: str, form: str) -> float:
    """The constant `text` of LLVM's dialect."""
    if not text.startswith("0x"):
        return float(np.float32(text)) if form == "f32" else float(text)
    word = int(text, 16)
    word, form = (word << 16, "f32") if form == "bf16" else (word, form)
    code, size = _FORMS[form]
    (value,) = struct.unpack(code, word.to_bytes(size, "little"))
    return float(value)


def _immediate(text: str, half: int | None) -> float:
    """The constant `text` of PTX; of 16 bits in two forms, of which none is known, the integer that it is."""
    if text[:2] in ("0f", "0F"):
        return _parse_constant("0x" + text[2:], "f32")
    if text[:2] in ("0d", "0D"):
        return _parse_constant("0x" + text[2:], "f64")
    try:
        return float(int(text.rstrip("U"), 0))
    except ValueError:
        return 0.0


@dataclass(frozen=True)
class NumberedSum:
    """An instruction that adds, or one half of it: the numbers of what it adds, of a fused multiply-add the product first."""

    place: int
    instruction: Instruction
    half: int | None
    parts: tuple[int, int]
    fuses: bool


def numbered_sums(code: FoldCode, sums: Iterable[tuple[int, Instruction, bool]]) -> dict[int, list[NumberedSum]]:
    """The instructions `sums` of `code`, each with its place and whether it multiplies, by the number of their sum."""
    half_sums = [
        (place, instruction, half, is_fused)
        for place, instruction, is_fused in sums
        for half in ((0, 1) if instruction.opcode.endswith("x2") else (None,))
    ]
    values = of_code(code)
    values.number((read, half, None) for _, instruction, half, _ in half_sums for read in instruction.reads)
    sums_by_number = defaultdict[int, list[NumberedSum]](list)
    for place, instruction, half, is_fused in half_sums:
        numbers = [values.numbers[read, half, None] for read in kind_and_reads(instruction, code.definitions)[1]]
        if len(numbers) == 3:
            numbers = [product_number(numbers[0], numbers[1]), numbers[2]]
        elif instruction.opcode.startswith("sub."):
            numbers[1] = -numbers[1] % PRIME
        sums_by_number[magnitude(sum_number(*numbers))].append(
            NumberedSum(place, instruction, half, (numbers[0], numbers[1]), is_fused)
        )
    return sums_by_number
