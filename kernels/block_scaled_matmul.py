"""C = convert(A B) of elements that share a scale by block along K: mxfp4, nvfp4, mxfp8 and mixed.

    C[i, j] = convert(sum over k of (A[i, k] * SA[i, k // V]) * (B[j, k] * SB[j, k // V]))
    A: (M, K), B: (N, K), two e2m1 a byte (low nibble first) or one e4m3; V = 32 and e8m0 scales, for nvfp4 V = 16 and ue4m3
    SA: (M / 128, K / V / 4, 32, 4, 4), SB: likewise for N, sizes rounded up: scale of row r, block j of tile (r // 128, j // 4) at
    [r % 32, r % 128 // 32, j % 4]

The sum is one chain in fp32 that starts at zero; the conversion happens once, after it, and saturates for e4m3. On Blackwell the
scale enters the instruction exactly. Elsewhere the compiler widens: element times scale, rounded to bf16, then bf16 instructions.
An e4m3 scale with its sign bit set is negative there; Blackwell ignores the bit.

Preconditions, and what each costs when broken:

- Rows of A and B start on 16-byte boundaries (a mixed B: 32, and K a multiple of 128): a tensor map has no other unit. Refused.
- B in e4m3 may run along N as well as along K: tcgen05 and wgmma read 8-bit operands of either order through their descriptors, and
  TMA brings (BLOCK_K, BLOCK_N) as it lies. Packed e2m1 run along K only, two of one row a byte. Refused otherwise.
- The last dimension of the scales is contiguous; with 2D loads all of a 512-byte tile is, and tiles follow each other. Refused.
- Scales are loaded only from tiles that exist, and those of a block of K past the end are replaced by one: a byte of padding, or
  past the buffer, may be a NaN, and the zeros that TMA supplies for the elements there do not silence it.
- B's scales have strides of their own. Scales of rows past M or N may be anything: they reach only rows that are never stored.
- The rows of C are allocated in whole 16-byte units, which TMA needs; what is returned is the view of N columns.

Where K has whole tiles of scales, nothing stands between their load and the product, and Blackwell copies them from shared to
tensor memory; the replacement takes the path through registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.runtime import driver
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.kernels.clauses import Clause, require
from bitverdict.kernels.descriptor_rules import (
    ALIGNMENT_BYTES,
    base_clause,
    is_power_of_two,
    output_clause,
    positive_clause,
    stride_clause,
)
from bitverdict.kernels.element_types import ELEMENT_TYPES
from bitverdict.kernels.features import Feature
from bitverdict.kernels.scaled_operands import (
    FORMATS,
    SPREAD_UNIT,
    TILE_BYTES,
    TILE_COLUMNS,
    TILE_ROWS,
    Problem,
    matrices,
    packing,
    problem_of,
    spread,
)

REQUIRES = frozenset({Feature.MMA_SYNC})  # the compiler widens where there is no block-scaled instruction
OUTPUTS = ("fp32", "fp16", "e4m3")
LARGEST_SIZE = 2**31 - 1 - 256  # a size plus one tile still fits the 32-bit arithmetic of the tile numbers


@dataclass(frozen=True, kw_only=True)
class Config:
    """The tile of one program, loads of scales in two dimensions or five, tensor descriptors made on the host or on the device."""

    block_m: int = 128
    block_n: int = 128
    block_k: int = 128
    num_stages: int = 3
    num_warps: int = 4
    scale_load: str = "2D"
    descriptors: str = "host"

    @property
    def name(self) -> str:
        return (
            f"{self.block_m}x{self.block_n}x{self.block_k} s{self.num_stages} w{self.num_warps} {self.scale_load} "
            f"{self.descriptors}"
        )


def configurations(format_name: str, *, block_scaled_mma: bool) -> tuple[Config, ...]:
    """Tiles worth trying, the default first; where the machine lacks the instruction a wide tile's bf16 copies would not fit."""
    deep = 256 if format_name in ("mxfp4", "nvfp4") else 128
    small = (Config(num_warps=8), Config(), Config(block_m=256), Config(block_n=256))  # with 4 warps the widened operands spill
    return (Config(block_n=256, block_k=deep, num_stages=4), *small) if block_scaled_mma else small


# fmt: off
CLAUSES: tuple[Clause, ...] = (
    Clause(name="format", holds=lambda p, c: p.format in FORMATS, value=lambda p, c: f"format {p.format}",
           rule=f"it must be one of {', '.join(FORMATS)}", remedy="quantize to one of them first",
           cost="the product would have no instruction", layer="front end"),
    output_clause(OUTPUTS),
    positive_clause("m", "n", "k"),
    Clause(name="largest sizes", holds=lambda p, c: max(p.m, p.n, p.k) <= LARGEST_SIZE,
           value=lambda p, c: f"m={p.m}, n={p.n}, k={p.k}", rule=f"no size may be above {LARGEST_SIZE}",
           remedy="multiply in parts", cost="tile numbers overflow"),
    Clause(name="whole bytes", holds=lambda p, c: p.k % 2 == 0 or "e2m1" not in (FORMATS[p.format].a, FORMATS[p.format].b),
           value=lambda p, c: f"k = {p.k} in {p.format}", rule="two e2m1 share a byte, so k must be even",
           remedy="append a zero element to every row", cost="the last nibble of a row would be the next row's"),
    Clause(name="packed along K", holds=lambda p, c: p.b_order == "column" or FORMATS[p.format].b == "e4m3",
           value=lambda p, c: f"B in {FORMATS[p.format].b} runs along N", rule="packed e2m1 run along K, two of one row a byte",
           remedy="pack B along K", cost="a byte would hold elements of two columns", layer="front end"),
    Clause(name="whole spread rows", holds=lambda p, c: not spread(p.format) or p.k % SPREAD_UNIT == 0,
           value=lambda p, c: f"k = {p.k} in {p.format}",
           rule=f"e2m1 beside e4m3 is spread to bytes by TMA, which takes rows of a multiple of {SPREAD_UNIT} elements",
           remedy="append zero elements to every row", cost="the tensor map cannot be encoded", layer="driver"),
    Clause(name="tile rows and columns",
           holds=lambda p, c: all(is_power_of_two(b) and TILE_ROWS <= b <= 256 for b in (c.block_m, c.block_n)),
           value=lambda p, c: f"block_m = {c.block_m}, block_n = {c.block_n}",
           rule=f"scales come in tiles of {TILE_ROWS} rows and TMA takes boxes of up to 256: each is 128 or 256",
           remedy="take 128", cost="the scales of a part of a tile have no address", layer="front end"),
    Clause(name="tile depth",
           holds=lambda p, c: is_power_of_two(c.block_k) and c.block_k >= 128,
           value=lambda p, c: f"block_k = {c.block_k}",
           rule=f"a power of two of at least {TILE_COLUMNS} scales of 32 elements", remedy="take 128",
           cost="the scales of a part of a tile have no address", layer="front end"),
    Clause(name="warps", holds=lambda p, c: c.num_warps in (4, 8), value=lambda p, c: f"num_warps = {c.num_warps}",
           rule="4 or 8", remedy="take 4", cost="the compiler falls back to another instruction"),
    Clause(name="scale loads", holds=lambda p, c: c.scale_load in ("2D", "5D"), value=lambda p, c: f"scale_load {c.scale_load!r}",
           rule="it must be '2D' or '5D'", remedy="take '2D'", cost="there is no other"),
    Clause(name="descriptors", holds=lambda p, c: c.descriptors in ("host", "device"),
           value=lambda p, c: f"descriptors {c.descriptors!r}", rule="they are made on the 'host' or on the 'device'",
           remedy="take 'host'", cost="there is no other"),
    Clause(name="tiles follow each other", holds=lambda p, c: c.scale_load == "5D" or not (p.a_tile_pad or p.b_tile_pad),
           value=lambda p, c: f"{p.a_tile_pad} and {p.b_tile_pad} bytes after each scale tile of A and B",
           rule=f"a 2D load takes several tiles of {TILE_BYTES} bytes as one run",
           remedy="pass contiguous scales, or scale_load='5D'", cost="other scales are read"),
    Clause(name="spread rows of 32 bytes",
           holds=lambda p, c: not spread(p.format) or not ((p.k // 2 + p.b_pad) % 32 or p.b_offset % 32),
           value=lambda p, c: f"rows of B {p.k // 2 + p.b_pad} bytes apart, from byte {p.b_offset}",
           rule="TMA spreads e2m1 from rows and a base that are multiples of 32 bytes", remedy="allocate B with padded rows",
           cost="the tensor map cannot be encoded", layer="driver"),
    stride_clause(matrices),
    base_clause(matrices),
)
# fmt: on


def launch_metadata(grid: object, kernel: Any, args: dict) -> dict:
    """What a profiler shows of a launch: the name with format and sizes, floating-point operations, bytes that must move."""
    m, n, k, a, b, block = (args[name] for name in ("m", "n", "k", "A", "B", "BLOCK_SIZE"))
    name = next(name for name, f in FORMATS.items() if (f.a, f.b, f.block_size) == (a, b, block))
    operands = m * k // packing(a) + n * k // packing(b) + (m + n) * triton.cdiv(k, block)
    return {"name": f"{kernel.name}_{name} [M={m}, N={n}, K={k}]", "flops": 2.0 * m * n * k, "bytes": operands}


# fmt: off
@triton.jit
def load_scales(base, rows, columns, stride_row, stride_tile, tile_row, tile_column,
                TILES: tl.constexpr, STEPS: tl.constexpr, WHOLE_BLOCKS: tl.constexpr, ONE_CODE: tl.constexpr, FLAT: tl.constexpr):
    """Scales (128 * TILES, 4 * STEPS) of the tiles from (tile_row, tile_column) on, of a matrix with `rows` x `columns` of them."""
    places = base + tile_column.to(tl.int64) * stride_tile
    tile = tile_row + tl.arange(0, TILES)  # (TILES,)
    tile_mask = tile < tl.cdiv(rows, 128)  # (TILES,): a program's second tile of rows need not exist
    tile = tile.to(tl.int64)
    if FLAT:
        byte = tl.arange(0, STEPS * 512)  # (STEPS * 512,)
        places = places + tile[:, None] * stride_row + byte[None, :]  # (TILES, STEPS * 512)
        if not WHOLE_BLOCKS:
            packed_scales = tl.load(places, mask=tile_mask[:, None] & ((tile_column + byte // 512) * 4 < columns)[None, :])
        elif TILES > 1:
            packed_scales = tl.load(places, mask=tile_mask[:, None])
        else:
            packed_scales = tl.load(places)
        packed_scales = packed_scales.reshape(TILES, STEPS, 32, 4, 4)
    else:
        step = tl.arange(0, STEPS)  # (STEPS,)
        lane = tl.arange(0, 32)  # (32,)
        four = tl.arange(0, 4)  # (4,)
        places = (places + tile[:, None, None, None, None] * stride_row + step[None, :, None, None, None] * stride_tile
                  + lane[None, None, :, None, None] * 16 + four[None, None, None, :, None] * 4
                  + four[None, None, None, None, :])  # (TILES, STEPS, 32, 4, 4)
        if not WHOLE_BLOCKS:
            read = tile_mask[:, None] & ((tile_column + step) * 4 < columns)[None, :]  # (TILES, STEPS)
            packed_scales = tl.load(places, mask=read[:, :, None, None, None])
        elif TILES > 1:
            packed_scales = tl.load(places, mask=tile_mask[:, None, None, None, None])
        else:
            packed_scales = tl.load(places)
    scales = packed_scales.trans(0, 3, 2, 1, 4).reshape(TILES * 128, STEPS * 4)  # (128 * TILES, 4 * STEPS)
    if not WHOLE_BLOCKS:
        column = tile_column * 4 + tl.arange(0, STEPS * 4)  # (4 * STEPS,)
        codes = tl.where((column < columns)[None, :], scales.to(tl.uint8, bitcast=True), ONE_CODE)
        scales = codes.to(base.dtype.element_ty, bitcast=True)
    return scales


@triton.jit
def multiply_tile(a_desc, a_scale, b_desc, b_scale, c_desc, m, n, k, a_strides, b_strides,
                  A: tl.constexpr, B: tl.constexpr, BLOCK_SIZE: tl.constexpr, ONE_CODE: tl.constexpr, BLOCK_M: tl.constexpr,
                  BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr, FLAT: tl.constexpr,
                  WHOLE_BLOCKS: tl.constexpr,
                  B_ALONG_N: tl.constexpr):
    A_PACKED: tl.constexpr = 2 if A == "e2m1" else 1
    B_PACKED: tl.constexpr = 2 if B == "e2m1" else 1
    STEPS: tl.constexpr = BLOCK_K // BLOCK_SIZE // 4
    program = tl.program_id(axis=0)
    tile_rows = tl.cdiv(m, BLOCK_M)
    row = program % tile_rows
    column = program // tile_rows
    columns = tl.cdiv(k, BLOCK_SIZE)

    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in tl.range(0, tl.cdiv(k, BLOCK_K), num_stages=NUM_STAGES):
        a = a_desc.load([row * BLOCK_M, block * (BLOCK_K // A_PACKED)])  # (BLOCK_M, BLOCK_K / A_PACKED)
        if B_ALONG_N:
            b = b_desc.load([block * BLOCK_K, column * BLOCK_N])  # (BLOCK_K, BLOCK_N)
        else:
            b = b_desc.load([column * BLOCK_N, block * (BLOCK_K // B_PACKED)]).T  # (BLOCK_K / B_PACKED, BLOCK_N)
        scale_a = load_scales(a_scale, m, columns, a_strides[0], a_strides[1],
                              row * (BLOCK_M // 128), block * STEPS, BLOCK_M // 128, STEPS, WHOLE_BLOCKS, ONE_CODE, FLAT)
        scale_b = load_scales(b_scale, n, columns, b_strides[0], b_strides[1],
                              column * (BLOCK_N // 128), block * STEPS, BLOCK_N // 128, STEPS, WHOLE_BLOCKS, ONE_CODE, FLAT)
        accumulator = tl.dot_scaled(a, scale_a, A, b, scale_b, B, accumulator)
    c_desc.store([row * BLOCK_M, column * BLOCK_N], accumulator.to(c_desc.dtype))


@triton.jit(launch_metadata=launch_metadata)
def block_scaled_matmul_kernel(
    a_desc, a_scale, b_desc, b_scale, c_desc, m, n, k, a_strides, b_strides,  # strides of the scales: (row, tile)
    A: tl.constexpr, B: tl.constexpr, BLOCK_SIZE: tl.constexpr, ONE_CODE: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr, FLAT: tl.constexpr, WHOLE_BLOCKS: tl.constexpr, B_ALONG_N: tl.constexpr,
):
    multiply_tile(a_desc, a_scale, b_desc, b_scale, c_desc, m, n, k, a_strides, b_strides, A, B, BLOCK_SIZE, ONE_CODE,
                  BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, FLAT, WHOLE_BLOCKS, B_ALONG_N)


@triton.jit(launch_metadata=launch_metadata)
def block_scaled_matmul_device_kernel(
    a_ptr, a_scale, b_ptr, b_scale, c_ptr, m, n, k, a_strides, b_strides, a_stride, b_stride, c_stride,
    A: tl.constexpr, B: tl.constexpr, BLOCK_SIZE: tl.constexpr, ONE_CODE: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, NUM_STAGES: tl.constexpr, FLAT: tl.constexpr, WHOLE_BLOCKS: tl.constexpr, B_ALONG_N: tl.constexpr,
):
    A_PACKED: tl.constexpr = 2 if A == "e2m1" else 1
    B_PACKED: tl.constexpr = 2 if B == "e2m1" else 1
    a_desc = tl.make_tensor_descriptor(a_ptr, [m, k // A_PACKED], [a_stride, 1], [BLOCK_M, BLOCK_K // A_PACKED])
    if B_ALONG_N:
        b_desc = tl.make_tensor_descriptor(b_ptr, [k, n], [b_stride, 1], [BLOCK_K, BLOCK_N])
    else:
        b_desc = tl.make_tensor_descriptor(b_ptr, [n, k // B_PACKED], [b_stride, 1], [BLOCK_N, BLOCK_K // B_PACKED])
    c_desc = tl.make_tensor_descriptor(c_ptr, [m, n], [c_stride, 1], [BLOCK_M, BLOCK_N])
    multiply_tile(a_desc, a_scale, b_desc, b_scale, c_desc, m, n, k, a_strides, b_strides, A, B, BLOCK_SIZE, ONE_CODE,
                  BLOCK_M, BLOCK_N, BLOCK_K, NUM_STAGES, FLAT, WHOLE_BLOCKS, B_ALONG_N)
# fmt: on


def block_scaled_matmul(
    a: object,
    a_scale: torch.Tensor,
    b: object,
    b_scale: torch.Tensor,
    out_dtype: torch.dtype = torch.float16,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    configs: Config | dict | None = None,
) -> torch.Tensor:
    """C (m, n) in `out_dtype` on the operands' device; rows of C lie a multiple of 16 bytes apart.

    a (m, k) and b (n, k): float8_e4m3fn, or uint8 with two e2m1 a byte; k runs fastest, for b in float8_e4m3fn it may be n (the
    transpose of a contiguous (k, n)); a host `TensorDescriptor` stands for its base. Scales:
    (ceil(rows / 128), ceil(k / V / 4), 32, 4, 4), uint8 for e8m0 (V = 32), float8_e4m3fn for nvfp4 (V = 16). The types name the
    format. m, n, k: by default the operands'. configs: a `Config`, or a dictionary with BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K,
    num_stages; by default the first of `configurations`. ValueError with value, rule and remedy for anything else.
    """
    a, b = getattr(a, "base", a) if isinstance(a, TensorDescriptor) else a, b.base if isinstance(b, TensorDescriptor) else b
    problem = problem_of(a, a_scale, b, b_scale, out_dtype, (m, n, k))
    config = _config(configs, problem.format)
    require("block_scaled_matmul", CLAUSES, problem, config)
    return _launch(a, a_scale, b, b_scale, problem, config)


def _config(configs: Config | dict | None, format_name: str) -> Config:
    if isinstance(configs, dict):
        return Config(
            block_m=configs["BLOCK_SIZE_M"],
            block_n=configs["BLOCK_SIZE_N"],
            block_k=configs["BLOCK_SIZE_K"],
            num_stages=configs["num_stages"],
        )
    if configs is not None:
        return configs
    target = driver.active.get_current_target()
    return configurations(format_name, block_scaled_mma=target.backend == "cuda" and target.arch >= 100)[0]


def _launch(a: torch.Tensor, a_scale: torch.Tensor, b: torch.Tensor, b_scale: torch.Tensor, p: Problem, c: Config) -> torch.Tensor:
    f, out = FORMATS[p.format], ELEMENT_TYPES[p.out]
    unit = ALIGNMENT_BYTES * 8 // out.bits
    padded_output = torch.empty(
        (p.m, triton.cdiv(p.n, unit) * unit), dtype=out.torch, device=a.device
    )  # TMA stores whole units of a row
    output = padded_output[:, : p.n]
    meta = {
        "A": f.a,
        "B": f.b,
        "BLOCK_SIZE": f.block_size,
        "ONE_CODE": f.one_code,
        "FLAT": c.scale_load == "2D",
        "NUM_STAGES": c.num_stages,
    }
    meta |= {"BLOCK_M": c.block_m, "BLOCK_N": c.block_n, "BLOCK_K": c.block_k, "num_warps": c.num_warps}
    meta["B_ALONG_N"] = p.b_order == "row"
    b = b.T if p.b_order == "row" else b  # what follows each other lies last
    meta["WHOLE_BLOCKS"] = triton.cdiv(p.k, f.block_size) % (c.block_k // f.block_size) == 0
    grid = (triton.cdiv(p.m, c.block_m) * triton.cdiv(p.n, c.block_n),)
    tail = (p.m, p.n, p.k, a_scale.stride()[:2], b_scale.stride()[:2])
    if c.descriptors == "device":  # they lie in memory that Triton asks its host for
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=a.device))
        strides = a.stride(0), b.stride(0), output.stride(0)
        block_scaled_matmul_device_kernel[grid](a, a_scale, b, b_scale, padded_output, *tail, *strides, **meta)
        return output
    b_box = [c.block_k, c.block_n] if p.b_order == "row" else [c.block_n, c.block_k // packing(f.b)]
    boxes = [c.block_m, c.block_k // packing(f.a)], b_box, [c.block_m, c.block_n]
    a_desc, b_desc, c_desc = (
        TensorDescriptor(tensor, shape, [tensor.stride(0), 1], box)
        for tensor, shape, box in zip((a, b, padded_output), (list(a.shape), list(b.shape), [p.m, p.n]), boxes, strict=True)
    )
    block_scaled_matmul_kernel[grid](a_desc, a_scale, b_desc, b_scale, c_desc, *tail, **meta)
    return output
