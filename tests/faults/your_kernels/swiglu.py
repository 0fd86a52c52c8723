"""Mutants of `docs/examples/your_kernels/swiglu.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "swiglu",
    (
        ("the other half is the gate", "mathematics", ("gate * tl.sigmoid(gate) * value", "value * tl.sigmoid(value) * gate")),
        ("a sigmoid for a gate", "mathematics", ("gate * tl.sigmoid(gate)", "tl.sigmoid(gate)")),
        ("the sigmoid of a GELU", "mathematics", ("tl.sigmoid(gate)", "tl.sigmoid(1.702 * gate)")),
        ("the sign of the exponent", "mathematics", ("tl.sigmoid(gate)", "tl.sigmoid(-gate)")),
        ("halves overlap by one", "mathematics", ("+ n_cols + cols", "+ n_cols - 1 + cols")),
        (
            "gate and value alternate",
            "mathematics",
            ("+ row * stride_x + cols", "+ row * stride_x + 2 * cols"),
            ("+ n_cols + cols", "+ 2 * cols + 1"),
        ),
        ("rows half as far apart", "mathematics", ("+ row * stride_x + cols", "+ row * n_cols + cols")),
        ("columns behind the last whole block left out", "mathematics", ("triton.cdiv(n, 128)", "max(1, n // 128)")),
        ("the store not masked", "fault", ("(y_ptr.dtype.element_ty), mask=mask)", "(y_ptr.dtype.element_ty))")),
        ("the gate rounded to bf16", "precision", ("tl.sigmoid(gate) * value", "tl.sigmoid(gate).to(tl.bfloat16) * value")),
    ),
)
