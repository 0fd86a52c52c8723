"""Tensor descriptors, and the copies that TMA makes through them.

Rules of what is outside, and of what traps, are those measured on an H200 for tiled copies and documented for gather and scatter:
an element outside the tensor is read as zero (or NaN, as the descriptor says) and not written, but that a store cuts each row in
whole units of 16 bytes: the padding in a row's last unit is overwritten; the innermost coordinate must be a multiple of 16 bytes; a
store must not begin at a negative coordinate (PTX ISA, cp.async.bulk.tensor; `bitverdict.reference.tiled_copy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.reference.tiled_copy import nan_fill, rounded_to_tf32, written_columns

if TYPE_CHECKING:
    from bitverdict.harness.emulator.mlir_reader import Operation

ALIGNMENT = 16  # bytes


class HostDescriptor(Protocol):
    """A tensor descriptor that a launch is given, of Triton or of Gluon."""

    base: Any  # tensor
    shape: Sequence[int]
    strides: Sequence[int]
    block_shape: Sequence[int]


@dataclass(frozen=True)
class PixelBox:
    """Which pixels an im2col descriptor walks through, by spatial axis, outermost first: from `lower` to `upper` beyond the last
    one, both inclusive, in `steps`."""

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    steps: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Descriptor:
    """A tensor in global memory: address of its first element, `shape` and `strides` in elements, its element's bytes."""

    base: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    nan_padding: bool = False
    to_tf32: bool = False  # each fp32 element is rounded as it is loaded (CU_TENSOR_MAP_DATA_TYPE_TFLOAT32)
    pixels: PixelBox | None = None  # of im2col mode; the axes are then batch, spatial ones, channels

    def tensor_map(self, _op: Operation) -> Descriptor:
        return self

    def box(self, starts: Sequence[int], sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray | None]:
        """(addresses, which lie inside or None for all) of the box at `starts`; both of shape `sizes` without leading ones kept."""
        axes = [np.arange(size, dtype=np.int64) + start for start, size in zip(starts, sizes, strict=True)]
        return self._reach(axes)

    @property
    def store_view(self) -> Descriptor:
        """The tensor as a store sees it: rows reach to the end of their last unit of 16 bytes."""
        columns = written_columns(self.shape[-1], self.itemsize)
        return self if columns == self.shape[-1] else replace(self, shape=(*self.shape[:-1], columns))

    def rows(self, row_offsets: np.ndarray, column: int, columns: int) -> tuple[np.ndarray, np.ndarray | None]:
        """(addresses, which lie inside) of chosen rows, (rows, columns)."""
        return self._reach([np.asarray(row_offsets).astype(np.int64), np.arange(columns, dtype=np.int64) + column])

    def columns(
        self, starts: Sequence[int], shifts: Sequence[int], count: int, channels: int
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """(addresses, which lie inside or None for all), both (count, channels), of `count` pixels from `starts` on, innermost axis
        fastest, each moved by `shifts`, as many elements along the spatial axes (PTX ISA, tensor im2col mode)."""
        assert self.pixels is not None
        box, position = self.pixels, list(starts[:-1])
        ends = [size - 1 + upper for size, upper in zip(self.shape[1:-1], box.upper, strict=True)]
        places = np.empty((count, len(position)), np.int64)  # batch and spatial coordinates of each pixel
        for pixel in range(count):
            places[pixel] = position
            for axis in range(len(position) - 1, 0, -1):
                position[axis] += box.steps[axis - 1]
                if position[axis] <= ends[axis - 1]:
                    break
                position[axis] = box.lower[axis - 1]
            else:
                position[0] += 1
        places[:, 1:] += np.array(shifts)
        taken = np.arange(channels, dtype=np.int64) + starts[-1]
        there = ((places >= 0) & (places < np.array(self.shape[:-1]))).all(1, keepdims=True)
        inside = there & ((taken >= 0) & (taken < self.shape[-1]))
        reached = (places * np.array(self.strides[:-1])).sum(1)[:, None] + taken * self.strides[-1]
        return self.base + reached * self.itemsize, None if inside.all() else inside

    def _reach(self, axes: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray | None]:
        rank = len(axes)
        addresses = np.array(self.base, np.int64)
        inside: np.ndarray | None = None
        for i, (axis, size, stride) in enumerate(zip(axes, self.shape, self.strides, strict=True)):
            along = tuple(-1 if i == j else 1 for j in range(rank))
            addresses = addresses + (axis * (stride * self.itemsize)).reshape(along)
            if axis.size and (axis.min() < 0 or axis.max() >= size):
                here = ((axis >= 0) & (axis < size)).reshape(along)
                inside = here if inside is None else inside & here
        return addresses, None if inside is None else np.broadcast_to(inside, addresses.shape)

    def loaded_values(self, values: np.ndarray, inside: np.ndarray | None) -> np.ndarray:
        """What a load puts into shared memory for `values` (any shape) in global memory; those not `inside` (or None: all are) are
        the padding's, which is not rounded."""
        if not self.to_tf32:
            return values
        rounded = rounded_to_tf32(values.view(np.uint32)).view(values.dtype)  # (...)
        return rounded if inside is None else np.where(inside, rounded, values)

    def padding(self, op: Operation, dtype: np.dtype) -> np.ndarray:
        """What an element outside reads as."""
        if not self.nan_padding:
            return np.zeros((), dtype)
        word = nan_fill(dtype.itemsize)
        if word is None:
            raise EmulatedFault(
                "not modelled",
                f"{op.name} fills in NaN for elements of {dtype.itemsize} bytes outside the tensor: which one is not known; load "
                "with padding of zeros",
                op.location,
                {"operation": op.brief},
            )
        return np.array(word, f"u{dtype.itemsize}").view(dtype)


@dataclass(frozen=True)
class PlacedDescriptor:
    """What lies at `place` in scratch memory, as one of `maps`: known once a copy goes through it. A compiler that runs ahead of a
    loop takes the address of a descriptor that it makes, and copies through, under a predicate."""

    maps: Mapping[int, Descriptor]
    unfenced_maps: Set[int]
    place: int

    def tensor_map(self, op: Operation) -> Descriptor:
        """The descriptor that `op` goes through, which must have been made, and fenced, by this program."""
        if self.place not in self.maps:
            message = f"{op.name}: no descriptor was made where it looks for one"
            raise EmulatedFault("uninitialised read", message, op.location, {"operation": op.brief})
        if self.place in self.unfenced_maps:
            message = f"{op.name}: no fence.proxy.tensormap since the descriptor was written"
            raise EmulatedFault("race", message, op.location, {"operation": op.brief})
        return self.maps[self.place]


AnyDescriptor = Descriptor | PlacedDescriptor


def check_alignment(op: Operation, coordinate: int, itemsize: int) -> None:
    """The innermost coordinate of a copy is a multiple of 16 bytes."""
    if coordinate * itemsize % ALIGNMENT:
        raise EmulatedFault(
            "illegal instruction",
            f"{op.name} begins at innermost coordinate {coordinate} of {itemsize}-byte elements: "
            f"must be a multiple of {ALIGNMENT} bytes",
            op.location,
            {"operation": op.brief},
        )


def check_sign(op: Operation, coordinates: Sequence[int], what: str) -> None:
    """No coordinate of a store is negative."""
    if any(c < 0 for c in coordinates):
        raise EmulatedFault(
            "illegal instruction",
            f"{op.name} writes at {what} {list(coordinates)}: no coordinate of a store may be negative",
            op.location,
            {"operation": op.brief},
        )
