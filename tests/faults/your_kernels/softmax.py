"""Mutants of `docs/examples/your_kernels/softmax.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "softmax",
    (
        ("zero behind the last column", "mathematics", ('other=-float("inf")', "other=0.0")),
        ("the last column left out", "mathematics", ("mask=mask, other=-float", "mask=cols < n_cols - 1, other=-float")),
        ("powers of two", "mathematics", ("tl.exp(", "tl.exp2(")),
        ("epsilon in the sum", "mathematics", ("tl.sum(p, axis=0)", "(tl.sum(p, axis=0) + 1e-6)")),
        ("divided by the number of columns", "mathematics", ("p / tl.sum(p, axis=0)", "p / n_cols")),
        ("the sign of the exponent", "mathematics", ("x - tl.max(x, axis=0)", "tl.max(x, axis=0) - x")),
        ("columns behind 128 dropped", "mathematics", ("triton.next_power_of_2(n)", "min(128, triton.next_power_of_2(n))")),
        ("the maximum not taken away", "precision or mathematics", ("x - tl.max(x, axis=0)", "x")),
        ("powers summed in fp16", "precision", ("tl.sum(p, axis=0)", "tl.sum(p.to(tl.float16), axis=0).to(tl.float32)")),
        ("rounded to bf16 before the store", "precision", ("y.to(y_ptr", "y.to(tl.bfloat16).to(y_ptr")),
    ),
)
