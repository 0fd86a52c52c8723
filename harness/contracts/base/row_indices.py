"""What contracts of kernels that pick rows by number share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Operand

if TYPE_CHECKING:
    from bitverdict.harness.model.targets import Target
from bitverdict.harness.contracts.base.single_config import KernelContract


class RowsContract(KernelContract):
    """A kernel that takes row numbers: their kind stands behind the regime."""

    def draw_regime(self, draw: Callable) -> str:
        from hypothesis import strategies as st

        return super().draw_regime(draw) + "/" + draw(st.sampled_from(ROW_KINDS))

    def regime(self, place: int) -> str:
        return super().regime(place) + "/" + ROW_KINDS[place % len(ROW_KINDS)]

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        values, _, rows = case.regime.partition("/")
        return super().coverage(case, target) | {"regime": values, "row numbers": rows or "permuted"}


ROW_KINDS = ("permuted", "anywhere", "repeated", "edges")
"""What row numbers look like; a case names one behind its regime, as in ``normal/repeated``. permuted: each once as far as they go.
anywhere: from below 0 to past the end, by at most the table's length and 3. repeated: a few rows over and over. edges: first, last,
one past it, far past it."""


def row_numbers(case: Case, name: str, count: int, rows: int, *, scattered_in_blocks_of: int = 0) -> Operand:
    """`count` int32 row numbers for a table of `rows`, of the kind that the case's regime names.

    For a scatter none is below 0, and a row is named again only inside the block of one program: two programs that write one row
    race, and nothing is expected there.
    """
    negative = not scattered_in_blocks_of
    kind = case.regime.partition("/")[2] or "permuted"
    rng = regimes.generator(case.data_seed, name)
    low = -rows - 3 if negative else 0
    if kind == "permuted":
        codes = rng.permutation(max(count, rows))[:count]  # those past the end are ignored, or give zeros
    elif kind == "anywhere":
        codes = rng.integers(low, 2 * rows + 3, count)
    elif kind == "repeated":
        codes = rng.integers(0, rows, max(rows // 3, 1))[rng.integers(0, max(rows // 3, 1), count)]
    elif kind == "negative":  # for a scatter: one of them is below 0
        codes = rng.integers(0, rows, count)
        codes[rng.integers(0, count)] = -1
    else:
        ends = np.array([0, rows - 1, rows, rows + 1, 2**31 - 1, *((-1, -2, -(2**31)) if negative else ())])
        codes = ends[rng.integers(0, len(ends), count)]
    if scattered_in_blocks_of:
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
        elsewhere = np.arange(count) // scattered_in_blocks_of != first[which] // scattered_in_blocks_of  # (count,)
        codes = np.where(elsewhere & (codes >= 0), rows + 1, codes)
    return Operand(name=name, format="int32", codes=codes.astype(np.int32))
