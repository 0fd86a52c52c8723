"""Mutants of `docs/examples/your_kernels/grouped_matmul.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "grouped_matmul",
    (
        ("the matrix of the expert before", "mathematics", ("expert.to(tl.int64) * k * n", "tl.maximum(expert - 1, 0) * k * n")),
        ("rows not gathered", "mathematics", ("x_ptr + rows[:, None] * k", "x_ptr + places[:, None] * k")),
        ("the tail of K dropped", "mathematics", ("range(0, k, BLOCK_K)", "range(0, k // BLOCK_K * BLOCK_K, BLOCK_K)")),
        ("the first block of K again and again", "mathematics", ("depth = first + tl.arange", "depth = tl.arange")),
        ("w transposed", "mathematics", ("depth[:, None] * n + cols[None, :]", "depth[:, None] + cols[None, :] * k")),
        ("the last row of each expert left out", "mathematics", ("row_mask = (places < end)", "row_mask = (places < end - 1)")),
        ("columns behind the last whole block left out", "mathematics", ("triton.cdiv(n, 32)", "max(1, n // 32)")),
        ("experts begin at whole tiles", "fault or mathematics", (
            "range(tl.load(offsets_ptr + expert), end", "range(tl.load(offsets_ptr + expert) // BLOCK_M * BLOCK_M, end",
        )),
        ("rows of nobody stored", "fault", ("row_mask = (places < end)", "row_mask = (places >= 0)")),
        ("the sum kept in bf16", "precision", ("tl.dot(x, w, acc)", "tl.dot(x, w, acc).to(tl.bfloat16).to(tl.float32)")),
    ),
)  # fmt: skip
