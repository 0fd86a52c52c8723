"""Contract under test: what is enclosed stays so through memory on the chip, whoever copies it there: the program's own stores,
asynchronous copies and TMA, from buffers that are turned, cut, picked from and written again. What is written over it is exact, and
words of another type there are refused. In global memory what floats add up to by atomics is held to any order too.

The sum of each kernel is made open here, whatever the compiled program says.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, emulated
from bitverdict.harness.emulator.memory.atomic_sums import AtomicSums
from bitverdict.harness.emulator.memory.onchip import Space, View
from bitverdict.harness.emulator.memory.placed_views import ScatteredView
from bitverdict.harness.emulator.numerics.enclosed_memory import EnclosedMemory
from bitverdict.harness.emulator.numerics.enclosures import Enclosure, keys
from tests.support.enclosed_kernels import open_sums  # noqa: F401

ROWS, COLUMNS = 32, 16
SCHEDULES = ("eager", "latest", "drawn:1")


@triton.jit
def summed(x, y, z, out, COUNT: tl.constexpr):
    at = tl.arange(0, COUNT)
    tl.store(out + at, tl.load(x + at) * tl.load(y + at) + tl.load(z + at))


@gluon.jit
def carried(middle, exact, places, out, KIND: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """A tile of `middle` by an asynchronous copy through one buffer of two, and one of `exact` through the other."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    flat: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows, columns = gl.arange(0, ROWS, gl.SliceLayout(1, layout)), gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    at = rows[:, None] * COLUMNS + columns[None, :]
    ring = gl.allocate_shared_memory(gl.float32, [2, ROWS, COLUMNS], flat)
    if KIND == "stored":
        ring.index(0).store(gl.load(middle + at))
        async_copy.async_load(ring.index(1), exact + at)
    else:
        mask = at < ROWS * COLUMNS // 2 if KIND == "masked" else at >= 0
        async_copy.async_load(ring.index(0), middle + at, mask=mask)
        async_copy.async_load(ring.index(1), exact + at)
    async_copy.commit_group()
    async_copy.wait_group(0)
    if KIND == "turned":
        found = gl.convert_layout(ring.index(0).permute([1, 0]).load(layout).trans(), layout)
    elif KIND == "cut":
        half = ring.index(0).slice(0, COLUMNS // 2, dim=1).load(layout)
        found = gl.convert_layout(gl.join(half, half).reshape([ROWS, COLUMNS]), layout)
    elif KIND == "gathered":
        found = ring.index(0).gather(gl.load(places + at), axis=0)
    elif KIND == "words":
        found = ring.index(0).reinterpret(gl.int32, [ROWS, COLUMNS], flat).load(layout).to(gl.float32)
    elif KIND == "overwritten":
        ring.index(0).store(gl.load(exact + at))
        found = ring.index(0).load(layout)
    else:
        found = ring.index(0).load(layout)
    gl.store(out + at, found)
    gl.store(out + ROWS * COLUMNS + at, ring.index(1).load(layout))


@triton.jit
def moved(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def pipelined(a, b, out, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """As fla's chunk_gla: tiles come by asynchronous copies, some steps ahead, and are multiplied from shared memory."""
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros([BLOCK, BLOCK], tl.float32)
    for step in tl.range(0, STEPS, num_stages=3):
        left = tl.load(a + rows * (BLOCK * STEPS) + step * BLOCK + columns)
        total += tl.dot(left, tl.load(b + (step * BLOCK + rows) * BLOCK + columns), input_precision="tf32")
    tl.store(out + rows * BLOCK + columns, total)


def choices(count: int) -> tuple[list[torch.Tensor], list[np.ndarray]]:
    """Operands, and the sum with the product rounded, and with it as it is."""
    generator = torch.Generator().manual_seed(5)
    x, y, z = operands = [torch.randn(count, generator=generator) for _ in range(3)]
    return operands, [(x * y + z).numpy(), (x.double() * y.double() + z.double()).float().numpy()]


def through(kind: str, schedule: str = "eager") -> tuple[np.ndarray | None, np.ndarray | None, list[np.ndarray]]:
    """The keys of the ends of what `kind` leaves of a tile, of the buffer beside it, and the tile by each choice."""
    operands, sums = choices(ROWS * COLUMNS)
    exact = torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(1))
    places = torch.randint(0, ROWS, (ROWS, COLUMNS), dtype=torch.int32, generator=torch.Generator().manual_seed(2))
    middle, out = torch.zeros(ROWS, COLUMNS), torch.zeros(2, ROWS, COLUMNS)
    with emulated("sm_90", schedule) as device:
        summed[(1,)](*operands, middle, COUNT=ROWS * COLUMNS)
        carried[(1,)](middle, exact, places, out, KIND=kind, ROWS=ROWS, COLUMNS=COLUMNS)
        ends = device.enclosure(out)
    assert torch.equal(out[1], exact)
    tiles = [each.reshape(ROWS, COLUMNS) for each in sums]
    match kind:
        case "masked":
            tiles = [np.where(np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) < ROWS * COLUMNS // 2, each, 0) for each in tiles]
        case "cut":
            tiles = [np.repeat(each[:, : COLUMNS // 2], 2, axis=1) for each in tiles]
        case "gathered":
            tiles = [np.take_along_axis(each, places.numpy(), 0) for each in tiles]
        case "overwritten":
            tiles = [exact.numpy()] * 2
    if ends is None:
        np.testing.assert_array_equal(out[0].numpy(), tiles[0])
        return None, None, tiles
    low, high = map(keys, ends)
    assert (low[1] == high[1]).all()
    return low[0], high[0], tiles


@pytest.mark.parametrize("kind", ["copied", "stored", "masked", "turned", "cut", "gathered"])
def test_a_buffer_carries_both_choices(kind: str) -> None:
    for schedule in SCHEDULES:
        low, high, tiles = through(kind, schedule)
        assert low is not None and high is not None
        assert all(((low <= keys(each)) & (keys(each) <= high)).all() for each in tiles), schedule
        differing = tiles[0].view(np.int32) != tiles[1].view(np.int32)
        assert differing.sum() > ROWS and (low < high)[differing].all()  # a choice that differs is open, and nothing by far
        assert (high - low).max() < 1 << 16


def test_what_is_written_over_enclosed_words_is_exact() -> None:
    assert through("overwritten")[0] is None


def test_enclosed_words_read_by_another_type_are_refused() -> None:
    said = r"not modelled: shared memory bytes 0\.\.2047 is read as words of 4 bytes of another type than those that are enclosed"
    with pytest.raises(EmulatedFault, match=said):
        through("words")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_tma_carries_both_choices_there_and_back(schedule: str) -> None:
    operands, sums = choices(ROWS * COLUMNS)
    middle, out = torch.zeros(ROWS, COLUMNS), torch.full((ROWS, COLUMNS), 3.0)
    with emulated("sm_90", schedule) as device:
        summed[(1,)](*operands, middle, COUNT=ROWS * COLUMNS)
        boxes = [TensorDescriptor.from_tensor(each, [ROWS, COLUMNS]) for each in (middle, out)]
        moved[(1,)](*boxes, ROWS=ROWS, COLUMNS=COLUMNS)
        ends = device.enclosure(out)
        moved[(1,)](TensorDescriptor.from_tensor(torch.ones(ROWS, COLUMNS), [ROWS, COLUMNS]), boxes[0], ROWS=ROWS, COLUMNS=COLUMNS)
        assert device.enclosure(middle) is None
    assert ends is not None
    low, high = map(keys, ends)
    assert (low < high).any()
    assert all(((low <= keys(each)) & (keys(each) <= high)).all() for each in (tile.reshape(ROWS, COLUMNS) for tile in sums))


@pytest.mark.parametrize("warps", [1, 4])
def test_a_pipelined_product_holds_that_of_both_choices(warps: int) -> None:
    """By mma.sync, and by wgmma in flight."""
    block, steps = 64, 4
    operands, sums = choices(block * block * steps)
    right = torch.randn(block * steps, block, generator=torch.Generator().manual_seed(3))
    middle, out = torch.zeros(block, block * steps), torch.zeros(block, block)
    with emulated("sm_90") as device:
        summed[(1,)](*operands, middle, COUNT=block * block * steps)
        pipelined[(1,)](middle, right, out, BLOCK=block, STEPS=steps, num_warps=warps)
        program, ends = device.launches[-1].program, device.enclosure(out)
    assert "ttg.async_copy_global_to_local" in program and ("ttng.warp_group_dot" in program) == (warps == 4)
    assert ends is not None
    low, high = (each.view(np.float32) for each in ends)
    cut = lambda tensor: (tensor.view(torch.int32) & -8192).view(torch.float32).double()
    for each in sums:
        exact = (cut(torch.from_numpy(each).reshape(block, -1)) @ cut(right)).numpy()
        assert ((low <= exact + 1e-3) & (exact - 1e-3 <= high)).all()
    assert (low < high).any() and (high - low).max() < 0.1 and ((low <= out.numpy()) & (out.numpy() <= high)).all()


def test_a_write_of_other_words_forgets_what_it_touches() -> None:
    space = Space("shared memory", 64)
    words, ends = View(space, 0, (8,), (4,), np.dtype(np.float32)), Enclosure(np.zeros(8, np.int64), np.arange(8))
    words.put(np.zeros(8, np.float32))
    words.enclose(ends)
    halves = ScatteredView(space, np.array([2, 10]), np.dtype(np.uint16))
    with pytest.raises(EmulatedFault, match=r"not modelled: .*read as words of 2 bytes"):
        halves.enclosure()
    halves.put(np.zeros(2, np.uint16))
    found = words.enclosure()
    assert found is not None and found.high.tolist() == [0, 1, 0, 3, 4, 5, 6, 7] and halves.enclosure() is None
    words.put(np.zeros(8, np.float32))  # the words that are there
    assert words.enclosure() is None
    words.enclose(ends)
    space.reset()
    assert not space.enclosed


@pytest.mark.parametrize("is_scattered", [False, True])
def test_an_allocation_leaves_nothing_enclosed_by_what_was_there(is_scattered: bool) -> None:
    """Of another type than what follows: an attention on sm_100 loads tensor memory that it has not written yet."""
    space = Space("tensor memory", 64)
    before = View(space, 0, (16,), (2,), np.dtype(np.float16))
    before.put(np.ones(16, np.float16))
    low = keys(before.get())
    before.enclose(Enclosure(low, low + 1))
    after = View(space, 16, (4,), (4,), np.dtype(np.float32))
    after = ScatteredView(space, after.places(), after.dtype) if is_scattered else after
    with pytest.raises(EmulatedFault, match="words of 4 bytes of another type"):
        after.enclosure()
    after.forget()
    assert after.enclosure() is None and before.enclosure() is not None


def test_a_sum_of_enclosed_floats_is_held_to_any_order_and_choice() -> None:
    """The last term has two choices, and is small in the run; what is enclosed is known for the run's order."""
    least, most = np.array([[1, 1, 1, -(2**25)], [1, 1, 1, 0.5]], np.float32)
    sums, enclosed, raw, places = AtomicSums(16), EnclosedMemory(), np.zeros(16, np.uint8), np.zeros(1, np.int64)
    words = raw.view(np.float32)
    for term in most:
        sums.add("f32", places, words[:1].copy(), term.reshape(1))
        words[:1] += term
    held, ends = keys(words[:1]), [keys(np.cumsum(end)[-1:]) for end in (least, most)]
    enclosed.store(np.array([4096]), held, *ends, words.itemsize)
    ((_, low, high, _),) = sums.bounds(raw, enclosed, 4096)
    ((_, exact_low, exact_high, _),) = sums.bounds(raw)
    made = [keys(np.cumsum(terms)[-1:]) for choice in product(*zip(least, most, strict=True)) for terms in permutations(choice)]
    assert all(low <= each <= high for each in made) and not all(exact_low <= each <= exact_high for each in made)
    assert min(made) < ends[0] - 1 and not low <= keys(np.array([30], np.float32)) <= high
