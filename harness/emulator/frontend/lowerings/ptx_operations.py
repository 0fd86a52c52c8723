"""Operations whose PTX is executed: what the compiler expands (libdevice's functions by whatever name, and what `math` has of
them), and inline assembly that computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from bitverdict.harness.emulator.execution.threads import slots
from bitverdict.harness.emulator.frontend.assembly import NotAssembled
from bitverdict.harness.emulator.frontend.compiled_operations import (
    compile_operation,
    operation_of,
    takes_product,
    with_constants,
    words_of,
)
from bitverdict.harness.emulator.frontend.inline_assembly import Assembly
from bitverdict.harness.emulator.frontend.lowerings.amd_functions import write_approximation
from bitverdict.harness.emulator.frontend.lowerings.functions import folds
from bitverdict.harness.emulator.frontend.lowerings.sums import may_be_product
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type, element_dtype
from bitverdict.harness.emulator.ptx.opcodes import UnknownOpcode
from bitverdict.harness.emulator.ptx.text import NotPtx

_UNFUSED_ADVICE = "compile with enable_fp_fusion=False"
_SUMS = ("arith.addf", "arith.subf", "tt.reduce", "tt.scan", "ttng.packed_arith")


@lowers("tt.extern_elementwise", "math.log", "math.log2", "math.sin", "math.cos", "math.erf")
def lower_expansion(t: Translator, op: Operation) -> None:
    """The words of the PTX that the compiler makes of this operation alone. An unknown opcode is refused by its name.

    A sum behind it that takes in its last product is `sums`' to refuse: it asks the compiled program.
    """
    result = t.result(op)
    if not t.backend.has_function_words:
        write_approximation(t, op)
        return
    elements = tuple(t.operand(op, number).element for number in range(len(op.operands)))
    operation = replace(operation_of(op.name, op.attributes, elements, result.element), flushes=t.flushes)
    try:
        run: Callable = compile_operation(operation, t.arch, t.fuses_sums)
        for number, name in enumerate(op.operands if t.fuses_sums else ()):
            if elements[number] in ("f32", "f64") and may_be_product(t, name) and takes_product(operation, number, t.arch):
                raise NotModelled(
                    op, f"of a product, operand {number}, that the compiler fuses with its first sum; {_UNFUSED_ADVICE}"
                )
        if run.program.approximates:  # type: ignore[attr-defined]
            constants = {number: _constant(t, name) for number, name in enumerate(op.operands) if folds(t, op, name)}
            run = (
                _of_the_rest(compile_operation(with_constants(operation, constants), t.arch, t.fuses_sums), constants, result)
                if constants
                else run
            )
    except (NotAssembled, NotPtx, UnknownOpcode) as error:
        raise NotModelled(op, str(error)) from error
    t.call(op, (lambda *values: int(run(*values))) if result.kind == "scalar" and not result.is_float else run)


def _constant(t: Translator, name: str) -> str:
    """The number that the constant `name` is, as the tile program writes it."""
    at = t.defined[name]
    while at.name != "arith.constant":
        at = t.defined[at.operands[0]]
    return at.attributes["value"].removeprefix("dense<").split(" : ")[0].removesuffix(">")


def _of_the_rest(run: Callable, constants: dict[int, str], result: Type) -> Callable:
    """`run`, which is compiled for `constants`, as a function of all operands."""

    def call(*values: object) -> np.ndarray:
        found = run(*(value for number, value in enumerate(values) if number not in constants))
        if result.kind != "tensor":
            return found
        return np.broadcast_to(found, np.broadcast_shapes(result.shape, np.shape(found)))

    return call


def lower_assembly(t: Translator, op: Operation) -> None:
    """Inline assembly that computes: its PTX, on `packed_element` elements of each operand at a time. Which these are, the layout
    says: those of neighbouring registers of a thread."""
    text, constraints, pack = op.string("asm_string"), op.string("constraints"), op.integer("packed_element", 1)
    inputs = [t.operand(op, number) for number in range(len(op.operands))]
    outputs = [t.require_type(op, operand_type) for operand_type in op.outputs]
    try:
        run = Assembly(
            text,
            constraints,
            tuple(_element(operand_type) for operand_type in inputs),
            tuple(_element(operand_type) for operand_type in outputs),
            pack,
        )
    except (NotPtx, UnknownOpcode, KeyError) as error:
        raise NotModelled(op, f'"{text}": {error}') from error
    if run.program.approximates and any(folds(t, op, name) for name in op.operands):
        raise NotModelled(op, f'"{text}": of a constant, which ptxas computes itself')
    if t.fuses_sums:
        joined = run.leaves_products or (run.gives_product and _reaches_sum(t, op))
        if joined or (run.takes_product and any(may_be_product(t, name) for name in op.operands)):
            raise NotModelled(
                op, f'"{text}": a product and a sum without .rn, which ptxas may fuse; write .rn, or {_UNFUSED_ADVICE}'
            )
    kind = outputs[0]
    thread_slots = None
    if kind.kind == "tensor" and pack > 1:
        layouts = {t.program.expand(operand_type.layout) for operand_type in (*inputs, *outputs)}
        if len(layouts) > 1:
            raise NotModelled(op, "of elements that lie in different layouts")
        thread_slots = slots(kind.shape, layouts.pop())  # (threads, registers)
        thread_slots = np.unique(thread_slots.reshape(-1, min(pack, thread_slots.shape[1])), axis=0)
    t.call(op, _by_groups(run, thread_slots, outputs))


def _element(kind: Type) -> str:
    return "i64" if kind.pointers else kind.element


def _by_groups(run: Assembly, groups: np.ndarray | None, outputs: list[Type]) -> Callable:
    """`run` as a function of the program's values, on `groups` [count, at most pack] of elements, row-major; None: one by one.

    Where a group is smaller than the pack the compiler passes anything for the rest: here the last element again.
    """
    shape = outputs[0].shape
    size = int(np.prod(shape))
    if groups is None:
        groups = np.arange(size)[:, None]
    columns = [min(column, groups.shape[1] - 1) for column in range(run.pack)]

    def call(*values: object) -> object:
        given = []
        for value, operand in zip(values, run.operands, strict=True):
            words = words_of(np.asarray(value, element_dtype(operand.element))).reshape(-1)  # (elements,)
            given.append(words[groups[:, columns]])  # (groups, pack)
        results: list[object] = []
        for words, kind in zip(run(given, len(groups)), outputs, strict=True):
            whole = np.empty(size, words.dtype)
            whole[groups] = words[:, : groups.shape[1]]
            found = whole.reshape(shape).view(kind.dtype)
            results.append(int(found) if kind.kind == "scalar" and not kind.is_float else found)
        return results[0] if len(results) == 1 else tuple(results)

    return call


def _reaches_sum(t: Translator, op: Operation) -> bool:
    """Whether a sum may take in a result of `op`, however it gets there."""
    seen, worklist = set[str](), list(op.results)
    while worklist:
        name = worklist.pop()
        if name in seen:
            continue
        seen.add(name)
        worklist += [argument for argument, given in t.incoming.items() if name in given]
        for user in t.users.get(name, ()):
            if user.name in _SUMS:
                return True
            worklist += user.results
    return False
