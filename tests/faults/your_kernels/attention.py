"""Mutants of `docs/examples/your_kernels/attention.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "attention",
    (
        ("the scale forgotten", "mathematics", ("tl.dot(q, k.T) * scale", "tl.dot(q, k.T)")),
        ("the scale of the padded head", "mathematics", ("d**-0.5", "block_d**-0.5")),
        ("the sum of values not rescaled", "mathematics", ("acc * rescale[:, None] + tl.dot", "acc + tl.dot")),
        ("the sum of powers not rescaled", "mathematics", ("total * rescale + tl.sum", "total + tl.sum")),
        ("a row does not see its own key", "mathematics", ("cols[None, :] <= rows[:, None]", "cols[None, :] < rows[:, None]")),
        ("one key too many", "mathematics", ("seen = (cols < n)[None, :]", "seen = (cols <= n)[None, :]")),
        (
            "the last block of keys left out where causal",
            "mathematics",
            ("(tl.program_id(0) + 1) * BLOCK_M)", "tl.program_id(0) * BLOCK_M)"),
        ),
        ("every head reads the first values", "mathematics", ("v_ptr + places", "v_ptr + cols[:, None] * d + depth[None, :]")),
        ("scores rounded to bf16", "precision", ("tl.dot(q, k.T) * scale", "tl.dot(q, k.T).to(tl.bfloat16) * scale")),
        (
            "the sum kept in bf16",
            "precision",
            ("+ tl.dot(p.to(v.dtype), v)", "+ tl.dot(p.to(v.dtype), v)\n        acc = acc.to(tl.bfloat16).to(tl.float32)"),
        ),
    ),
)
