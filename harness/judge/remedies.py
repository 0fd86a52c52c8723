"""What a person can do about what their launcher raised: a remedy that fits the error, or none."""

from __future__ import annotations

import linecache
import re
import traceback

from bitverdict.harness.judge.classify import room_of

_SAYS = (
    (
        re.compile(r"Pointer argument .* cannot be accessed from Triton \(cpu tensor\?\)"),
        "allocate each tensor that a kernel is given on its operands' device: torch.empty(..., device=a.device)",
    ),
    (re.compile(r"No module named|cannot import name"), "install what the launcher imports into the environment that judges it"),
)
_REFUSES = (ValueError, AssertionError, NotImplementedError, RuntimeError)


def remedy_for(error: BaseException, launcher: str, remedy: str = "") -> dict[str, str]:
    """What to do about `error`, which the launcher at that address raised, as a detail by its name; none where nothing is known.

    `remedy`: how to say what it takes; empty: by its attributes."""
    text = str(error)
    if known := next((does for pattern, does in _SAYS if pattern.search(text)), ""):
        return {"remedy": known}
    return {"if this is meant": remedy or how_to_declare_limits(launcher)} if _is_deliberate(error) else {}


def how_to_declare_limits(launcher: str) -> str:
    """For a launcher that rejects valid input: how to declare its limits."""
    name = launcher.rpartition(":")[2]
    return (
        f"declare what {name} takes where it is defined, for example: {name}.requires = lambda m, n, k: k % 32 == 0; other sizes "
        "are then not tested (docs/judging.md)"
    )


def _is_deliberate(error: BaseException) -> bool:
    """Whether the launcher, or what it calls of its own, refuses what it was given: by a `raise` or an `assert` in its own code."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or not isinstance(error, _REFUSES) or room_of(frames[-1].filename) != "":
        return False
    line = linecache.getline(frames[-1].filename, frames[-1].lineno or 0).strip()
    return line.startswith(("raise ", "assert ", "assert("))
