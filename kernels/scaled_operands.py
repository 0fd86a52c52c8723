"""What the operands of a block-scaled product are: formats, packed scales, and the `Problem` that given tensors pose."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from bitverdict.kernels.descriptor_rules import ALIGNMENT_BYTES, Matrix
from bitverdict.kernels.element_types import ELEMENT_TYPES

TILE_ROWS, TILE_COLUMNS, TILE_BYTES = 128, 4, 512  # of the packed scales
SPREAD_UNIT = 128  # elements: an fp4 operand beside an fp8 one is spread to bytes on its way, in rows of whole units
SPREAD_BYTES = 32  # boundary on which its rows and its base lie


@dataclass(frozen=True, kw_only=True)
class ScaledFormat:
    """What A, B and their scales hold: element names as `tl.dot_scaled` has them, elements a scale, the scale's format."""

    a: str
    b: str
    block_size: int
    scale: str

    @property
    def one_code(self) -> int:
        """Code of the scale 1."""
        return 0x7F if self.scale == "e8m0" else 0x38


FORMATS: dict[str, ScaledFormat] = {
    "mxfp4": ScaledFormat(a="e2m1", b="e2m1", block_size=32, scale="e8m0"),
    "nvfp4": ScaledFormat(a="e2m1", b="e2m1", block_size=16, scale="ue4m3"),
    "mxfp8": ScaledFormat(a="e4m3", b="e4m3", block_size=32, scale="e8m0"),
    "mixed": ScaledFormat(a="e4m3", b="e2m1", block_size=32, scale="e8m0"),
}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Sizes, format, output; bytes after each row of A and B, after each row of scale tiles, and after each tile of scales.

    `b_order`: how B lies as the right-hand side (k, n). "column": elements along K follow each other; "row": those along N do, and
    `b_pad` follows each of k rows."""

    m: int
    n: int
    k: int
    format: str = "nvfp4"
    out: str = "fp16"
    a_pad: int = 0
    b_pad: int = 0
    a_scale_pad: int = 0
    b_scale_pad: int = 0
    a_tile_pad: int = 0
    b_tile_pad: int = 0
    a_offset: int = 0  # bytes past a 32-byte boundary
    b_offset: int = 0
    b_order: str = "column"


def packing(element: str) -> int:
    """Elements a byte."""
    return 2 if element == "e2m1" else 1


def spread(format_name: str) -> bool:
    """Whether B's e2m1 meet e4m3, one a byte: TMA writes each into a byte of its own."""
    return FORMATS[format_name].a != FORMATS[format_name].b


def scale_shape(rows: int, k: int, block_size: int) -> tuple[int, int, int, int, int]:
    """Of the packed scales of `rows` rows: whole tiles, the last ones padded."""
    columns = triton.cdiv(k, block_size)
    return triton.cdiv(rows, TILE_ROWS), triton.cdiv(columns, TILE_COLUMNS), 32, 4, 4


def matrices(problem: Problem, config: object) -> list[Matrix]:
    p, f = problem, FORMATS[problem.format]
    a_row, b_row = p.k // packing(f.a), p.k // packing(f.b)
    b_rows, b_row = (p.k, p.n) if p.b_order == "row" else (p.n, b_row)
    return [
        Matrix("A", "int8", p.m, a_row, a_row + p.a_pad, p.a_offset % ALIGNMENT_BYTES),
        Matrix("B", "int8", b_rows, b_row, b_row + p.b_pad, p.b_offset % ALIGNMENT_BYTES),
    ]


def runs_along_n(b: torch.Tensor) -> bool:
    """Whether the elements of B (n, k) that follow each other in memory are those along N."""
    return b.dim() == 2 and b.stride(0) == 1 != b.stride(1)


def problem_of(
    a: torch.Tensor,
    a_scale: torch.Tensor,
    b: torch.Tensor,
    b_scale: torch.Tensor,
    out_dtype: torch.dtype = torch.float16,
    sizes: tuple[int | None, int | None, int | None] = (None, None, None),
) -> Problem:
    """The `Problem` that these operands pose. ValueError where types, shapes, strides or places do not belong together."""
    name = format_of(a.dtype, b.dtype, a_scale.dtype, b_scale.dtype)
    f = FORMATS[name]
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] * packing(f.a) != b.shape[1] * packing(f.b):
        raise ValueError(
            f"block_scaled_matmul: a {tuple(a.shape)} and b {tuple(b.shape)} in {name}: must be (m, k) and (n, k) with "
            "one k, two e2m1 counted for a byte; pass b with n first"
        )
    if len({t.device for t in (a, a_scale, b, b_scale)}) > 1:
        raise ValueError("block_scaled_matmul: the operands lie on several devices: must share one; move them with .to(...)")
    m, n, k = a.shape[0], b.shape[0], a.shape[1] * packing(f.a)
    if any(size not in (None, there) for size, there in zip(sizes, (m, n, k), strict=True)):
        raise ValueError(f"block_scaled_matmul: m, n, k = {sizes} for operands of {(m, n, k)}: must be the same; slice them")
    pads = {}
    b_along_n = runs_along_n(b)
    for side, operand, scale, rows in (("a", a, a_scale, m), ("b", b.T if b_along_n else b, b_scale, n)):
        pads[f"{side}_pad"] = _row_pad(operand)
        pads[f"{side}_offset"] = operand.data_ptr() % SPREAD_BYTES
        pads |= {
            f"{side}_{kind}_pad": pad for kind, pad in zip(("scale", "tile"), _scale_pads(side, scale, rows, k, f), strict=True)
        }
    out = next((entry.name for entry in ELEMENT_TYPES.values() if entry.torch == out_dtype), str(out_dtype))
    return Problem(m=m, n=n, k=k, format=name, out=out, b_order="row" if b_along_n else "column", **pads)


def format_of(a: torch.dtype, b: torch.dtype, a_scale: torch.dtype, b_scale: torch.dtype) -> str:
    """The format that these types spell. ValueError where they spell none."""
    element = {torch.uint8: "e2m1", torch.float8_e4m3fn: "e4m3"}
    scale = {torch.uint8: "e8m0", torch.float8_e4m3fn: "ue4m3"}
    asked = element.get(a), element.get(b), scale.get(a_scale), scale.get(b_scale)
    for name, f in FORMATS.items():
        if asked == (f.a, f.b, f.scale, f.scale):
            return name
    raise ValueError(
        f"block_scaled_matmul: elements {a} and {b} with scales {a_scale} and {b_scale}: spell no format of "
        f"{', '.join(FORMATS)}; view packed e2m1 and e8m0 as torch.uint8, ue4m3 as torch.float8_e4m3fn"
    )


def _row_pad(operand: torch.Tensor) -> int:
    if (operand.shape[1] > 1 and operand.stride(1) != 1) or (operand.shape[0] > 1 and operand.stride(0) < operand.shape[1]):
        raise ValueError(
            f"block_scaled_matmul: strides {operand.stride()}: rows must be contiguous along K and not overlap; call .contiguous()"
        )
    return operand.stride(0) - operand.shape[1] if operand.shape[0] > 1 else -operand.shape[1] % ALIGNMENT_BYTES


def _scale_pads(side: str, scale: torch.Tensor, rows: int, k: int, f: ScaledFormat) -> tuple[int, int]:
    """(bytes after each row of tiles, bytes after each tile)."""
    shape = scale_shape(rows, k, f.block_size)
    if tuple(scale.shape) != shape:
        raise ValueError(
            f"block_scaled_matmul: scales of {side} are {tuple(scale.shape)}: {rows} rows of {k} elements, one scale "
            f"for {f.block_size}, take {shape}; pack them in tiles of 128 x 4, padded to whole tiles"
        )
    row, tile, *inner = scale.stride()
    if inner != [16, 4, 1]:
        raise ValueError(
            f"block_scaled_matmul: scales of {side} have strides {scale.stride()}: a tile must be contiguous; call .contiguous()"
        )
    tile_pad = tile - TILE_BYTES if shape[1] > 1 else 0
    return (row - shape[1] * (TILE_BYTES + tile_pad) if shape[0] > 1 else 0), tile_pad
