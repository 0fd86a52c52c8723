"""Shared and tensor memory: allocation, views, loads and stores by the program's own threads."""

from __future__ import annotations

from harness.emulator.memory import row_major
from harness.emulator.program import Operation
from harness.emulator.tensor_core import layout_number
from harness.emulator.translate import NotModelled, Translator, lowers
from harness.emulator.types import Type

TENSOR_ROW = 512 * 4  # bytes of one lane's 512 columns


@lowers("ttg.local_alloc")
def allocate(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    source = t.value(op.operands[0]) if op.operands else "None"
    t.emit(
        f"{t.target(op)}m.allocate({t.constant(op)}, {op.integer('allocation.offset')}, {kind.shape}, "
        f"{row_major(kind.shape, kind.itemsize)}, {t.constant(kind.dtype)}, {source})"
    )


@lowers("ttg.local_dealloc")
def release(t: Translator, op: Operation) -> None:
    t.emit(f"m.release({t.constant(op)}, {t.value(op.operands[0])})")


@lowers("ttg.local_load")
def local_load(t: Translator, op: Operation) -> None:
    t.emit(f"{t.target(op)}m.read({t.constant(op)}, {t.value(op.operands[0])})")


@lowers("ttg.local_store")
def local_store(t: Translator, op: Operation) -> None:
    value, view = (t.value(n) for n in op.operands[:2])
    t.emit(f"m.write({t.constant(op)}, {view}, {value})")


@lowers("ttg.memdesc_index")
def index(t: Translator, op: Operation) -> None:
    view, at = (t.value(n) for n in op.operands)
    t.emit(f"{t.target(op)}m.index({t.constant(op)}, {view}, {at})")


@lowers("ttg.memdesc_subslice", "ttng.tmem_subslice")
def subslice(t: Translator, op: Operation) -> None:
    shape = t.result(op).shape
    offsets = op.integers("offsets") if "offsets" in op.attributes else [0] * (len(shape) - 1) + [op.integer("N")]
    t.emit(f"{t.target(op)}{t.value(op.operands[0])}.subslice({offsets}, {shape})")


@lowers("ttg.memdesc_trans")
def transpose(t: Translator, op: Operation) -> None:
    t.emit(f"{t.target(op)}{t.value(op.operands[0])}.transposed({op.integers('order')})")


def tensor_strides(kind: Type, layout: str, op: Operation) -> tuple[int, ...]:
    """Byte strides of a tensor-memory descriptor: a row a lane, elements along a lane's columns."""
    block_m, column = layout_number(layout, "blockM"), layout_number(layout, "colStride") or 1
    if len(kind.shape) < 2 or block_m is None or kind.allocation[-2] > 128:
        raise NotModelled(op, "this tensor-memory layout")
    step = max(kind.itemsize, 1) * column
    strides: tuple[int, ...] = (TENSOR_ROW, step)
    for size in reversed(kind.shape[:-2]):
        strides = (kind.shape[-1] * step, *strides) if len(strides) == 2 else (strides[0] * size, *strides)
    return strides


@lowers("ttng.tmem_alloc")
def allocate_tensor(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    strides = tensor_strides(kind, t.program.expand(kind.layout), op)
    row = op.integer("tensor_memory_row_offset")
    offset = (row // 16 * 64 if row % 32 else row) * TENSOR_ROW + op.integer("tensor_memory_col_offset") * 4
    source = t.value(op.operands[0]) if op.operands else "None"
    t.emit(
        f"{t.values(op.results[:1])} = m.allocate_tensor({t.constant(op)}, {offset}, {kind.shape}, {strides}, "
        f"{t.constant(kind.dtype)}, {source})"
    )
    for token in op.results[1:]:
        t.emit(f"{t.value(token)} = None")


@lowers("ttng.tmem_load")
def tensor_load(t: Translator, op: Operation) -> None:
    if len(op.results) > 1 and t.typed(op, op.outputs[1]).kind != "token":
        raise NotModelled(op, "with a reduction")
    t.emit(f"{t.value(op.results[0])} = m.read({t.constant(op)}, {t.value(op.operands[0])})")
    for token in op.results[1:]:
        t.emit(f"{t.value(token)} = None")


@lowers("ttng.tmem_store")
def tensor_store(t: Translator, op: Operation) -> None:
    view, value = t.value(op.operands[0]), t.value(op.operands[-2])
    t.emit(f"if {t.value(op.operands[-1])}: m.write({t.constant(op)}, {view}, {value})")
    for token in op.results:
        t.emit(f"{t.value(token)} = None")


@lowers("ttng.tmem_wait", "ttng.fence_async_shared", "ttng.fence", "ttng.fence_mbarrier_init_release_cluster")
def ordered(t: Translator, op: Operation) -> None:
    """Inserted, or checked, by the compiler for one partition: noted for the advice."""
    t.emit(f"m.note({t.constant(op)})")
