"""Which thread of a program holds each element of a tile, and in which register: by the compiler's own linear layout."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bitverdict.harness.emulator.execution.threads import slots, threads_of
from bitverdict.harness.emulator.faults import BadArgument
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.report.launch_trace.records import Tile


class Holder(NamedTuple):
    """A register of a thread: the warp of the partition, the lane of the warp, the number of the register."""

    warp: int
    lane: int
    register: int


@dataclass(frozen=True, eq=False)
class TileLayout:
    """`warps`, `lanes` and `registers` have for each element, in the shape of the tile, the first register that holds it."""

    text: str
    warps: np.ndarray
    lanes: np.ndarray
    registers: np.ndarray
    elements: np.ndarray  # (threads, registers): the element, row-major, that each holds
    threads_per_warp: int

    def holders(self, *index: int) -> list[Holder]:
        """All registers that hold the element at `index`: more than one where threads hold the same."""
        element = int(np.ravel_multi_index(index, self.warps.shape))
        threads, registers = np.nonzero(self.elements == element)
        return [
            Holder(int(thread) // self.threads_per_warp, int(thread) % self.threads_per_warp, int(register))
            for thread, register in zip(threads, registers, strict=True)
        ]


def layout_of_tile(tile: Tile) -> TileLayout:
    """BadArgument for a scalar, and for a tile that several CTAs hold."""
    kind = tile.assignment.kind
    if kind is None or kind.kind != "tensor":
        raise BadArgument(f"layout of {tile.name!r}: a scalar, which each thread holds; ask for a tile")
    try:
        elements = slots(kind.shape, kind.layout)
    except ValueError as error:
        raise BadArgument(f"layout of {tile.name!r}: {error}; launch it with num_ctas=1") from error
    width = threads_of(kind.layout)
    flat = elements.reshape(-1)
    first = np.full(int(np.prod(kind.shape)), -1, np.int64)
    first[flat[::-1]] = np.arange(flat.size)[::-1]
    thread, register = (each.reshape(kind.shape) for each in np.divmod(first, elements.shape[1]))
    return TileLayout(layout_text(kind), thread // width, thread % width, register, elements, width)


def layout_text(kind: Type | None) -> str:
    """A layout in a few characters: its kind and what is dealt out to threads and warps."""
    if kind is None or not kind.layout:
        return ""
    name = re.findall(r"#(?:ttg|ttng|gluon)\.(\w+)", kind.layout)
    numbers = {key: "x".join(re.findall(r"\d+", found)) for key, found in re.findall(r"(\w+) = \[([\d, ]+)\]", kind.layout)}
    told = [("each", "sizePerThread"), ("lanes", "threadsPerWarp"), ("warps", "warpsPerCTA"), ("instruction", "instrShape")]
    return " ".join([" of ".join(name), *(f"{word} {numbers[key]}" for word, key in told if key in numbers)])


__all__ = ["Holder", "TileLayout", "layout_of_tile", "layout_text"]
