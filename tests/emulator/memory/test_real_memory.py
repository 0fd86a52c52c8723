"""Contract under test: real values go where the words go, through every memory, and never stay where another word was written."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import LaunchOptions, emulated
from bitverdict.harness.emulator.memory.real_access import RealAccess
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real
from bitverdict.kernels.block_scaled_matmul import block_scaled_matmul
from bitverdict.kernels.fused_gather_scatter_matmul import fused_gather_scatter_matmul
from bitverdict.kernels.split_k_matmul import Config, split_k_matmul
from bitverdict.kernels.warp_specialized_matmul import warp_specialized_matmul
from tests.support import real_memory_kernels as kernels
from tests.support import tile_kernels

SIZE = 64


def reals(arch: str = "sm_90", **options: Any) -> Any:
    return emulated(arch, options=LaunchOptions(real_values=frozenset(), **options))


def drawn(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def agrees(device: Any, tensor: torch.Tensor, expected: np.ndarray) -> np.ndarray:
    """Where the real values of `tensor` are known and `expected`, which is right to 1e-13."""
    found = device.real_values(tensor)
    assert found is not None and found.value.shape == expected.shape
    return (np.abs(found.value - expected) <= found.error + 1e-13 * np.abs(expected)) & (found.error < 1e-9)


def test_a_second_launch_reads_what_the_first_computed_not_its_words() -> None:
    """Batches and programs one by one; the last programs' tail is masked."""
    x, wide = drawn(1000), torch.empty(1000)
    for batches in (True, False):
        y, z = (torch.zeros(1000, dtype=torch.float16) for _ in range(2))
        with reals(batches=batches) as device:
            kernels.scaled[(8,)](x, y, 1 / 3, 1000, BLOCK=128)
            kernels.scaled[(8,)](y, z, 1 / 7, 1000, BLOCK=128)
            assert agrees(device, z, x.double().numpy() / 21).all()
            assert (np.abs(z.double().numpy() - x.double().numpy() / 21) > 1e-6).any()
            kernels.scaled[(8,)](x, wide, 2.0, 1000, BLOCK=128)  # exact: nothing is left of it but its words
            assert agrees(device, wide, 2 * x.double().numpy()).all()


def test_a_word_of_a_product_is_read_as_an_integer_by_itself() -> None:
    x, y = torch.ones(128), torch.zeros(128)
    with reals() as device:
        kernels.scaled[(1,)](x, y, 1 / 3, 128, BLOCK=128)
        half = device.place(y).half()
        for word in (half.view(torch.int16)[5], half[5].view(torch.int16)):
            assert word.item() == torch.tensor(1 / 3).half().view(torch.int16).item()


def test_a_word_that_the_host_wrote_is_exact_again() -> None:
    x, y, z = drawn(128), torch.zeros(128, dtype=torch.float16), torch.zeros(128)
    with reals() as device:
        kernels.scaled[(1,)](x, y, 1 / 3, 128, BLOCK=128)
        y[10:20] = 0.3
        kernels.scaled[(1,)](y, z, 1.0, 128, BLOCK=128)
        expected = x.double().numpy() / 3
        expected[10:20] = float(torch.tensor(0.3).half())
        assert agrees(device, y, expected).all() and agrees(device, z, expected).all()
        y[:] = 1.0
        assert agrees(device, y, np.ones(128)).all() and agrees(device, z, expected).all()


def test_a_write_that_nothing_was_given_for_is_unknown_by_name() -> None:
    """Not exact: a lowering that writes memory without a rule for real values must not pass for one that has one."""
    told = list[str]()
    access = RealAccess(lambda op, reason: told.append(reason))
    first, second = (Operation(f"made.{line}", [], [], {}, [], [], [], "", "", line=line) for line in (3, 7))
    access.give(first, "f16", np.zeros(4, np.uint16), Real(np.zeros(4)))
    assert access.take(first, (4,)) is None and not told
    access.give(first, "f16", np.zeros(4, np.uint16), Real(np.zeros(4)))
    found = access.take(second, (4,))
    assert found is not None and np.isinf(found.error).all() and told == ["made.7"]


def test_another_tensor_at_the_place_of_one_that_is_gone_is_not_it() -> None:
    """Its words may be a copy of the old ones, of which nothing is known; others are exact."""
    x = drawn(128)
    held = np.zeros(128, np.float16)
    with reals() as device:
        kernels.scaled[(1,)](x, torch.from_numpy(held), 1 / 3, 128, BLOCK=128)
        held[:64] = 2
        gc.collect()
        again = device.real_values(torch.from_numpy(held))
        assert again is not None and (again.value[:64] == 2).all() and (again.error[:64] == 0).all()
        assert np.isinf(again.error[64:]).all()


def test_bits_of_a_rounded_word_are_unknown_by_name() -> None:
    x, y, bits = drawn(128), torch.zeros(128, dtype=torch.float16), torch.zeros(128, dtype=torch.int32)
    with reals() as device:
        kernels.as_integers[(1,)](x, bits, BLOCK=128)
        assert (device.real_values(bits).error == 0).all() and not device.hangs
        kernels.scaled[(1,)](x, y, 1 / 3, 128, BLOCK=128)
        kernels.as_integers[(1,)](y, bits, BLOCK=128)
        assert np.isinf(device.real_values(bits).error).all()
        assert [reason for reason, _ in device.hangs] == ["bit cast through memory"]


def test_atomic_sums_are_sums_of_real_values_in_any_order() -> None:
    x = drawn(256, dtype=torch.float32)
    expected = x.double().numpy().reshape(8, 32).sum(0) / 3 + 0.5
    for schedule in ("eager", "latest"):
        sums = torch.full((32,), 0.5)
        with emulated("sm_90", schedule, options=LaunchOptions(real_values=frozenset())) as device:
            kernels.summed[(1,)](x, sums, BLOCK=256, PLACES=32)
            assert agrees(device, sums, expected).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_products_of_computed_tiles_through_rings_and_bulk_stores(arch: str) -> None:
    """mma.sync, wgmma and tcgen05: the accumulator, an operand that was computed and rounded, tiles of a pipelined loop that an
    earlier launch computed."""
    a, b, given = drawn(SIZE, SIZE), drawn(SIZE, SIZE, seed=1), drawn(3 * SIZE, SIZE, seed=2)
    p = a.double() @ b.double() / 11
    expected = (p @ given.double().view(3, SIZE, SIZE).sum(0)).numpy() / 5
    for schedule in ("eager", "latest"):
        c, out = torch.zeros(3 * SIZE, SIZE, dtype=torch.float16), torch.zeros(SIZE, SIZE, dtype=torch.float16)
        tiles = [TensorDescriptor.from_tensor(each, [SIZE, SIZE]) for each in (a, b, c)]
        with emulated(arch, schedule, options=LaunchOptions(real_values=frozenset())) as device:
            kernels.scaled[(3 * SIZE,)](given, c, 1 / 5, c.numel(), BLOCK=SIZE)
            target = TensorDescriptor.from_tensor(out, [SIZE, SIZE])
            kernels.two_products[(1,)](*tiles, target, 1 / 11, SIZE=SIZE, STEPS=3, AHEAD=0)
            found = device.real_values(out)
            assert (np.abs(found.value - expected) <= found.error + 1e-12).all() and found.error.max() < 1e-10
            assert not device.hangs and np.abs(out.double().numpy() - expected).max() > 1e-3


def test_a_stage_of_a_ring_carries_what_was_stored_there_last() -> None:
    x = drawn(128)
    exact = x.double().numpy()
    for written, read, expected in ((-1, 1, exact / 7), (1, 1, exact), (1, 2, exact / 11), (2, 0, exact / 3)):
        y = torch.zeros(128, dtype=torch.float16)
        with reals() as device:
            kernels.ring[(1,)](x, y, written, read, 128)
            assert agrees(device, y, expected).all()
            assert not agrees(device, y, exact / 5).any()


def test_halves_of_words_in_shared_memory_are_unknown() -> None:
    y = torch.zeros(64, dtype=torch.int32)
    with reals() as device:
        kernels.split_words[(1,)](drawn(128), y, 128)
        assert np.isinf(device.real_values(y).error).all() and device.hangs[0][0] == "bit cast through memory"


def test_what_torch_makes_of_computed_words_is_computed() -> None:
    """Moves, sums and products between launches. In the host's zeros nothing is left of what lay there. What has no rule is unknown
    by its name."""
    x = drawn(4, 32)
    third = x.double().numpy() / 3
    with reals() as device:
        y = torch.empty(4, 32, dtype=torch.float16, device="cuda")
        kernels.scaled[(1,)](device.place(x), y, 1 / 3, 128, BLOCK=128)
        assert agrees(device, torch.cat([y.t().contiguous(), y.t().float()]), np.concatenate([third.T, third.T])).all()
        assert agrees(device, y.float().sum(0) * 0.7 - 1, third.sum(0) * 0.7 - 1).all()
        inverse = 1 / y.float().abs().amax(1, keepdim=True)
        assert agrees(device, inverse, 1 / np.abs(third).max(1, keepdims=True)).all() and not device.hangs
        y[1:3] = 0
        y[0] *= 2
        expected = third * np.array([2.0, 0.0, 0.0, 1.0])[:, None]
        assert agrees(device, y, expected).all()
        z = torch.empty(128, device="cuda")
        kernels.scaled[(1,)](y, z, 1.0, 128, BLOCK=128)
        assert agrees(device, z, expected.reshape(-1)).all() and not device.hangs
        assert np.isinf(device.real_values(torch.erf(y)).error).all() and device.hangs == [("torch erf", "")]
        assert (device.real_values(device.place(x) > 0).error == 0).all()
        assert np.isinf(device.real_values(y.to(torch.int32)).error[0]).all()  # 2 / 3 of x, cut
        assert torch.zeros(2, dtype=torch.complex64, device="cuda").add(1).sum().cpu() == 2  # of a type without reals


def test_what_the_host_chose_by_a_rounded_word_is_unknown() -> None:
    with reals() as device:
        x, y = device.place(drawn(128)), torch.empty(128, dtype=torch.float16, device="cuda")
        kernels.scaled[(1,)](x, y, x.max().item(), 128, BLOCK=128)
        assert np.isfinite(device.real_values(y).error).all() and not device.hangs
        kernels.scaled[(1,)](x, y, y.max().item(), 128, BLOCK=128)
        assert np.isinf(device.real_values(y).error).all() and device.hangs == [("item", "")]


def test_bulk_copies_combine_real_values() -> None:
    x, start = drawn(SIZE, SIZE), drawn(SIZE, SIZE, seed=1)
    product, there = x.double().numpy() / 3, start.double().numpy()
    for largest, expected in ((False, product + there), (True, np.maximum(product, there))):
        out = start.clone()
        tiles = [TensorDescriptor.from_tensor(each, [SIZE, SIZE]) for each in (x, out)]
        with reals() as device:
            kernels.reduced[(1,)](*tiles, 1 / 3, SIZE, largest)
            assert agrees(device, out, expected).all() and not device.hangs


@pytest.mark.share(4)
def test_partitions_rings_and_workspaces_carry_what_was_computed() -> None:
    """Warp-specialised, persistent and split kernels; rows gathered and scattered; parts summed by programs, kernels, atomics."""
    a, b = drawn(72, 80), drawn(80, 136, seed=1)
    expected = a.double() @ b.double()
    with reals("sm_100") as device:
        found = warp_specialized_matmul(a, b, torch.empty(72, 136, dtype=torch.float16), programs=2)
        assert agrees(device, found, expected.numpy()).all()
        rows, places = torch.randperm(72, dtype=torch.int32), torch.randperm(72, dtype=torch.int32)
        out = torch.zeros(72, 136, dtype=torch.bfloat16)
        wide = [each.bfloat16() for each in (a, b)]
        fused_gather_scatter_matmul(wide[0], rows, wide[1], places, block_k=64, out=out)
        product = torch.zeros(72, 136, dtype=torch.double)
        product[places.long()] = wide[0].double()[rows.long()] @ wide[1].double()
        assert agrees(device, out, product.numpy()).all() and not device.hangs
    for reduction in ("second kernel", "last program", "atomics"):
        with reals() as device:
            found = split_k_matmul(a, b, out_dtype=torch.float32, config=Config(block_k=32, split=3, reduction=reduction))
            assert agrees(device, found, expected.numpy()).all(), (reduction, device.hangs)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_scales_of_blocks_multiply_the_real_values(arch: str) -> None:
    """mxfp8: by tcgen05 with scales in tensor memory, and as the compiler widens it."""
    drawing = torch.Generator().manual_seed(0)
    a, b = (drawn(128, 128, seed=i).to(torch.float8_e4m3fn) for i in range(2))
    scales = [torch.randint(124, 130, (1, 1, 32, 4, 4), dtype=torch.uint8, generator=drawing) for _ in range(2)]
    wide = []
    for each, by in zip((a, b), scales, strict=True):
        factor = 2.0 ** (by.double().permute(0, 3, 2, 1, 4).reshape(128, 4) - 127)
        wide.append(each.double() * factor.repeat_interleave(32, 1))
    with reals(arch) as device:
        found = block_scaled_matmul(a, scales[0], b, scales[1])
        assert agrees(device, found, (wide[0] @ wide[1].T).numpy()).all(), device.hangs


def test_a_load_that_rounds_to_tf32_keeps_the_real_values() -> None:
    table = drawn(16, 32, dtype=torch.float32)
    out = torch.zeros(16, 32)
    with reals() as device:
        descriptor = TensorDescriptor.from_tensor(table, [16, 32], round_f32_to_tf32=True)
        tile_kernels.descriptor_rows[(1,)](descriptor, out, ROWS=16, COLUMNS=32)
        assert agrees(device, out, table.double().numpy()).all() and not torch.equal(out, table)


def test_what_is_written_where_a_rounding_says_is_unknown() -> None:
    """Under a mask that hangs on one also what was not written; at an address that does, all that the launch may write."""
    x = torch.arange(64, dtype=torch.float32)
    for by_mask, unknown, reason in ((True, np.arange(64) > 0, "mask"), (False, np.full(64, True), "address")):
        out = torch.zeros(80)
        with reals() as device:
            kernels.hanging[(1,)](x, out, 64, by_mask)
            found = device.real_values(out)
            assert (np.isinf(found.error[:64]) == unknown).all() and reason in [each for each, _ in device.hangs]


def test_masked_copies_into_a_ring_carry_zeros_and_computed_words() -> None:
    a, given = drawn(32, 80), drawn(80, 32, seed=1)
    b, out = torch.zeros(80, 32, dtype=torch.float16), torch.zeros(32, 32)
    with reals("sm_80") as device:
        kernels.scaled[(20,)](given, b, 1 / 3, b.numel(), BLOCK=128)
        kernels.masked_product[(1,)](a, b, out, 80, SIZE=32)
        assert agrees(device, out, (a.double() @ given.double()).numpy() / 3).all() and not device.hangs


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_signalling_nans_are_read_without_a_warning() -> None:
    with reals() as device:
        for dtype, words in ((torch.float32, torch.int32), (torch.bfloat16, torch.int16), (torch.float16, torch.int16)):
            nan = torch.full((8,), {4: 0x7F800001, 2: 0x7F81 if dtype is torch.bfloat16 else 0x7C01}[dtype.itemsize], dtype=words)
            assert np.isnan(device.real_values(nan.view(dtype)).value).all()


def test_batches_that_are_taken_back_take_their_real_values_back() -> None:
    x, y = drawn(256), torch.zeros(256)
    with reals() as device:
        kernels.scaled[(2,)](x, y, 1 / 7, 256, BLOCK=128)
        kernels.in_place[(8,)](y, BLOCK=32)
        assert device.launches[-1].serial_reason
        assert agrees(device, y, x.double().numpy() / 21 + (np.arange(256) >= 128)).all()
