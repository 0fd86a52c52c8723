"""Mutants of several kernels: offsets in 32 bits, which wrap where a tensor reaches further than 2**31 elements."""

from __future__ import annotations

from tests.faults.mutants import Mutant, once

ROWS_OF_A = "places = row.to(gl.int64)[:, None] * (chunks_in_row * 8) + column[None, :]  # (ROWS, BLOCK_K)\n"
IN_32_BITS = ROWS_OF_A.replace(".to(gl.int64)", "")
ON_16_BYTES, INSIDE = "every row starts on 16 bytes.\n    ", "    inside = "
SHOWS_IN = {
    "ampere_gemm": (("k mod 16", "8"),),
    "fp8_blockwise_matmul": (("n mod 16", "8"),),
    "tma_scatter": (("dtype", "bf16"), ("row numbers", "permuted")),
    "softmax": (("dtype", "bf16"), ("regime", "normal")),
    "rms_norm": (("dtype", "bf16"), ("regime", "normal")),
    "attention": (("rows far apart", "True"),),
    "pointer_gather_scatter_matmul": (("regime", "normal"), ("row numbers", "permuted"), ("n mod 16", "0")),
    "quantize_mxfp": (("dtype", "bf16"), ("config", "block=1024 num_warps=4")),
    "cross_entropy": (("dtype", "bf16"), ("config", "block=4096 per_thread=4 num_warps=4")),
    "dropout": (("dtype", "bf16"), ("config", "block=1024 num_warps=4"), ("regime", "normal")),
}
MUTANTS = tuple(
    Mutant(kernel=kernel, name=name, edits=once(replace, by), expected=("illegal address",), shows_in=SHOWS_IN.get(kernel, ()))
    for name, kernel, replace, by in (
        ("32-bit offsets", "matmul", "WIDE_OFFSETS=_reach(a, b, c) >= 2**31", "WIDE_OFFSETS=False"),
        ("32-bit rows of whole blocks", "ampere_gemm", ON_16_BYTES + ROWS_OF_A, ON_16_BYTES + IN_32_BITS),
        ("32-bit rows of the rest", "ampere_gemm", ROWS_OF_A + INSIDE, IN_32_BITS + INSIDE),
        ("32-bit rows of D", "ampere_gemm", "rows.to(gl.int64)[:, None] * d_stride", "rows[:, None] * d_stride"),
        ("32-bit rows of the source", "tma_scatter", "row.to(gl.int64)[:, None] * source_stride", "row[:, None] * source_stride"),
        ("32-bit gathered rows", "pointer_gather_scatter_matmul", "numbers.to(gl.int64)[:, None]", "numbers[:, None]"),
        ("32-bit scattered rows", "pointer_gather_scatter_matmul", "targets.to(gl.int64)[:, None]", "targets[:, None]"),
        ("32-bit rows", "fp8_blockwise_matmul", "tl.arange(0, BLOCK_M)).to(tl.int64)", "tl.arange(0, BLOCK_M))"),
        ("32-bit rows", "attention", "rows.to(tl.int64)[:, None] * stride", "rows[:, None] * stride"),
        ("32-bit rows of dO", "attention", "row.to(gl.int64)[:, None] * do_row", "row[:, None] * do_row"),
        ("32-bit rows", "softmax", "row = gl.program_id(0).to(gl.int64)", "row = gl.program_id(0)"),
        ("32-bit rows", "rms_norm", "row = gl.program_id(0).to(gl.int64)", "row = gl.program_id(0)"),
        ("32-bit rows", "dropout", "row = tl.program_id(0).to(tl.int64)", "row = tl.program_id(0)"),
        ("32-bit rows", "quantize_mxfp", "row = tl.program_id(0).to(tl.int64)", "row = tl.program_id(0)"),
        ("32-bit rows", "cross_entropy", "row = gl.program_id(0).to(gl.int64)\n    largest", "row = gl.program_id(0)\n    largest"),
        ("32-bit rows", "swiglu", "row = gl.program_id(0).to(gl.int64)", "row = gl.program_id(0)"),
        ("32-bit tiles down", "block_scaled_matmul", "    tile = tile.to(tl.int64)\n", ""),
        ("32-bit tiles along K", "block_scaled_matmul", "tile_column.to(tl.int64) * stride_tile", "tile_column * stride_tile"),
    )
)
