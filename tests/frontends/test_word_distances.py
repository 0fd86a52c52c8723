"""Contract under test: `--numerics` tells how far the words of each tensor are from what the program computes without rounding."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from bitverdict.harness.emulator import word_distances
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
    last = inspect.getsourcelines(tripled_squares.fn)[1] + 5
    assert found["y"]["location"].endswith(f":{last}") and f"test_word_distances.py:{last}), the worst of 1,024 words" in "".join(
        tally.lines(2, shows_advice=False)
    )


@triton.jit
def scaled_by_a_rounded_mean(x, y, once, N: tl.constexpr):
    places = tl.arange(0, N)
    value = tl.load(x + places)
    mean = tl.sum(value) / N
    rounded = mean.to(tl.float16).to(tl.float32)
    scaled = value * rounded
    tl.store(once + places, value * 3.1)
    tl.store(y + places, scaled)


def test_the_line_that_adds_most_is_not_the_one_that_stores() -> None:
    """Of each tensor, for the worse of two launches; both leave their tensors as they had made them."""
    session, tally = EmulatedSession(["sm_90"], numerics=True), EmulationTally()
    session.enter()
    try:
        x = torch.rand(64, generator=torch.Generator().manual_seed(1))
        y, once = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        scaled_by_a_rounded_mean[(1,)](torch.ones(64, device="cuda") / 3, y, once, 64)
        scaled_by_a_rounded_mean[(1,)](x.cuda(), y, once, 64)
        left = y.cpu()
        tally.add(session.take("here"))
    finally:
        session.close()
    found = {record["tensor"]: record for record in tally.numerics}
    first = inspect.getsourcelines(scaled_by_a_rounded_mean.fn)[1]
    assert torch.equal(left, x * x.mean().half().float())
    assert found["y"]["error_line"].endswith(f"test_word_distances.py:{first + 5}") and found["y"]["error_share"] > 0.9
    assert found["y"]["location"].endswith(f":{first + 8}")
    assert found["once"]["error_line"].endswith(f":{first + 7}") and found["once"]["units"] < 1
    text = " ".join(tally.lines(2, shows_advice=False))
    assert "of it is added by" in text and "rounded = mean.to(tl.float16).to(tl.float32)" in text


@pytest.mark.parametrize(
    ("name", "most", "said"),
    [
        ("MOST_ELEMENTS", 100, r"the launch computes [\d,]+ elements, and at most 4 are repeated"),
        ("MOST_LINES", 1, r"\d lines round, and at most 1 are tried"),
    ],
)
def test_a_line_that_was_not_looked_for_is_told_so(name: str, most: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_distances, name, most)
    session, tally = EmulatedSession(["sm_90"], numerics=True), EmulationTally()
    session.enter()
    try:
        y, once = torch.zeros(64, device="cuda"), torch.zeros(64, device="cuda")
        scaled_by_a_rounded_mean[(1,)](torch.rand(64).cuda(), y, once, 64)
        tally.add(session.take("here"))
    finally:
        session.close()
    assert all(re.fullmatch(said, record["no_error_line"]) and not record["error_line"] for record in tally.numerics)
    assert re.search(f"which line adds most is not known: {said}", " ".join(tally.lines(2, shows_advice=False)))
