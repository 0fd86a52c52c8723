"""Contract under test: where Triton's own interpreter is wrong, and the day it is not.

The interpreter (TRITON_INTERPRET=1) is no oracle for a bf16 `tl.dot`: it multiplies the 16-bit words as if they were something
else, without an error. An emulated target gives the right words for the same kernel. When a Triton release repairs the
interpreter this test fails and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
import torch

from bitverdict.harness.emulator import emulated
from tests.support.dot_kernel import dot, operands

CHECKOUT = Path(__file__).resolve().parents[2]


@cache
def interpreted(dtype: str) -> torch.Tensor:
    """The product as Triton's interpreter computes it, in a process of its own: the variable is read when a kernel is decorated."""
    told = subprocess.run(
        [sys.executable, "-m", "tests.support.dot_kernel", dtype],
        cwd=CHECKOUT,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    return torch.tensor(json.loads(told.stdout.splitlines()[-1]))


def exact(dtype: str) -> torch.Tensor:
    a, b = operands(getattr(torch, dtype))
    return (a.double() @ b.double()).float()  # small integers: no order or precision can change the sum


@pytest.mark.share(4)
def test_the_interpreter_multiplies_half_precision_rightly() -> None:
    assert torch.equal(interpreted("float16"), exact("float16"))


@pytest.mark.share(4)
def test_the_interpreter_gives_garbage_for_a_bf16_dot_and_says_nothing() -> None:
    wrong = interpreted("bfloat16") != exact("bfloat16")
    assert wrong.any(), "Triton's interpreter multiplies bf16 rightly now: take this trap out of the documentation"
    assert wrong.float().mean() > 0.5


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_an_emulated_target_multiplies_both_rightly(arch: str, dtype: str) -> None:
    with emulated(arch):
        assert torch.equal(dot(*operands(getattr(torch, dtype))), exact(dtype))
