"""Contract under test: what is installed is found before what lies beside a user's file, for all once a candidate is sealed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bitverdict.harness.model.paths import IMPORTED_FROM

ASKS = """
import sys
from bitverdict.harness.model import trusted_imports

sys.path.insert(0, {folder!r})
trusted_imports.begin(always={always})
import of_a_user

print(of_a_user.statistics.__file__.startswith({folder!r}))
import rich.syntax  # imports pygments
print(sys.modules["pygments"].__file__.startswith({folder!r}))
"""


@pytest.mark.compiles
@pytest.mark.parametrize(("always", "of_the_user"), [(False, "True"), (True, "False")])
def test_a_users_file_gets_its_own_module_unless_all_is_sealed(always: bool, of_the_user: str, tmp_path: Path) -> None:
    (tmp_path / "of_a_user.py").write_text("import statistics\n")
    for name in ("statistics", "pygments"):
        (tmp_path / f"{name}.py").write_text("")
    asked = [sys.executable, "-P", "-c", ASKS.format(folder=str(tmp_path), always=always)]
    given = os.environ | {"PYTHONPATH": str(IMPORTED_FROM)}
    ended = subprocess.run(asked, env=given, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == [of_the_user, "False"]
