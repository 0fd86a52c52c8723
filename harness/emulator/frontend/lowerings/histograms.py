"""How many elements fall into each bin. Counts are integers, so no order shows."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.translator import Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation


@lowers("tt.histogram")
def histogram(t: Translator, op: Operation) -> None:
    """The compiled program compares each value with the last bin, unsigned: one beyond the bins is not counted."""
    (bins,) = t.result(op).shape
    values, mask = t.operands(op, "values", "mask?")
    t.assign(op, t.apply(count_bins, values, mask, bins))
    t.scratch(op)
    t.meet()


def count_bins(values: np.ndarray, mask: np.ndarray | None, bins: int) -> np.ndarray:
    """Of `values` (N,) int32, and `mask` (N,) bool: the counts (bins,) int32."""
    inside = values.view(np.uint32) < bins  # (N,)
    if mask is not None:
        inside &= mask
    return np.bincount(values[inside], minlength=bins).astype(np.int32)  # (bins,)
