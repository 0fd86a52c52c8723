"""Shared and tensor memory: allocation, views, loads and stores by the program's own threads."""

from __future__ import annotations

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import OnChipMemory
from bitverdict.harness.emulator.frontend.translate import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.onchip import SPREAD, View, row_major
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.matrix_products import layout_number

TENSOR_ROW = 512 * 4  # bytes of one lane's 512 columns


@lowers("ttg.local_alloc")
def allocate(t: Translator, op: Operation) -> None:
    """fp4 beside fp8 lies at half its density: each byte takes two, which is where the compiler puts its neighbours. Which of the
    two holds it is a bijection, as the swizzle is."""
    kind = t.result(op)
    (source,) = t.operands(op, "source?")
    spread = SPREAD if "fp4Padded = true" in t.program.expand(kind.layout) else 1
    strides = row_major(kind.shape, kind.itemsize * spread)
    t.machine(
        op, OnChipMemory.allocate, False, op.integer("allocation.offset"), kind.shape, strides, kind.dtype, None, source, spread
    )


@lowers("ttg.local_dealloc")
def release(t: Translator, op: Operation) -> None:
    """The compiler may lay something else here from now on: that shows as what it does to the bytes."""


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


@lowers("ttg.memdesc_subslice", "ttng.tmem_subslice")
def subslice(t: Translator, op: Operation) -> None:
    shape = t.result(op).shape
    offsets = op.integers("offsets") if "offsets" in op.attributes else [0] * (len(shape) - 1) + [op.integer("N")]
    t.call(op, View.subslice, offsets, shape)


@lowers("ttg.memdesc_trans")
def transpose(t: Translator, op: Operation) -> None:
    t.call(op, View.transposed, op.integers("order"))


def tensor_pieces(kind: Type, layout: str, op: Operation) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(pieces, byte strides) of a tensor-memory allocation: a row a lane, elements along a lane's columns, blocks of rows one above
    the other (64 rows), then side by side."""
    block, column = layout_number(layout, "blockM"), layout_number(layout, "colStride") or 1
    if len(kind.shape) < 2 or block not in (64, 128) or kind.shape != kind.allocation:
        raise NotModelled(op, f"the tensor-memory layout {layout[:100]}")
    *outer, rows, columns = kind.shape
    step = kind.itemsize * column
    high = min(block, rows)
    blocks = rows // high
    above = 2 if block == 64 and blocks % 2 == 0 else 1
    if block == 64 and blocks > 1 and above == 1:
        raise NotModelled(op, f"{blocks} blocks of 64 rows")
    across = blocks // above
    pieces: list[int] = [high, columns]
    strides: list[int] = [TENSOR_ROW, step]
    if blocks > 1:
        pieces, strides = [across, above, *pieces], [columns * step, 64 * TENSOR_ROW, *strides]
    reach = across * columns * step
    for size in reversed(outer):
        pieces, strides = [size, *pieces], [reach, *strides]
        reach *= size
    return tuple(pieces), tuple(strides)


@lowers("ttng.tmem_alloc")
def allocate_tensor(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    layout = t.program.expand(kind.layout)
    if "tensor_memory_scales" in layout:
        from bitverdict.harness.emulator.frontend.lowerings.block_scaled import allocate_scales

        allocate_scales(t, op, kind)
        return
    pieces, strides = tensor_pieces(kind, layout, op)
    row = op.integer("tensor_memory_row_offset")
    offset = (row // 16 * 64 if row % 32 else row) * TENSOR_ROW + op.integer("tensor_memory_col_offset") * 4
    (source,) = t.operands(op, "source?")
    held = pieces if pieces != kind.shape else None
    t.machine(op, OnChipMemory.allocate, True, offset, kind.shape, strides, kind.dtype, held, source)


@lowers("ttng.tmem_load")
def tensor_load(t: Translator, op: Operation) -> None:
    if len(op.results) > 1 and t.typed(op, op.outputs[1]).kind != "token":
        raise NotModelled(op, "with a reduction")
    view, _token = t.operands(op, "view", "token?")
    t.machine(op, OnChipMemory.read, view)


@lowers("ttng.tmem_store")
def tensor_store(t: Translator, op: Operation) -> None:
    view, _token, value, enabled = t.operands(op, "view", "token?", "value", "enabled")
    with t.when(enabled):
        t.machine(op, OnChipMemory.write, view, value)


@lowers("ttng.fence_async_shared")
def proxy_fence(t: Translator, op: Operation) -> None:
    t.machine(op, OnChipMemory.fence)


@lowers("ttng.tmem_wait", "ttng.fence", "ttng.fence_mbarrier_init_release_cluster")
def ordered(t: Translator, op: Operation) -> None:
    """Inserted, or checked, by the compiler for one partition: noted for the advice."""
    t.machine(op, Cta.note)
