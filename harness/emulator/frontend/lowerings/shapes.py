"""Operations that move no bits: shapes, splats, layouts, ranges, program identity."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import moved_places, slots, stays_in_warp
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation

if TYPE_CHECKING:
    from bitverdict.harness.emulator.numerics.real_values import TileValue


@lowers("tt.get_program_id", "tt.get_num_programs")
def identity(t: Translator, op: Operation) -> None:
    t.machine(op, _program if op.name == "tt.get_program_id" else _programs, op.integer("axis"))


def _program(m: Cta, op: Operation, axis: int) -> int:
    return m.program[axis]


def _programs(m: Cta, op: Operation, axis: int) -> int:
    return m.grid[axis]


@lowers("tt.make_range")
def make_range(t: Translator, op: Operation) -> None:
    values = np.arange(op.integer("start"), op.integer("end"), dtype=np.int32)
    values.flags.writeable = False
    t.assign(op, values)


@lowers("tt.splat", "tt.unsplat")
def splat(t: Translator, op: Operation) -> None:
    if op.name == "tt.unsplat":
        t.call(op, lambda a: a.reshape(-1)[0].item())
        return
    kind = t.result(op)
    shape, dtype = kind.shape, kind.dtype
    strides = (0,) * len(shape)
    t.call(op, lambda a: repeat_value(a, shape, dtype, strides))


def repeat_value(value: TileValue, shape: tuple[int, ...], dtype: np.dtype, strides: tuple[int, ...]) -> np.ndarray:
    """`value` at each place of `shape`, read-only: what `np.broadcast_to` gives in five times the time. `strides`: zeros."""
    found = np.ndarray(shape, dtype, np.asarray(value, dtype), 0, strides)
    found.flags.writeable = False
    return found


@lowers("tt.expand_dims")
def expand_dims(t: Translator, op: Operation) -> None:
    _lower_reshape(t, op)


@lowers("tt.broadcast")
def broadcast(t: Translator, op: Operation) -> None:
    t.call(op, np.broadcast_to, t.result(op).shape)


@lowers("tt.reshape")
def reshape(t: Translator, op: Operation) -> None:
    """With `allow_reorder` every register keeps what it holds (ViewOpToLLVM.cpp), so the two layouts say where an element goes."""
    if "allow_reorder" not in op.attributes or op.operand_types == op.result_types:
        _lower_reshape(t, op)
        return
    source, target = t.operand(op, 0), t.result(op)
    places = moved_places(*((kind.shape, t.program.expand(kind.layout)) for kind in (source, target)))
    if places is None:
        raise NotModelled(op, "allow_reorder between layouts that hold different numbers of registers or copies")
    t.call(op, lambda a: np.ascontiguousarray(a).reshape(-1)[places].reshape(target.shape))


def _lower_reshape(t: Translator, op: Operation) -> None:
    t.assign(op, t.code("{}.reshape({})", t.value(op.operands[0]), t.result(op).shape))


@lowers("tt.trans")
def transpose(t: Translator, op: Operation) -> None:
    t.assign(op, t.code("{}.transpose({})", t.value(op.operands[0]), tuple(op.integers("order"))))


@lowers("tt.join")
def join(t: Translator, op: Operation) -> None:
    t.call(op, lambda a, b: np.stack([a, b], axis=-1))


@lowers("tt.split")
def split(t: Translator, op: Operation) -> None:
    t.call(op, lambda a: (a[..., 0], a[..., 1]))


@lowers("tt.cat")
def cat(t: Translator, op: Operation) -> None:
    order, shape = catenation(t, op)
    t.call(op, lambda a, b: np.concatenate([a.reshape(-1), b.reshape(-1)])[order].reshape(shape))


def catenation(t: Translator, op: Operation) -> tuple[np.ndarray, tuple[int, ...]]:
    """(which of the elements of both operands each element of the result is, its shape) of tt.cat.

    `can_reorder`: each thread has the registers of the first operand, then those of the second, and the layout of the result says
    which elements they are. ValueError where it has not as many of them."""
    kinds = [t.operand(op, 0), t.operand(op, 1), t.result(op)]
    first, second, into = (slots(kind.shape, t.program.expand(kind.layout), copies=False) for kind in kinds)
    taken = np.concatenate([first, second + prod(kinds[0].shape)], 1)  # (threads, registers)
    if taken.shape != into.shape:
        raise ValueError(f"{taken.shape[1]} registers for {into.shape[1]}")
    order = np.empty(into.max() + 1, np.int64)
    order[into] = taken
    return order, kinds[2].shape


@lowers("tt.gather")
def gather(t: Translator, op: Operation) -> None:
    """Elements along an axis by their indices, which are unsigned and of 32 bits on the way down."""
    t.call(op, gather_words, op.integer("axis"))
    t.meet(warps=not t.scratch(op))


def gather_words(source: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
    """`source` at `indices` along `axis`; poison, all bits one, where an index lies outside."""
    count = source.shape[axis]
    places = indices.view(f"u{indices.itemsize}") & 0xFFFFFFFF if indices.itemsize == 8 else indices.view(f"u{indices.itemsize}")
    outside = places >= count
    found = np.take_along_axis(source, np.where(outside, 0, places).astype(np.int64), axis)
    if outside.any():
        found[outside] = np.full(1, -1, f"i{found.itemsize}").view(found.dtype) if found.dtype != np.bool_ else True
    return found


@lowers("ttg.convert_layout")
def convert_layout(t: Translator, op: Operation) -> None:
    """The identity on values; where it goes through shared memory, it overwrites what lies there, and the threads meet: all of
    them, or those of each warp where nothing moves between warps (`bar.warp.sync`)."""
    kind = t.result(op)
    if t.scratch(op, prod(kind.shape) * kind.itemsize):
        t.meet(warps=t.facts.returns_to and stays_in_warp(*(t.owners(found) for found in (t.operand(op, 0), kind))))
    elif op.operand_types != op.result_types:
        t.meet(warps=True)
    t.alias(op, op.operands[0])


@lowers("tt.addptr")
def add_pointer(t: Translator, op: Operation) -> None:
    size = t.result(op).itemsize
    pointer, offset = t.operands(op, "pointer", "offset")
    if t.result(op).kind == "pointer":
        t.assign(op, t.code("{} + {} * {}", pointer, offset, size))
        return
    if size != 1:
        if (made := t.scaled.get((offset, size))) is None:  # one array for all tensors that are reached alike
            made = t.scaled[offset, size] = t.name(f"{offset}_bytes")
            t.emit("{} = {}({}, {}, dtype={})", made, np.multiply, offset, size, np.int64)
        offset = made
    t.assign(op, t.code("{} + {}", pointer, offset))


@lowers("tt.ptr_to_int", "tt.int_to_ptr")
def pointer_bits(t: Translator, op: Operation) -> None:
    """The same 64 bits: Triton's verifier takes an address for no narrower integer."""
    t.alias(op, op.operands[0])


@lowers("ub.poison")
def poison(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    if kind.kind == "memdesc":
        t.assign(op, None)
    elif kind.kind in ("scalar", "pointer"):
        t.assign(op, -1 if not kind.is_float else np.full((), 0xFF, np.uint8))
    elif kind.kind != "token":
        value = np.full(prod(kind.shape) * kind.dtype.itemsize, 0xFF, np.uint8).view(kind.dtype).reshape(kind.shape)
        t.assign(op, value)
