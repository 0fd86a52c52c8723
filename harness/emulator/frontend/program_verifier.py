"""The tile program before it is translated: is it one that the compiler could have made, and within its limits?

A candidate hands over text. What the translation and the execution take for granted is checked here: the characters, the structure
(a terminator ends each block, a branch leads to a block and gives what that takes, calls end), the values (each is defined once,
before it is used, and has the type that its uses say), sizes, and the limits of the target. What an operation means with its
operands is checked by the compiler's own verifier where programs are not trusted (sealed runs), and by the lowerings.

The text counts as the launcher's: what is wrong with it is the outcome "refused", or "out of resources", and never an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from bitverdict.harness.emulator.backends import backend_of
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, Program, nested_operations, parse_program
from bitverdict.harness.emulator.mlir_types import parse_type
from bitverdict.harness.model.architectures import ARCHITECTURES, CHIPS


@dataclass(frozen=True)
class Limits:
    """What a tile program may have at most. The compiler's own, over all kernels of the project and of the corpora that were
    judged with it: 98,162 characters, 2,268 in a line, 1,900 operations."""

    characters: int = 4 << 20
    line: int = 1 << 18
    operations: int = 50_000
    elements: int = 1 << 20
    """Of one tensor: Triton's own limit (`TRITON_MAX_TENSOR_NUMEL`)."""
    axes: int = 16
    functions: int = 1000
    """A function counts once for each place that its callers have for its shared memory."""
    warps: int = 64
    ctas: int = 16
    registers: int = 1024
    """Of ``ttg.maxnreg``."""


LIMITS = Limits()
_TERMINATORS = {
    "cf.br", "cf.cond_br", "tt.return", "tt.reduce.return", "tt.scan.return", "tt.map_elementwise.return", "ttg.warp_return",
    "ttg.warp_yield", "ttg.warp_specialize.partitions",
}  # fmt: skip
_ISOLATED_OPERATIONS = {"tt.func", "ttg.warp_specialize.partitions"}  # operations whose regions see no value from outside
_CHARACTERS = re.compile(r"[^\n -~]")  # all others MLIR writes as \XX
_INTEGER = re.compile(r"(-?\d{1,18}) : i32$")
_SHAPE = re.compile(r"<((?:\d+x)+)")
_RANGES = {
    "ttg.num-warps": (1, LIMITS.warps),
    "ttg.total-num-warps": (1, LIMITS.warps),
    "ttg.num-ctas": (1, LIMITS.ctas),
    "ttg.maxnreg": (0, LIMITS.registers),
}


def refusal(said: str, location: str = "", **details: str) -> EmulatedFault:
    """The fault that a tile program is refused with."""
    return EmulatedFault("refused", f"no tile program of the compiler's: {said}", location, details)


def verify_program(text: str, arch: str) -> Program:
    """The tile program `text` for the target `arch`. EmulatedFault "refused" where it is none that a compiler makes, with the line
    and what is wrong; "out of resources" where it asks for more memory than `arch` has."""
    _check_text(text)
    try:
        program = parse_program(text)
    except (ValueError, KeyError, IndexError, StopIteration, RecursionError, OverflowError) as error:
        raise refusal(f"it cannot be read ({type(error).__name__}: {str(error)[:200]})") from error
    _check_module(program, arch)
    for alias in program.aliases:
        try:
            program.expand(alias)
        except ValueError as error:
            raise refusal(str(error)) from error
    if any(number >= LIMITS.operations for number, _ in enumerate(program.operations())):
        raise refusal(f"more than {LIMITS.operations} operations")
    _check_calls(program)
    for function in program.functions.values():
        _Scope(program).region(function.blocks)
    return program


def _check_text(text: str) -> None:
    if len(text) > LIMITS.characters:
        raise refusal(f"{len(text)} characters; at most {LIMITS.characters} are read")
    if found := _CHARACTERS.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise refusal(f"line {line} has the character {found[0]!r}, which MLIR writes as an escape")
    if (longest := max(map(len, text.split("\n")))) > LIMITS.line:
        raise refusal(f"a line of {longest} characters; at most {LIMITS.line} are read")


def _check_module(program: Program, arch: str) -> None:
    public = [function for function in program.functions.values() if function.public]
    if len(public) != 1:
        raise refusal(f"{len(public)} public functions, where a kernel is one")
    for function in program.functions.values():
        if not function.blocks:
            raise refusal(f"the function {function.name[:80]} has no body")
    for name, (least, upper_limit) in _RANGES.items():
        value = _integer(program, name, least if name != "ttg.num-warps" else 4)
        if not least <= value <= upper_limit:
            raise refusal(f"{name} is {value}: at least {least} and at most {upper_limit}")
    for name in ("ttg.num-warps", "ttg.num-ctas"):
        if (value := _integer(program, name, 1)) & (value - 1):
            raise refusal(f"{name} is {value}: a power of two")
    if (value := _integer(program, "ttg.threads-per-warp", 32)) != ARCHITECTURES[arch].threads_per_warp:
        raise refusal(f"ttg.threads-per-warp is {value}: {arch} has {ARCHITECTURES[arch].threads_per_warp}")
    due = backend_of(arch).target_attribute(arch)
    told = program.attributes.get("ttg.target", due)
    if told != due:
        raise refusal(f"it is for {told[:40]}, and the launch is on {arch}")
    for name, upper_limit in (
        ("ttg.shared", ARCHITECTURES[arch].shared_memory),
        ("ttg.tensor_memory_size", CHIPS[arch].multiprocessors.columns),
    ):
        if not 0 <= (value := _integer(program, name, 0)) <= upper_limit:
            if value > 0 and not upper_limit:  # in the words of the compiler's verifier, which older releases have not
                said = f"'ttng.tmem_alloc' op requires tcgen05 support: {arch} has no tensor memory"
                raise EmulatedFault("refused", said, details={"layer": "verifier"})
            raise EmulatedFault("out of resources" if value > 0 else "refused", f"{name} is {value}: {arch} has {upper_limit}")


def _integer(program: Program, name: str, default: int) -> int:
    text = program.attributes.get(name)
    if text is None:
        return default
    if (found := _INTEGER.match(text)) is None:
        raise refusal(f"{name} is {text[:40]}, which is no integer of 32 bits")
    return int(found[1])


def _check_calls(program: Program) -> None:
    """Calls end: no function calls itself, by whatever way, and each is written a bounded number of times."""
    callees = {name: _callees(function) for name, function in program.functions.items()}
    visited_functions: set[tuple[str, int]] = set()
    worklist: list[tuple[str, int, tuple[str, ...]]] = [
        (name, 0, (name,)) for name, function in program.functions.items() if function.public
    ]
    while worklist:
        name, base, path = worklist.pop()
        if (name, base) in visited_functions:
            continue
        visited_functions.add((name, base))
        if len(visited_functions) + len(worklist) > LIMITS.functions:
            raise refusal(f"calls that need more than {LIMITS.functions} functions")
        for op, callee in callees[name]:
            if callee in path:
                raise refusal(f"the function {callee[:80]} calls itself", op.location)
            if callee not in callees:
                raise refusal(f"a call of {callee[:80]}, which is no function of it", op.location)
            taken, given = program.functions[callee].blocks[0].arguments, op.operand_types
            if [kind for _, kind in taken] != given:
                raise refusal(f"line {op.line + 1} calls {callee[:80]} with other types than it takes", op.location)
            worklist.append((callee, base + _offset(op), (*path, callee)))


def _callees(function: Function) -> list[tuple[Operation, str]]:
    """The calls of `function` and whom they call; of those that differ in nothing that matters here, one."""
    found: dict[tuple, tuple[Operation, str]] = {}
    for op in nested_operations(function.blocks):
        if op.name == "tt.call":
            callee = op.attributes.get("callee", "").lstrip("@").strip('"')
            found[callee, _offset(op), tuple(op.operand_types)] = op, callee
    return list(found.values())


def _offset(op: Operation) -> int:
    try:
        return op.integer("allocation.offset", 0)
    except ValueError as error:
        raise refusal(f"line {op.line + 1}: allocation.offset is no integer", op.location) from error


class _Scope:
    """The values that operations of one region may use: the type of each."""

    def __init__(self, program: Program, outside: dict[str, str] | None = None) -> None:
        self.program = program
        self.seen = dict(outside or {})  # of regions around this one, and of blocks that dominate the one being looked at

    def region(self, blocks: list[Block]) -> None:
        """Check `blocks`, one by one in an order in which each block's dominators come before it."""
        if not blocks:
            return
        labels = {block.label: i for i, block in enumerate(blocks)}
        if len(labels) != len(blocks):
            raise refusal(f"two blocks of one region are called {blocks[-1].label[:40]}")
        for block in blocks:
            self._ends(block, blocks, labels)
        above = dominators([[labels[each] for each in block.operations[-1].successors] for block in blocks])
        defined_names: set[str] = set()
        exit_scopes: list[dict[str, str] | None] = [None] * len(blocks)  # what is seen at the end of each block
        for i in _by_dominance(above):
            block = blocks[i]
            parent = above[i]
            before = self.seen if parent is None or parent == i else exit_scopes[parent]
            assert before is not None
            exit_scopes[i] = self._block(block, dict(before), defined_names)

    def _ends(self, block: Block, blocks: list[Block], labels: dict[str, int]) -> None:
        if not block.operations:
            raise refusal(f"the block {block.label[:40]} has no operation")
        for op in block.operations:
            last = op is block.operations[-1]
            if last != (op.name in _TERMINATORS) or (op.successors and not last):
                said = "ends a block, which goes on" if not last else "does not end a block, and is the last of one"
                raise refusal(f"line {op.line + 1}: {op.name[:80]} {said}", op.location)
        end = block.operations[-1]
        if end.name in ("cf.br", "cf.cond_br") and len(end.successors) != (1 if end.name == "cf.br" else 2):
            raise refusal(f"line {end.line + 1}: {end.name} with {len(end.successors)} successors", end.location)
        types = dict(zip(end.operands, end.operand_types, strict=False))
        for label, given in zip(end.successors, end.branch_operands(), strict=True):
            if label not in labels:
                raise refusal(f"line {end.line + 1} branches to {label[:40]}, which is no block of its region", end.location)
            if labels[label] == 0:
                raise refusal(f"line {end.line + 1} branches to the first block of its region", end.location)
            if [kind for _, kind in blocks[labels[label]].arguments] != [types.get(name) for name in given]:
                raise refusal(f"line {end.line + 1} gives {label[:40]} other values than it takes", end.location)

    def _block(self, block: Block, visible_types: dict[str, str], defined_names: set[str]) -> dict[str, str]:
        def define(op: Operation | None, name: str, kind: str) -> None:
            if not name.startswith("%") or name in defined_names or name in self.seen:
                where = f"line {op.line + 1}" if op else block.label[:40]
                raise refusal(f"{where} defines {name[:80]} again", op.location if op else "")
            check_type(kind)
            defined_names.add(name)
            visible_types[name] = kind

        for name, kind in block.arguments:
            define(None, name, kind)
        for op in block.operations:
            if len(op.operands) != len(op.operand_types) or len(op.results) != len(op.result_types):
                raise refusal(f"line {op.line + 1}: {op.name[:80]} has other types than operands and results", op.location)
            for name, kind in zip(op.operands, op.operand_types, strict=True):
                if name not in visible_types:
                    raise refusal(f"line {op.line + 1} uses {name[:80]} before it is defined", op.location)
                if visible_types[name] != kind:
                    raise refusal(
                        f"line {op.line + 1} takes {name[:80]} for {kind[:80]}; it is {visible_types[name][:80]}", op.location
                    )
            for region in op.regions:
                _Scope(self.program, None if op.name in _ISOLATED_OPERATIONS else visible_types).region(region)
            for name, kind in zip(op.results, op.result_types, strict=True):
                define(op, name, kind)
        return visible_types


@lru_cache(maxsize=4096)
def check_type(text: str) -> None:
    """EmulatedFault "refused" for a type whose shape is none, or too large. What is not modelled is told by the lowerings."""
    for found in _SHAPE.findall(text):
        shape = [int(each) for each in found.split("x")[:-1] if len(each) < 12] if len(found) < 200 else []
        if not shape or len(shape) > LIMITS.axes or not 0 < prod(shape) <= LIMITS.elements:
            raise refusal(f"the type {text[:120]}: at most {LIMITS.axes} axes and {LIMITS.elements} elements, and at least one")
    try:
        parse_type(text)
    except (ValueError, IndexError, RecursionError) as error:
        raise refusal(f"the type {text[:120]}") from error


def dominators(successors: list[list[int]]) -> list[int | None]:
    """Of each block the one that is passed last on every way to it from block 0; itself for block 0, None for one that nothing
    leads to. Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm"."""
    order, number = _postorder(successors), [-1] * len(successors)
    for place, block in enumerate(order):
        number[block] = place
    before: list[list[int]] = [[] for _ in successors]
    for block, targets in enumerate(successors):
        for target in targets:
            before[target].append(block)
    immediate_dominators: list[int | None] = [None] * len(successors)
    immediate_dominators[0] = 0
    has_changed = True
    while has_changed:
        has_changed = False
        for block in reversed(order):
            if block == 0:
                continue
            best: int | None = None
            for each in before[block]:
                if immediate_dominators[each] is not None:
                    best = each if best is None else _common_dominator(immediate_dominators, number, best, each)
            if best != immediate_dominators[block]:
                immediate_dominators[block], has_changed = best, True
    return immediate_dominators


def _postorder(successors: list[list[int]]) -> list[int]:
    order: list[int] = []
    visited_blocks, stack = {0}, [(0, iter(successors[0]))]
    while stack:
        block, rest = stack[-1]
        successor = next((each for each in rest if each not in visited_blocks), None)
        if successor is None:
            order.append(block)
            stack.pop()
        else:
            visited_blocks.add(successor)
            stack.append((successor, iter(successors[successor])))
    return order


def _common_dominator(immediate_dominators: list[int | None], number: list[int], first_block: int, second_block: int) -> int:
    while first_block != second_block:
        while number[first_block] < number[second_block]:
            above = immediate_dominators[first_block]
            assert above is not None
            first_block = above
        while number[second_block] < number[first_block]:
            above = immediate_dominators[second_block]
            assert above is not None
            second_block = above
    return first_block


def _by_dominance(above: list[int | None]) -> list[int]:
    """All blocks, each behind the one that dominates it. What nothing leads to comes last, and sees what is outside."""
    below: dict[int, list[int]] = {}
    for block, parent in enumerate(above):
        if parent is not None and parent != block:
            below.setdefault(parent, []).append(block)
    order, waiting = list[int](), [0]
    while waiting:
        block = waiting.pop()
        order.append(block)
        waiting += below.get(block, [])
    return order + [block for block, parent in enumerate(above) if parent is None]


__all__ = ["LIMITS", "Limits", "check_type", "dominators", "refusal", "verify_program"]
