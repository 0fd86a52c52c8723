"""Imported by zygotes alone: Triton's assemblers are asked for their versions, which a confined process could not start.

Triton puts the version into the key of each compilation, and keeps it for the life of a process.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from triton.backends.nvidia import compiler

from bitverdict.harness.model.architectures import ARCHITECTURES, is_amd


def remember_versions(capabilities: Iterable[int]) -> None:
    """Have Triton keep what the assembler of each capability (90 for sm_90) says of its version.

    An installation may lack one of its assemblers. Then the compilations that need that one say so; those of the others are kept
    here all the same: a process that has to ask for itself is refused, or killed because it has started one.
    """
    for capability in capabilities:
        with suppress(Exception):
            compiler.get_ptxas(capability), compiler.get_ptxas_version(capability)


remember_versions(int(name.removeprefix("sm_")) for name in ARCHITECTURES if not is_amd(name))
