"""Mutants of `docs/examples/your_kernels/layer_norm_backward.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "layer_norm_backward",
    (
        ("the weight forgotten", "mathematics", ("wdy = w * dy", "wdy = dy")),
        ("the mean of the gradient forgotten", "mathematics", (" - along_1) * rstd", ") * rstd")),
        ("the tail of a row not masked after the mean", "mathematics", ("tl.where(mask, x - mean, 0.0)", "x - mean")),
        ("epsilon forgotten", "mathematics", ("/ n_cols + eps)", "/ n_cols)")),
        (
            "divided by the block",
            "mathematics",
            ("along_1 = tl.sum(wdy, axis=0) / n_cols", "along_1 = tl.sum(wdy, axis=0) / BLOCK"),
        ),
        ("dw not scaled", "mathematics", ("(x - mean[:, None]) * rstd[:, None]", "(x - mean[:, None])")),
        ("the last rows dropped", "mathematics", ("range(0, n_rows, BLOCK_M)", "range(0, n_rows // BLOCK_M * BLOCK_M, BLOCK_M)")),
        (
            "ones for rows that do not exist",
            "mathematics",
            ("dy_ptr + places, mask=mask, other=0.0", "dy_ptr + places, mask=mask, other=1.0"),
        ),
        ("db summed in fp16", "precision", ("db += dy", "db = (db + dy).to(tl.float16).to(tl.float32)")),
        ("rounded before the last product", "precision", ("- along_1) * rstd", "- along_1).to(tl.bfloat16) * rstd")),
    ),
)
