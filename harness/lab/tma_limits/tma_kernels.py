"""One TMA operation a launch, as small as it can be: tiled load and store, gather and scatter of rows.

    tiled load:   out[i, j]                        = table[row + i, column + j]
    tiled store:  table[row + i, column + j]       = source[i, j]
    gather:       out[i, j]                        = table[row_numbers[i], column + j]
    scatter:      table[row_numbers[i], column + j] = source[i, j]

The descriptor is made on the host, or in the kernel where the compiler has nothing static to look at. No launcher's rule stands in
front of them: what is illegal arrives at the compiler and at the machine.
"""

from __future__ import annotations

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import fence_async_shared, mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.offset_layout import offset_layout

WARPS = 4


@gluon.constexpr_function
def by_rows(num_warps):
    return gl.BlockedLayout([1, 1], [1, 32], [num_warps, 1], [1, 0])


@gluon.jit
def places(ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    layout: gl.constexpr = by_rows(gl.num_warps())
    row = gl.arange(0, ROWS, gl.SliceLayout(1, layout))  # (ROWS,)
    column = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))  # (COLUMNS,)
    return row[:, None] * COLUMNS + column[None, :]  # (ROWS, COLUMNS)


@gluon.jit
def load_tile(table, tile, row, column):
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, table.nbytes_per_cta)
    tma.async_load(table, [row, column], arrived, tile)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)


@gluon.jit
def tiled_load_kernel(table, out, row, column):
    ROWS: gl.constexpr = table.block_shape[0]
    COLUMNS: gl.constexpr = table.block_shape[1]
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], table.layout)  # (ROWS, COLUMNS)
    load_tile(table, tile, row, column)
    gl.store(out + places(ROWS, COLUMNS), tile.load(by_rows(gl.num_warps())))


@gluon.jit
def tiled_load_described_kernel(
    base, rows, columns, stride, out, row, column, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr
):
    table = tma.make_tensor_descriptor(base, [rows, columns], [stride, 1], [ROWS, COLUMNS], LAYOUT)
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], LAYOUT)  # (ROWS, COLUMNS)
    load_tile(table, tile, row, column)
    gl.store(out + places(ROWS, COLUMNS), tile.load(by_rows(gl.num_warps())))


@gluon.jit
def tiled_store_kernel(table, source, row, column):
    ROWS: gl.constexpr = table.block_shape[0]
    COLUMNS: gl.constexpr = table.block_shape[1]
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], table.layout)  # (ROWS, COLUMNS)
    tile.store(gl.load(source + places(ROWS, COLUMNS)))
    fence_async_shared()
    tma.async_store(table, [row, column], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def tiled_store_described_kernel(
    base, rows, columns, stride, source, row, column, ROWS: gl.constexpr, COLUMNS: gl.constexpr, LAYOUT: gl.constexpr
):
    table = tma.make_tensor_descriptor(base, [rows, columns], [stride, 1], [ROWS, COLUMNS], LAYOUT)
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], LAYOUT)  # (ROWS, COLUMNS)
    tile.store(gl.load(source + places(ROWS, COLUMNS)))
    fence_async_shared()
    tma.async_store(table, [row, column], tile)
    tma.store_wait(pendings=0)


@gluon.jit
def gather_kernel(table, out, row_numbers, column, ROWS: gl.constexpr):
    COLUMNS: gl.constexpr = table.block_shape[1]
    numbers = gl.load(row_numbers + gl.arange(0, ROWS, offset_layout(gl.num_warps())))  # (ROWS,)
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], table.layout)  # (ROWS, COLUMNS)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, ROWS * table.nbytes_per_cta)
    tma.async_gather(table, numbers, column, arrived, tile)
    mbarrier.wait(arrived, phase=0)
    mbarrier.invalidate(arrived)
    gl.store(out + places(ROWS, COLUMNS), tile.load(by_rows(gl.num_warps())))


@gluon.jit
def scatter_kernel(table, source, row_numbers, column, ROWS: gl.constexpr):
    COLUMNS: gl.constexpr = table.block_shape[1]
    numbers = gl.load(row_numbers + gl.arange(0, ROWS, offset_layout(gl.num_warps())))  # (ROWS,)
    tile = gl.allocate_shared_memory(table.dtype, [ROWS, COLUMNS], table.layout)  # (ROWS, COLUMNS)
    tile.store(gl.load(source + places(ROWS, COLUMNS)))
    fence_async_shared()
    tma.async_scatter(table, numbers, column, tile)
    tma.store_wait(pendings=0)


def tile_layout(dtype: torch.dtype, rows: int, columns: int, swizzle: int | None = None) -> gl.NVMMASharedLayout:
    """How a tile lies in shared memory: the widest swizzle it allows, or one of `swizzle` bytes."""
    kind = element_type(dtype)
    if swizzle is not None:
        return gl.NVMMASharedLayout(swizzle_byte_width=swizzle, element_bitwidth=kind.bits, rank=2)
    return gl.NVMMASharedLayout.get_default_for([rows, columns], kind.gluon)


def make_descriptor(
    table: torch.Tensor, box: list[int], layout: gl.NVMMASharedLayout, owner: torch.Tensor | None = None
) -> TensorDescriptor:
    """The host's descriptor of `table`, which lies at the start of `owner` if one is given. ValueError where Triton's constructor
    refuses it: it says so by an assertion."""
    try:
        return TensorDescriptor(table if owner is None else owner, list(table.shape), list(table.stride()), box, layout)
    except AssertionError as error:
        raise ValueError(f"TensorDescriptor: {error}") from error


def launch_tiled(
    kind: str,
    table: torch.Tensor,
    tile: torch.Tensor,
    row: int,
    column: int,
    *,
    swizzle: int | None = None,
    on_device: bool = False,
    owner: torch.Tensor | None = None,
) -> None:
    """`kind` "tiled load": the box of `table` (R, C) at (row, column) into `tile` (rows, columns); "tiled store": back."""
    rows, columns = tile.shape
    layout = tile_layout(table.dtype, rows, columns, swizzle)
    loads = kind == "tiled load"
    if on_device:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=table.device))
        kernel = tiled_load_described_kernel if loads else tiled_store_described_kernel
        kernel[(1,)](table, *table.shape, table.stride(0), tile, row, column, rows, columns, layout, num_warps=WARPS)
        return
    kernel = tiled_load_kernel if loads else tiled_store_kernel
    kernel[(1,)](make_descriptor(table, [rows, columns], layout, owner), tile, row, column, num_warps=WARPS)


def by_number(kind: str, table: torch.Tensor, tile: torch.Tensor, row_numbers: torch.Tensor, column: int) -> None:
    """`kind` "gather": rows of `table` (R, C) by number into `tile` (rows, columns); "scatter": back."""
    rows, columns = tile.shape
    descriptor = make_descriptor(table, [1, columns], tile_layout(table.dtype, rows, columns))
    kernel = gather_kernel if kind == "gather" else scatter_kernel
    kernel[(1,)](descriptor, tile, row_numbers, column, rows, num_warps=WARPS)
