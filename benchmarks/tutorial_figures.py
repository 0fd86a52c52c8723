"""The throughput that the tutorials print, row by row, and what they claim in words. Facts of theirs, to stand beside ours.

The tcgen05 tutorial prints two tables for 8192 x 8192 x 16384 in fp16, on a Blackwell GPU that it does not name. The autotuned
matmul states one effect in TFLOP/s and prints no table; the block-scaled one prints none either, for want of a Blackwell GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """TFLOP/s of `kernel` at `size` (as `Timed.size` writes it) in `config` (as its row names it), on `chip`."""

    kernel: str
    dtype: str
    size: str
    config: str
    tflops: float
    chip: str = "Blackwell, not named"


_SIZE = "8192x8192x16384"
TABLES = (
    Figure("blocked_matmul", "fp16", _SIZE, "64x64x64 w4", 671.77),
    Figure("blocked_matmul", "fp16", _SIZE, "64x64x128 w4", 660.93),
    Figure("blocked_matmul", "fp16", _SIZE, "64x64x256 w4", 526.10),
    Figure("blocked_matmul", "fp16", _SIZE, "128x128x64 w4", 898.61),
    Figure("blocked_matmul", "fp16", _SIZE, "128x128x128 w4", 1019.46),
    Figure("blocked_matmul", "fp16", _SIZE, "128x128x256 w4", 563.13),
    Figure("blocked_matmul_pipelined", "fp16", _SIZE, "128x128x64 w4", 1000.51),
    Figure("blocked_matmul_pipelined", "fp16", _SIZE, "128x128x64 w8", 1113.49),
    Figure("blocked_matmul_pipelined", "fp16", _SIZE, "128x128x128 w4", 1040.27),
    Figure("blocked_matmul_pipelined", "fp16", _SIZE, "128x128x128 w8", 1011.47),
)
GROUPED = (220.0, 245.0)
"""TFLOP/s in rows of tiles and in groups of rows, on an A100: the tutorial's "more than 10 %"."""
