"""Contract under test: each operator edits what its name says, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bitverdict.harness.mutants.source.generate import of_function
from bitverdict.harness.mutants.source.places import File

DEVICE = '''
@gluon.jit
def kernel(x, n):
    """A docstring with a mask."""
    at = gl.arange(0, 16)
    {}
'''


def edits(statement: str, operator: str, *, frame: str = DEVICE) -> list[str]:
    """The texts that `operator` makes of `statement`, in order."""
    file = File(Path("k.py"), "k.py", frame.format(statement))
    (function,) = file.functions.values()
    return [each.after for each in of_function("k", function) if each.operator == operator]


CASES = [
    ("y = gl.load(x + at, mask=at < n, other=0.0)", "mask dropped", ["y = gl.load(x + at)"]),
    ("gl.store(x + at, 1, mask=at < n)", "mask dropped", ["gl.store(x + at, 1)"]),
    ("y = gl.where(at < n, x, 0)", "mask dropped", []),
]


@pytest.mark.parametrize(("statement", "operator", "expected"), CASES)
def test_an_operator_makes_these_edits(statement: str, operator: str, expected: list[str]) -> None:
    assert edits(statement, operator) == expected
