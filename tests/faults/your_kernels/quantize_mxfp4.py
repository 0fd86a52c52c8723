"""Mutants of `docs/examples/your_kernels/quantize_mxfp4.py`."""

from __future__ import annotations

from tests.faults.your_kernels.records import mutants_of

MUTANTS = mutants_of(
    "quantize_mxfp4",
    (
        ("the even element high", "integers", ("even | (odd << 4)", "odd | (even << 4)")),
        ("the largest for the largest magnitude", "integers", ("tl.max(tl.abs(x), axis=1)", "tl.maximum(tl.max(x, axis=1), 0.0)")),
        ("the exponent rounded up", "integers", (
            "(largest.to(tl.int32, bitcast=True) >> 23)",
            "((largest.to(tl.int32, bitcast=True) + 0x7FFFFF) >> 23)",
        )),
        ("the exponent one too large", "integers", (">> 23) - 2", ">> 23) - 1")),
        ("ties up", "integers", ("size > 1.25", "size >= 1.25")),
        ("the tie at five up", "integers", ("size > 5.0", "size >= 5.0")),
        ("signs lost", "integers", ("return code | ((x.to(tl.int32, bitcast=True) < 0).to(tl.uint8) << 3)", "return code")),
        ("scales by columns", "integers", ("rows.to(tl.int64) * (n // 32) + block", "block * m + rows")),
        ("scales without their bias", "integers", ("exponent.to(tl.uint8), mask", "(exponent - 127).to(tl.uint8), mask")),
        ("elements 16 apart share a byte", "integers", (
            "tl.reshape(e2m1(x * inverse[:, None]), (BLOCK_M, 16, 2))",
            "tl.trans(tl.reshape(e2m1(x * inverse[:, None]), (BLOCK_M, 2, 16)), (0, 2, 1))",
        )),
    ),
)  # fmt: skip
