"""An empty environment with the wheel in it, and a repository of somebody else's that has packages with the names of our rooms.

`made(work)` builds both once below `work`; a folder that has them is taken as it is, but the wheel is built and installed anew.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLES = CHECKOUT / "docs" / "examples" / "your_kernels"
TORCH = "torch==2.13.0"  # as in .ci/run
OTHERS = ("kernels", "reference", "harness", "tests")


@dataclass(frozen=True)
class Place:
    python: Path
    """Of the environment that holds the wheel and pytest."""
    repository: Path


def made(work: Path) -> Place:
    """The environment and the repository below `work`."""
    environment, clone, repository = work / "environment", work / "clone", work / "repository"
    python = environment / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", environment], check=True)
        _pip(python, TORCH)
    for old in (clone, repository, work / "wheel"):
        shutil.rmtree(old, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", CHECKOUT, clone], check=True)
    subprocess.run([python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", work / "wheel", clone], check=True)
    (wheel,) = (work / "wheel").glob("*.whl")
    _pip(python, str(wheel), "pytest", "pytest-xdist")
    _pip(python, "--force-reinstall", "--no-deps", str(wheel))
    repository.mkdir()
    for name in OTHERS:
        (repository / name).mkdir()
        (repository / name / "__init__.py").write_text("MINE = True\n")
    for path in sorted(EXAMPLES.glob("*.py")):
        shutil.copy(path, repository)
    return Place(python, repository)


def _pip(python: Path, *arguments: str) -> None:
    subprocess.run([python, "-m", "pip", "install", "-q", *arguments], check=True)
