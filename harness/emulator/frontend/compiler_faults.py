"""Whose a hazard is: the kernel's, or the compiler's.

The Triton language has no name for shared memory, tensor memory, an mbarrier, a fence or an asynchronous copy: its TTIR holds no
operation on them. Every such operation of the tile program was put there by a pass of the compiler. So a hazard whose place is on
the chip, in a program that was written in Triton, lies between two operations of the compiler's, and no kernel is blamed for it.
A Gluon kernel names all of these itself: its hazards are its own. So are those of global memory, in either language.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import triton

from bitverdict.harness.emulator.faults import EmulatedFault, OnChipFault

_NAME = re.compile(r"(?:^|= )(ttn?g\.[\w.]+)")
UNKNOWN = "none is known; num_stages=1 (of the launch, or in tl.range) leaves the loop without a pipeline"


@dataclass(frozen=True)
class KnownFault:
    """A fault of the compiler that was confirmed (docs/emulator.md, "Found in the compiler"): the names of its two operations."""

    operation: str
    other_operation: str
    workaround: str


KNOWN_FAULTS = (
    KnownFault("ttg.local_alloc", "ttng.tc_gen5_mma", "num_stages=1, columns of B contiguous in memory, or loads through pointers"),
    KnownFault(
        "ttng.tmem_copy", "ttg.async_copy_global_to_local", "num_stages of at most 2, or K as an argument that is no constexpr"
    ),
)


def blame(fault: EmulatedFault, language: str) -> None:
    """Note in the details of `fault` that the compiler made it, and how to do without, where that is so."""
    if not isinstance(fault, OnChipFault) or language != "triton":
        return
    ends = [found[1] if (found := _NAME.search(fault.details.get(key, ""))) else "" for key in ("operation", "other operation")]
    known = next((each for each in KNOWN_FAULTS if ends == [each.operation, each.other_operation]), None)
    fault.details |= {
        "made by": f"the compiler of Triton {triton.__version__}: the kernel has no operation on this memory",
        "workaround": known.workaround if known else UNKNOWN,
    }
