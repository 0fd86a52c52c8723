"""Mutants of `docs/examples/your_kernels/rope.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "rope",
    (
        ("the sign of the left half", "mathematics", ("x1 * cos - x2 * sin", "x1 * cos + x2 * sin")),
        ("the sign of the right half", "mathematics", ("x2 * cos + x1 * sin", "x2 * cos - x1 * sin")),
        ("neighbours paired", "mathematics", ("half + cols[None, :]", "half + 2 * cols[None, :]"), ("left + half", "left + 1")),
        ("sines for cosines", "mathematics", ("tl.load(cos_ptr", "tl.load(sin_ptr")),
        ("cosines of the first position", "mathematics", ("cos_ptr + position * half + cols", "cos_ptr + cols")),
        (
            "the right half turned by what is turned",
            "mathematics",
            ("x2 * cos + x1 * sin", "x2 * cos + (x1 * cos - x2 * sin) * sin"),
        ),
        ("heads behind the last whole block left out", "mathematics", ("triton.cdiv(heads, 4)", "max(1, heads // 4)")),
        ("heads not masked", "fault", ("(head < heads)[:, None] & col_mask", "(head >= 0)[:, None] & col_mask")),
        ("sines in bf16", "precision", ("(x1 * cos - x2 * sin)", "(x1 * cos - x2 * sin.to(tl.bfloat16))")),
        (
            "products rounded to bf16",
            "precision",
            ("x2 * cos + x1 * sin", "(x2 * cos).to(tl.bfloat16) + (x1 * sin).to(tl.bfloat16)"),
        ),
    ),
)
