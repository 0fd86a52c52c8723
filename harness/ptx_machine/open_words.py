"""Words that the tile program leaves open, as the PTX of the launch has them.

Which product a sum takes in is the compiler's choice, register by register. Where the tile program and LLVM's text do not say, the
emulated GPU encloses the word. The PTX says: it is executed from the same bytes, and where each word that it leaves is the tile
program's, or lies inside, the enclosed ones become those of the PTX. What ptxas may still choose stays enclosed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bitverdict.harness.emulator.device_probe import DeviceProbe, LaunchRun
from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.byte_arrays import copy_of, words_in
from bitverdict.harness.emulator.memory.global_memory import Region

MOST_THREADS = 1 << 18
"""Of a launch whose PTX is executed for its open words. Words of a larger one stay enclosed."""
MOST_WORDS = 1 << 31
"""That the PTX computes, one a thread and instruction, where an instruction counts as `STEP_WORDS` more: most of a minute of a
quiet core. What is not settled by then stays enclosed; counted in words, so that a busy machine draws no other verdict."""
STEP_WORDS = 1 << 12  # what an instruction of one thread takes beside others


@dataclass(eq=False)
class OpenWords(DeviceProbe):
    """Rides on launches whose program may leave words open, and runs the PTX of those that do. `rewrite` changes the PTX before it
    runs: a mutant."""

    rewrite: Callable[[str], str] = str
    _before: list[tuple[Region, np.ndarray]] = field(default_factory=list, repr=False)

    def begin(self, run: LaunchRun) -> None:
        threads = 32 * run.translation.program.integer("ttg.num-warps", 4) * int(np.prod(run.launch.grid))
        if run.translation.encloses and not run.enclosed and threads <= MOST_THREADS:
            self._before = [(region, copy_of(region.raw)) for region in run.regions]

    def settle(self, run: LaunchRun) -> None:
        after_ptx = self._before
        if not after_ptx or not run.enclosed:
            return
        from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin  # few launches need the machine

        words_left = MOST_WORDS

        def count_steps(steps: int, threads: int) -> None:
            nonlocal words_left
            words_left -= steps * (threads + STEP_WORDS)
            if words_left < 0:
                raise EmulatedFault("not modelled", f"its PTX computes more than {MOST_WORDS} words")
            run.context.check_time()

        twin = PtxTwin(rewrite=self.rewrite, count_steps=count_steps)
        result = twin.result_of(run, after_ptx)  # which changes the bytes
        if result.not_run or result.difference or not result.is_definite:
            return
        for region, ptx_bytes in after_ptx:
            for size, addresses in run.enclosed.addresses_between(region.base, region.end).items():
                at = addresses - region.base
                if (at % size).any():
                    places = at[:, None] + np.arange(size)
                    region.raw[places] = ptx_bytes[places]
                else:
                    region.words(size)[at // size] = words_in(ptx_bytes, size)[at // size]
            run.enclosed.forget_range(region.base, region.end)

    def end(self, run: LaunchRun) -> None:
        self._before = []


__all__ = ["OpenWords"]
