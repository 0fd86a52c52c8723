"""What became of each sum of floats in the compiled program: an addition, or a fused multiply-add that took a product in.

With `enable_fp_fusion` LLVM contracts (DAGCombiner, `visitFADDForFMACombine`), one basic block at a time, after everything that
moves code between blocks: products are hoisted out of loops and sunk into branches, loops of a constant count are unrolled, sums
are computed in narrower formats. Then ptxas contracts what LLVM left (PTX ISA 9.7.3, `mul` and `add` without a rounding
modifier, and the product that it makes of `div.full`), after its own unrolling. No rule on the tile program says where a product
and its sum end up, so the compiled program is asked (`assembly`). What it said is kept on disk beside Triton's own compilations.

LLVM's SLP vectoriser puts the sums of several lines under one of them. Then each register of a sum is found by what it
computes (`value_numbers`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from triton.runtime.cache import get_cache_manager

from bitverdict.harness.emulator.compiler_digest import digest
from bitverdict.harness.emulator.frontend import amd_assembly
from bitverdict.harness.emulator.frontend.assembly import Instruction, NotAssembled, instructions, ptx_beside_packing
from bitverdict.harness.emulator.frontend.assembly_sums import AssemblySums, assembly_sums, flatten
from bitverdict.harness.emulator.frontend.float_instructions import (
    Definitions,
    adds,
    by_halves,
    doubles,
    is_open_product,
    is_square,
    machine_places,
    multiplies,
    one_line,
    origins,
    parts_of,
)
from bitverdict.harness.emulator.frontend.fold_sums import FoldSums, MarkedProgram, fold_sums
from bitverdict.harness.emulator.frontend.region_sums import RegionSums, region_sums, register_sums
from bitverdict.harness.emulator.mlir_reader import Operation, Program

_OWN_SUMS = (
    "arith.addf", "arith.subf", "arith.truncf", "math.", "tt.dot", "tt.fp_to_fp", "arith.sitofp", "arith.uitofp", "tt.extern",
    "tt.precise", "ttng.packed_arith",
)  # fmt: skip
"""Operations whose lines may hold additions and fused multiply-adds of their own."""
_OF_THE_COMPILER = ("arith.divf", "arith.remf", "math.", "tt.precise", "tt.extern", "arith.sitofp", "arith.uitofp", "tt.fp_to_fp")
"""Operations that AMD's compiler writes out in sums and products of its own."""
_MOST_IN_PROCESS = 256  # entries of one process
_process_results: dict[tuple[str, str], Any] = {}  # what this process found, by program and name
_FORMAT_VERSION = "56"  # changes when what is kept on disk does


@dataclass
class Fate:
    """What the instructions of one sum are: how many elements a thread adds by them, how many it multiplies and adds, and on what.

    `addends`: of each instruction that multiplies and adds, the lines of the multiplications whose rounded products it adds; -1 for
    one of unknown line. `multiplied`: of each of them, the lines of the two instructions whose results it multiplies, the smaller
    first; -1 where it is not one instruction of a known line. `open`: lines of the products that reach an addition which ptxas may
    still contract. `added`: of all that reach one. `sum_places`: of the additions; of those without a line, of
    what such a product or a division reaches. `product_places`: of the products and divisions that reach one which ptxas may
    contract; the last thing it makes of div.full.f32 is a product (`Instruction.place`, in the PTX that ptxas takes). `squares`: of
    each that multiplies and adds, 1 where it multiplies a value by itself, and 2 more where it adds a product that does. `signs`:
    of each of AMD's that adds a product, whether it takes it away.
    """

    plain_sums: int = 0
    fused_sums: int = 0
    formats: set[str] = field(default_factory=set)  # of _FORMATS
    addends: set[frozenset[int]] = field(default_factory=set)
    open: set[int] = field(default_factory=set)
    added_products: set[int] = field(default_factory=set)
    factor_lines: set[tuple[int, int]] = field(default_factory=set)
    sum_places: set[int] = field(default_factory=set)
    product_places: set[int] = field(default_factory=set)
    squares: set[int] = field(default_factory=set)
    signs: set[bool] = field(default_factory=set)


class AmdContraction:
    """The fates of the sums of one tile program on one of AMD's targets: LLVM contracts, and nothing after it."""

    hidden = False

    def __init__(self, program: Program, arch: str) -> None:
        self.program, self.arch = program, arch

    def fate(self, line: int) -> Fate:
        """As `Contraction.fate`."""
        return self.fates.get(line) or self.fates.get(-1) or Fate()

    def joined_by_ptxas(self, fate: Fate) -> bool:
        """ptxas makes no code of it."""
        return False

    left_by_ptxas = joined_by_ptxas

    def removes(self, line: int) -> bool:
        """As `Contraction.removes`."""
        return line not in self.fates and -1 not in self.fates

    @cached_property
    def fates(self) -> dict[int, Fate]:
        """As `Contraction.fates`, from disk where they lie there. NotAssembled where the compiler does not take the program."""
        told = f"{_FORMAT_VERSION} {digest()} {self.arch} {self.program.text}"
        manager = get_cache_manager(hashlib.sha256(told.encode()).hexdigest())
        if path := manager.get_file("fates.json"):
            return {int(line): _read(kept) for line, kept in json.loads(Path(path).read_text()).items()}
        code = amd_assembly.amdgcn(self.program.text, self.arch, self.program.integer("ttg.num-warps", 4))
        apart = frozenset(op.line for op in self.program.operations() if op.name.startswith(_OF_THE_COMPILER))
        found = fates_of(list(amd_assembly.instructions(code, apart)), self.program)
        manager.put(json.dumps({str(line): _fate_as_list(fate) for line, fate in found.items()}), "fates.json", binary=False)
        return found


class Contraction:
    """The fates of the sums of one tile program on one target, compiled with fusion when first asked for."""

    def __init__(self, program: Program, capability: int) -> None:
        self.program, self.capability = program, capability

    def fate(self, line: int) -> Fate:
        """Of the sum at `line` of the program's text. Where the compiler kept no line for it, of all that has none; without any
        instruction when nothing is left of it, or it may stand under another's line. NotAssembled where the compiler does not take
        the program."""
        return self.fates.get(line) or (None if self.hidden else self.fates.get(-1)) or Fate()

    def joined_by_ptxas(self, fate: Fate) -> bool:
        """Whether ptxas made a fused multiply-add of an addition of `fate` and a product or division that reaches it."""
        places = fate.sum_places | fate.product_places | {-1}
        return bool(fate.product_places) and not self.machine_places[0].isdisjoint(places)

    def left_by_ptxas(self, fate: Fate) -> bool:
        """Whether an addition of `fate` is one in the machine code too."""
        return not self.machine_places[1].isdisjoint(fate.sum_places | {-1})

    def fold(self, last_line: int) -> FoldSums:
        """Of the reduction or scan that ends at `last_line` and whose region is one sum: which products its sums take in.
        NotAssembled where the compiler does not take the program."""
        return FoldSums.from_list(self._combinations[last_line])

    def region(self, last_line: int) -> RegionSums:
        """As `fold`, of one whose region has several operations."""
        return {pair: dict(lines) for pair, lines in self._combinations[last_line]}

    @cached_property
    def registers(self) -> dict[int, list[int | None]]:
        """The side whose product each register of a sum outside of regions takes in, None where it adds, by the line of the sum;
        empty where that is not known."""

        def read_sums() -> list:
            sums = [op for op in self.program.operations() if op.name in ("arith.addf", "arith.subf")]
            try:
                return [[op.line, register_sums(self._marked_program, op)] for op in sums]
            except NotAssembled:
                return []

        return dict(self._compute_once("registers", read_sums))

    @cached_property
    def _marked_program(self) -> MarkedProgram:
        return MarkedProgram(self.program.text, self.capability)

    @cached_property
    def _combinations(self) -> dict[int, list]:
        operations = [op for op in self.program.operations() if op.name in ("tt.reduce", "tt.scan") and len(op.regions[0]) == 1]

        def read_sums(op: Operation) -> list:
            body = op.regions[0][0].operations
            if len(body) > 2:
                return [(pair, [*lines.items()]) for pair, lines in region_sums(self._marked_program, op).items()]
            return fold_sums(
                self._marked_program, (body[0].line + 1, op.last_line + 1), str(op.inputs[0] and op.inputs[0].element)
            ).to_list()

        kept = self._compute_once("combinations", lambda: [*map(read_sums, operations)])
        return {op.last_line: sums for op, sums in zip(operations, kept, strict=True)}

    @cached_property
    def fates(self) -> dict[int, Fate]:
        """By line of the program's text; -1 has what stands under no sum's line."""
        return {line: _read(kept) for line, kept in self._reading[0]}

    @property
    def hidden(self) -> bool:
        """Whether sums may stand under the lines of others."""
        return bool(self._reading[1])

    def removes(self, line: int) -> bool:
        """Whether nothing is left of the sum at `line`, under whatever line."""
        return not self.hidden and line not in self.fates and -1 not in self.fates

    @cached_property
    def _reading(self) -> list:
        """Fates by line, as JSON; whether the vectoriser packed some."""

        def compute_reading() -> list:
            text, is_packed = self._packed_text
            return [[[line, _fate_as_list(fate)] for line, fate in fates(text, self.program).items()], is_packed]

        return list(self._compute_once("fates", compute_reading))

    @cached_property
    def machine_places(self) -> tuple[set[int], set[int]]:
        """As the function of that name, of this program."""
        joined, added = self._compute_once("machine", lambda: [*map(sorted, machine_places(self._packed_text[0], self.capability))])
        return set(joined), set(added)

    @cached_property
    def _packed_text(self) -> tuple[str, bool]:
        text, is_packed = ptx_beside_packing(self.program.text, self.capability)
        return flatten(text), is_packed

    @cached_property
    def assembly_sums(self) -> AssemblySums:
        """As the function of that name, of this program."""

        def read_sums() -> list:
            found = assembly_sums(self._packed_text[0], self.capability)
            return [[line, [[number, sorted(sides)] for number, sides in sums.items()]] for line, sums in found.items()]

        kept = self._compute_once("assembly", read_sums)
        return {line: {number: set(sides) for number, sides in sums} for line, sums in kept}

    def _compute_once(self, name: str, compute: Callable[[], object]) -> Any:
        """What `compute` finds, from disk when it was found before for this program, target and release."""
        told = f"{_FORMAT_VERSION} {digest()} {self.capability} {self.program.text}"
        key = hashlib.sha256(told.encode()).hexdigest()
        if (key, name) in _process_results:  # another translation of the same program: where nothing is kept on disk, it lies here
            return _process_results[key, name]
        cache = get_cache_manager(key)
        if path := cache.get_file(f"{name}.json"):
            return json.loads(Path(path).read_text())
        if len(_process_results) >= _MOST_IN_PROCESS:
            _process_results.clear()
        found = _process_results[key, name] = compute()
        cache.put(json.dumps(found), f"{name}.json", binary=False)
        return found


def _fate_as_list(fate: Fate) -> list:
    addends = [sorted(lines) for lines in fate.addends]
    multiplied = sorted(fate.factor_lines)
    places = (fate.sum_places, fate.product_places, fate.squares, fate.signs)
    sets = [sorted(each) for each in (fate.open, fate.added_products, *places)]
    return [fate.plain_sums, fate.fused_sums, sorted(fate.formats), addends, multiplied, *sets]


def _read(kept: list) -> Fate:
    plain, fused, formats, addends, multiplied, *sets = kept
    open_, added, *places = map(set, sets)
    pairs = {(first, second) for first, second in multiplied}
    every = {frozenset(lines) for lines in addends}
    return Fate(plain, fused, set(formats), every, open_, added, pairs, *places)


def fates(text: str, program: Program) -> dict[int, Fate]:
    """By line of the program's text, from its PTX; -1 has what stands under no sum's line."""
    return fates_of(by_halves(list(instructions(text))), program)


def fates_of(instructions: list[Instruction], program: Program) -> dict[int, Fate]:
    """As `fates`, of the `instructions` given."""
    definitions: Definitions = {}
    for instruction in instructions:
        for name in instruction.writes:
            definitions.setdefault(name, []).append(instruction)
    own = set(_own_lines(program))
    fates_by_line: dict[int, Fate] = {}
    for instruction in instructions:
        kind, modifiers, form = parts_of(instruction.opcode)
        if not form or kind not in ("fma", "add", "sub") or multiplies(instruction, definitions):
            continue
        line = instruction.line
        if line not in own and doubles(instruction, definitions):
            continue
        fate = fates_by_line.setdefault(line if line in own else -1, Fate())
        fate.formats.add(form)
        elements = 1 + modifiers[-1].endswith("x2")
        if kind == "fma" and not adds(instruction, definitions):
            fate.fused_sums += elements
            addend_origins = origins(instruction.reads[2:], definitions)
            added_products = [origin for origin in addend_origins if multiplies(origin, definitions)]
            fate.addends.add(frozenset(origin.line for origin in added_products))
            fate.signs.update({"minus" in modifiers} if added_products else ())
            adds_square = len(added_products) == 1 and is_square(added_products[0].reads, definitions)
            fate.squares.add(is_square(instruction.reads, definitions) + 2 * adds_square)
            first, second = sorted(one_line(name, definitions) for name in instruction.reads[:2])
            fate.factor_lines.add((first, second))
        else:
            fate.plain_sums += elements
            addend_origins = origins(instruction.reads, definitions)
            fate.added_products.update(origin.line for origin in addend_origins if multiplies(origin, definitions))
            reaches = [each for each in addend_origins if is_open_product(each) or each.opcode == "div.full.f32"]
            reaches = [] if "rn" in modifiers else reaches
            fate.open.update(each.line for each in reaches if is_open_product(each))
            fate.product_places.update(each.place for each in reaches)
            if reaches or line in own:
                fate.sum_places.add(instruction.place)
    return fates_by_line


def _own_lines(program: Program) -> Iterable[int]:
    pending_blocks = [block for function in program.functions.values() for block in function.blocks]
    while pending_blocks:
        for op in pending_blocks.pop().operations:
            if op.name.startswith(_OWN_SUMS):
                yield op.line
            if op.name == "tt.reduce":
                yield op.last_line  # of the sums of packed pairs
            for region in op.regions:
                pending_blocks += region


__all__ = ["Contraction", "Fate", "NotAssembled", "fates"]
