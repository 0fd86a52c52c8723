"""How much of a GPU's memory a case may come to hold. A worker is counted for `WORKER_MEMORY`; a case that needs more is judged
while no other such case is on its GPU, once that much is free (`bitverdict.harness.judge.far_views.admitted`).

What is known before the launch is `memory_of`. What a launcher allocates, a workspace say, is counted as it comes
(`MemoryReservation`): the allocation that goes past `WORKER_MEMORY` waits for its turn."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from contextvars import copy_context
from typing import TYPE_CHECKING

from bitverdict.harness.judge.far_views import admit_bytes, is_admitted
from bitverdict.harness.judge.guarded_buffers import far_bytes, near_bytes
from bitverdict.harness.judge.machine_lock import WORKER_MEMORY

if TYPE_CHECKING:
    from bitverdict.harness.model.case import Case, Operand
    from bitverdict.harness.model.contract import Contract
    from bitverdict.harness.model.targets import Target

OPERANDS, RESULTS = 3, 2
"""How often bytes are there at a time: an operand as it is sent, in its guards, and as it was before the launch; a result in its
guards, and in order on its way to the host."""


def memory_of(case: Case, target: Target, contract: Contract, operands: Collection[Operand]) -> int:
    """Bytes that must be free for `case` alone on `target`; 0 where what a worker is counted for is enough.

    Far operands and results are counted once, and only they. Of near ones, the operands and what the contract says of results
    (`Contract.result_bytes`); what a launcher allocates beside them is not known before it runs (`MemoryReservation`).
    """
    results = contract.result_bytes(case)
    if far := far_bytes(operands):
        return far + results
    if target.emulated:
        return 0
    needed = OPERANDS * near_bytes(operands) + RESULTS * results
    return needed if needed > WORKER_MEMORY else 0


class NoRoom(Exception):
    """A GPU has no room for what a launcher asked for."""


class MemoryReservation(ExitStack):
    """The memory that one case holds on the real GPU `target`. A context manager, which gives the case's turn back.

    `short` says why there is no room, in a sentence; empty while there is. `needed` are the bytes that are known before the launch
    (`memory_of`), and `operands` those of near operands.
    """

    def __init__(self, target: Target, needed: int, operands: int) -> None:
        super().__init__()
        self.target, self.needed, self.operands = target, needed, operands
        self.short, self._allocated = "", 0

    def __enter__(self) -> MemoryReservation:
        self._has_turn = bool(self.needed) or is_admitted()
        self.short = self.enter_context(admit_bytes(self.needed, self.target))
        return self

    def begin(self) -> None:
        """A launch begins: nothing is allocated."""
        self._allocated = 0

    def take(self, size: int) -> None:
        """Room for `size` bytes more that a launcher asks for, in any thread: autograd's allocate too. NoRoom where the GPU has
        none."""
        self._allocated += size
        needed = OPERANDS * self.operands + RESULTS * self._allocated
        if self._has_turn or self.target.emulated or needed <= WORKER_MEMORY:
            return
        self._has_turn, held = True, self._allocated - size
        turn = admit_bytes(needed - held, self.target, purpose="operands and what the launcher allocates")
        self.short = copy_context().run(self.enter_context, turn)  # this thread is not the one that leaves
        if self.short:
            raise NoRoom(self.short)
