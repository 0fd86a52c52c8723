"""Contract under test: an edit is of the device alone where no launcher can come to it."""

from __future__ import annotations

import ast

import pytest

from bitverdict.harness.mutants.of_device import not_of_the_host

SOURCE = """
from triton.experimental import gluon

@gluon.constexpr_function
def inner(n):
    return n

@gluon.constexpr_function
def outer(n):
    return inner(n) + 1

@gluon.jit
def kernel(x, N):
    y = outer(N)

def launcher(x, n):
    kernel[(1,)](x, n)
"""


def test_what_kernels_alone_name_is_of_the_device() -> None:
    assert not_of_the_host([ast.parse(SOURCE)], {"inner"})


@pytest.mark.parametrize(
    "edit",
    [
        ("x, n)\n", "x, inner(n))\n"),
        ("x, n)\n", "x, outer(n))\n"),
        ("def launcher", "table = [inner]\ndef launcher"),
        ("@gluon.jit", "@gluon.jit(repr=outer)"),
        ("def kernel(x, N)", "def kernel(x, N=inner(2))"),
        ("x, n)\n", "x, getattr(here, 'inner')(n))\n"),
        ("x, n)\n", "x, here.inner(n))\n"),
    ],
)
def test_what_a_launcher_may_come_to_is_not(edit: tuple[str, str]) -> None:
    changed = SOURCE.replace(*edit)
    assert changed != SOURCE and not not_of_the_host([ast.parse(changed)], {"inner"})
