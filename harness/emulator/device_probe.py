"""What rides on the launches of an emulated GPU, and what it is told: the launch, words of memory, events on the chip.

Real values, uninitialised words, origins, pictures, replays and mutants ride so. The device, the memory and the units of a
program know none of them: each calls the methods of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bitverdict.harness.model.protocols import LaunchProbe

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Device, Launch
    from bitverdict.harness.emulator.execution.async_ops import InFlight
    from bitverdict.harness.emulator.execution.cta_state import CtaState, LaunchContext
    from bitverdict.harness.emulator.execution.partitions import Agent
    from bitverdict.harness.emulator.frontend.translate import TranslatedProgram
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.mlir_reader import Operation
    from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory


@dataclass(eq=False)
class LaunchRun:
    """A launch whose programs are about to run, or have run."""

    launch: Launch
    program: bytes  # as the compiler made it
    translation: TranslatedProgram
    values: Sequence[object]  # what the launch was given, one for each parameter
    arguments: Sequence[object]  # the same as the code takes them: addresses in place of tensors
    floats: dict[int, float]  # those among the arguments, by place
    context: LaunchContext
    enclosed: EnclosedMemory  # words, those of earlier launches among them, of which a choice of the compiler's is not known
    repeat: Callable[..., Callable[[Sequence[object]], Device]] = field(init=False)
    """Given real values to carry and programs to edit (`LaunchOptions`), or neither, what executes the launch again with other
    values of its arguments, and gives the device that it ran on. It leaves no trace but memory."""
    is_complete: bool = False  # all programs have come to their end

    @property
    def regions(self) -> list[Region]:
        """All of the memory that the launch can reach."""
        return self.context.memory.regions


class WordAccess(NamedTuple):
    """Words of `size` bytes of one storage that `op` takes or writes: their numbers, or a slice of them."""

    op: Operation
    region: Region
    places: np.ndarray | slice
    size: int
    agent: Agent
    is_written: np.ndarray | None = None  # of an atomic that compares: which of `places` it has written

    @property
    def written_places(self) -> np.ndarray | slice:
        """Those of `places` that are written."""
        return self.places if isinstance(self.places, slice) or self.is_written is None else self.places[self.is_written]


class ChipEvent(NamedTuple):
    """What the program of `state` did on the chip. `kind`: "issued", "landed", "known", "read", "written", "fault", or of a barrier
    "barrier", "phase", "waits", "passes"."""

    state: CtaState
    kind: str
    op: Operation
    agent: str
    reads: Sequence[View] = ()
    writes: Sequence[View] = ()
    flight: InFlight | None = None  # the asynchronous operation that moves
    barrier: int = -1  # the byte of an mbarrier; -1: of none
    phase: int = 0
    note: str = ""


class DeviceProbe(LaunchProbe[LaunchRun, WordAccess, ChipEvent]):
    """`LaunchProbe` with the emulator's records."""


def hooks(probes: Iterable[DeviceProbe], name: str) -> tuple[Callable[..., None], ...]:
    """The method `name` of those of `probes` that write it: who writes none costs no call."""
    return tuple(getattr(probe, name) for probe in probes if getattr(type(probe), name) is not getattr(LaunchProbe, name))


__all__ = ["ChipEvent", "DeviceProbe", "LaunchRun", "WordAccess", "hooks"]
