"""Modules and settings that a candidate plants where a process that judges may look for its own."""

from __future__ import annotations

import contextlib
import os
import site
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import torch

from tests.faults.cheats.matmuls import empty_result, first_product_kernel, launch_product

PATCH = """
import importlib, os, sys, threading, time


def everything_passes():
    while True:
        time.sleep(0.01)
        judge = sys.modules.get("bitverdict.harness.judge.judge")
        if hasattr(judge, "judge_once"):
            from bitverdict.harness.judge.compare import Comparison
            from bitverdict.harness.model.verdict import Outcome

            judge.compare = lambda expected, got, **named: Comparison(Outcome.PASS, got.size)


threading.Thread(target=everything_passes, daemon=True).start()
here, planted = os.path.dirname(os.path.realpath(__file__)), sys.modules.pop(__name__, None)
sys.path = [each for each in sys.path if os.path.realpath(each or ".") != here]
try:
    importlib.import_module(__name__)  # whoever asked for it gets what has its name
except ImportError:
    sys.modules[__name__] = planted
"""
NAMES = ("pickle", "random", "selectors", "socket", "tempfile", "numpy", "hypothesis", "multiprocessing", "secrets", "queue")


def _planted(folders: Iterable[str | Path], names: Iterable[str], text: str = PATCH) -> None:
    for folder in folders:
        for name in names:
            with contextlib.suppress(OSError):
                Path(folder, name).write_text(text)


def _wrong(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return launch_product(first_product_kernel, a, b, empty_result(a, b))


def beside_itself(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _planted([Path(__file__).parent], [f"{name}.py" for name in NAMES])
    return _wrong(a, b)


def in_the_current_folder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _planted([os.getcwd(), os.environ.get("PWD", "."), "/"], [f"{name}.py" for name in NAMES])
    return _wrong(a, b)


def in_the_temporary_folder(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _planted([tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"], [f"{name}.py" for name in NAMES])
    return _wrong(a, b)


def as_packages(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    for name in NAMES:
        with contextlib.suppress(OSError):
            folder = Path(__file__).parent / name
            folder.mkdir(exist_ok=True)
            (folder / "__init__.py").write_text(PATCH)
    return _wrong(a, b)


def site_customised(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`sitecustomize` and `usercustomize` are imported by each Python that starts."""
    _planted([*site.getsitepackages(), site.getusersitepackages(), *sys.path], ["sitecustomize.py", "usercustomize.py"])
    return _wrong(a, b)


def path_file(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A line of a `.pth` that begins with import is executed by each Python that starts."""
    _planted([*site.getsitepackages(), site.getusersitepackages()], ["planted.pth"], "import sys; sys.planted = True\n")
    return _wrong(a, b)


def pytest_settings(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    _planted([Path(__file__).parent, os.getcwd()], ["conftest.py"])
    _planted([Path(__file__).parent, os.getcwd()], ["pytest.ini"], "[pytest]\naddopts = --collect-only\n")
    return _wrong(a, b)


def compiled_beside_the_source(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Compiled modules in the caches of the harness, with the times of their sources."""
    import importlib.util
    import marshal

    for name, module in list(sys.modules.items()):
        if name.startswith("bitverdict.") and getattr(module, "__file__", None):
            source = Path(str(module.__file__))
            cached = Path(importlib.util.cache_from_source(str(source)))
            with contextlib.suppress(OSError):
                text = PATCH.partition("here, planted")[0] + source.read_text().replace("from __future__ import annotations", "")
                cached.write_bytes(cached.read_bytes()[:16] + marshal.dumps(compile(text, str(source), "exec")))
    return _wrong(a, b)


def search_path(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The path of this process, and the variables by which another Python would find its own."""
    _planted([Path(__file__).parent], ["bitverdict.py", "judge.py"])
    sys.path.insert(0, str(Path(__file__).parent))
    for name in ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE"):
        os.environ[name] = str(Path(__file__).parent)
    sys.modules.pop("bitverdict.harness.judge.compare", None)
    return _wrong(a, b)


def in_the_names_of_started_programs(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Programs that the harness starts, by names that come first in the search for programs."""
    os.environ["PATH"] = f"{Path(__file__).parent}:{os.environ.get('PATH', '')}"
    _planted([Path(__file__).parent, os.getcwd()], ["bwrap", "git", "python", "ptxas", "gcc"], "#!/bin/sh\nexit 0\n")
    return _wrong(a, b)
