"""Contract under test: arithmetic on two lanes rounds each lane as the plain instruction does; a product that only the packed sum
beside it uses is fused, as the machine code has it, and any other form is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support import packed_kernels as kernels

COUNT = 512
EXACT = {torch.float32: np.longdouble, torch.float16: np.float64, torch.bfloat16: np.float64}


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    return [torch.randn(COUNT, generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in range(3)]


def rounded(values: np.ndarray, dtype: torch.dtype) -> torch.Tensor:
    """Once: of halves float64 holds a product exactly, and a sum so nearly that no tie is made or broken for these operands."""
    return torch.from_numpy(np.asarray(values, np.float32 if dtype == torch.float32 else np.float64)).to(dtype)


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_each_lane_is_rounded_as_the_plain_instruction_rounds(dtype: torch.dtype) -> None:
    given = operands(dtype)
    out = torch.zeros(6, COUNT, dtype=dtype)
    with emulated("sm_100"):
        kernels.all_of_them[(1,)](*given, out)
    a, b, c = (each.double().numpy().astype(EXACT[dtype]) for each in given)
    for row, exact in enumerate((a + b, a - b, a * b, a * b + c)):
        assert torch.equal(out[row], rounded(exact, dtype)), row
    if dtype != torch.float32:
        assert torch.equal(out[4], torch.minimum(*given[:2])) and torch.equal(out[5], torch.maximum(*given[:2]))


FORMS = {"p + z": (1, 1), "z - p": (-1, 1), "p - z": (1, -1), "x * y + z": (1, 1)}


@pytest.mark.parametrize("form", FORMS)
def test_a_product_that_only_the_packed_sum_uses_is_fused(form: str) -> None:
    given, (product, other) = operands(torch.float32), FORMS[form]
    a, b, c = (each.numpy().astype(np.longdouble) for each in given)
    out = torch.zeros(2, COUNT)
    with emulated("sm_100"):
        compiled = kernels.sums_of_products[(1,)](*given, out, form)
    assert torch.equal(out[0], rounded(product * a * b + other * c, torch.float32))
    if form == "p + z":
        assert "FFMA2" in compiled.asm["sass"] and "fma" not in compiled.asm["ptx"]
        with emulated("sm_100"):
            kernels.sums_of_products[(1,)](*given, out, form, enable_fp_fusion=False)
        assert torch.equal(out[0], given[0] * given[1] + given[2])
        assert not torch.equal(out[0], rounded(a * b + c, torch.float32))


def test_a_product_that_something_else_uses_too_is_refused() -> None:
    given, out = operands(torch.float32), torch.zeros(2, COUNT)
    with emulated("sm_100"), pytest.raises(EmulatedFault, match=r"not modelled: ttng.packed_arith: a packed sum .*fp_fusion"):
        kernels.sums_of_products[(1,)](*given, out, "both")
    with emulated("sm_100"):
        kernels.sums_of_products[(1,)](*given, out, "both", enable_fp_fusion=False)
    assert torch.equal(out[1], given[0] * given[1]) and torch.equal(out[0], out[1] + given[2])
