"""What a kernel's machine code takes of a thread: registers, and bytes of stack (spills, and arrays that left registers).

Of a cubin by `cuobjdump -res-usage` (CUDA Binary Utilities, section 2), of amdgcn assembly by the metadata at its end (LLVM, User
Guide for AMDGPU Backend, "Code Object V5 Metadata").
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from pathlib import Path


def cubin_resources(cubin: bytes) -> tuple[int, int]:
    """(registers of a thread, bytes of its stack) of the one kernel in a cubin, as cuobjdump reports them; asked once a cubin."""
    from triton import knobs

    store = Path(knobs.cache.dir) / "bitverdict_resources.json"
    digest = hashlib.sha256(cubin).hexdigest()
    resources_by_digest = json.loads(store.read_text()) if store.is_file() else {}
    if digest not in resources_by_digest:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            cuobjdump_run = subprocess.run(
                [knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True, check=True
            )
        found = re.search(r"REG:(\d+).*STACK:(\d+).*LOCAL:(\d+)", cuobjdump_run.stdout)
        if found is None:
            raise RuntimeError(
                f"cuobjdump -res-usage says nothing of registers: {cuobjdump_run.stdout[:200]!r}; this Triton has another cuobjdump"
            )
        resources_by_digest[digest] = [int(found[1]), int(found[2]) + int(found[3])]
        _replace(store, json.dumps(resources_by_digest))
    registers, stack = resources_by_digest[digest]
    return registers, stack


def _replace(path: Path, text: str) -> None:
    """Writes beside and renames: two workers may do it at once, and then one figure is asked for again."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
        file.write(text)
    os.replace(file.name, path)


def amd_resources(assembly: str) -> tuple[int, int]:
    """(vector registers, bytes of scratch) from the metadata at the end of amdgcn assembly."""
    registers = re.search(r"\.vgpr_count:\s+(\d+)", assembly)
    scratch = re.search(r"\.private_segment_fixed_size:\s+(\d+)", assembly)
    if registers is None or scratch is None:
        raise RuntimeError(
            "the amdgcn assembly has no .vgpr_count or .private_segment_fixed_size; this Triton writes other metadata"
        )
    return int(registers[1]), int(scratch[1])
