"""How many elements fall into each bin. Counts are integers, so no order shows."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.translator import Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.releases import installed_release


@lowers("tt.histogram")
def histogram(t: Translator, op: Operation) -> None:
    """The compiled program compares each value with the last bin, unsigned: one beyond the bins is not counted. Or its lanes have a
    bin each at least, and ask for a value's bits one by one, as many as tell the bins apart (`Release.wraps_histograms`)."""
    (bins,) = t.result(op).shape
    values, mask = t.operands(op, "values", "mask?")
    counted = max(bins, t.program.integer("ttg.threads-per-warp", 32)) if installed_release().wraps_histograms else 0
    t.assign(op, t.apply(count_bins, values, mask, bins, counted))
    t.scratch(op)
    t.meet()


def count_bins(values: np.ndarray, mask: np.ndarray | None, bins: int, counted: int) -> np.ndarray:
    """Of `values` (N,) int32, and `mask` (N,) bool: the counts (bins,) int32. `counted`: values that are told apart, from 0 on; 0,
    all of them."""
    if counted:
        values = values & (counted - 1)
    inside = values.view(np.uint32) < bins  # (N,)
    if mask is not None:
        inside &= mask
    return np.bincount(values[inside], minlength=bins).astype(np.int32)  # (bins,)
