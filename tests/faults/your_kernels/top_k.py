"""Mutants of `docs/examples/your_kernels/top_k.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "top_k",
    (
        (
            "the largest magnitudes",
            "mathematics or integers",
            ("best, where = tl.max(x,", "best, where = tl.max(tl.where(x > -1e38, tl.abs(x), x),"),
        ),
        (
            "of equal ones any",
            "integers or mathematics",
            ("return_indices=True", "return_indices=True, return_indices_tie_break_left=False"),
        ),
        ("never taken out", "mathematics or integers", ("tl.where(cols == where,", "tl.where(cols == n_cols,")),
        ("all equal ones taken out", "mathematics or integers", ("tl.where(cols == where,", "tl.where(x == best,")),
        ("zeros behind the last column", "mathematics or integers", ('other=-float("inf")', "other=0.0")),
        ("in ascending order", "mathematics", ("values_ptr + row * k + i", "values_ptr + row * k + (k - 1 - i)")),
        ("indices from one on", "integers", ("row * k + i, where)", "row * k + i, where + 1)")),
        ("the last column left out", "mathematics or integers", ("mask=cols < n_cols,", "mask=cols < n_cols - 1,")),
        ("compared in bf16", "integers or precision", (".to(tl.float32)", ".to(tl.bfloat16).to(tl.float32)")),
        ("indices as far apart as columns", "fault", ("indices_ptr + row * k + i", "indices_ptr + row * n_cols + i")),
    ),
)
