"""Where a layout of shared memory puts each element: asked of the compiler's own linear layouts."""

from __future__ import annotations

import re
import tempfile
from functools import cache
from math import prod

import numpy as np

from bitverdict.harness.emulator.compiler_process import in_compiler_process
from bitverdict.harness.emulator.releases import installed_release

_SWIZZLED_LAYOUT = re.compile(r"#ttg\.swizzled_shared<.*order = \[([\d, ]+)\]")
_NVMMA = re.compile(r"#ttg\.nvmma_shared<(?!.*fp4Padded = true)(?:.*rank = (\d+))?")
_LINEAR = re.compile(r"#ttg\.shared_linear<\{offset = \[\[([\d, ]+)\]")


def _rank(layout: str) -> int:
    """How many axes `layout` orders. ValueError for a layout that is not known."""
    if found := _NVMMA.match(layout):
        return int(found[1] or 2)
    if found := _SWIZZLED_LAYOUT.match(layout) or _LINEAR.match(layout):
        return found[1].count(",") + 1
    raise ValueError(f"the order of {layout[:80]}")


@cache
def places(layout: str, shape: tuple[int, ...], element: str, itemsize: int) -> np.ndarray | None:
    """The byte, from the first of the allocation on, at which each element of a tensor of `shape` begins under `layout` (aliases
    written out); None where they lie row-major. An axis more than the layout orders counts buffers, one behind the other.
    ValueError for a layout that is not known."""
    rank = _rank(layout)
    outer, inner = shape[: len(shape) - rank], shape[len(shape) - rank :]
    if len(inner) < rank or len(outer) > 1:
        raise ValueError(f"{shape} in {layout[:80]}")
    if not installed_release().describes_shared_layouts:
        raise ValueError(f"triton {installed_release().name} does not say where {layout[:80]} puts an element")
    bases = _bases(layout, inner, element)
    if 1 << len(bases) != prod(inner):
        raise ValueError(f"{shape} in {layout[:80]}: some bytes hold no element, or several do one")
    reached = np.zeros((1, rank), np.int64)  # (bytes / itemsize, rank) coordinates
    for basis in bases:
        reached = np.concatenate([reached, reached ^ np.array(basis)])
    byte_places = np.zeros(inner, np.int64)
    byte_places[tuple(reached.T)] = np.arange(len(reached)) * itemsize
    if outer:
        byte_places = byte_places + (np.arange(outer[0]) * prod(inner) * itemsize).reshape(-1, *[1] * rank)
    byte_places.flags.writeable = False
    dense = (np.arange(prod(shape)) * itemsize).reshape(shape)
    return None if (byte_places == dense).all() else byte_places


@in_compiler_process
def _bases(layout: str, shape: tuple[int, ...], element: str) -> list[list[int]]:
    """The coordinates that each bit of an element's number in memory moves by."""
    from triton._C.libtriton import amd, gluon_ir, ir, nvidia

    context = ir.context()
    ir.load_dialects(context)
    nvidia.load_dialects(context)
    amd.load_dialects(context)
    kind = f"!ttg.memdesc<{'x'.join(map(str, shape))}x{element}, {layout}, #ttg.shared_memory, mutable>"
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(
            f'module attributes {{"ttg.threads-per-warp" = 32 : i32}} {{ tt.func public @layout(%a: {kind}) {{ tt.return }} }}'
        )
        file.flush()
        module = ir.parse_mlir_module(file.name, context)
    module.context = context  # or it is gone before the module is
    builder = gluon_ir.GluonOpBuilder(context)
    held = builder.get_gluon_layout_from_memdesc(module.get_function("layout").args(0))
    return builder.to_linear_layout(held._to_ir(builder), list(shape)).offset_bases
