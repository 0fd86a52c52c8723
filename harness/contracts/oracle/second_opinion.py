"""A second opinion on the words of a plan: where a bound that is derived from the operands alone lets them lie.

The plan knows instruction, order and roundings. The bound knows none of them but which family of instructions multiplies
(`bitverdict.harness.contracts.oracle.gemm_bound`). Words outside of the bound mean that plan and bound contradict each other: then
nothing is known of the kernel. The bound is derived for some rows and columns, each with its whole K: at all elements it would cost
as much as the launch.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.model.contract import ExpectedOutput, SecondOpinion
from bitverdict.reference.tensor_core.product_query import words_alone

ROWS, COLUMNS = 16, 16  # of a result, its first and its last among them
DEEPEST = 1 << 18  # of the products of these rows and columns: fewer of them where K is deep


def second_opinion(words: np.ndarray, k: int, bound: Callable[[np.ndarray, np.ndarray], ExpectedOutput]) -> SecondOpinion | None:
    """The opinion of `bound`, which is given the numbers of rows and of columns, on `words` (M, N) of sums over K = `k`.

    None where there is nothing to have one on, or nobody wants one."""
    m, n = words.shape
    if not m or not n or words_alone():
        return None
    most = max(DEEPEST // max(k, 1), 4)
    rows, columns = spread_out(m, min(ROWS, max(most // COLUMNS, 2))), spread_out(n, min(COLUMNS, max(most // 2, 2)))
    return SecondOpinion(words=words[np.ix_(rows, columns)], output=bound(rows, columns), word_count=words.size)


def spread_out(size: int, count: int) -> np.ndarray:
    """At most `count` different numbers below `size`, the first and the last among them, evenly spread."""
    return np.unique(np.linspace(0, size - 1, count).round().astype(int))
