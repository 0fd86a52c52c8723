"""Whether ptxas makes the same machine code of two tile programs: then a GPU cannot tell them apart.

It is the compiler's own proof: tokens that have no code, barriers that it puts in itself, work that it folds. Each section of a
cubin that is loaded is compared byte by byte (System V ABI, ELF-64 object files; places of the source are in other sections). An
edited program may crash the compiler, so a process beside this one runs it.
"""

from __future__ import annotations

import atexit
import os
import re
import struct
import tempfile
from collections.abc import Iterator
from functools import cache, lru_cache

from bitverdict.harness.emulator.compiler_process import CompilerProcess, NotAssembled, in_compiler_process
from bitverdict.harness.emulator.faults import EmulatedFault

_LOADED_SECTIONS = (".text", ".nv.constant", ".nv.global", ".nv.info", ".nv.shared", ".nv.local", ".rel")
"""How the names of sections begin that decide what runs: code, constants, sizes, relocations."""
_HEADER = struct.Struct("<40xQ10xHHH")  # of the file: place of the sections' headers, bytes of one, how many, which has the names
_SECTION = struct.Struct("<II16xQQ")  # of a section: name, type, place in the file, bytes
_NO_BYTES = 8  # SHT_NOBITS: a section that the file does not hold


def same_machine_code(right_text: str, mutant: str, arch: str) -> bool:
    """Whether the tile programs `right` and `mutant` (texts) give the same machine code on `arch`, sums of products contracted or
    not. False where the compiler refuses one of them, or where it is no NVIDIA architecture."""
    found = re.fullmatch(r"sm_(\d+)", arch)
    if found is None or _attributes(right_text) != _attributes(mutant):
        return False
    try:
        told = _process(os.getpid()).ask(__name__, "same_code", (right_text, mutant, int(found[1])), {})
    except (EmulatedFault, NotAssembled, OSError, RuntimeError, ValueError, KeyError):
        return False
    return bool(told)


@in_compiler_process
def same_code(right: str, mutant: str, capability: int) -> bool:
    """`same_machine_code` of programs that are compiled in this process. NotAssembled where the compiler refuses one."""
    for fuses_sums in (True, False):
        texts = [_ptx(program, capability, fuses_sums) for program in (right, mutant)]
        if without_debug(texts[0]) != without_debug(texts[1]) and _code(texts[0], capability, fuses_sums) != _code(
            texts[1], capability, fuses_sums
        ):
            return False
    return True


@lru_cache(maxsize=64)
def _ptx(program: str, capability: int, fuses_sums: bool) -> str:
    from bitverdict.harness.emulator.frontend.assembly import ptx

    return ptx(program, capability, fuses_sums=fuses_sums)


@lru_cache(maxsize=32)
def _code(text: str, capability: int, fuses_sums: bool) -> tuple[tuple[str, bytes], ...]:
    from bitverdict.harness.emulator.frontend.assembly import cubin

    return tuple(loaded_sections(cubin(text, capability, fuses_sums=fuses_sums)))


_DEBUG = re.compile(r"\s*(?:\.loc|\.file|\$L__(?:tmp|func)|//)")


def without_debug(text: str) -> str:
    """The PTX `text` without places of the source, which stand in lines and, at the end, in sections of their own."""
    lines = text.partition("\n\t.section\t.debug")[0].split("\n")
    return "\n".join(line.partition("//")[0].rstrip() for line in lines if line and not _DEBUG.match(line))


def loaded_sections(binary: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, bytes) of each section of the ELF-64 file `binary` that decides what runs; its size, where it has no bytes there."""
    headers, size, count, names = _HEADER.unpack_from(binary)
    sections = [_SECTION.unpack_from(binary, headers + number * size) for number in range(count)]
    told = sections[names][2]
    for name, kind, start, length in sections:
        text = binary[told + name : binary.index(b"\0", told + name)].decode()
        if text.startswith(_LOADED_SECTIONS) and "debug" not in text:
            yield text, str(length).encode() if kind == _NO_BYTES else binary[start : start + length]


def _attributes(program: str) -> str:
    """The attributes of the module: warps, bytes of shared memory, columns of tensor memory."""
    return program.rpartition("\n}) {")[2].partition("} : () -> ()")[0]


@cache
def _process(parent: int) -> CompilerProcess:
    """The process that compiles for the process `parent`, begun when it is first asked."""
    folder = tempfile.TemporaryDirectory(prefix="bitverdict-machine-code-")
    process = CompilerProcess(None, folder.name)

    def end() -> None:
        if os.getpid() == parent:  # not in a child that was forked since
            process.stop()
            folder.cleanup()

    atexit.register(end)
    return process


__all__ = ["loaded_sections", "same_code", "same_machine_code"]
