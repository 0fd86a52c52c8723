"""Tasks from command lines: a Python file with its arguments, `-m MODULE` with its arguments, or `pytest` with its."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from functools import partial
from pathlib import Path

from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.report.launch_replay.campaign import Task

PYTEST = "pytest"


def task_of(line: str) -> Task:
    """The task that the command line `line` says. UsageError where it is none."""
    words = shlex.split(line)
    if words[:1] in (["python"], ["python3"]):
        words = words[1:]
    if words[:1] == [PYTEST]:
        words = ["-m", *words]
    if words[:1] == ["-m"] and len(words) > 1:
        return Task(line, partial(_module, words[1], words[2:]))
    if not words or not words[0].endswith(".py"):
        raise UsageError(f"task {line!r}: must be 'FILE.py ...', '-m MODULE ...' or 'pytest ...'")
    if not Path(words[0]).is_file():
        raise UsageError(f"task {line!r}: there is no file {words[0]}")
    return Task(line, partial(_file, words[0], words[1:]))


def _file(path: str, words: list[str]) -> str:
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).resolve().parent))
    return _exit_text(lambda: runpy.run_path(path, run_name="__main__"))


def _module(name: str, words: list[str]) -> str:
    sys.path.insert(0, os.getcwd())
    sys.argv = [name, *words]
    return _exit_text(lambda: runpy.run_module(name, run_name="__main__", alter_sys=True))


def _exit_text(call) -> str:  # type: ignore[no-untyped-def]
    """ "" where `call` ends as a program that succeeds, else how it ends."""
    try:
        call()
    except SystemExit as end:
        return f"exits with {end.code}" if end.code else ""
    return ""


__all__ = ["task_of"]
