"""Shared and tensor memory: allocation, views, loads and stores by the program's own threads."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from bitverdict.harness.emulator.execution.onchip_access import TENSOR_BYTES, TENSOR_ROW, OnChipMemory
from bitverdict.harness.emulator.frontend.lowerings.block_scaled import allocate_scales
from bitverdict.harness.emulator.frontend.shared_layouts import places
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.onchip import SPREAD, View, places_in, row_major
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.matrix_products import layout_number


@lowers("ttg.local_alloc")
def allocate(t: Translator, op: Operation) -> None:
    """fp4 beside fp8 lies at half its density: each byte takes two, which is where the compiler puts its neighbours. Which of the
    two holds it is a bijection, as the swizzle is."""
    kind = t.result(op)
    (source,) = t.operands(op, "source?")
    if t.ctas > 1:
        t.machine(op, OnChipMemory.place, t.place(op), cluster_places(t, kind), kind.dtype, source)
        return
    seen = t.reinterprets and "#ttg.padded_shared" not in t.program.expand(
        kind.layout
    )  # which the compiler reinterprets as itself only
    if seen and (places := places_of(t, kind)) is not None:
        t.machine(op, OnChipMemory.place, t.place(op), places, kind.dtype, source)
        return
    spread = SPREAD if "fp4Padded = true" in t.program.expand(kind.layout) else 1
    strides = row_major(kind.shape, kind.itemsize * spread)
    t.machine(op, OnChipMemory.allocate, False, t.place(op), kind.shape, strides, kind.dtype, None, source, spread)


def cluster_places(t: Translator, kind: Type) -> np.ndarray:
    """Where each element of shared memory of type `kind` lies in a cluster, in bytes from the first CTA's first. Buffers of a CTA
    lie one behind the other."""
    layout = t.program.expand(kind.layout)
    if t.reinterprets or "fp4Padded = true" in layout:
        raise ValueError("in a cluster, reinterpreted or padded")
    held = t.split(kind)
    of_tile = (np.arange(prod(held.tile), dtype=np.int64) * kind.itemsize).reshape(held.tile)
    return held.places(of_tile, t.program.integer("ttg.shared"))


def places_of(t: Translator, kind: Type) -> np.ndarray | None:
    """Where the compiler puts each element of shared memory of type `kind`, in bytes from its first; None for row-major."""
    return places(t.program.expand(kind.layout), kind.shape, kind.element, kind.itemsize)


@lowers("ttg.local_dealloc")
def release(t: Translator, op: Operation) -> None:
    """The compiler may reuse this memory from here on. Reuse is visible through its writes."""


@lowers("ttg.local_load")
def local_load(t: Translator, op: Operation) -> None:
    view, _token = t.operands(op, "view", "token?")
    t.machine(op, OnChipMemory.read, view)


@lowers("ttg.local_store")
def local_store(t: Translator, op: Operation) -> None:
    value, view = t.operands(op, "value", "view")
    t.machine(op, OnChipMemory.write, view, value)


@lowers("ttg.memdesc_index")
def index(t: Translator, op: Operation) -> None:
    view, at = t.operands(op, "view", "at")
    t.machine(op, OnChipMemory.index, view, at)


@lowers("ttg.memdesc_subslice")
def subslice(t: Translator, op: Operation) -> None:
    t.call(op, subslice_of, op.integers("offsets"), t.result(op).shape)


def subslice_of(view: View, offsets: list[int], shape: tuple[int, ...]) -> View:
    """By the view's own class: in a cluster it is none of strides."""
    return view.subslice(offsets, shape)


@lowers("ttng.tmem_subslice")
def tensor_subslice(t: Translator, op: Operation) -> None:
    """Elements from `offset` on along axis `dim` (of columns `N`, on Triton 3.8): inside a block, or blocks from a multiple
    of how many they are."""
    kind = t.result(op)
    shape, dim = kind.shape, op.integer("dim", len(kind.shape) - 1)
    offset = op.integer("N" if "N" in op.attributes else "offset")
    if dim >= len(shape) - 2 and offset % shape[dim]:
        block = layout_number(t.program.expand(kind.layout), "blockM" if dim == len(shape) - 2 else "blockN")
        if not block or offset // block != (offset + shape[dim] - 1) // block:
            raise NotModelled(op, f"{shape[dim]} rows or columns from {offset} on, across blocks of {block}")
    t.call(op, subslice_of, [offset if axis == dim else 0 for axis in range(len(shape))], shape)


@lowers("ttg.memdesc_trans")
def transpose(t: Translator, op: Operation) -> None:
    t.call(op, transpose_of, op.integers("order"))


def transpose_of(view: View, order: list[int]) -> View:
    """By the view's own class."""
    return view.transpose(order)


def tensor_pieces(kind: Type, layout: str, op: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(pieces, byte strides) of a tensor-memory allocation: a row a lane, elements along a lane's columns.

    Blocks lie side by side, those below one another first. Of blocks of 64 rows every second lies in the other half of the rows,
    beside its neighbour: the block below it, or the next along the columns where none is below. So does the compiler's own linear
    layout (`GluonOpBuilder.to_linear_layout`; a test compares).
    """
    rows, columns, stride = (layout_number(layout, name) for name in ("blockM", "blockN", "colStride"))
    if len(kind.shape) < 2 or rows not in (64, 128) or not columns or kind.shape != kind.allocation:
        raise NotModelled(op, f"the tensor-memory layout {layout[:100]}")
    *outer, high, wide = kind.shape
    step = kind.itemsize * (stride or 1)
    tall, broad = min(rows, high), min(columns, wide)
    row_blocks, across = high // tall, wide // broad
    halves = 2 if rows == 64 and row_blocks * across > 1 else 1
    if row_blocks % halves and across % halves:
        raise NotModelled(op, f"{row_blocks} by {across} blocks of 64 rows")
    below = halves if row_blocks > 1 else 1  # else the next along the columns
    block = broad * step  # bytes of a lane
    pieces = [row_blocks // below, below, tall, across * below // halves, halves // below, broad]
    strides = [block, 64 * TENSOR_ROW, TENSOR_ROW, row_blocks // below * block, 64 * TENSOR_ROW, step]
    held = [(size, stride) for size, stride in zip(pieces, strides, strict=True) if size > 1 or stride in (TENSOR_ROW, step)]
    reach = row_blocks * across // halves * block
    for size in reversed(outer):
        held.insert(0, (size, reach))
        reach *= size
    return tuple(size for size, _ in held), tuple(stride for _, stride in held)


@lowers("ttng.tmem_alloc")
def allocate_tensor(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    layout = t.program.expand(kind.layout)
    if "tensor_memory_scales" in layout:
        allocate_scales(t, op, kind)
        return
    row = op.integer("tensor_memory_row_offset")
    offset = (row // 16 * 64 if row % 32 else row) * TENSOR_ROW + op.integer("tensor_memory_col_offset") * 4
    if t.ctas > 1:
        held = t.split(kind)
        tile = replace(kind, shape=held.tile, allocation=held.tile)
        own, apart = tensor_pieces(tile, layout, op)
        (source,) = t.operands(op, "source?")
        reached = places_in(held.tile, own, apart)
        t.machine(op, OnChipMemory.place, offset, held.places(reached, TENSOR_BYTES), kind.dtype, source, True)
        return
    pieces, strides = tensor_pieces(kind, layout, op)
    (source,) = t.operands(op, "source?")
    cut = pieces if pieces != kind.shape else None
    t.machine(op, OnChipMemory.allocate, True, offset, kind.shape, strides, kind.dtype, cut, source)


@lowers("ttng.tmem_load")
def tensor_load(t: Translator, op: Operation) -> None:
    if len(op.results) > 1 and t.require_type(op, op.outputs[1]).kind != "token":
        raise NotModelled(op, "with a reduction")
    view, _token = t.operands(op, "view", "token?")
    is_followed = t.undefined is not None and id(op) in t.undefined.unwritten
    t.machine(op, OnChipMemory.read_followed if is_followed else OnChipMemory.read, view)


@lowers("ttng.tmem_store")
def tensor_store(t: Translator, op: Operation) -> None:
    view, _token, value, enabled = t.operands(op, "view", "token?", "value", "enabled")
    with t.when(enabled):
        t.machine(op, OnChipMemory.write, view, value)


@lowers("ttng.fence_async_shared")
def proxy_fence(t: Translator, op: Operation) -> None:
    t.machine(op, OnChipMemory.fence)


@lowers("ttng.tmem_wait", "ttng.fence", "ttng.fence_mbarrier_init_release_cluster")
def skip_fence(t: Translator, op: Operation) -> None:
    """Inserted, or checked, by the compiler for one partition: the accesses that they order are in order here."""
