"""AMD's buffer operations as accesses through pointers, which the rest of the emulator knows.

`amdg.buffer_load %x[%offsets]` takes a base and offsets in elements, of 32 bits. Its lanes whose mask is False, and those whose
offset lies beyond the buffer's record of 2^31 - 2 bytes, give zero and store nothing (CDNA3 ISA, "Buffer Addressing";
BufferOpsEmitter of Triton's AMD backend). The compiler makes them of tensors that a record holds, so no right access
is cut off. Here an offset outside of its tensor is a fault, as elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.mlir_reader import Block, Operation, Program

_LOAD, _STORE = ("pointer", "offsets", "stride?", "mask?", "other?"), ("value", "pointer", "offsets", "stride?", "mask?")
_COPY = ("view", "pointer", "offsets", "mask?", "other?", "stride?")
_ATOMIC = ("pointer", "offsets", "value", "stride?", "mask?")


@dataclass(eq=False)
class BufferAccess(Operation):
    """An access that was made of a buffer operation; a report shows that one."""

    brief_text: str = ""

    @property
    def brief(self) -> str:
        return self.brief_text


def through_pointers(program: Program) -> None:
    """Replace the buffer operations of `program`. One that was replaced already is left as it is."""
    for function in program.functions.values():
        for block in function.blocks:
            block.operations = [each for op in block.operations for each in _replace_operation(op, block)]


def _replace_operation(op: Operation, block: Block) -> list[Operation]:
    for region in op.regions:
        for inner in region:
            inner.operations = [each for found in inner.operations for each in _replace_operation(found, inner)]
    made = _REPLACEMENTS.get(op.name)
    return [op] if made is None else made(op)


def _pointers(op: Operation, pointer: str, offsets: str) -> tuple[list[Operation], str, str]:
    """Operations that make pointers of a base and offsets; the name and the type of what they make."""
    types = dict(zip(op.operands, op.operand_types, strict=True))
    shape = re.fullmatch(r"tensor<((?:\d+x)+)i32(.*)>", types[offsets])
    if shape is None:
        raise NotModelled(op, f"with offsets of the type {types[offsets]}")
    kind = f"tensor<{shape[1]}{types[pointer]}{shape[2]}>"
    own = op.results[0] if op.results else f"%line{op.line}"
    base, at = f"{own}~base", f"{own}~at"
    splat = _make_access("tt.splat", op, [base], [pointer], [types[pointer]], [kind])
    return [splat, _make_access("tt.addptr", op, [at], [base, offsets], [kind, types[offsets]], [kind])], at, kind


def _make_access(
    name: str,
    op: Operation,
    results: list[str],
    operands: list[str],
    operand_types: list[str],
    result_types: list[str],
    attributes: dict[str, str] | None = None,
) -> Operation:
    return BufferAccess(
        name,
        results,
        operands,
        attributes or {},
        operand_types,
        result_types,
        [],
        op.location,
        op.text,
        line=op.line,
        brief_text=op.brief,
    )


def _access(
    op: Operation, name: str, names: tuple[str, ...], operand_groups: tuple[str, ...], kept_attributes: tuple[str, ...]
) -> list[Operation]:
    """`op`, whose operands are `names`, as the operation `name` on `operand_groups`; it has `kept_attributes` too."""
    groups, types = op.operands_by_name(*names), dict(zip(op.operands, op.operand_types, strict=True))
    if groups["stride"]:
        types.pop(groups["stride"][0], None)  # a hint for caches: it changes no address
    head, at, kind = _pointers(op, groups["pointer"][0], groups["offsets"][0])
    groups["pointer"], types[at] = [at], kind
    operands = [value for group in operand_groups for value in groups[group]]
    sizes = ", ".join(str(len(groups[group])) for group in operand_groups)
    told = {key: op.attributes[key] for key in kept_attributes if key in op.attributes} | {
        "operandSegmentSizes": f"array<i32: {sizes}>"
    }
    return [*head, _make_access(name, op, op.results, operands, [types[value] for value in operands], op.result_types, told)]


def _load(op: Operation) -> list[Operation]:
    """The compiler leaves a zero `other` out, because the hardware gives it: here it stands there again."""
    operations = _access(op, "tt.load", _LOAD, ("pointer", "mask", "other"), ("isVolatile",))
    groups, load = op.operands_by_name(*_LOAD), operations[-1]
    if not groups["mask"] or groups["other"]:
        return operations
    zero, kind = f"{op.results[0]}~zero", op.result_types[0]
    element = "0.000000e+00" if re.search(r"x(?:bf16|f\w+)(?:,|>)", kind) else "false" if "xi1," in kind else "0"
    value = {"value": f"dense<{element}> : {kind}"}
    load.operands.append(zero)
    load.operand_types.append(kind)
    load.attributes["operandSegmentSizes"] = "array<i32: 1, 1, 1>"
    return [*operations[:-1], _make_access("arith.constant", op, [zero], [], [], [kind], value), load]


def _store(op: Operation) -> list[Operation]:
    return _access(op, "tt.store", _STORE, ("pointer", "value", "mask"), ())


def _copy(op: Operation) -> list[Operation]:
    return _access(op, "ttg.async_copy_global_to_local", _COPY, ("pointer", "view", "mask", "other"), ())


def _atomic(op: Operation) -> list[Operation]:
    return _access(op, "tt.atomic_rmw", _ATOMIC, ("pointer", "value", "mask"), ("atomic_rmw_op", "sem", "scope"))


_REPLACEMENTS: dict[str, Callable[[Operation], list[Operation]]] = {
    "amdg.buffer_load": _load,
    "amdg.buffer_store": _store,
    "amdg.buffer_load_to_local": _copy,
    "amdg.buffer_atomic_rmw": _atomic,
}

__all__ = ["BufferAccess", "through_pointers"]
