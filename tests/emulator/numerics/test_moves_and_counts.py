"""Contract under test: what draws, counts and moves words does so on the emulated GPU as its definition says, word for word."""

from __future__ import annotations

from re import findall

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.releases import installed_release
from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin
from tests.support import structure_kernels as kernels
from tests.support.ptx_threads import DeviceMemory, Threads

ROUNDS, MULTIPLIERS, KEYS = 10, (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, counter: int) -> list[int]:
    """Philox4x32-10 (Salmon and others, 2011) of one counter, in Python's integers."""
    c, k, mask = [counter, 0, 0, 0], [seed & 0xFFFFFFFF, seed >> 32], 0xFFFFFFFF
    for _ in range(ROUNDS):
        first, second = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & mask, first >> 32 ^ c[3] ^ k[1], first & mask]
        k = [(key + step) & mask for key, step in zip(k, KEYS, strict=True)]
    return c


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_drawn_words_are_those_of_philox(arch: str) -> None:
    seed, n = 0x123456789ABCDEF, 64
    words, floats = torch.zeros(4, n, dtype=torch.int32), torch.zeros(n)
    with emulated(arch):
        kernels.draw[(1,)](seed, words, floats, N=n)
    expected = np.array([philox(seed, i) for i in range(n)], np.uint32).T.copy().view(np.int32)  # (4, n)
    np.testing.assert_array_equal(words.numpy(), expected)
    first = np.where(expected[0] < 0, -expected[0] - 1, expected[0])
    np.testing.assert_array_equal(floats.numpy(), first.astype(np.float32) * np.float32(4.6566127342e-10))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_a_histogram_counts_what_lies_in_its_bins(arch: str) -> None:
    """What lies beyond them is not counted, and the compiled program says so, or its last bits are, by the PTX executed. An H100
    counted 4,096 values of -300 to 899 alike in 16, 64 and 256 bins, with a mask and without (2026-11-22)."""
    values = torch.randint(-30, 90, (256,), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    values[7], values[8], values[9], values[10] = 64, -1, -(2**31), 2**31 - 1
    whole, masked = torch.zeros(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    twin = PtxTwin()
    with emulated(arch, options=LaunchOptions(probes=(twin,))):
        compiled = kernels.count[(1,)](values, whole, masked, N=256, BINS=64)
        beyond = findall(r"setp\.gt\.u32\s+%p\d+, %r\d+, 63;", compiled.asm["ptx"])
    assert [(result.words, result.difference) for result in twin.results] == [(128, "")]
    if installed_release().wraps_histograms:
        values = values & 63
    inside = (values >= 0) & (values < 64)
    assert torch.equal(whole, torch.bincount(values[inside], minlength=64).int())
    inside &= torch.arange(256) % 3 != 0
    assert torch.equal(masked, torch.bincount(values[inside], minlength=64).int())
    assert len(beyond) == (0 if installed_release().wraps_histograms else 2), "one comparison for each of a thread's two values"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_a_gather_takes_what_its_indices_name(dtype: torch.dtype) -> None:
    source = torch.arange(16 * 32).reshape(16, 32).to(dtype)
    indices = torch.randint(0, 16, (32, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    out, outside = torch.zeros(32, 32, dtype=dtype), torch.zeros(32, 32, dtype=dtype)
    beyond = indices.clone()
    beyond[3, 4], beyond[5, 6] = 16, -1
    with emulated("sm_90"):
        for given, into in ((indices, out), (beyond, outside)):
            kernels.pick[(1,)](source, given, into, ROWS=16, TAKEN=32, COLUMNS=32)
    expected = source.gather(0, indices.long())
    assert torch.equal(out, expected)
    bits = outside.view(torch.uint8).reshape(32, 32, -1)
    poisoned = (bits == 255).all(-1)
    assert {tuple(each) for each in poisoned.nonzero().tolist()} == {(3, 4), (5, 6)}, "outside the axis lies poison"
    assert torch.equal(torch.where(poisoned, expected, outside), expected)


def test_cat_interleave_sort_topk_flip_and_permute_move_words() -> None:
    """Read through a pointer to constant memory, between a wait for the launch before and a word to the next."""
    a, b = (torch.randperm(32, generator=torch.Generator().manual_seed(i)).int() for i in range(2))
    out = torch.full((6, 64), -9, dtype=torch.int32)
    with emulated("sm_90"):
        kernels.arrange[(1,)](a, b, out, N=32, K=8)
    falling = a.sort(descending=True)[0]
    rows = [torch.cat([a, b]), torch.stack([a, b], 1).ravel(), falling, falling[:8], a.flip(0)]
    for got, expected in zip(out, [*rows, a.reshape(4, 2, 4).permute(2, 0, 1).ravel()], strict=True):
        assert torch.equal(got[: len(expected)], expected) and (got[len(expected) :] == -9).all()


def _steps_down(x: int, most: int) -> tuple[int, int]:
    steps = passed = 0
    while x > 1 and steps < most:
        passed += x if x % 2 else 0
        x, steps = (3 * x + 1 if x % 2 else x // 2), steps + 1
    return steps, x + passed


def test_each_element_goes_its_own_way_through_a_function() -> None:
    """Loops and branches by element; two at a time are those of neighbouring registers of a thread."""
    n = 256
    a = torch.randint(1, 40, (n,), dtype=torch.int32, generator=torch.Generator().manual_seed(4))
    limit = torch.randint(0, 30, (n,), dtype=torch.int32, generator=torch.Generator().manual_seed(5))
    steps, left, turned = (torch.full((n,), -1, dtype=torch.int32) for _ in range(3))
    with emulated("sm_90") as device:
        kernels.each_element[(1,)](a, limit, steps, left, turned, N=n, PACK=2)
    expected = [_steps_down(x, most) for x, most in zip(a.tolist(), limit.tolist(), strict=True)]
    assert list(zip(steps.tolist(), left.tolist(), strict=True)) == expected
    assert "sizePerThread = [2]" in device.launches[0].program, "so elements 2i and 2i + 1 go together"
    x, at = a.reshape(-1, 2), torch.arange(n, dtype=torch.int32).reshape(-1, 2)
    larger = torch.stack([x[:, 0] * at[:, 0], x[:, 1] - at[:, 1]], 1)
    assert torch.equal(turned.reshape(-1, 2), torch.where((x[:, 0] > x[:, 1])[:, None], larger, x.flip(1)))


def test_functions_not_inlined_use_shared_memory_of_their_callers() -> None:
    """One function is called from places that leave it shared memory at different offsets, beside tiles that lie there."""
    n, k = 32, 128
    a, b = (torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(7)).half() for shape in ((n, k), (k, n)))
    values = torch.randint(-9, 9, (256,), dtype=torch.int32, generator=torch.Generator().manual_seed(6))
    out, total = torch.zeros(n, n), torch.zeros(1, dtype=torch.int32)
    with emulated("sm_80") as device:
        kernels.calls[(1,)](a, b, values, out, total, K=k, N=n, COUNT=256)
    assert torch.equal(out, a.float() @ b.float()) and total.item() == 10 * int(values.sum()) + 1
    assert set(findall(r"scratch\(\w+, (\d+), 16\)", device.launches[0].python)) == {"0", "8192"}


@pytest.mark.filterwarnings("ignore:tl.cat")
@pytest.mark.parametrize(("n", "warps"), [(64, 2), (256, 2), (64, 4)])
def test_a_cat_that_may_reorder_puts_elements_where_the_ptx_does(n: int, warps: int) -> None:
    a, b = np.arange(n, dtype=np.int32), np.arange(n, 2 * n, dtype=np.int32)
    got, due = np.zeros(2 * n, np.int32), np.zeros(2 * n, np.int32)
    with emulated("sm_90"):
        kernel = kernels.joined_anyhow[(1,)](*map(torch.from_numpy, (a, b, got)), N=n, num_warps=warps)
    arrays = a, b, due
    Threads(kernel.asm["ptx"], [each.__array_interface__["data"][0] for each in arrays], DeviceMemory(*arrays), 32 * warps).run()
    assert got.tolist() == due.tolist() and sorted(got) == list(range(2 * n))


def test_any_operation_on_integers_may_combine_in_a_scan_or_a_reduction() -> None:
    """None of them associates, so the order of the compiled program shows: its PTX leaves the same words."""
    a = np.random.default_rng(9).integers(-99, 99, 32).astype(np.int32)
    scanned, folded = np.zeros(32, np.int32), np.zeros(2, np.int32)
    due = np.zeros(32, np.int32), np.zeros(2, np.int32)
    with emulated("sm_90"):
        kernel = kernels.folds[(1,)](*map(torch.from_numpy, (a, scanned, folded)), N=32, num_warps=1)
    arrays = a, *due
    Threads(kernel.asm["ptx"], [each.__array_interface__["data"][0] for each in arrays], DeviceMemory(*arrays), 32).run()
    assert scanned.tolist() == due[0].tolist() and folded.tolist() == due[1].tolist() and folded[1] == 32
