"""What the emulator makes for a launch from within a test goes to disk. `.ci/wheel` runs this file where the wheel is installed and
pytest rewrites the files of its distribution."""

import torch
import triton
import triton.language as tl

import bitverdict
from bitverdict.harness.emulator.frontend import kept_translations


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n, 0.0) * 2, at < n)


def test_what_pytest_imports_goes_to_disk() -> None:
    kept_translations.skip_reasons.clear()
    x = torch.arange(20.0)
    with bitverdict.emulated("sm_90") as device:
        there = device.place(x)
        y = torch.empty_like(there)
        doubled[(1,)](there, y, 20, BLOCK=32)
        assert torch.equal(y.cpu(), 2 * x)
    assert not kept_translations.skip_reasons, kept_translations.skip_reasons
