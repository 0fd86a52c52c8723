"""Whose a hazard is: the kernel's, or the compiler's.

The Triton language has no name for shared memory, tensor memory, an mbarrier, a fence or an asynchronous copy: its TTIR holds no
operation on them. Every such operation of the tile program was put there by a pass of the compiler. So a hazard whose place is on
the chip, in a program that was written in Triton, lies between two operations of the compiler's, and no kernel is blamed for it.
A Gluon kernel names all of these itself: its hazards are its own. So are those of global memory, in either language.
"""

from __future__ import annotations

import re

import triton

from bitverdict.harness.emulator.faults import EmulatedFault, OnChipFault
from bitverdict.harness.emulator.releases import installed_release

_NAME = re.compile(r"(?:^|= )(ttn?g\.[\w.]+)")
UNKNOWN = "none is known; num_stages=1 (of the launch, or in tl.range) leaves the loop without a pipeline"


def blame(fault: EmulatedFault, language: str) -> None:
    """Note in the details of `fault` that the compiler made it, and how to do without, where that is so."""
    if not isinstance(fault, OnChipFault) or language != "triton":
        return
    ends = [found[1] if (found := _NAME.search(fault.details.get(key, ""))) else "" for key in ("operation", "other operation")]
    known = next((each for each in installed_release().hazards if ends == [each.operation, each.other_operation]), None)
    fault.details |= {
        "made by": f"the compiler of Triton {triton.__version__}: the kernel has no operation on this memory",
        "workaround": known.workaround if known else UNKNOWN,
    } | ({"known": True} if known else {})
