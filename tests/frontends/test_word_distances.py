"""Contract under test: `--numerics` tells how far the words of each tensor are from what the program computes without rounding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.frontends.emulated_session import EmulatedSession, EmulationTally

pytestmark = pytest.mark.compiles


@triton.jit
def tripled_squares(x, y, exact, N: tl.constexpr):
    places = tl.program_id(0) * N + tl.arange(0, N)
    value = tl.load(x + places)
    tl.store(exact + places, 2 * value)
    tl.store(y + places, (value * value).to(tl.bfloat16).to(tl.float32) * 3)


def test_each_tensor_has_its_worst_word() -> None:
    """Of two launches the worse, its element and its line; what earlier ones rounded is not counted again."""
    session, tally = EmulatedSession(["sm_90"], numerics=True), EmulationTally()
    session.enter()
    try:
        x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
        y, exact = torch.zeros(8, 64, device="cuda"), torch.zeros(512, device="cuda")
        tripled_squares[(8,)](x.cuda(), y, exact, 64)
        words = y.numpy(force=True).astype(np.float64)
        tripled_squares[(8,)](torch.ones(8, 64, device="cuda"), y, exact, 64)
        tally.add(session.take("here"))
    finally:
        session.close()
    found = {record["tensor"]: record for record in tally.numerics}
    real = 3 * x.numpy().astype(np.float64) ** 2  # exact in float64
    units = np.abs(words - real) / np.spacing(real.astype(np.float32)).astype(np.float64)
    assert found.keys() == {"y", "exact"} and found["exact"]["units"] == found["exact"]["relative"] == 0
    assert found["y"]["units"] == pytest.approx(units.max(), rel=1e-6)
    assert found["y"]["relative"] == pytest.approx((np.abs(words - real) / real).max(), rel=1e-6)
    assert found["y"]["element"] == np.unravel_index(units.argmax(), units.shape)
    assert (found["y"]["words"], found["y"]["unknown_words"]) == (1024, 0)
    assert found["y"]["location"].endswith(":21") and "test_word_distances.py:21), the worst of 1,024 words" in "".join(
        tally.lines(2, shows_advice=False)
    )
