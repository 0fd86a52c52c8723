"""X as elements that share a scale by block: MXFP4, MXFP8 (e4m3, e5m2) and NVFP4, in blocks along a row.

    MX (32 elements)      2^s = 2^(floor(log2(A)) - emax), A the largest |x| of the block; elements = round(x / 2^s), saturating
    NVFP4 (16 elements)   s = round(min(A / (6 T), 448)) to e4m3; elements = round(x / (s T)), saturating; T the tensor's scale

X: (rows, columns) of fp32, fp16 or bf16. Elements of e2m1 are packed two to a byte, the even column in the low nibble; those of
MXFP8 are fp8. Scales: (rows, blocks), of MX E8M0 codes (bytes), of NVFP4 e4m3. The last block of a row may be short. MX is OCP's
rule (MX 1.0, section 6.3): the exponent is read from the bits, the product with 2^-s is exact, and each element is rounded once, to
nearest even. In NVFP4 6 T, both quotients and s T are fp32 and rounded, then the conversions round again.

Preconditions, and what each costs when broken:

- The columns of a row are neighbours, the rows may lie apart: otherwise other elements are read. Refused by the launcher.
- What lies behind the last column counts as 0: it is packed with the last element of an odd row, and may raise no scale.
- A block with a NaN or an infinity gets the scale's NaN and zero elements: all its values are NaN. Otherwise it gets a number.
- e4m3 exists from sm_89 on: elsewhere the compiler refuses MXFP8 e4m3 and NVFP4.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import is_power_of_two
from bitverdict.kernels.element_types import element_type
from bitverdict.kernels.features import Feature
from bitverdict.kernels.row_tiles import CLAUSES as ROW_CLAUSES
from bitverdict.kernels.row_tiles import UNFUSED_OPTIONS, row_stride

REQUIRES: frozenset[Feature] = frozenset()
FORMATS = {"mxfp4": 32, "mxfp8_e4m3": 32, "mxfp8_e5m2": 32, "nvfp4": 16}
"""Elements that share a scale, by format."""
NEEDS_E4M3 = ("mxfp8_e4m3", "nvfp4")
_ELEMENTS = {"mxfp8_e4m3": torch.float8_e4m3fn, "mxfp8_e5m2": torch.float8_e5m2}


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A (rows, columns) matrix of `dtype` and what it becomes; `x_pad` elements follow each row."""

    rows: int
    columns: int
    dtype: str = "fp32"
    format: str = "mxfp4"
    tensor_scale: float = 1.0
    x_pad: int = 0


@dataclass(frozen=True, kw_only=True)
class Config:
    """Elements of the tile of one program, all of one row, and warps."""

    block: int = 1024
    num_warps: int = 4


CLAUSES = (
    ROW_CLAUSES[0],
    Clause(
        name="format",
        holds=lambda p, c: p.format in FORMATS,
        value=lambda p, c: f"format {p.format}",
        rule=f"the format is one of {', '.join(FORMATS)}",
        remedy="take mxfp4",
        cost="there is no scale of that kind",
    ),
    Clause(
        name="tensor scale",
        holds=lambda p, c: 2.0**-126 <= p.tensor_scale <= 2.0**125 if p.format == "nvfp4" else p.tensor_scale == 1,
        value=lambda p, c: f"tensor_scale = {p.tensor_scale} of {p.format}",
        rule="the tensor scale of nvfp4 is between 2^-126 and 2^125, the MX formats have none",
        remedy="multiply the values",
        cost="six times the scale is no normal number of fp32, or the scale is left out",
    ),
    Clause(
        name="block",
        holds=lambda p, c: (
            is_power_of_two(c.block) and 32 <= c.block <= 16384 and is_power_of_two(c.num_warps) and c.num_warps <= 16
        ),
        value=lambda p, c: f"block = {c.block}, num_warps = {c.num_warps}",
        rule="a block is a power of two from 32 to 16384, num_warps one up to 16",
        remedy="take block=1024, num_warps=4",
        cost="a tile holds no whole block",
        layer="front end",
    ),
)


@triton.jit
def e2m1_codes(values):
    """Codes of e2m1 (uint8, the shape of `values`, fp32): nearest, ties to the even code, 6 for what is larger."""
    size = tl.abs(values)
    code = (size > 0.25).to(tl.uint8) + (size >= 0.75).to(tl.uint8) + (size > 1.25).to(tl.uint8) + (size >= 1.75).to(tl.uint8)
    code += (size > 2.5).to(tl.uint8) + (size >= 3.5).to(tl.uint8) + (size > 5.0).to(tl.uint8)
    return code | (values.to(tl.uint32, bitcast=True) >> 31 << 3).to(tl.uint8)


@triton.jit(do_not_specialize=["scale_stride"])
def quantize_mxfp_kernel(
    x, elements, scales, columns, x_stride, element_stride, scale_stride, tensor_scale, FORMAT: tl.constexpr, BLOCKS: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1) * BLOCKS + tl.arange(0, BLOCKS)  # (BLOCKS,)
    column = block[:, None] * SIZE + tl.arange(0, SIZE)[None, :]  # (BLOCKS, SIZE)
    values = tl.load(x + row * x_stride + column, mask=column < columns, other=0.0).to(tl.float32)  # (BLOCKS, SIZE)
    largest = tl.max(values.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)  # (BLOCKS,) as words: a NaN is above infinity
    finite = largest < 0x7F800000  # (BLOCKS,)
    values = tl.where(finite[:, None], values, 0.0)  # (BLOCKS, SIZE)
    if FORMAT == "nvfp4":
        top = tl.where(finite, largest, 0).to(tl.float32, bitcast=True)  # (BLOCKS,)
        scale = tl.div_rn(top, 6.0 * tensor_scale).to(tl.float8e4nv)  # (BLOCKS,) saturates
        divisor = scale.to(tl.float32) * tensor_scale  # (BLOCKS,)
        divisor = tl.where(divisor > 0, divisor, float("inf"))  # (BLOCKS,) zeros of the values' signs
        scaled_values = tl.div_rn(values, tl.broadcast_to(divisor[:, None], (BLOCKS, SIZE)))  # (BLOCKS, SIZE)
        code = tl.where(finite, scale.to(tl.uint8, bitcast=True), 0x7F).to(tl.uint8)  # (BLOCKS,)
    else:
        EMAX: tl.constexpr = 2 if FORMAT == "mxfp4" else (8 if FORMAT == "mxfp8_e4m3" else 15)
        exponent = tl.maximum((largest >> 23) - EMAX, 0)  # (BLOCKS,)
        power = (254 - exponent << 23).to(tl.float32, bitcast=True)  # (BLOCKS,) 2^-s
        scaled_values = values * power[:, None]  # (BLOCKS, SIZE)
        code = tl.where(finite, exponent, 0xFF).to(tl.uint8)  # (BLOCKS,)
    place = scales + row * scale_stride + block  # (BLOCKS,)
    tl.store(place, code.to(scales.dtype.element_ty, bitcast=True), mask=block * SIZE < columns)
    if FORMAT == "mxfp4" or FORMAT == "nvfp4":
        low, high = tl.split(e2m1_codes(scaled_values).reshape((BLOCKS, SIZE // 2, 2)))  # (BLOCKS, SIZE / 2) each
        byte = block[:, None] * (SIZE // 2) + tl.arange(0, SIZE // 2)[None, :]  # (BLOCKS, SIZE / 2)
        tl.store(elements + row * element_stride + byte, low | high << 4, mask=byte * 2 < columns)
    else:
        made = scaled_values.to(elements.dtype.element_ty)  # (BLOCKS, SIZE) saturates
        tl.store(elements + row * element_stride + column, made, mask=column < columns)


def quantize_mxfp(
    x: torch.Tensor, format: str = "mxfp4", *, tensor_scale: float = 1.0, block: int = 1024, num_warps: int = 4
) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements and scales (rows, blocks) of `x` (rows, columns), on its device. ValueError names the broken clause.

    Elements: bytes (rows, ceil(columns / 2)) of e2m1, or fp8 (rows, columns). Scales: bytes of E8M0, or torch.float8_e4m3fn.
    `tensor_scale` is NVFP4's: largest |x| / (448 * 6) in NVIDIA's recipe.
    """
    stride = row_stride("quantize_mxfp", "x", x)
    rows, columns = x.shape
    problem = Problem(
        rows=rows,
        columns=columns,
        dtype=element_type(x.dtype).name,
        format=format,
        tensor_scale=float(tensor_scale),
        x_pad=max(stride - columns, 0),
    )
    require("quantize_mxfp", CLAUSES, problem, Config(block=block, num_warps=num_warps))
    size, packed = FORMATS[format], format not in _ELEMENTS
    width, blocks = triton.cdiv(columns, 2) if packed else columns, triton.cdiv(columns, size)
    elements = torch.empty((rows, width), dtype=_ELEMENTS.get(format, torch.uint8), device=x.device)
    scales = torch.empty((rows, blocks), dtype=torch.float8_e4m3fn if format == "nvfp4" else torch.uint8, device=x.device)
    if x.numel():
        quantize_mxfp_kernel[(rows, triton.cdiv(columns, block))](
            x, elements, scales, columns, stride, width, blocks, float(tensor_scale), format, block // size, size,
            num_warps=num_warps, **UNFUSED_OPTIONS,
        )  # fmt: skip
    return elements, scales
