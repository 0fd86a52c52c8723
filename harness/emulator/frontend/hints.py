"""What the compiler was told, held against what is so at run time: alignment, contiguity and equality of values, assumptions, and
what arguments were specialised to.

A hint by itself moves nothing. What it costs shows at an access: the compiled program moves several elements at once, from the
address of the first and under its mask. Where an address is no multiple of what is moved, the hardware traps (*misaligned
address*). Where an element lies elsewhere, or has another mask, the program touches memory that its source does not name (*false
hint*). It is an advice where what a load takes from elsewhere, in memory that is the launch's, reaches no store, address or branch
(`undefined_lanes` follows it), and where no access of the launch relies on the hint. A false `tl.assume` is a fault by itself: the
behaviour is undefined from there on (LLVM LangRef, llvm.assume).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.frontend.access_widths import Access

if TYPE_CHECKING:
    from triton.compiler import ASTSource

    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.mlir_reader import Operation, Program
    from bitverdict.harness.emulator.mlir_types import Type

HINT_FUNCTIONS = {"tt.divisibility": "tl.multiple_of", "tt.contiguity": "tl.max_contiguous", "tt.constancy": "tl.max_constancy"}
ALIGNMENT_RULE = "PTX ISA, ld, st, atom and cp.async: an address must be a multiple of the size of the access"
VECTORS = "one instruction moves neighbours in memory, from the address and under the mask of the first"


@dataclass
class FalseHint:
    """A promise that is not kept, at `location` (empty: of an argument). `relied_on`: a load took elements from elsewhere by it."""

    location: str
    sentence: str
    relied_on: bool = False


@dataclass(frozen=True)
class Hint:
    """One promise about the value of an operation: `name` of `HINT_FUNCTIONS`, one number an axis. `size`: bytes between
    neighbouring addresses, 0 where the value is no address but an integer."""

    name: str
    values: tuple[int, ...]
    size: int

    def untrue(self, value: object) -> str:
        """What is not so of `value` (any shape), in a few words; empty where the hint holds."""
        array, step = np.atleast_1d(np.asarray(value)), self.size or 1
        say = hex if self.size else str
        for axis, (promise, size) in enumerate(zip(self.values, array.shape, strict=True)):
            along = np.moveaxis(array, axis, -1)  # (..., size)
            if self.name == "tt.divisibility":
                starts = np.ones(along.shape, np.bool_)
                starts[..., 1:] = np.diff(along, axis=-1) != step  # the first of each contiguous group
                untrue_places = starts & (along % promise != 0)
                if untrue_places.any():
                    return f"{say(int(along[untrue_places][0]))} is no multiple of {promise}"
                continue
            groups = along[..., : size - size % promise].reshape(-1, min(promise, size))  # (groups, promised)
            due = groups[:, :1] + np.arange(groups.shape[1]) * (step if self.name == "tt.contiguity" else 0)
            if (untrue_places := groups != due).any():
                row, place = (int(n) for n in np.argwhere(untrue_places)[0])
                follows = "follows" if self.name == "tt.contiguity" else "stands beside"
                return f"{say(int(groups[row, place]))} {follows} {say(int(groups[row, place - 1]))}"
        return ""


def hints_of(op: Operation) -> list[Hint]:
    """What the author promised about the result of `op`."""
    if not op.results or (kind := op.outputs[0]) is None:
        return []
    promised = [(name, _numbers(op.attributes[name], kind)) for name in HINT_FUNCTIONS if name in op.attributes]
    return [Hint(name, numbers, kind.itemsize if kind.pointers else 0) for name, numbers in promised if max(numbers) > 1]


def has_hints(program: Program) -> bool:
    """Whether the author promised anything of which the program still knows."""
    return any(name in op.attributes for op in program.operations() for name in HINT_FUNCTIONS)


def _numbers(text: str, kind: Type) -> tuple[int, ...]:
    """`dense<[1, 16]> : tensor<2xi32>`, or one number for all axes, as a number an axis."""
    found = re.match(r"dense<\[?([\d, ]+)\]?>", text)
    numbers = [int(n) for n in found[1].split(",")] if found else [1]
    axes = max(len(kind.shape), 1)
    return tuple(numbers * axes if len(numbers) == 1 else numbers)


def untrue_arguments(program: Program, values: Sequence[object]) -> dict[tuple[int | str, str], FalseHint]:
    """Arguments (one value each, as the program takes them) that are not what it was compiled for, as `Cta.false_hints` holds
    them. Triton compiles for the arguments of a launch, so there are none unless a compiled kernel is launched itself."""
    false_hints: dict[tuple[int | str, str], FalseHint] = {}
    for (name, _), value, told in zip(program.entry.blocks[0].arguments, values, program.entry.argument_attributes, strict=False):
        promised = int(told.get("tt.divisibility", "1").split(" ")[0])
        if isinstance(value, int) and value % promised:
            said = f"argument {name.lstrip('%')} was compiled for a multiple of {promised}, the launch gives {value:#x}"
            false_hints[name, ""] = FalseHint("", said)
    return false_hints


def compiled_in(source: ASTSource, values: tuple[object, ...]) -> EmulatedFault | None:
    """The fault of a launch that gives an argument another value than the one Triton compiled in because an earlier value was 1 or
    None. Parameters declared `tl.constexpr` are not arguments of a compiled kernel: what is given for them is ignored."""
    parameters = getattr(getattr(source, "fn", None), "params", ())
    for place, (parameter, value) in enumerate(zip(parameters, values, strict=False)):
        constant = getattr(source, "constants", {}).get((place,), value)
        same = value is constant or (isinstance(value, int | float) and value == constant)
        if not (same or parameter.is_constexpr):
            said = f"argument {parameter.name} was compiled in as {constant}, the launch gives {value}"
            details = {"argument": parameter.name, "remedy": "launch the kernel, not what it compiled to"}
            return EmulatedFault("false hint", said, "", details)
    return None


def note(m: Cta, op: Operation, hints: list[Hint], value: object) -> None:
    """Remember which of `hints` about the result of `op` is not true."""
    for hint in hints:
        if said := hint.untrue(value):
            text = f"{HINT_FUNCTIONS[hint.name]} {list(hint.values)} is not true: {said}"
            m.false_hints.setdefault((op.line, hint.name), FalseHint(op.location, text))


def assume(m: Cta, op: Operation, condition: Any) -> None:
    """tl.assume: from a false one on anything may happen."""
    if not np.all(condition):
        raise EmulatedFault(
            "false hint",
            "tl.assume is not true: the compiler takes it for granted",
            op.location,
            {"rule": "LLVM LangRef, llvm.assume: undefined where the condition is violated", "operation": op.brief,
             "program": str(m.program)},
        )  # fmt: skip


def check(
    m: Cta,
    op: Operation,
    access: Access,
    size: int,
    pointer: np.ndarray,
    mask: np.ndarray | None,
    promises: frozenset[int | str] | None,
    is_followed: bool = False,
) -> np.ndarray | None:
    """Hold the vectors of one access to its elements: `size` bytes each, at `pointer` (any shape), where `mask` (that shape).
    `promises` are the operations (by line) and arguments that its addresses come of, None for any. `is_followed`: elements that a
    load takes from elsewhere, or leaves out, fail where they reach something: which they are, in the shape of `pointer`."""
    count, vector_size = access.run // size, access.width // size
    along = np.moveaxis(pointer, access.axis, -1)
    addresses = along.reshape(-1, count)  # (runs, count)
    reached_addresses = addresses[:, :1] + np.arange(count) * size  # (runs, count)
    wanted_lanes = np.moveaxis(np.broadcast_to(True if mask is None else mask, pointer.shape), access.axis, -1).reshape(-1, count)
    moved_lanes = np.repeat(
        wanted_lanes[:, ::vector_size], vector_size, axis=1
    )  # (runs, count): by the mask of each vector's first element

    def element(row: int, column: int) -> list[int]:
        index = [int(n) for n in np.unravel_index(row * count + column, along.shape)]
        index.insert(access.axis, index.pop())
        return index

    if access.width == access.run:
        moves = f"{op.name} moves {access.width} bytes at once ({access.instruction})"
    else:
        moves = f"{op.name} reaches {access.run} bytes from one pointer, {access.width} at once ({access.instruction})"
    if (wrong_lanes := (reached_addresses[:, ::vector_size] % access.width != 0) & wanted_lanes[:, ::vector_size]).any():
        row, column = (int(n) for n in np.argwhere(wrong_lanes)[0])
        address = int(reached_addresses[row, column * vector_size])
        message = f"{moves} from {m.memory.describe_address(address)}, at {address:#x}, which is no multiple of {access.width}"
        raise _fault(m, op, promises, "misaligned address", f"{message}: element {element(row, column * vector_size)} of the tile")
    displaced_lanes = ((reached_addresses != addresses) & wanted_lanes) | (wanted_lanes != moved_lanes)
    if not displaced_lanes.any():
        return None
    if (wrong_lanes := (reached_addresses != addresses) & wanted_lanes).any():
        row, column = (int(n) for n in np.argwhere(wrong_lanes)[0])
        lies = int(addresses[row, column] - addresses[row, 0])
        message = f"{moves}; element {element(row, column)} of the tile is taken to lie {column * size} bytes from "
        fault = _fault(m, op, promises, "false hint", f"{message}{element(row, 0)} and lies {lies} bytes from it")
    else:
        wrong_lanes = wanted_lanes != moved_lanes
        row, column = (int(n) for n in np.argwhere(wrong_lanes)[0])
        first_column = column // vector_size * vector_size
        message = f"{moves}, under the mask of the first element: that of {element(row, column)} of the tile is "
        fault = _fault(
            m,
            op,
            promises,
            "false hint",
            f"{message}{wanted_lanes[row, column]}, that of {element(row, first_column)} is {wanted_lanes[row, first_column]}",
        )
    if not is_followed or not m.memory.holds(reached_addresses[moved_lanes], size):
        raise fault
    m.launch.displaced_loads.setdefault(op.location, fault)
    for false in _broken(m, promises):
        false.relied_on = True
    return np.moveaxis(displaced_lanes.reshape(along.shape), -1, access.axis)


def _broken(m: Cta, promises: frozenset[int | str] | None) -> list[FalseHint]:
    """Those of `promises`, None for any, that were not kept so far; where none of them is broken, all that are."""
    broken = [false for (place, _), false in m.false_hints.items() if promises is None or place in promises]
    return broken or list(m.false_hints.values())


def _fault(m: Cta, op: Operation, promises: frozenset[int | str] | None, outcome: str, message: str) -> EmulatedFault:
    """What an access came to, with those of its `promises` that were not kept so far."""
    broken = _broken(m, promises)
    details: dict[str, Any] = {"rule": ALIGNMENT_RULE if outcome == "misaligned address" else VECTORS}
    details |= {"operation": op.brief, "program": str(m.program)}
    if broken:
        message += f"; {broken[0].sentence}"
        untrue = [f"{false.location + ': ' if false.location else ''}{false.sentence}" for false in broken]
        details |= {"other location": next((false.location for false in broken if false.location), ""), "hints": untrue}
    return EmulatedFault(outcome, message, op.location, details)
