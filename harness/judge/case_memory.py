"""How much of a GPU's memory a case may come to hold. A worker is counted for `COUNTED`; a case that needs more is judged while no
other such case is on its GPU, once that much is free (`bitverdict.harness.judge.far_views.admitted`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from bitverdict.harness.judge.guarded_buffers import far_bytes, near_bytes

if TYPE_CHECKING:
    from bitverdict.harness.model.case import Case, Operand
    from bitverdict.harness.model.contract import Contract
    from bitverdict.harness.model.targets import Target

COUNTED = 3 << 30
"""Bytes of GPU memory that a worker may come to hold: the CUDA contexts of its process and of a standby worker (0.6 GB each on an
H200), and the largest case: 8192 x 8192 in fp32, three matrices of 256 MiB, guard bands, and as much again for an autotuner's
flushing of the cache and for the allocator's rest."""
OPERANDS, RESULTS = 3, 2
"""How often bytes are there at a time: an operand as it is sent, in its guards, and as it was before the launch; a result in its
guards, and in order on its way to the host."""


def memory_of(case: Case, target: Target, contract: Contract, operands: Collection[Operand]) -> int:
    """Bytes that must be free for `case` alone on `target`; 0 where what a worker is counted for is enough.

    Far operands and results are counted once, and only they. Of near ones, the operands and what the contract says of results
    (`Contract.result_bytes`); what a launcher allocates beside them is not known before it runs.
    """
    results = contract.result_bytes(case)
    if far := far_bytes(operands):
        return far + results
    if target.emulated:
        return 0
    needed = OPERANDS * near_bytes(operands) + RESULTS * results
    return needed if needed > COUNTED else 0
