"""Mutants of `docs/examples/your_kernels/fp8_blockwise_matmul.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "fp8_blockwise_matmul",
    (
        ("the first scale of a row for all blocks", "mathematics", ("rows * blocks + block,", "rows * blocks,")),
        ("scales of b transposed", "mathematics", ("cols // 128 * blocks + block", "block * tl.cdiv(n, 128) + cols // 128")),
        ("scales of b forgotten", "mathematics", (" * b_scale[None, :]", "")),
        ("the first rows' scale of b for all", "mathematics", ("cols // 128 * blocks + block", "cols * 0 + block")),
        ("two blocks share a scale", "mathematics", ("rows * blocks + block,", "rows * blocks + block // 2,")),
        ("the tail of K dropped", "mathematics", ("range(blocks)", "range(k // BLOCK_K)")),
        ("the scale of the row before", "mathematics", ("rows * blocks + block", "tl.maximum(rows - 1, 0) * blocks + block")),
        ("b not transposed", "mathematics", ("cols[None, :] * k + depth[:, None]", "cols[None, :] + depth[:, None] * n")),
        ("b scaled in e4m3 before the product", "precision", (
            "tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]",
            "tl.dot(a, (b.to(tl.float32) * b_scale[None, :]).to(tl.float8e4nv)) * a_scale[:, None]",
        )),
        ("scales rounded to bf16", "precision", ("* a_scale[:, None]", "* a_scale[:, None].to(tl.bfloat16)")),
    ),
)  # fmt: skip
