"""How many elements fall into each bin. Counts are integers, so no order shows."""

from __future__ import annotations

import numpy as np

from bitverdict.harness.emulator.frontend.translate import Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation

LEAST = 32  # bins of the compiled program: at least one for each lane of a warp


@lowers("tt.histogram")
def histogram(t: Translator, op: Operation) -> None:
    """The compiled program looks at no more bits of a value than count its bins: a value beyond them falls into one."""
    (bins,) = t.result(op).shape
    values, mask = t.operands(op, "values", "mask?")
    t.assign(op, t.apply(counted, values, mask, bins))
    t.scratch(op)
    t.meet()


def counted(values: np.ndarray, mask: np.ndarray | None, bins: int) -> np.ndarray:
    kept = values if mask is None else values[mask]
    return np.bincount(kept & max(bins, LEAST) - 1, minlength=bins)[:bins].astype(np.int32)  # (bins,)
