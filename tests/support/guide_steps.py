"""The blocks of a guide in docs/ as steps, and how they are carried out.

A block under "File `path`" is written, a line under "In `path`, below the line `...`" is inserted, a shell block is run and must
end with status 0. ``python tests/support/guide_steps.py PAGE FOLDER`` carries out a page in a folder: it needs Python alone.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^File `([^`]+)`")
_BELOW = re.compile(r"^In `([^`]+)`, below the line `([^`]+)`")
SECONDS = 900


@dataclass(frozen=True)
class Step:
    """One block: what to do ("write", "insert", "run"), where, below which line, and its text."""

    what: str
    text: str
    path: str = ""
    below: str = ""


def steps(page: str) -> list[Step]:
    """The blocks of a page in order. ValueError for a Python block that nobody says the place of."""
    found = []
    for block in _BLOCK.finditer(page):
        kind, body = block["kind"], block["body"]
        said = (page[: block.start()].rstrip().splitlines() or [""])[-1]
        if kind == "sh":
            found.append(Step("run", body))
        elif place := _BELOW.match(said):
            found.append(Step("insert", body, place[1], place[2]))
        elif place := _FILE.match(said):
            found.append(Step("write", body, place[1]))
        else:
            raise ValueError(f"a block of {kind} after {said!r}: must follow a line that begins with File or In")
    return found


def do(step: Step, clone: Path, environment: dict[str, str]) -> None:
    """Carries out one step in `clone`; AssertionError with what was said where it fails."""
    if step.what == "write":
        (clone / step.path).write_text(step.text)
    elif step.what == "insert":
        lines = (clone / step.path).read_text().splitlines(keepends=True)
        at = [place for place, line in enumerate(lines) if line.rstrip("\n") == step.below]
        assert len(at) == 1, f"{step.path} has the line {step.below!r} {len(at)} times"
        (clone / step.path).write_text("".join([*lines[: at[0] + 1], step.text, *lines[at[0] + 1 :]]))
    else:
        command = ["bash", "-euo", "pipefail", "-c", step.text]
        ran = subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True, timeout=SECONDS)
        files = [clone / name for name in re.findall(r"> (\w+\.txt)", step.text)] if ran.returncode else []
        said = [ran.stdout, ran.stderr, *(file.read_text() for file in files if file.is_file())]
        assert ran.returncode == 0, "\n".join([step.text, f"ended with {ran.returncode}", *(text[-3000:] for text in said)])


if __name__ == "__main__":
    for each in steps(Path(sys.argv[1]).read_text()):
        print(f"{each.what} {each.path or each.text.strip().splitlines()[-1]}", flush=True)
        do(each, Path(sys.argv[2]), dict(os.environ))
