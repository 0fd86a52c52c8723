"""Contract under test: fp64 gives the words of an H100: which NaN comes out, and in what order the tensor cores add.

The words are inputs, `tests/hardware_words/h100_own_fp64.npz`. sm_80 and sm_100 are held to the same instructions, by analogy.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import emulated
from bitverdict.harness.emulator.numerics.matrix_products import double_product
from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.reference.scalar_arithmetic import fp64
from tests.support import double_kernels

WORDS = np.load(Path(__file__).parents[2] / "hardware_words" / "h100_own_fp64.npz")
X, Y = WORDS["x"], WORDS["y"]
ROWS = ("add", "sub", "mul", "div", "fma_xyx", "max", "sqrt", "floor", "fp32_and_back")
INSTRUCTIONS = {"add": "add.f64", "sub": "sub.rn.f64", "mul": "mul.rn.f64", "div": "div.rn.f64", "max": "max.f64",
                "sqrt": "sqrt.rn.f64", "floor": "cvt.rmi.f64.f64"}  # fmt: skip


def double(words: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(words.view(np.float64).copy())


def test_every_recorded_word_of_fp64_is_reproduced() -> None:
    padded = [double(np.resize(each, 256)) for each in (X, Y)]  # (256,)
    out = torch.zeros(len(ROWS), 256, dtype=torch.float64)
    with emulated("sm_90"):
        double_kernels.operations[(1,)](*padded, out, N=256)
    got = out.numpy().view(np.uint64)[:, : X.size]
    assert {name: int((row != WORDS[name]).sum()) for name, row in zip(ROWS, got, strict=True)} == dict.fromkeys(ROWS, 0)


def test_the_executor_of_ptx_gives_the_recorded_words_too() -> None:
    for name, opcode in INSTRUCTIONS.items():
        known = meaning(opcode)
        assert (known.compute(*(X, Y)[: len(known.reads)]) == WORDS[name]).all(), opcode
    assert (meaning("fma.rn.f64").compute(X, Y, X) == WORDS["fma_xyx"]).all()
    assert (meaning("cvt.f64.f32").compute(meaning("cvt.rn.f32.f64").compute(X)) == WORDS["fp32_and_back"]).all()


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "fma_xyx", "max"])
def test_the_record_tells_which_of_two_nan_is_taken(name: str) -> None:
    """So that the other choice would fail: of two NaN the record has words of each payload."""
    both = np.isnan(X.view(np.float64)) & np.isnan(Y.view(np.float64)) & (X != Y)
    taken, left = (X, Y) if name == "div" else (Y, X)
    quiet = np.uint64(1 << 51)
    assert (WORDS[name][both] == taken[both] | quiet).all() and (WORDS[name][both] != left[both] | quiet).sum() >= 12


def test_a_product_of_fp64_adds_in_ascending_order_of_k() -> None:
    a, b, c = (double(WORDS[f"dot_{name}"]) for name in "abc")
    for arch in ("sm_80", "sm_90", "sm_100"):
        out = torch.zeros(32, 32, dtype=torch.float64)
        with emulated(arch) as device:
            text = double_kernels.product[(1,)](a, b, c, out, N=32).asm["ptx"]
        forms = set(re.findall(r"\b(?:mma\.sync\.aligned\.(m\d+n8k\d+)\.row\.col\.f64|fma\.rn)\.f64\b", text))
        assert device.launches[-1].instructions == {"fma" if forms == {""} else "mma.sync"} and len(forms) == 1
        assert (out.numpy().view(np.uint64) == WORDS["dot_d"]).all(), arch
    backwards = double_product(a.numpy()[:, ::-1], b.numpy()[::-1], c.numpy()).view(np.uint64)
    assert (backwards != WORDS["dot_d"]).sum() == 787


def test_a_nan_that_no_operand_brought_is_that_of_an_invalid_operation() -> None:
    infinity, zero = np.array([np.inf]), np.array([0.0])
    for found in (fp64.add(infinity, -infinity), fp64.multiply(infinity, zero), fp64.divide(zero, zero), fp64.sqrt(-infinity),
                  fp64.fma(infinity, zero, zero)):  # fmt: skip
        assert found.view(np.uint64).tolist() == [0xFFF8000000000000]
