"""Who is shown each launch of an emulated GPU whole: what was asked, its memory before and after it, and what ended it early."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from triton.compiler import ASTSource

    from bitverdict.harness.emulator.compiled_kernel import KernelMetadata
    from bitverdict.harness.emulator.device import Launch
    from bitverdict.harness.emulator.memory.global_memory import Region
    from bitverdict.harness.emulator.numerics.enclosures import EnclosedMemory


class LaunchWitness(Protocol):
    """Its methods are called in this order, once a launch; `begins` only where something is to be executed."""

    def requests_launch(
        self, source: ASTSource, metadata: KernelMetadata, grid: tuple[int, int, int], values: Sequence[object]
    ) -> None:
        """Triton launches the compiled kernel `source` (its own record) with `values`, one for each parameter of the signature."""

    def begins(self, program: bytes, regions: Sequence[Region]) -> None:
        """`program` is about to run over `regions`, all of the memory that it can reach."""

    def ends(self, launch: Launch, regions: Sequence[Region], enclosed: EnclosedMemory) -> None:
        """It has run. `enclosed`: the words of memory, those of earlier launches among them, of which a choice is not known."""

    def fails(self, error: BaseException) -> None:
        """`error` ends the launch: a fault of the kernel, a refusal, or the emulator's own."""


__all__ = ["LaunchWitness"]
