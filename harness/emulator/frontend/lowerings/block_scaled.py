"""Block-scaled products: fp4 widened by the compiler, scales in tensor memory, tcgen05.mma and mma.sync with block scales.

Scales lie in tensor memory as PTX says (ISA 9.7.16, "scale factors"): row r of a tile of 128 in lane r % 32, four scales of K in a
column, columns of the row's quarters side by side, tiles first, then the next four scales. The copy to all four warps is not held.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bitverdict.harness.emulator.execution.cluster_order import CLUSTER, OWN, reach
from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.onchip_access import TENSOR_BYTES, TENSOR_ROW
from bitverdict.harness.emulator.execution.tensor_core_pipes import TensorCore, element_codes
from bitverdict.harness.emulator.frontend.translator import NotModelled, Translator, lowers
from bitverdict.harness.emulator.memory.onchip import View, places_in
from bitverdict.harness.emulator.memory.placed_views import ScatteredView
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.matrix_products import layout_number
from bitverdict.reference import packing
from bitverdict.reference.formats import E2M1, FORMATS, decode, encode
from bitverdict.reference.tensor_core import Instruction, instruction, scaled_product

LANES, QUARTER_COLUMNS = 32, 4  # rows of one column of scales, bytes of K in it
ELEMENTS = {0: "e4m3", 1: "e5m2", 2: "e2m3", 3: "e3m2", 4: "e2m1"}  # Triton's ScaleDotElemType


@lowers("ttg.fp4_to_fp")
def widen_fp4(t: Translator, op: Operation) -> None:
    """Two elements a byte along `axis`, the low nibble first; exact in fp16 and bf16."""
    fmt, axis = FORMATS[t.result(op).format or ""], op.integer("axis")
    table = encode(fmt, decode(E2M1, np.arange(16, dtype=np.uint8)))  # (16,)
    t.call(op, lambda packed: table[packing.unpack(packed.view(np.uint8), axis)])


def scale_pieces(kind: Type) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(pieces, byte strides) of scales (rows, scales of K) in tensor memory. ValueError for what is no whole number of columns."""
    rows, scales = kind.shape
    if rows % LANES or scales % QUARTER_COLUMNS:
        raise ValueError(f"{rows} x {scales} scales")
    quarters = rows // LANES
    pieces = quarters, LANES, scales // QUARTER_COLUMNS, QUARTER_COLUMNS
    return pieces, (QUARTER_COLUMNS, TENSOR_ROW, quarters * QUARTER_COLUMNS, 1)


def allocate_scales(t: Translator, op: Operation, kind: Type) -> None:
    """tmem_alloc in the layout of scales. Without a value nothing is touched: what writes there runs in the pipe, behind the
    products that still read it."""
    held = t.split(kind)
    pieces, strides = scale_pieces(replace(kind, shape=held.tile))
    offset = op.integer("tensor_memory_row_offset") * TENSOR_ROW + op.integer("tensor_memory_col_offset") * 4
    (value,) = t.operands(op, "source?")
    if t.ctas > 1:
        places = held.places(places_in(held.tile, pieces, strides), TENSOR_BYTES)
        t.machine(op, place_scales, offset, places, kind.dtype, value)
        return
    t.machine(op, write_scales, offset, kind.shape, strides, kind.dtype, pieces, value)


def place_scales(m: Cta, op: Operation, offset: int, places: np.ndarray, dtype: np.dtype, value: np.ndarray | None) -> View:
    """As `write_scales`, of a cluster: elements begin `places` bytes from `offset`."""
    view = ScatteredView(m.onchip.tensor, places + offset, dtype)
    if value is not None:
        m.onchip.write(op, view, value)
    return view


def write_scales(
    m: Cta, op: Operation, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: np.dtype,
    pieces: tuple[int, ...], value: np.ndarray | None,
) -> View:  # fmt: skip
    """A view of scales at `offset` of tensor memory, written when there is a `value`."""
    view = View(m.onchip.tensor, offset, shape, strides, dtype, pieces)
    if value is not None:
        m.onchip.write(op, view, value)
    return view


@lowers("ttg.memdesc_reshape")
def reshape(t: Translator, op: Operation) -> None:
    t.call(op, reshape_view, t.result(op).shape)


def reshape_view(view: View, shape: tuple[int, ...]) -> View:
    """The same elements, row-major, as `shape`: by strides where they allow it, else remembering the pieces."""
    if isinstance(view, ScatteredView):
        return view.reshape(shape)
    if view.pieces == view.shape:
        array = view.array.view()
        try:
            array.shape = shape
        except AttributeError:  # the axes do not lie one behind the other
            return View(view.space, view.offset, shape, view.strides, view.dtype, view.pieces, view.spread)
        return View(view.space, view.offset, shape, array.strides, view.dtype, spread=view.spread)
    return View(view.space, view.offset, shape, view.strides, view.dtype, view.pieces, view.spread)


@lowers("ttng.tc_gen5_mma_scaled")
def scaled_mma(t: Translator, op: Operation) -> None:
    names = "a", "b", "d", "token?", "a_scale", "b_scale", "use", "enabled", "barriers*", "conditions*"
    left, right, into, _token, left_scale, right_scale, use, is_enabled, barriers, conditions = t.operands(op, *names)
    scales = t.type_of(op, "a_scale", names), t.type_of(op, "b_scale", names)
    elements = ELEMENTS.get(op.integer("a_type")), ELEMENTS.get(op.integer("b_type"))
    if None in elements or None in scales:
        raise NotModelled(op, "on these elements")
    model = _model(t, op, elements, scales, t.operand(op, 0))
    a, b = t.operand(op, 0), t.operand(op, 1)
    k = a.shape[1] * (2 if elements[0] == "e2m1" else 1)
    t.products[("tcgen05", model.a, model.b, model.d, a.shape[0], b.shape[1], k)] += 1
    signals = tuple(zip(barriers, conditions, strict=True))
    pair, multicast = "two_ctas" in op.attributes, "multicast" in op.attributes
    count = t.commits(op, op.operands[:2], multicast=multicast)
    over = CLUSTER if multicast else reach(t.ctas, 2) if pair else OWN
    with t.when(is_enabled):
        t.machine(
            op, TensorCore.scaled_mma, model, left, left_scale, right, right_scale, into, use, signals,
            "is_async" in op.attributes, count, over, pair,
        )  # fmt: skip


@lowers("tt.dot_scaled")
def scaled_mma_sync(t: Translator, op: Operation) -> None:
    """mma.sync with block scales (sm_120): operands and scales in registers. What a thread holds is 32 bits, so k ascends."""
    names = "a", "b", "c", "a_scale?", "b_scale?"
    *_, left_scale, right_scale = t.operands(op, *names)
    layout = t.program.expand(t.result(op).layout)
    if "nvidia_mma" not in layout or layout_number(layout, "versionMajor") != 2 or None in (left_scale, right_scale):
        raise NotModelled(op, f"with the layout {layout[:80]}, or without both scales")
    a, b = t.operand(op, 0), t.operand(op, 1)
    widths = [layout_number(t.program.expand(each.layout), "kWidth") for each in (a, b)]
    if widths != [4, 4] or "false" in (op.attributes.get("lhs_k_pack"), op.attributes.get("rhs_k_pack")):
        raise NotModelled(op, f"whose threads hold {widths} neighbouring k, or that is packed along M or N")
    elements = ELEMENTS.get(op.integer("a_elem_type")), ELEMENTS.get(op.integer("b_elem_type"))
    if None in elements:
        raise NotModelled(op, "on these elements")
    model = _model(t, op, elements, tuple(t.type_of(op, name, names) for name in ("a_scale", "b_scale")), a, "mma.sync")
    k = a.shape[1] * (2 if elements[0] == "e2m1" else 1)
    t.products[("mma.sync", model.a, model.b, model.d, a.shape[0], b.shape[1], k)] += 1

    def run(left: np.ndarray, right: np.ndarray, before: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        codes = element_codes(model.a, left, 1), element_codes(model.b, right, 0)  # (M, K), (K, N)
        c = np.ascontiguousarray(before).view(np.uint32)
        return scaled_product(model, codes[0], rows.view(np.uint8), codes[1], columns.view(np.uint8), c).view(np.float32)

    t.call(op, run)


def _model(t: Translator, op: Operation, elements: tuple, scales: tuple, a: Type, family: str = "tcgen05") -> Instruction:
    """The kind that MMAv5.cpp chooses: mxf4nvf4 for two e2m1 with e4m3 scales, mxf4 with e8m0 ones, mxf8f6f4 for all else. For
    mma.sync MMAv2.cpp writes mxf4nvf4 for two e2m1 with either."""
    formats = {"f8E4M3FN": "ue4m3", "i8": "e8m0"}
    scale = formats.get(scales[0].element)
    if scale is None or scales[0].element != scales[1].element:
        raise NotModelled(op, f"scales of {scales[0].element} and {scales[1].element}")
    k = a.shape[1] * (2 if elements[0] == "e2m1" else 1)
    both_fp4 = elements == ("e2m1", "e2m1")
    kind = "mxf8f6f4" if not both_fp4 else "mxf4" if scale == "e8m0" and family == "tcgen05" else "mxf4nvf4"
    size = k // scales[0].shape[1]
    return instruction(t.arch, family, elements[0], elements[1], "fp32", scale=scale, scale_block=size, kind=kind)
