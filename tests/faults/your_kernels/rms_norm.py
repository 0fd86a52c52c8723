"""Mutants of `docs/examples/your_kernels/rms_norm.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "rms_norm",
    (
        ("epsilon outside the root", "mathematics", ("/ n_cols + eps)", "/ n_cols) + eps")),
        ("epsilon forgotten", "mathematics", ("/ n_cols + eps)", "/ n_cols)")),
        ("divided by the block", "mathematics", ("/ n_cols + eps", "/ BLOCK + eps")),
        ("the tail of the row left out of the sum", "mathematics", (
            "range(0, n_cols, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        x =",
            "range(0, n_cols - n_cols % BLOCK, BLOCK):\n        cols = start + tl.arange(0, BLOCK)\n        x =",
        )),
        ("one behind the last column", "mathematics", ("mask=cols < n_cols, other=0.0", "mask=cols < n_cols, other=1.0")),
        ("the weight plus one", "mathematics", ("x * rstd * w", "x * rstd * (1.0 + w)")),
        ("weights of the first block everywhere", "mathematics", ("w_ptr + cols", "w_ptr + cols - start")),
        ("the sum of the last block alone", "mathematics", ("squares += x * x", "squares = x * x")),
        ("squares summed in bf16", "precision", ("squares += x * x", "squares = (squares + x * x).to(tl.bfloat16).to(tl.float32)")),
        ("rounded before the weight", "precision", ("x * rstd * w", "(x * rstd).to(tl.bfloat16) * w")),
    ),
)  # fmt: skip
