"""Which architectures have the instructions that an operation becomes.

The compiler's verifier asks for tensor memory only. The rest passes it: ptxas or LLVM refuses the machine code, which the emulated
GPU does not make. Source: PTX ISA 9.0, "Target ISA notes" of each instruction; a test holds the rows to ptxas and LLVM.
"""

from __future__ import annotations

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.mlir_reader import Program
from bitverdict.harness.model.architectures import Feature, emulated_with

NEEDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "ttng.async_tma_copy_global_to_local": ("cp.async.bulk.tensor", emulated_with(Feature.TMA)),
    "ttng.async_tma_copy_local_to_global": ("cp.async.bulk.tensor", emulated_with(Feature.TMA)),
    "ttng.async_tma_reduce": ("cp.reduce.async.bulk.tensor", emulated_with(Feature.TMA)),
    "ttng.async_tma_gather": ("cp.async.bulk.tensor .tile::gather4", emulated_with(Feature.TMA_GATHER)),
    "ttng.async_tma_scatter": ("cp.async.bulk.tensor .tile::scatter4", emulated_with(Feature.TMA_SCATTER)),
    "ttng.clc_try_cancel": ("clusterlaunchcontrol.try_cancel", emulated_with(Feature.TMA_GATHER)),
    "ttng.warp_group_dot": ("wgmma.mma_async", emulated_with(Feature.WGMMA)),
}
"""Operation -> (its instruction, the emulated architectures that have it)."""


def check_instructions(program: Program, arch: str) -> None:
    """EmulatedFault "refused", at the first operation of `program` whose instruction `arch` has not."""
    for op in program.operations():
        instruction, having = NEEDS.get(op.name, ("", (arch,)))
        if arch not in having:
            said = f"{op.name} becomes {instruction}, which {arch} has not: it needs {' or '.join(having)}"
            raise EmulatedFault("refused", said, op.location, {"operation": op.brief, "layer": "ptxas"})


__all__ = ["NEEDS", "check_instructions"]
