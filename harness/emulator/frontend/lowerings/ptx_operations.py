"""Operations whose PTX is executed: what the compiler expands (libdevice's functions by whatever name, and what `math` has of
them), and inline assembly that computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from math import prod

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
from bitverdict.harness.emulator.frontend.translator import NotModelled, OpenChoice, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type, element_dtype
from bitverdict.harness.emulator.ptx.opcodes import UnknownOpcode
from bitverdict.harness.emulator.ptx.text import NotPtx

_UNFUSED_ADVICE = "compile with enable_fp_fusion=False"
_MOST_CHOICES = 64
"""Of the sums of one statement: an effort, beyond which it is refused."""
_SUMS = ("arith.addf", "arith.subf", "tt.reduce", "tt.scan", "ttng.packed_arith", "tt.elementwise_inline_asm")


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
    text, run, pack = op.string("asm_string"), _assembly(t, op), op.integer("packed_element", 1)
    outputs = [t.require_type(op, operand_type) for operand_type in op.outputs]
    if run.program.approximates and any(folds(t, op, name) for name in op.operands):
        raise NotModelled(op, f'"{text}": of a constant, which ptxas computes itself')
    if not t.fuses_sums:
        choices = [run]
    elif run.gives_approximation and _reaches_sum(t, op):
        raise NotModelled(op, f'"{text}": ends in a product that ptxas may fuse with a sum behind it; {_UNFUSED_ADVICE}')
    elif len(choices := _choices(t, op, run)) > 1:
        raise OpenChoice(op, f'"{text}": a product and a sum without .rn, which ptxas fuses in one place and not in another')
    t.call(op, _by_groups(choices[0], _groups(t, op, pack), outputs))


def assembly_choices(t: Translator, op: Operation) -> tuple[Callable, ...]:
    """What the inline assembly `op` may be, where ptxas fuses sums of it in one place and not in another, as functions of the
    program's values."""
    outputs = [t.require_type(op, operand_type) for operand_type in op.outputs]
    choices = _choices(t, op, _assembly(t, op))
    return tuple(_by_groups(run, _groups(t, op, op.integer("packed_element", 1)), outputs) for run in choices)


def _choices(t: Translator, op: Operation, run: Assembly) -> list[Assembly]:
    """`run`, with sums fused as ptxas fuses them: several where it does so in some places."""
    takes, text = run.takes_product and any(may_be_product(t, name) for name in op.operands), op.string("asm_string")
    if not run.leaves_products and not takes:
        return [run]
    try:
        sums = t.contraction.assembly_sums.get(op.line, {} if takes else run.open_sides)  # type: ignore[union-attr]
        if not sums or not 0 < prod(map(len, sums.values())) <= _MOST_CHOICES:
            raise NotModelled(op, f'"{text}": sums without .rn, of which ptxas may have fused any; {_UNFUSED_ADVICE}')
        return [run.fuse_sums(dict(zip(sums, sides, strict=True))) for sides in product(*map(sorted, sums.values()))]
    except (NotAssembled, NotPtx, UnknownOpcode) as error:
        raise NotModelled(op, f'"{text}": a sum without .rn, which ptxas may fuse: {error}; {_UNFUSED_ADVICE}') from error


def _groups(t: Translator, op: Operation, pack: int) -> np.ndarray | None:
    """The elements [count, at most `pack`], row-major, that a thread has in neighbouring registers; None: one by one."""
    kind = t.require_type(op, op.outputs[0])
    if kind.kind != "tensor" or pack == 1:
        return None
    layouts = {t.program.expand(t.require_type(op, each).layout) for each in (*op.inputs, *op.outputs)}
    if len(layouts) > 1:
        raise NotModelled(op, "of elements that lie in different layouts")
    thread_slots = slots(kind.shape, layouts.pop())  # (threads, registers)
    return np.unique(thread_slots.reshape(-1, min(pack, thread_slots.shape[1])), axis=0)


def _assembly(t: Translator, op: Operation) -> Assembly:
    inputs, outputs = (tuple(_element(t.require_type(op, each)) for each in kinds) for kinds in (op.inputs, op.outputs))
    text = op.string("asm_string")
    try:
        return Assembly(text, op.string("constraints"), inputs, outputs, op.integer("packed_element", 1))
    except (NotPtx, UnknownOpcode, KeyError) as error:
        raise NotModelled(op, f'"{text}": {error}') from error


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
