"""Faults of the machine: a disk that is full, a directory that cannot be written. They say nothing about any kernel.

Found before a run they end it with status 3 and one sentence. Found in a launch they are an `error` of that case. Running out of
memory is `bitverdict.harness.judge.out_of_memory`'s: what a smaller case would not need.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path, PurePath

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
EXHAUSTION_ERRORS = {errno.EMFILE, errno.ENFILE, errno.EROFS, errno.EIO, errno.EAGAIN}
_SAYS = re.compile("|".join(os.strerror(number) for number in sorted(FULL | {errno.EROFS})))  # of a tool that Triton called
_NO_TOOL = re.compile(
    r"Failed to find C compiler|No usable temporary directory|^Cannot find (?:ptxas(?:-blackwell)?|cuobjdump|nvdisasm)$"
)
_TOOLS = ("ptxas", "nvdisasm", "cuobjdump")
_READS_THE_CACHE = (("triton", "runtime", "cache.py"), ("triton", "compiler", "compiler.py"))


class MachineFault(Exception):
    """The machine does not let the harness do its work. The text is one sentence: the place, why, the remedy."""


STATE_REMEDY = "free space there, or set BITVERDICT_STATE to a directory that can be written"


@contextlib.contextmanager
def writing(what: str, path: Path, remedy: str = STATE_REMEDY) -> Iterator[None]:
    """What cannot be written in here raises MachineFault: `what` it is, `path`, the system's reason, `remedy`."""
    try:
        yield
    except OSError as error:
        raise MachineFault(f"{what} {path}: cannot be written ({error.strerror or error}); {remedy}") from error


def check_compiler_cache() -> None:
    """MachineFault where Triton's cache cannot be made or written: each launch would fail on it, whatever the kernel."""
    from triton import knobs

    place = Path(knobs.cache.dir)
    with writing("compiler's cache", place, "set TRITON_CACHE_DIR to a directory that can be written"):
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, prefix=".bitverdict-") as file:
            file.write(b"x" * 4096)
            file.flush()


def missing_tools() -> str:
    """What of Triton's own tools is not here, in one sentence to say before the first case; empty where all are."""
    from triton import knobs

    tools = {name: vars(type(knobs.nvidia))[name] for name in _TOOLS}  # to ask for one itself starts it, to learn its version
    places = {name: (os.environ.get(tool.key, ""), tool.default_path) for name, tool in tools.items()}
    missing = [name for name, paths in places.items() if not any(os.access(path, os.X_OK) for path in paths)]
    if not missing:
        return ""
    variables = ", ".join(f"TRITON_{name.upper()}_PATH" for name in missing)
    return (
        f"Triton's {' and '.join(missing)} cannot be found: where the machine code of an emulated NVIDIA GPU's case is read "
        f"it ends in an error; install Triton's whole wheel, or set {variables}"
    )


def machine_fault(error: BaseException) -> str:
    """What to say of an exception in a launch that is the machine's doing, in one sentence; empty for any other."""
    first_line = str(error).partition("\n")[0]
    if isinstance(error, OSError) and error.errno in FULL | EXHAUSTION_ERRORS:
        remedy = "free space there" if error.errno in FULL else "see the system's limits and mounts"
        return f"the machine failed: {os.strerror(error.errno)}: {error.filename or 'a file of the launch'}; {remedy}"
    if _NO_TOOL.search(first_line):
        return f"the machine failed: {first_line}"
    if found := _SAYS.search(str(error)):
        return f"the machine failed: {found[0]}: said by what the launch called; free space in TMPDIR and TRITON_CACHE_DIR"
    if isinstance(error, OSError | json.JSONDecodeError | UnicodeDecodeError) and _of_the_cache(error):
        return f"the machine failed: the compiler's cache cannot be used ({first_line}); set TRITON_CACHE_DIR to another directory"
    return ""


def _of_the_cache(error: BaseException) -> bool:
    """Whether Triton raised `error` where it reads or writes its cache, itself or by the standard library."""
    library = PurePath(os.__file__).parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = PurePath(frame.filename)
        if "site-packages" in path.parts or "dist-packages" in path.parts:
            return path.parts[-3:] in _READS_THE_CACHE
        if not path.is_relative_to(library) and not frame.filename.startswith("<"):
            return False
    return False
