"""The grid: for each TMA operation and each precondition, points on both sides of it.

A point is a launch of `bitverdict.harness.lab.tma_limits.tma_kernels` and what is documented about it (`rule`): "right", or an
outcome by name and who says so. Nothing here runs anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from bitverdict.kernels.element_types import bits_of
from bitverdict.reference import gather_scatter, tiled_copy
from bitverdict.reference.tiled_copy import Direction

OPERATIONS = ("tiled load", "tiled store", "gather", "scatter")
DTYPES = ("fp32", "fp16", "int8")
LARGEST_BOX = 256  # elements of one dimension (CUDA driver API, cuTensorMapEncodeTiled: boxDim)


@dataclass(frozen=True, kw_only=True)
class Point:
    """One launch: a table, a box and where it goes. Sizes in elements; `row` is the first of the row numbers of a gather."""

    operation: str
    precondition: str
    dtype: str = "fp16"
    rows: int = 64
    columns: int = 64
    pad: int = 0  # elements after each row
    offset: int = 0  # elements the table's base lies past a 16-byte boundary
    block_rows: int = 16
    block_columns: int = 32
    row: int = 0
    column: int = 0
    on_device: bool = False  # the descriptor is made in the kernel

    @property
    def itemsize(self) -> int:
        return bits_of(self.dtype) // 8

    @property
    def is_tiled(self) -> bool:
        return self.operation.startswith("tiled")

    @property
    def stores(self) -> bool:
        return self.operation in ("tiled store", "scatter")

    @property
    def name(self) -> str:
        """What of it is not as in the plainest launch of its operation."""
        plain = Point(operation=self.operation, precondition=self.precondition)
        shown = ("dtype", "rows", "columns", "pad", "offset", "block_rows", "block_columns", "row", "column")
        told = [f"{f} {getattr(self, f)}" for f in shown if getattr(self, f) != getattr(plain, f) or f == "dtype"]
        return ", ".join([*told, *(["made on the device"] if self.on_device else [])])

    def row_numbers(self) -> np.ndarray:
        """(block_rows,) int32 of a gather or scatter: `row`, then distinct legal ones."""
        others = (np.arange(self.rows, dtype=np.int64) * 7 + 1) % self.rows  # each row once: 7 divides no table's rows here
        others = others[others != self.row]
        return np.concatenate([[self.row], np.resize(others, self.block_rows - 1)]).astype(np.int32)


def points(operations: tuple[str, ...] = OPERATIONS) -> list[Point]:
    """The whole grid, in the order of the page."""
    return list(dict.fromkeys(point for operation in operations for point in _points_of(operation)))


def _points_of(operation: str) -> Iterator[Point]:
    is_tiled_copy, stores = operation.startswith("tiled"), operation in ("tiled store", "scatter")
    for dtype in DTYPES:
        unit = 128 // bits_of(dtype)
        point = Point(operation=operation, precondition="alignment of the innermost coordinate", dtype=dtype)
        for column in sorted({0, 1, 2, 3, 4, 6, unit // 2, unit - 1, unit, unit + 1, 2 * unit, -1, 63, 65}):
            yield replace(point, column=column)
        point = replace(point, precondition="sign of the innermost coordinate")
        for units in (-1, -2, -4, -100):
            yield replace(point, column=units * unit)
    point = Point(operation=operation, precondition="sign of the row")
    for row in (-1, -8, -15, -16, -100, -(2**31)):
        yield replace(point, row=row)
    yield replace(point, row=-8, column=-8)
    point = replace(point, precondition="far out of range")
    for row, column in (
        (63, 0),
        (64, 0),
        (100, 0),
        (2**31 - 1 - 16, 0),
        (2**31 - 1, 0),
        (0, 56),
        (0, 64),
        (0, 1 << 20),
        (0, (1 << 31) - 8),
        (100, 1 << 20),
    ):
        yield replace(point, row=row, column=column)
    point = replace(point, precondition="fewest rows and columns")
    for rows in (1, 2, 4, 8):
        yield replace(point, block_rows=rows)
    for dtype in DTYPES:
        for width in (4, 8, 16, 32):
            yield replace(point, dtype=dtype, block_columns=width * 8 // bits_of(dtype))
    point = replace(point, precondition="block shapes")
    for rows, columns in ((16, 64), (16, 128), (256, 32), (512, 32), (24, 32), (16, 48)):
        yield replace(point, block_rows=rows, block_columns=columns, rows=600, columns=256)
    point = replace(point, precondition="descriptor base and strides")
    for offset in (1, 4, 8):
        yield replace(point, offset=offset)
    for pad in (1, 4, 8):
        yield replace(point, pad=pad)
    if is_tiled_copy:
        point = replace(point, on_device=True)
        yield point
        for offset in (1, 4, 8):
            yield replace(point, offset=offset)
        for pad in (1, 4, 8):
            yield replace(point, pad=pad)
    point = Point(operation=operation, precondition="width of a row")
    for dtype in DTYPES:
        unit = 128 // bits_of(dtype)
        for columns in sorted({1, unit - 1, unit, unit + 1, 2 * unit - 1, 33}):
            yield replace(point, dtype=dtype, columns=columns, pad=-columns % unit + (unit if stores else 0))


@dataclass(frozen=True)
class Rule:
    """What is documented: "right" or an outcome, who says it, and why."""

    outcome: str = "pass"
    layer: str = ""
    reason: str = ""


def rule(point: Point, arch: str, *, iisan: bool = False) -> Rule:
    """By `bitverdict.reference.tiled_copy` and `bitverdict.reference.gather_scatter`, the driver API's rules of a descriptor and
    the tile language's."""
    if any(n < 1 or n & (n - 1) for n in (point.block_rows, point.block_columns)):
        return Rule("refused", "front end", "a tile's sizes are powers of two")
    if point.is_tiled and (width := point.block_columns * point.itemsize) < tiled_copy.ALIGNMENT:
        return Rule("refused", "driver", f"a box's row of {width} bytes: cuTensorMapEncodeTiled takes {tiled_copy.ALIGNMENT}+")
    expected_outcome = _tiled_fault(point, arch, iisan) if point.is_tiled else _rows(point, arch, iisan)
    if expected_outcome is not None:
        layer = {"refused": "compiler", "device assert": "iisan"}.get(expected_outcome.outcome, "hardware")
        return Rule(expected_outcome.outcome, layer, expected_outcome.reason)
    reach = tiled_copy.written_columns(point.columns, point.itemsize)
    first, last = max(point.column, point.columns), min(point.column + point.block_columns, reach)
    rows = point.row < point.rows if point.is_tiled else True
    if point.stores and rows and first < last:
        return Rule("stray write", "hardware", f"the row ends inside 16 bytes: {(last - first) * point.itemsize} bytes beyond")
    return Rule()


def _tiled_fault(point: Point, arch: str, iisan: bool) -> tiled_copy.Fault | None:
    return _descriptor(point, iisan) or tiled_copy.fault(
        Direction.STORE if point.stores else Direction.LOAD, (point.row, point.column), point.itemsize, arch, iisan=iisan
    )


def _rows(point: Point, arch: str, iisan: bool) -> tiled_copy.Fault | None:
    request = gather_scatter.Request(
        Direction.STORE if point.stores else Direction.LOAD, point.block_rows, point.block_columns, point.itemsize, arch
    )
    refused = gather_scatter.refusal(request)
    return refused or _descriptor(point, iisan) or gather_scatter.fault(request, point.row_numbers(), point.column, iisan=iisan)


def _descriptor(point: Point, iisan: bool) -> tiled_copy.Fault | None:
    """Base and strides in units of 16 bytes: the host refuses them. Made on the device, iisan asserts them; bare, a base is a
    misaligned address, and of a stride what is over a multiple of 16 bytes is dropped, so that every row but the first is looked
    for too early (undocumented; measured on an H200, 2026-11-21)."""
    bare = {"base offset": "misaligned address", "row stride": "stray write" if point.stores else "wrong words"}
    misfits = [
        (name, f"{name} {value} x {point.dtype}: a multiple of {tiled_copy.ALIGNMENT} bytes is needed")
        for name, value in (("base offset", point.offset), ("row stride", point.columns + point.pad))
        if value * point.itemsize % tiled_copy.ALIGNMENT
    ]
    if not misfits:
        return None
    name, reason = misfits[0]
    return tiled_copy.Fault("refused" if not point.on_device else "device assert" if iisan else bare[name], reason)


def key(point: Point) -> str:
    return json.dumps(asdict(point), sort_keys=True, separators=(",", ":"))
