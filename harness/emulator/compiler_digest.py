"""Triton's digest of its own files, from disk.

Triton puts it into the key of every compilation, and each process takes it anew: 0.3 to 0.5 s over a libtriton of half a GB. Here
it is taken once an installation: as long as the size, the times and the inode of every file that it is made of are as they were.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import triton
import triton.runtime.cache
from triton import knobs
from triton.runtime.cache import triton_key

from bitverdict.harness.emulator import disk_store
from bitverdict.harness.emulator.releases import installed_release

_FOLDERS = ("compiler", "backends", "language")


def _files(folder: Path) -> Iterator[Path]:
    """What `triton_key` reads: the sources of three packages, its own, and the library."""
    for name in _FOLDERS:
        yield from (folder / name).rglob("*.py")
    yield Path(triton.runtime.cache.__file__)
    yield from (folder / "_C").glob("libtriton*.so")


def signature() -> str:
    """What tells whether a file that Triton's digest is made of was changed since."""
    told = []
    for path in _files(Path(triton.__file__).parent):
        facts = path.stat()
        told.append(f"{path} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns} {facts.st_ino}")
    return "\n".join(sorted(told))


@lru_cache
def digest() -> str:
    """What Triton's `triton_key` gives."""
    try:
        name = disk_store.key_of("triton_key", triton.__version__, signature())
    except OSError:
        return triton_key()
    if (entry := disk_store.read_entry(name)) is not None:
        return os.fsdecode(entry)
    found = triton_key()
    disk_store.keep(name, os.fsencode(found))
    return found


def _digest_with_stages() -> str:
    """`digest`, and the key of the stages that a compilation has where the compiler is stopped: both are kept in one place."""
    hook = knobs.runtime.add_stages_inspection_hook
    return digest() + ("" if hook is None else hook()[0])


def install() -> None:
    """Let Triton ask `digest`, from here on in this process, and key what is compiled here apart from what a GPU runs."""
    triton.runtime.cache.triton_key = digest if installed_release().keys_stages else _digest_with_stages


__all__ = ["digest", "install", "signature"]
