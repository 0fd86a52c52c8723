"""Regions that compute one element from one element each: written as code on all elements at once.

A branch in such a region sends each element its own way. The code runs a block for all elements where any is at it, those furthest
behind first, and keeps of each result what belongs to the elements that are there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import slots
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Block, Operation

_SCALAR = re.compile(r"(i\d+|f\d+|bf16|f8\w+|index)$")
_PURE = (
    "arith.", "math.", "tt.fp_to_fp", "tt.bitcast", "tt.clampf", "tt.precise_", "tt.mulhiui", "tt.extern_elementwise", "ub.",
    "tti.experimental_fpsan_",
)  # fmt: skip


def lift_scalars(op: Operation) -> Operation:
    """`op` with tensors of one element for its scalars: its lowering then takes an array for each."""
    operands, results = (
        [f"tensor<1x{t}>" if _SCALAR.match(t) else t for t in texts] for texts in (op.operand_types, op.result_types)
    )
    return replace(op, operand_types=operands, result_types=results)


@contextmanager
def seen_inside(t: Translator, blocks: list[Block], follows: bool = False) -> Iterator[None]:
    """While entered, the scalars of the program that `blocks` use are arrays of one element. `follows`: and enclosures are
    followed."""
    own = {name for block in blocks for name, _ in block.arguments} | {
        n for block in blocks for op in block.operations for n in op.results
    }
    before = dict(t.names)
    for name, kind in {
        n: k for block in blocks for op in block.operations for n, k in zip(op.operands, op.inputs, strict=True)
    }.items():
        if name not in own and kind is not None and kind.kind == "scalar":
            inside = t.name(f"{name}_lanes")
            t.emit("{} = {}", inside, t.apply(np.full, 1, t.value(name), kind.dtype))
            t.names[name] = inside
    with t.enclosing.region() if t.enclosing and not follows else nullcontext(), t.reals.region() if t.reals else nullcontext():
        try:
            yield
        finally:
            t.names.update({name: before[name] for name in t.names if name in before})


@lowers("tt.map_elementwise")
def map_elementwise(t: Translator, op: Operation) -> None:
    """A function of `pack` elements of each operand, of neighbouring registers of a thread."""
    kind, pack = t.operand(op, 0), op.integer("pack", 1)
    layouts = {t.program.expand(item.layout) for item in (*op.inputs, *op.outputs) if item is not None}
    if pack > 1 and len(layouts) > 1:
        raise NotModelled(op, "of elements that lie in different layouts")
    groups = call_groups(kind.shape, layouts.pop(), pack) if pack > 1 else None
    name = _write_function(t, op, op.regions[0])
    dtypes = [t.require_type(op, item).dtype for item in op.outputs]
    found = t.apply(map_elements, name, tuple(t.value(item) for item in op.operands), groups, kind.shape, dtypes)
    t.emit("{}, = {}" if len(op.results) == 1 else "{} = {}", t.values(op.results), found)


def call_groups(shape: tuple[int, ...], layout: str, pack: int) -> np.ndarray:
    """(groups, pack) elements, row-major, that one call takes together: those of `pack` neighbouring registers of a thread."""
    return np.unique(slots(shape, layout).reshape(-1, pack), axis=0)


def map_elements(
    run: Any, arrays: tuple[np.ndarray, ...], groups: np.ndarray | None, shape: tuple[int, ...], dtypes: list
) -> tuple:
    """`run` of the elements of `arrays` (each of `shape`), one by one or in `groups`."""
    count = prod(shape)
    places = [slice(None)] if groups is None else list(groups.T)
    given = [array.reshape(-1)[place] for array in arrays for place in places]
    found = run(count // len(places), *given)
    results = []
    for i, dtype in enumerate(dtypes):
        whole = np.empty(count, dtype)
        for place, part in zip(places, found[i * len(places) : (i + 1) * len(places)], strict=True):
            whole[place] = part
        results.append(whole.reshape(shape))
    return tuple(results)


def _write_function(t: Translator, op: Operation, blocks: list[Block]) -> Any:
    """The name of a function of the generated code: how many elements, arrays of them -> the results of the region."""
    for inner in (inner for block in blocks for inner in block.operations):
        if not inner.successors and inner.name != "tt.map_elementwise.return" and not inner.name.startswith(_PURE):
            raise NotModelled(inner, f"inside {op.name}")
    name, count = t.name("each_element"), t.name("count")
    arguments = t.values(argument for argument, _ in blocks[0].arguments)
    t.emit("def {}({}, {}):", name, count, arguments)
    with t.indent_block(), seen_inside(t, blocks):
        block_number, active_lanes, final_values = t.name("at"), t.name("now"), t.name("found")
        for local in sorted({each for block in blocks for each in _live_names(block, blocks)}):
            t.emit("{} = None", t.value(local))
        t.emit("{} = {}", final_values, (None,) * len(blocks[-1].operations[-1].operands))
        t.emit("{} = {}", block_number, t.apply(np.zeros, count, np.dtype(np.int64)))
        t.emit("while True:")
        labels = {block.label: i for i, block in enumerate(blocks)}
        with t.indent_block():
            for i, block in enumerate(blocks):
                t.emit("{} = {} == {}", active_lanes, block_number, i)
                t.emit("if {}.any():", active_lanes)
                with t.indent_block():
                    _block(t, block, blocks, labels, (block_number, active_lanes, final_values))
                    t.emit("continue")
            t.emit("return {}", final_values)
    return name


def _live_names(block: Block, blocks: list[Block]) -> list[str]:
    """What `block` hands to others: its arguments where branches give them, and results that other blocks use."""
    used = {name for other in blocks if other is not block for op in other.operations for name in op.operands}
    made = [name for op in block.operations for name in op.results if name in used]
    return made + ([name for name, _ in block.arguments] if block is not blocks[0] else [])


def _block(t: Translator, block: Block, blocks: list[Block], labels: dict[str, int], local: tuple[object, object, object]) -> None:
    block_number, active_lanes, final_values = local
    live_names = [name for name in _live_names(block, blocks) if name in {each for op in block.operations for each in op.results}]
    t.emit("{}", t.calls(Cta.tick, len(t.blocks), len(block.operations)))
    t.blocks.append(block.operations)
    before = t.name("before")
    t.emit("{} = {}", before, tuple(t.value(name) for name in live_names))
    *body, end = block.operations
    for inner in body:
        t.operation(lift_scalars(inner), [], {})
    for i, name in enumerate(live_names):
        t.emit("{} = {}", t.value(name), t.apply(merge_lanes, active_lanes, t.value(name), t.code("{}[{}]", before, i)))
    if not end.successors:
        parts = [
            t.apply(merge_lanes, active_lanes, t.value(name), t.code("{}[{}]", final_values, i))
            for i, name in enumerate(end.operands)
        ]
        t.emit("{} = {}", final_values, tuple(parts))
        t.emit("{} = {}", block_number, t.apply(np.where, active_lanes, len(blocks), block_number))
        return
    ways = [active_lanes] if len(end.successors) == 1 else [t.name("taken"), t.name("passed")]
    if len(ways) == 2:
        t.emit("{} = {} & {}", ways[0], active_lanes, t.value(end.operands[0]))
        t.emit("{} = {} & ~{}", ways[1], active_lanes, ways[0])
    for way, label, given in zip(ways, end.successors, end.branch_operands(), strict=True):
        target = blocks[labels[label]]
        pairs = [(t.value(argument), t.value(name)) for (argument, _), name in zip(target.arguments, given, strict=True)]
        if pairs:
            t.emit("{} = {}", tuple(a for a, _ in pairs), tuple(t.apply(merge_lanes, way, new, a) for a, new in pairs))
    for way, label in zip(ways, end.successors, strict=True):
        t.emit("{} = {}", block_number, t.apply(np.where, way, labels[label], block_number))


def merge_lanes(now: np.ndarray, new: np.ndarray, old: np.ndarray | None) -> np.ndarray:
    """`new` for the elements that are `now` here, `old` for the others."""
    if old is None:
        return np.array(np.broadcast_to(new, now.shape))
    return np.where(now, new, old)
