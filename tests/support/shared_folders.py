"""Folders that several workers of xdist use, and one of them fills: what fills it may take as many processors as there are."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def shared_folder(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], None]) -> Path:
    """The folder `name` of this run, which whoever comes first makes and gives to `fill`; others wait for it, and fill it where
    that one failed. `name`: of one fixture alone."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "filled").open("a") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        if not os.stat(mark.name).st_size:
            fill(folder)
            mark.write("filled")
    return folder
