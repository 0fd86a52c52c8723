"""Imported by zygotes alone: Triton's assemblers are asked for their versions, which a confined process could not start.

Triton puts the version into the key of each compilation, and keeps it for the life of a process.
"""

from __future__ import annotations

from contextlib import suppress

from bitverdict.harness.model.architectures import ARCHITECTURES, is_amd

with suppress(Exception):  # a Triton that asks otherwise: its first compilation says so
    from triton.backends.nvidia.compiler import get_ptxas, get_ptxas_version

    for _name in (each for each in ARCHITECTURES if not is_amd(each)):
        _number = int(_name.removeprefix("sm_"))
        get_ptxas(_number), get_ptxas_version(_number)
