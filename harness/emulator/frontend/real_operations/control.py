"""What functions and regions give back comes with what it carries."""

from __future__ import annotations

from bitverdict.harness.emulator.frontend.carried_reals import CarriedReals, carries
from bitverdict.harness.emulator.mlir_reader import Operation


@carries("tt.call", "ttg.warp_specialize")
def handed_back(r: CarriedReals, op: Operation) -> None:
    """The code of the operation has taken it (`Translator.received`)."""
