"""Contract under test: a user's script that launched a kernel ends without the bindings' page of "leaked" types and functions."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
SCRIPT = """
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import emulated


@triton.jit
def doubled(a, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(a + at, tl.load(a + at) * 2)  # whose thread wrote what is asked of the compiler's layouts


with emulated("sm_90"):
    doubled[(1,)](torch.ones(32), 32)
print("launched")
"""


@pytest.mark.compiles
def test_a_script_that_launched_ends_in_silence(tmp_path: Path) -> None:
    """That Triton prints the page without this is shown by `test_nothing_is_printed_below_a_report_once_gluon_was_imported`."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    ran = subprocess.run(
        [sys.executable, str(script)], env=os.environ | {"PYTHONPATH": str(CHECKOUT)}, capture_output=True, text=True, check=True
    )
    assert ran.stdout == "launched\n" and "leaked" not in ran.stderr
