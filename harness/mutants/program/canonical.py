"""The canonical form of a tile program: equal forms compute the same.

What nothing uses is left out, what is computed twice is computed once, constants are folded, operands that commute are sorted, and
operations that say the same of the numbers that can come are written as one. What has an effect stands in its order. Locations,
names of values and hints of time are no part of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, Program
from bitverdict.harness.mutants.program import ranges
from bitverdict.harness.mutants.program.float_classes import ORDERED_PREDICATES, FloatClasses
from bitverdict.harness.mutants.program.ranges import Range

PURE = (
    "arith.", "math.", "tt.splat", "tt.unsplat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.join", "tt.split",
    "tt.cat", "tt.make_range", "tt.get_program_id", "tt.get_num_programs", "tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.clampf",
    "tt.precise_", "tt.mulhiui", "tt.gather", "tt.ptr_to_int", "tt.int_to_ptr", "tt.reduce", "tt.scan", "tt.extern_elementwise",
    "tt.dot", "tt.histogram", "ttg.convert_layout", "ttg.memdesc_", "ttg.fp4_to_fp", "ub.poison", "ttng.packed_arith",
    "ttng.tmem_subslice", "tti.experimental_fpsan_",
)  # fmt: skip
"""Operations, or how their names begin, that do nothing but give a result."""
_COMMUTE = (
    "arith.addi", "arith.muli", "arith.andi", "arith.ori", "arith.xori", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui",
    "arith.addf", "arith.mulf",
)  # fmt: skip
_SIGNED_FORMS = {
    "arith.divui": "arith.divsi", "arith.remui": "arith.remsi", "arith.minui": "arith.minsi", "arith.maxui": "arith.maxsi",
    "arith.extui": "arith.extsi", "arith.shrui": "arith.shrsi", "arith.uitofp": "arith.sitofp",
}  # fmt: skip
_OF_TIME = ("evict", "cache", "loop.", "tt.num_stages", "tt.warp_specialize", "ttg.partition", "contiguity", "tt.divisibility",
            "tt.contiguity", "tt.constancy", "operandSegmentSizes", "resultSegmentSizes")  # fmt: skip
"""Attributes that begin so decide nothing, or are said by the operands."""
_OF_LAYOUT = ("tt.reduce", "tt.scan", "tt.atomic", "tt.print", "tt.histogram", "tt.gather", "tt.elementwise_inline", "tt.extern",
              "tt.cat", "tt.call", "tt.map", "ttg.memdesc_reinterpret", "ttg.warp", "ttng.cluster", "gpu.")  # fmt: skip
"""Operations whose results, or whose effects, a layout of registers or of shared memory may decide: the order of a sum, who stores
first, which bytes a view shows."""
_SPREAD = re.compile(r", (?:#ttg\.slice<\{dim = \d+, parent = )*#ttg\.blocked<\{[^{}]*\}>(?:\}>)*>$")
_SWIZZLED_LAYOUT = re.compile(r", #ttg\.swizzled_shared<\{[^{}]*\}>")
"""Layouts that say which thread holds an element, or where in shared memory it lies, and nothing of an instruction: those of matrix
products, TMA and tensor memory are none of them."""
_MASKED_OPERANDS = {
    "tt.load": ("pointer", "mask?", "other?"),
    "ttg.async_copy_global_to_local": ("pointer", "view", "mask?", "other?"),
}
"""Operations that give zeros outside of a mask, in the compiled program, where no `other` says what."""
_ZERO = re.compile(r"(?:dense<)?(?:0|0\.0+e\+00|false)(?:>| :|$)")
_SWAPPED_PREDICATES = {4: 2, 5: 3, 8: 6, 9: 7}  # greater by less


@dataclass
class _Values:
    """What is known of the values of one region, and of those around it."""

    forms: dict[str, str] = field(default_factory=dict)
    ranges: dict[str, Range | None] = field(default_factory=dict)

    def inside(self) -> _Values:
        return _Values(dict(self.forms), dict(self.ranges))


class Canonical:
    """The form of one program. `negative`: integer arguments that may be so; no other is. `without_layouts`: register layouts are
    left out, where no operation depends on one. `without_other`: what a masked load gives outside of its mask is left out."""

    def __init__(
        self, program: Program, *, negative: Collection[str] = (), without_layouts: bool = False, without_other: bool = False
    ) -> None:
        self.program, self.negative = program, negative
        self.without_layouts = without_layouts and free_of_layouts(program)
        self.without_other = without_other
        self._floats = FloatClasses(program)
        self._kinds: dict[str, str] = {}
        self._zeros: set[str] = set()
        told = [f"{name} {self._function(function)}" for name, function in sorted(program.functions.items())]
        attributes = sorted(f"{name}={value}" for name, value in program.attributes.items() if not name.startswith("nvvm"))
        scratch = "ttg.shared="  # a conversion of layouts takes some
        self.form = _digest(*told, *(each for each in attributes if not (self.without_layouts and each.startswith(scratch))))

    # -- types --------------------------------------------------------------------------------------------------------
    def _kind(self, text: str) -> str:
        """A type without aliases."""
        if text not in self._kinds:
            found = self.program.expand(text)
            if self.without_layouts:
                found = _SWIZZLED_LAYOUT.sub("", _SPREAD.sub(">", found))
            self._kinds[text] = found
        return self._kinds[text]

    # -- regions ------------------------------------------------------------------------------------------------------
    def _function(self, function: Function) -> str:
        values = _Values()
        for number, (name, kind) in enumerate(function.blocks[0].arguments):
            values.forms[name] = f"argument {number} {self._kind(kind)}"
            found = ranges.type_range(kind)
            values.ranges[name] = found if found is None or name in self.negative else ranges.ARGUMENTS.within(found)
        return self._region(function.blocks, values, known_count=len(function.blocks[0].arguments))

    def _region(self, blocks: list[Block], values: _Values, known_count: int = 0) -> str:
        """The form of `blocks`; the first `known_count` arguments of the first block are known already."""
        live = _live(blocks)
        live_arguments = {block.label: [i for i, (name, _) in enumerate(block.arguments) if name in live] for block in blocks}
        for number, block in enumerate(blocks):
            for place, i in enumerate(live_arguments[block.label]):
                name, kind = block.arguments[i]
                if number == 0 and i < known_count:
                    continue
                values.forms[name] = f"block {number} argument {place} {self._kind(kind)}"
                values.ranges[name] = _carried_range(blocks, block, i, kind, values)
        numbers = {block.label: number for number, block in enumerate(blocks)}
        effect_forms: list[str] = []
        for number, block in enumerate(blocks):
            for op in block.operations:
                if op.successors:
                    effect_forms.append(self._branch(op, values, numbers, live_arguments))
                elif is_pure(op):
                    if any(name in live for name in op.results):
                        self._pure(op, values)
                else:
                    form = self._form(op, values)
                    effect_forms.append(form)
                    for i, name in enumerate(op.results):
                        values.forms[name] = _digest("effect", str(number), str(len(effect_forms)), str(i), form)
                        values.ranges[name] = ranges.type_range(op.result_types[i])
            effect_forms.append("end of a block")
        return _digest(*effect_forms)

    def _branch(self, op: Operation, values: _Values, numbers: dict[str, int], kept: dict[str, list[int]]) -> str:
        ways = [
            (numbers[label], *(values.forms[given[i]] for i in kept[label]))
            for label, given in zip(op.successors, op.branch_operands(), strict=True)
        ]
        if op.name == "cf.br":
            return f"goes to {ways[0]}"
        condition = op.operands[0]
        found = values.ranges.get(condition)
        if found is not None and found.low == found.high:
            return f"goes to {ways[0 if found.low else 1]}"
        return f"goes by {values.forms[condition]} to {ways}"

    # -- operations ---------------------------------------------------------------------------------------------------
    def _pure(self, op: Operation, values: _Values) -> None:
        given = [values.ranges.get(name) for name in op.operands]
        value_range = ranges.result_range(op, given)
        if op.name == "arith.select":
            value_range = ranges.select_range(op, self._floats.made, values.ranges.get) or value_range
        same = self._forwarded_form(op, values, given)
        form = self._constant_form(op, value_range) or same or self._form(op, values, given)
        if op.name == "arith.constant" and _ZERO.match(op.attributes.get("value", "")):
            self._zeros.add(form)
        for i, name in enumerate(op.results):
            values.forms[name] = form if len(op.results) == 1 else f"{form} {i}"
            values.ranges[name] = value_range if i == 0 else ranges.type_range(op.result_types[i])

    def _constant_form(self, op: Operation, found: Range | None) -> str:
        """The form of a value that is one integer in all its elements."""
        if found is None or found.low != found.high:
            return ""
        return f"constant {found.low} {self._kind(op.result_types[0])}"

    def _forwarded_form(self, op: Operation, values: _Values, operand_ranges: list[Range | None]) -> str:
        """The form of the operand that `op` gives back; empty where it does something."""
        forms = [values.forms[name] for name in op.operands]
        if op.name == "ttg.convert_layout" and self.without_layouts:
            return forms[0]
        if op.name == "ttg.convert_layout" and self._kind(op.operand_types[0]) == self._kind(op.result_types[0]):
            return forms[0]
        if op.name == "arith.select":
            told = operand_ranges[0]
            if told is not None and told.low == told.high:
                return forms[1] if told.low else forms[2]
            return forms[1] if forms[1] == forms[2] else ""
        if len(operand_ranges) != 2 or op.name not in _NEUTRAL | _IDEMPOTENT or op.operand_types[0] != op.result_types[0]:
            return ""
        if op.name in _IDEMPOTENT and forms[0] == forms[1]:
            return forms[0]
        for place in (0, 1):
            if _keeps(op.name, place, operand_ranges[place], operand_ranges[1 - place]):
                return forms[place]
        return ""

    def _form(self, op: Operation, values: _Values, given: list[Range | None] | None = None) -> str:
        forms = [values.forms[name] for name in op.operands]
        name, attributes = op.name, self._attributes(op)
        known = given if given is not None else []
        if name in _SIGNED_FORMS and known and all(item is not None and item.positive and item != Range(0, 1) for item in known):
            name = _SIGNED_FORMS[name]
        if name in _COMMUTE:
            forms.sort()
        if name == "arith.cmpi":
            predicate = op.integer("predicate")
            if predicate in _SWAPPED_PREDICATES:
                attributes, forms = [f"predicate={_SWAPPED_PREDICATES[predicate]}"], forms[::-1]
            elif predicate in (0, 1):
                forms.sort()
            else:
                attributes = [f"predicate={predicate}"]
        if name == "arith.cmpf" and (same := ORDERED_PREDICATES.get(op.integer("predicate"))):
            if not any(map(self._floats.may_be_nan, op.operands)):
                attributes = [f"predicate={same} : i64" if item.startswith("predicate=") else item for item in attributes]
        groups_told = op.attributes.get("operandSegmentSizes", "")
        if name in _MASKED_OPERANDS:
            groups_told = ""  # the operands' number tells
            if op.operands_by_name(*_MASKED_OPERANDS[name])["other"] and (
                forms[-1] in self._zeros or (self.without_other and name == "tt.load")
            ):
                forms = forms[:-1]
        inner = [self._inner(region, values, op) for region in op.regions]
        kinds = [self._kind(kind) for kind in op.result_types]
        return _digest(name, groups_told, *attributes, "of", *forms, "gives", *kinds, *inner)

    def _inner(self, region: list[Block], values: _Values, op: Operation) -> str:
        inside = values.inside()
        for number, (name, kind) in enumerate(region[0].arguments if region else []):
            inside.forms[name] = f"argument {number} of {op.name} {self._kind(kind)}"
            inside.ranges[name] = ranges.type_range(kind)
        return self._region(region, inside, known_count=len(region[0].arguments)) if region else ""

    def _attributes(self, op: Operation) -> list[str]:
        told = {name: value for name, value in op.attributes.items() if not name.startswith(_OF_TIME)}
        if "value" in told:  # of a constant: its type is the result's
            told["value"] = told["value"].partition(" : tensor<")[0]
        return sorted(f"{name}={self.program.expand(value)}" for name, value in told.items())


_NEUTRAL = {"arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.remsi", "arith.minsi", "arith.maxsi", "arith.andi",
            "arith.ori", "arith.xori", "arith.shli", "arith.shrsi", "arith.shrui"}  # fmt: skip
_IDEMPOTENT = {"arith.andi", "arith.ori", "arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui", "arith.maximumf",
               "arith.minimumf", "arith.maxnumf", "arith.minnumf"}  # fmt: skip


def _keeps(name: str, place: int, kept_range: Range | None, other_range: Range | None) -> bool:
    """Whether the operation `name` gives back its operand at `place`, of `kept_range`, whatever the other, of `other_range`, is."""
    if kept_range is None or other_range is None:
        return False
    if name in ("arith.addi", "arith.ori", "arith.xori") or (
        place == 0 and name in ("arith.subi", "arith.shli", "arith.shrsi", "arith.shrui")
    ):
        return other_range == Range(0, 0)
    if name == "arith.muli" or (name == "arith.divsi" and place == 0):
        return other_range == Range(1, 1)
    if name == "arith.remsi":
        return place == 0 and kept_range.positive and kept_range.high < other_range.low
    if name == "arith.minsi":
        return kept_range.high <= other_range.low
    if name == "arith.maxsi":
        return kept_range.low >= other_range.high
    return name == "arith.andi" and other_range == Range(1, 1) and kept_range.low >= 0 and kept_range.high <= 1


def free_of_layouts(program: Program) -> bool:
    """Whether no operation of `program` may depend on which thread holds an element. What a thread stores it may read again without
    a barrier, so no pointer is both stored to and loaded from."""
    operations = list(program.operations())
    if any(op.name.startswith(_OF_LAYOUT) for op in operations):
        return False
    made = {name: op for op in operations for name in op.results}
    carried = {name for function in program.functions.values() for block in function.blocks[1:] for name, _ in block.arguments}
    stored, loaded = (
        {_base(op.operands[0], made, carried) for op in operations if op.name in names}
        for names in (("tt.store",), ("tt.load", "ttg.async_copy_global_to_local"))
    )
    return not stored or ("" not in stored | loaded and stored.isdisjoint(loaded)) or not loaded


def _base(name: str, made: dict[str, Operation], carried_names: Collection[str]) -> str:
    """The argument of the function that the pointer `name` points into; empty where it is not known."""
    while (op := made.get(name)) is not None:
        if op.name not in _POINTS:
            return ""
        name = op.operands[0]
    return "" if name in carried_names else name


_POINTS = ("tt.addptr", "tt.splat", "tt.broadcast", "tt.expand_dims", "ttg.convert_layout", "tt.bitcast")


def is_pure(op: Operation) -> bool:
    """Whether `op` does nothing but give its results."""
    return op.name.startswith(PURE) and bool(op.results)


def _carried_range(blocks: list[Block], block: Block, place: int, kind: str, values: _Values) -> Range | None:
    """Of an argument of `block`: not negative, where it begins so and only grows."""
    full_range = ranges.type_range(kind)
    name = block.arguments[place][0]
    definers = {result: op for each in blocks for op in each.operations for result in op.results}
    for each in blocks:
        end = each.operations[-1]
        for label, given in zip(end.successors, end.branch_operands(), strict=True):
            if label != block.label:
                continue
            value = given[place]
            op = definers.get(value)
            if op is not None and op.name == "arith.addi" and name in op.operands:
                value = op.operands[1 - op.operands.index(name)]
                op = definers.get(value)
            known = values.ranges.get(value)
            if known is None and op is not None and not op.operands:
                known = ranges.result_range(op, [])
            if known is None or not known.positive:
                return full_range
    return None if full_range is None else Range(0, full_range.high)


def _live(blocks: list[Block]) -> set[str]:
    """The values of a region, and of regions inside it, that decide an effect or a branch."""
    arguments = {block.label: [name for name, _ in block.arguments] for block in blocks}
    sources: dict[str, list[str]] = {}
    stack: list[str] = []
    for op in _all_operations(blocks):
        inner = [name for region in op.regions for each in _all_operations(region) for name in each.operands]
        if is_pure(op):
            for name in op.results:
                sources.setdefault(name, []).extend([*op.operands, *inner])
        elif op.successors and op.successors[0] in arguments:
            if op.name == "cf.cond_br":
                stack.append(op.operands[0])
            for label, given in zip(op.successors, op.branch_operands(), strict=True):
                for argument, value in zip(arguments[label], given, strict=False):
                    sources.setdefault(argument, []).append(value)
        else:
            stack += [*op.operands, *inner]
    live: set[str] = set()
    while stack:
        name = stack.pop()
        if name not in live:
            live.add(name)
            stack += sources.get(name, [])
    return live


def _all_operations(blocks: list[Block]) -> Iterator[Operation]:
    for block in blocks:
        for op in block.operations:
            yield op
            for region in op.regions:
                yield from _all_operations(region)


def _digest(*parts: str) -> str:
    told = hashlib.blake2b(digest_size=12)
    for part in parts:
        told.update(f"{len(part)}:".encode() + part.encode())
    return told.hexdigest()
