"""Operations that move no bits: shapes, splats, layouts, ranges, program identity."""

from __future__ import annotations

from math import prod

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.threads import stays_in_warp
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


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
    t.call(op, lambda a: np.broadcast_to(np.asarray(a, dtype), shape))


@lowers("tt.expand_dims")
def expand_dims(t: Translator, op: Operation) -> None:
    _reshaped(t, op)


@lowers("tt.broadcast")
def broadcast(t: Translator, op: Operation) -> None:
    t.call(op, np.broadcast_to, t.result(op).shape)


def _order_is_free(t: Translator, op: Operation) -> bool:
    """Whether all that is done with the result is an exact reduction to one element."""
    users = t.users.get(op.results[0], [])
    return all(
        user.name == "tt.reduce" and len(user.operands) == 1 and not user.result_types[0].startswith("tensor") for user in users
    )


@lowers("tt.reshape")
def reshape(t: Translator, op: Operation) -> None:
    if "allow_reorder" in op.attributes and op.operand_types != op.result_types and not _order_is_free(t, op):
        raise NotModelled(op, "allow_reorder: which element lands where is the layout's choice")
    _reshaped(t, op)


def _reshaped(t: Translator, op: Operation) -> None:
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
    raise NotModelled(op, "the order of its elements is the layout's choice")


@lowers("tt.gather")
def gather(t: Translator, op: Operation) -> None:
    """Elements along an axis by their indices, which are unsigned and of 32 bits on the way down."""
    t.call(op, gathered, op.integer("axis"))
    t.meet(warps=not t.scratch(op))


def gathered(source: np.ndarray, indices: np.ndarray, axis: int) -> np.ndarray:
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
        offset = t.code("{} * {}", offset, size)
    elif size != 1:
        offset = t.code("{}({}, {}, dtype={})", np.multiply, offset, size, np.int64)
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
