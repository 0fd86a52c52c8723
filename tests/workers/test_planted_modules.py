"""Contract under test: a module that lies in the current folder, or beside a candidate, is imported by no process that judges."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import IMPORTED_FROM
from tests.faults.cheats.handed_in import write_candidate

pytestmark = pytest.mark.compiles
PLANTED = (
    "__future__ array_api_compat hypothesis jinja2 json libcst multiprocessing numpy pickle queue random rich secrets selectors "
    "shutil signal socket statistics subprocess sympy tempfile torch triton typing"
).split()
TEXT = """
import sys
with open({said!r}, "a") as said:  # no jailed process can: what is written here ran with the user's rights
    print(__name__, *sys.orig_argv, file=said)
raise ImportError("planted")
"""
TEST = """
import bitverdict as bv

test_matmul = bv.test({address!r}, like="matmul"{sealed})
"""


def planted() -> list[str]:
    """`PLANTED`, but what Python has imported before any module of ours: the finder of an editable install imports `__future__`."""
    words = [sys.executable, "-P", "-c", "import sys; print(*sys.modules)"]
    at_start = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    names = [name for name in PLANTED if name not in at_start]
    assert 2 * len(names) > len(PLANTED), names
    return names


@pytest.mark.share(4, "wrong", "right")
@pytest.mark.parametrize("front_end", ["command line", "pytest"])
@pytest.mark.parametrize(("sealed", "name"), [(True, "right_matmul"), (True, "wrong_matmul"), (False, "right_matmul")])
def test_no_planted_module_runs(front_end: str, sealed: bool, name: str, tmp_path: Path) -> None:
    """In both folders lie modules of the names `planted`. None is imported outside the jail, a right kernel passes, and a wrong one
    fails. `importlib` alone is not among them: `python -m` itself imports it from the current folder (docs/sealed.md)."""
    here, beside, said = tmp_path / "here", tmp_path / "beside", tmp_path / "said"
    for folder in (here, beside):
        folder.mkdir()
        for module in planted():
            (folder / f"{module}.py").write_text(TEXT.format(said=str(said)))
    address = write_candidate("matmuls", name, beside)
    if front_end == "pytest":
        (beside / "test_it.py").write_text(TEST.format(address=address, sealed=", sealed=True" if sealed else ""))
        plugin = "-p bitverdict.harness.frontends.pytest_options -p no:cacheprovider"
        asked = f"-q {plugin} --hypothesis-seed 0 --bv-draws 0 --bv-target emulated:sm_90".split()
        asked += ["--bv-sealed"] * sealed
        words = ["-P", "-m", "pytest", *asked, "--bv-k", "m<40 and n<40 and k<40", str(beside / "test_it.py")]
    else:
        options = "--target emulated:sm_90 --max-cases 2 --jobs 1 --shrink-seconds 0".split() + ["--sealed"] * sealed
        words = ["-m", "bitverdict", "run", "matmul", "--launcher", address, *options]
    environment = os.environ | {"BITVERDICT_STATE": str(tmp_path / "state"), "PYTHONPATH": str(IMPORTED_FROM)}
    if front_end == "command line":
        environment["PYTHONPATH"] += os.pathsep  # a slip that names the current folder
    ended = subprocess.run(
        [sys.executable, *words], cwd=here, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )
    assert not said.exists(), said.read_text()
    assert ended.returncode == (0 if name == "right_matmul" else 1), ended.stdout + ended.stderr
