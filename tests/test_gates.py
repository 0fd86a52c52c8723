"""Contract under test: the fast gate has every test whose file launches nothing, and refuses one that compiles or starts Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.support.gates import compiles_nothing, is_fast

pytestmark = pytest.mark.compiles


@triton.jit
def stores_one(out):
    triton.language.store(out, 1)


PYTHON, GIT = [sys.executable, "-c", ""], ["git", "--version"]


@pytest.mark.parametrize(
    ("line", "fast"),
    [
        ("from bitverdict.harness.emulator import EmulatedFault", True),
        ("from bitverdict.harness.emulator import emulated", False),
        ("import bitverdict.harness.judge.judge", False),
        ("def test():\n    from bitverdict.harness.judge.judge import judge", False),
        ("from bitverdict.reference.tensor_core import product", True),
        ("from tests.support.shares import turn", True),
        ("from tests.support.compile_elsewhere import compiled", False),
    ],
)
def test_a_file_is_of_the_gate_by_what_it_and_its_helpers_import(line: str, fast: bool, tmp_path: Path) -> None:
    (file := tmp_path / "test_it.py").write_text(line + "\n")
    assert is_fast(file) is fast


@pytest.mark.parametrize(("words", "said"), [(PYTHON, "subprocess.Popen"), (GIT, "")])
def test_a_test_of_the_gate_that_starts_python_fails(words: list[str], said: str) -> None:
    seen = ""
    try:
        with compiles_nothing():
            subprocess.run(words, check=True, capture_output=True)
    except AssertionError as error:
        seen = str(error)
    assert said in seen and bool(said) is bool(seen)


def test_a_test_of_the_gate_that_compiles_fails() -> None:
    with pytest.raises(AssertionError, match=r"compiled stores_one.*mark it `compiles`"), compiles_nothing():
        triton.compile(ASTSource(stores_one, {"out": "*i32"}), target=GPUTarget("cuda", 90, 32))
