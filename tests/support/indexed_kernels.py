"""Gluon kernels that reach elements of shared memory by an index tensor, or by another type and layout than they have."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory

ROWS, COLUMNS = gl.constexpr(32), gl.constexpr(64)


@gluon.jit
def tile_places(LAYOUT: gl.constexpr):
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, LAYOUT))
    columns = gl.arange(0, COLUMNS, layout=gl.SliceLayout(0, LAYOUT))
    return rows[:, None] * COLUMNS + columns[None, :]  # (ROWS, COLUMNS)


@gluon.jit
def picked(values, indices, gathered, scattered, AXIS: gl.constexpr):
    """gathered[i, j] = values at indices[i, j] along AXIS; scattered, zeros before, takes them back to where they came from."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    places = tile_places(layout)  # (ROWS, COLUMNS)
    chosen = gl.load(indices + places)
    swizzled: gl.constexpr = gl.SwizzledSharedLayout(2, 1, 8, [1 - AXIS, AXIS])
    tile = gl.allocate_shared_memory(values.dtype.element_ty, [ROWS, COLUMNS], swizzled, gl.load(values + places))
    found = tile.gather(chosen, AXIS)
    gl.store(gathered + places, found)
    tile.store(gl.zeros([ROWS, COLUMNS], values.dtype.element_ty, layout))
    tile.scatter(found, chosen, AXIS)
    gl.store(scattered + places, tile.load(layout))


@gluon.jit
def spread(values, indices, out):
    """A tile of zeros, and the values at their indices along the columns."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    places = tile_places(layout)
    given = gl.load(values + places)
    tile = gl.allocate_shared_memory(given.dtype, [ROWS, COLUMNS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), given - given)
    tile.scatter(given, gl.load(indices + places), 1)
    gl.store(out + places, tile.load(layout))


@gluon.jit
def half_written(values, indices, gathered):
    """Of a tile only the left half is written; `indices` say which columns are read."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    half: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, layout=gl.SliceLayout(1, half))
    columns = gl.arange(0, COLUMNS // 2, layout=gl.SliceLayout(0, half))
    tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLUMNS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    tile.slice(0, COLUMNS // 2, dim=1).store(gl.load(values + rows[:, None] * COLUMNS + columns[None, :]))
    places = tile_places(layout)
    gl.store(gathered + places, tile.gather(gl.load(indices + places), 1))


@gluon.jit
def under_way(values, indices, gathered):
    """What cp.async brings is read by index."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    places = tile_places(layout)
    tile = gl.allocate_shared_memory(gl.float32, [ROWS, COLUMNS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    async_copy.async_load(tile, values + places)
    async_copy.commit_group()
    async_copy.wait_group(0)
    gl.store(gathered + places, tile.gather(gl.load(indices + places), 1))


@gluon.jit
def updated(values, indices, before, sums, UPDATE: gl.constexpr, MASKED: gl.constexpr):
    """before[i, j]: what an atomic update at indices[i, j] along the columns found; sums, the tile afterwards."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    places = tile_places(layout)
    chosen = gl.load(indices + places)
    given = gl.load(values + places)
    tile = gl.allocate_shared_memory(given.dtype, [ROWS, COLUMNS], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), given)
    mask = places % 3 > 0 if MASKED else None
    if UPDATE == "add":
        found = tile.atomic_scatter_add(given, chosen, 1, mask=mask)
    elif UPDATE == "max":
        found = tile.atomic_scatter_max(given, chosen, 1, mask=mask)
    elif UPDATE == "xor":
        found = tile.atomic_scatter_xor(given, chosen, 1, mask=mask)
    else:
        found = tile.atomic_scatter_xchg(given, chosen, 1, mask=mask)
    gl.store(before + places, found)
    gl.store(sums + places, tile.load(layout))


@gluon.jit
def as_words(values, words, halves, SWIZZLE: gl.constexpr, COUNT: gl.constexpr):
    """A tile of 16-bit elements in a swizzled layout, read as the 32-bit words that lie there, COUNT of them; then the upper half
    of those words, from a slice of the words."""
    layout: gl.constexpr = gl.BlockedLayout([1, 2], [1, 32], [4, 1], [1, 0])
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    swizzled: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=SWIZZLE, element_bitwidth=16, rank=2)
    tile = gl.allocate_shared_memory(gl.float16, [ROWS, COLUMNS], swizzled, gl.load(values + tile_places(layout)))
    seen = tile.reinterpret(gl.int32, [COUNT], flat)
    gl.store(words + gl.arange(0, COUNT, layout=line), seen.load(line))
    upper = seen.slice(COUNT // 2, COUNT // 2).reinterpret(gl.float16, [COUNT], flat)
    gl.store(halves + gl.arange(0, COUNT, layout=line), upper.load(line))


@gluon.jit
def as_padded(out):
    """Words in a layout with gaps, read as others."""
    line: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    padded: gl.constexpr = gl.PaddedSharedLayout.with_identity_for([[32, 4]], [512], [0])
    tile = gl.allocate_shared_memory(gl.int32, [512], padded, gl.arange(0, 512, layout=line))
    halves = tile.reinterpret(gl.int16, [1024], gl.PaddedSharedLayout.with_identity_for([[64, 8]], [1024], [0]))
    gl.store(out + gl.arange(0, 1024, layout=line), halves.load(line))


@gluon.jit
def as_columns(values, halves):
    """32-bit words in tensor memory, read as pairs of 16-bit elements."""
    sums = allocate_tensor_memory(gl.int32, [128, 32], TensorMemoryLayout([128, 32], col_stride=1))  # (128, 32)
    layout: gl.constexpr = sums.get_reg_layout()
    rows = gl.arange(0, 128, layout=gl.SliceLayout(1, layout))
    columns = gl.arange(0, 32, layout=gl.SliceLayout(0, layout))
    sums.store(gl.load(values + rows[:, None] * 32 + columns[None, :]))
    pairs = sums.reinterpret(gl.float16, [128, 64], TensorMemoryLayout([128, 64], col_stride=1))
    wide: gl.constexpr = pairs.get_reg_layout()
    rows = gl.arange(0, 128, layout=gl.SliceLayout(1, wide))
    columns = gl.arange(0, 64, layout=gl.SliceLayout(0, wide))
    gl.store(halves + rows[:, None] * 64 + columns[None, :], pairs.load())
