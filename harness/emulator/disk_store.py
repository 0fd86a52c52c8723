"""What one process worked out and the next need not: entries on disk, a file each, named by a digest of what they depend on.

An entry is written beside its place and renamed, so a reader finds a whole one or none; of two writers the last one stays. Each
begins with the digest of the rest: one that was cut short or changed is no entry. It is bounded: the entries that were not used for
longest are removed. It is trusted as Triton's cache is, which holds machine code. `BITVERDICT_TRANSLATIONS` moves it or switches
it off (docs/variables.md).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from bitverdict.harness.model.paths import state_directory

VARIABLE, OFF_VALUE = "BITVERDICT_TRANSLATIONS", "off"
MOST_BYTES = 256 << 20
_LOWERED_TO = 0.75  # of MOST_BYTES, when entries are removed
_WRITES_A_LOOK = 64  # of one process, between two looks at the size of the whole
_USED_AGAIN = 3600.0  # seconds after which a use is noted in the file's time
_ABANDONED_SECONDS = 3600.0  # seconds after which a file that was never renamed is removed
_PART, _HEAD = ".part", hashlib.sha256().digest_size
_writes = 0  # of this process


def place() -> Path | None:
    """The directory of the entries; None where `BITVERDICT_TRANSLATIONS` is "off". Not created here."""
    told = os.environ.get(VARIABLE, "")
    if told == OFF_VALUE:
        return None
    return Path(told) if told else state_directory() / "translations"


def key_of(*parts: str) -> str:
    """The name of the entry that depends on `parts` and nothing else."""
    digest = hashlib.sha256()
    for part in parts:
        told = part.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(told))
        digest.update(told)
    return digest.hexdigest()


def read_entry(key: str) -> bytes | None:
    """The entry `key`; None where there is none, or none that is whole."""
    if (directory := place()) is None:
        return None
    path = directory / key
    try:
        content = path.read_bytes()
        if time.time() - path.stat().st_mtime > _USED_AGAIN:
            os.utime(path)
    except OSError:
        return None
    value = content[_HEAD:]
    return value if hashlib.sha256(value).digest() == content[:_HEAD] else None


def keep(key: str, value: bytes) -> None:
    """Make `value` the entry `key`. A directory that cannot be written, or a full disk, keeps nothing and says nothing."""
    global _writes
    if (directory := place()) is None:
        return
    part = None
    try:
        if not directory.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            (directory / ".gitignore").write_text("*\n")
        number, part = tempfile.mkstemp(_PART, key[:8], directory)
        with open(number, "wb") as file:
            file.write(hashlib.sha256(value).digest() + value)
        os.replace(part, directory / key)
    except OSError:
        if part is not None:
            with suppress(OSError):
                os.unlink(part)
        return
    if _writes % _WRITES_A_LOOK == 0:
        bound(directory)
    _writes += 1


def bound(directory: Path, most_bytes: int | None = None) -> None:
    """Remove the entries that were not used for longest where all together are more than `most_bytes` (`MOST_BYTES`), and what
    was never renamed."""
    most_bytes = MOST_BYTES if most_bytes is None else most_bytes
    entries, current_time = [], time.time()
    with suppress(OSError):
        for entry in os.scandir(directory):
            with suppress(OSError):  # another process removed it
                facts = entry.stat()
                if entry.name.endswith(_PART):
                    if current_time - facts.st_mtime > _ABANDONED_SECONDS:
                        os.unlink(entry.path)
                elif not entry.name.startswith("."):
                    entries.append((facts.st_mtime_ns, facts.st_size, entry.path))
    total = sum(size for _, size, _ in entries)
    if total <= most_bytes:
        return
    for _, size, path in sorted(entries):
        if total <= _LOWERED_TO * most_bytes:
            return
        with suppress(OSError):
            os.unlink(path)
        total -= size


__all__ = ["OFF_VALUE", "VARIABLE", "bound", "keep", "key_of", "place", "read_entry"]
