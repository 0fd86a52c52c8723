"""Tasks from command lines: a Python file with its arguments, `-m MODULE` with its arguments, or `pytest` with its."""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
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
    return Task(line, partial(_exit_text, program_of(words)))


def program_of(words: list[str], command: str = "task") -> Callable[[], object]:
    """What runs the file or the module that `words` begin with, with the rest as its arguments, as Python would. UsageError where
    they name none."""
    if words[:1] == ["-m"] and len(words) > 1:
        sys.path.insert(0, os.getcwd())
        if find_spec(words[1].partition(".")[0]) is None:
            raise UsageError(f"{command} -m {words[1]}: no module is called so here; give one that python -m {words[1]} would run")
        return partial(_module, words[1], words[2:])
    if not words or not words[0].endswith(".py"):
        raise UsageError(f"{command} {shlex.join(words)!r}: must be 'FILE.py ...', '-m MODULE ...' or 'pytest ...'")
    if not Path(words[0]).is_file():
        raise UsageError(f"{command} {words[0]}: there is no file {words[0]}; give a path to an existing Python file")
    return partial(_file, words[0], words[1:])


def _file(path: str, words: list[str]) -> None:
    sys.argv = [path, *words]
    sys.path.insert(0, str(Path(path).resolve().parent))
    runpy.run_path(path, run_name="__main__")


def _module(name: str, words: list[str]) -> None:
    sys.argv = [name, *words]
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def _exit_text(program: Callable[[], object]) -> str:
    """ "" where `program` ends as one that succeeds, else how it ends."""
    try:
        program()
    except SystemExit as end:
        return f"exits with {end.code}" if end.code else ""
    return ""


__all__ = ["program_of", "task_of"]
