"""Reductions and scans whose combination is exact, so that no order shows; sums of floats are refused, their order is the
layout's."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Block, Operation

_EXACT = re.compile(
    r"arith\.(addi|muli|minsi|maxsi|minui|maxui|andi|ori|xori|cmpi|cmpf|select|maximumf|minimumf|maxnumf|minnumf|extsi|extui|constant)$"
)
_SCALAR = re.compile(r"(i\d+|f\d+|bf16|f8\w+)$")
Combine = Callable[..., tuple[np.ndarray, ...]]


@lowers("tt.reduce", "tt.scan")
def fold(t: Translator, op: Operation) -> None:
    if op.name == "tt.reduce" and "reduction_ordering" in op.attributes:
        raise NotModelled(op, "in a given order")
    name = _combination(t, op, op.regions[0])
    axis, single = op.integer("axis"), op.name == "tt.reduce" and t.result(op).kind == "scalar"
    run = _reduce if op.name == "tt.reduce" else _scan
    operands = tuple(t.value(name) for name in op.operands)
    found = t.apply(run, name, operands, axis, op.flag("reverse"), single)
    t.emit("{}, = {}" if len(op.results) == 1 else "{} = {}", t.values(op.results), found)
    if t.scratch(op):
        t.meet()  # values go from warp to warp behind a barrier
    else:
        t.meet(warps=True)


def _combination(t: Translator, op: Operation, region: list[Block]) -> Any:
    """The name of a function of the generated code that combines whole arrays as the region combines two elements."""
    (block,) = region
    *body, last = block.operations
    for inner in body:
        if not _EXACT.match(inner.name):
            raise NotModelled(op, f"with {inner.name}: the order of its roundings is the layout's")

    def whole(texts: list[str]) -> list[str]:
        return [f"tensor<1x{text}>" if _SCALAR.match(text) else text for text in texts]

    lifted = [replace(inner, operand_types=whole(inner.operand_types), result_types=whole(inner.result_types)) for inner in body]
    name = t.name("combine")
    t.emit("def {}({}):", name, t.values(argument for argument, _ in block.arguments))
    with t.indented():
        for inner in lifted:
            t.operation(inner, [], {})
        t.emit("return {}", tuple(t.value(each) for each in last.operands))
    return name


def _reduce(combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, _reverse: bool, single: bool) -> tuple:
    parts = tuple(np.moveaxis(a, axis, 0) for a in arrays)
    while (n := parts[0].shape[0]) > 1:
        half = (n + 1) // 2
        low, high = tuple(p[: n // 2] for p in parts), tuple(p[half:] for p in parts)
        joined = combine(*low, *high)
        parts = tuple(np.concatenate([j, p[n // 2 : half]]) for j, p in zip(joined, parts, strict=True)) if n % 2 else joined
    found = tuple(p[0] for p in parts)
    return tuple(f.item() if f.dtype.kind in "ib" else np.asarray(f) for f in found) if single else found


def _scan(combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, reverse: bool, _single: bool) -> tuple:
    parts = tuple(np.moveaxis(a, axis, 0) for a in arrays)
    if reverse:
        parts = tuple(p[::-1] for p in parts)
    step = 1
    while step < parts[0].shape[0]:
        joined = combine(*(p[:-step] for p in parts), *(p[step:] for p in parts))
        parts = tuple(np.concatenate([p[:step], j]) for p, j in zip(parts, joined, strict=True))
        step *= 2
    if reverse:
        parts = tuple(p[::-1] for p in parts)
    return tuple(np.moveaxis(p, 0, axis) for p in parts)
