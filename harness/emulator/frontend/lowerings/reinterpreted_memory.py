"""Memory on the chip that is read by another type, shape or layout than it was written in (`memdesc_reinterpret`).

The descriptor keeps its first byte, and the new layout says where each element lies from there on. The compiler's verifier holds
it to the bytes of the old one. Tensor memory is held as it lies. Shared memory is held row-major where nothing reinterprets it; in
a program that does, every allocation lies as the compiler lays it.
"""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.frontend.lowerings.shared_memory import places_of, tensor_pieces
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.onchip import View, row_major
from bitverdict.harness.emulator.memory.placed_views import ScatteredView
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("ttg.memdesc_reinterpret")
def reinterpret(t: Translator, op: Operation) -> None:
    kind = t.result(op)
    (view,) = t.operands(op, "view")
    if kind.space == "tensor":
        layouts = [t.program.expand(held.layout) for held in (t.operand(op, 0), kind)]
        if any("tensor_memory_scales" in layout for layout in layouts):
            raise NotModelled(op, "of scales: one of the four copies is held that tensor memory has of them")
        pieces, strides = tensor_pieces(kind, layouts[1], op)
        t.machine(op, in_strides, view, kind.shape, strides, kind.dtype, pieces if pieces != kind.shape else None)
    elif (places := places_of(t, kind)) is None:
        t.machine(op, in_strides, view, kind.shape, row_major(kind.shape, kind.itemsize), kind.dtype, None)
    else:
        t.machine(op, in_places, view, places, kind.dtype)


def in_strides(
    m: Cta, op: Operation, view: View, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype,
    pieces: tuple[int, ...] | None,
) -> View:  # fmt: skip
    """`view` as elements of `dtype`, `strides` bytes apart."""
    return View(view.space, _first_byte(view), shape, strides, dtype, pieces)


def in_places(m: Cta, op: Operation, view: View, places: np.ndarray, dtype: np.dtype) -> View:
    """`view` as elements of `dtype`, `places` bytes from its first."""
    return ScatteredView(view.space, places + _first_byte(view), dtype)


def _first_byte(view: View) -> int:
    """The byte of its first element."""
    return int(view.at.flat[0]) if isinstance(view, ScatteredView) else view.offset
