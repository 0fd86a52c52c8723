"""pytest in a fork of the workers' server, where torch and Triton are imported: a process of its own takes two seconds for that."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bitverdict.harness.workers.forkserver import ask_the_parents_server, start_early


def run_pytest(words: Sequence[str], folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess:
    """What ``python -m pytest`` with `words` does in `folder` with the variables `environment`, but for the interpreter's end."""
    start_early()
    with tempfile.TemporaryDirectory() as place:
        said = [Path(place) / name for name in ("out", "err")]
        process = multiprocessing.get_context("forkserver").Process(target=_pytest, args=(words, folder, dict(environment), said))
        process.start()
        process.join()
        return subprocess.CompletedProcess(list(words), process.exitcode or 0, *(path.read_text() for path in said))


def _pytest(words: Sequence[str], folder: Path, environment: dict[str, str], said: Sequence[Path]) -> None:
    for number, path in enumerate(said, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    ask_the_parents_server()  # its workers are forks of the same server
    import pytest

    status = int(pytest.main(list(words)))
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    sys.exit(status)
