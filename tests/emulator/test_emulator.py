"""Contract under test: an unmodified Triton kernel under `emulated(arch)` runs the compiler's tile program on CPU tensors, word
for word as the architecture's arithmetic has it, the same each time; an access outside its tensors is raised by name."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.releases import RELEASES, installed_release
from bitverdict.harness.model.triton_release import has_tcgen05_int8
from bitverdict.reference import tensor_core
from tests.support import tile_kernels as kernels
from tests.support.emulated_products import ARCHITECTURES, FAMILIES, SCHEDULES, codes, multiply, operands


@pytest.mark.share(4)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("fmt", ["fp16", "bf16", "e4m3", "tf32", "int8"])
def test_a_matmul_gives_the_words_of_the_architecture(arch, fmt, schedule):
    if (arch, fmt) == ("sm_80", "e4m3"):
        with emulated(arch), pytest.raises(triton.CompilationError):
            multiply(None, *operands(fmt, 128, 128, 64))
        return
    a, b = operands(fmt, 160, 136, 112)
    with emulated(arch, schedule) as device:
        got = multiply(device, a, b).numpy()
    if fmt == "int8":
        expected = (a.numpy().astype(np.int64) @ b.numpy().astype(np.int64)).astype(np.int32)
    else:
        rule = tensor_core.instruction(arch, FAMILIES[arch], fmt, fmt, "fp32")
        expected = tensor_core.product(rule, codes(a, fmt), codes(b, fmt)).view(np.float32)
    is_old_int8 = (arch, fmt) == ("sm_100", "int8") and not has_tcgen05_int8()
    assert device.launches[-1].instructions == {"mma.sync" if is_old_int8 else FAMILIES[arch]}
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


def test_one_fraction_bit_fewer_would_be_seen():
    a, b = operands("fp16", 64, 64, 64)
    with emulated("sm_80") as device:
        got = multiply(device, a, b).numpy()
    other = tensor_core.instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
    assert (tensor_core.product(other, codes(a, "fp16"), codes(b, "fp16")) != got.view(np.uint32)).any()


@pytest.mark.parametrize("fused", [True, False])
def test_an_ieee_product_is_one_ascending_chain_of_multiply_adds(fused):
    a, b = operands("tf32", 20, 24, 40)
    with emulated("sm_80") as device:
        got = multiply(device, a, b, tile=(32, 32, 16), precision="ieee", enable_fp_fusion=fused).numpy()
    expected = np.zeros((20, 24), np.float32)
    for k in range(40):
        for row in range(20):
            exact = np.longdouble(a[row, k].item()) * b[k].numpy().astype(np.longdouble)  # (24,) exact: 48 bits of 64
            if fused:
                expected[row] = (exact + expected[row]).astype(np.float32)
            else:
                expected[row] += exact.astype(np.float32)
    np.testing.assert_array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_masked_lanes_touch_nothing(size):
    source = torch.randn(size)
    destination = torch.full((size + 32,), -1.0)
    with emulated("sm_90"):
        kernels.copy[(2,)](source, destination, size, size + 5, BLOCK=64)
    reach = min(size + 5, 128)
    assert torch.equal(destination[:size], source)
    assert (destination[size:reach] == 0).all() and (destination[reach:] == -1).all()


@pytest.mark.parametrize(("size", "reach", "outcome"), [(64, 65, "stray write"), (65, 64, "stray read")])
def test_an_access_outside_its_tensor_inside_the_storage_fails_by_line(size, reach, outcome):
    storage = torch.zeros(2, 256)
    source, destination = storage[0, 100:164], torch.zeros(256)[64:128]
    with emulated("sm_80") as device, pytest.raises(EmulatedFault) as raised:
        kernels.copy[(1,)](source, destination, size, reach, BLOCK=128)
    assert raised.value.outcome == outcome
    assert re.search(r"tile_kernels\.py:\d+$", raised.value.location)
    assert raised.value.details["offset"] == 256
    assert device.findings == [raised.value]


def test_a_launch_may_reach_whole_storages_and_nothing_beyond_them():
    storage, target = torch.arange(512.0).reshape(2, 256), torch.zeros(256)
    source, destination = storage[0, 100:164], target[64:128]
    with emulated("sm_80", options=LaunchOptions(whole_storages=True)):
        kernels.copy[(1,)](source, destination, 100, 100, BLOCK=128)
        with pytest.raises(EmulatedFault, match="stray write"):
            kernels.copy[(1,)](source, target[-2:], 128, 128, BLOCK=128)
    assert torch.equal(target[64:164], storage[0, 100:200])


def test_where_views_do_not_bind_the_rest_of_a_storage_is_an_advice():
    """By the lines that reach it; what lies beyond the storage is as ever, and what a view has draws none."""
    source, target = torch.arange(256.0), torch.zeros(256)
    with emulated("sm_80", options=LaunchOptions(views_bind=False)) as device:
        kernels.copy[(1,)](source[:64], target[:64], 64, 64, BLOCK=128)
        assert not device.advice
        kernels.copy[(1,)](source[:64], target[64:128], 100, 100, BLOCK=128)
        assert [said.split(": ")[1] for said in device.advice] == [
            f"{verb} what the sizes and strides of {name} do not reach, in the storage that it is a view of"
            for verb, name in (("reads", "source"), ("writes", "destination"))
        ]
        with pytest.raises(EmulatedFault, match="stray write"):
            kernels.copy[(1,)](source, target[-2:], 128, 128, BLOCK=128)
    assert torch.equal(target[64:164], source[:100])


def test_the_gap_between_the_rows_of_a_strided_view_belongs_to_nobody():
    storage = torch.zeros(8, 16)
    with emulated("sm_80"), pytest.raises(EmulatedFault, match="stray write"):
        kernels.copy[(1,)](torch.ones(32), storage[:, :8], 32, 32, BLOCK=32)


def test_the_gap_between_elements_that_are_repeated_belongs_to_nobody():
    """Four elements of four bytes from one end to the other, as a dense tensor of the shape has."""
    storage = torch.zeros(4)
    with emulated("sm_80"), pytest.raises(EmulatedFault, match="stray read"):
        kernels.copy[(1,)](storage.as_strided((2, 2), (0, 3)), torch.ones(4), 4, 4, BLOCK=4)


def test_an_address_outside_every_storage_is_illegal():
    """Further from the tensor that its pointer leads to than a judge's guard band is wide; nearer it is a stray one."""
    for block, outcome in ((1 << 16, "illegal address"), (128, "stray read")):
        with emulated("sm_80"), pytest.raises(EmulatedFault, match=outcome):
            kernels.copy[(1,)](torch.zeros(64), torch.zeros(64), 1 << 30, 1 << 30, BLOCK=block)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_a_tile_of_each_rank_comes_from_where_it_starts(rank):
    """Only of the last start, in bytes, 16 is a divisor."""
    sizes = [2] * (rank - 1) + [64]
    table, got = torch.arange(2.0 ** (rank - 1) * 64).view(sizes), torch.zeros(64)
    with emulated("sm_90"):
        tile = TensorDescriptor.from_tensor(table, [1] * (rank - 1) + [64])
        kernels.descriptor_tile[(1,)](tile, got, 1, SIZE=64, RANK=rank)
    assert torch.equal(got, table.view(-1)[-64:])


@pytest.mark.parametrize("kernel", [kernels.collide, kernels.lanes_collide])
def test_two_values_at_one_address_are_a_race(kernel):
    with emulated("sm_90"), pytest.raises(EmulatedFault) as raised:
        kernel[(2,)](torch.zeros(64, dtype=torch.int32), BLOCK=64)
    assert raised.value.outcome == "race"


def test_integers_wrap_and_divide_toward_zero():
    a = torch.tensor([7, -7, 2**31 - 1, -(2**31) + 1] * 8, dtype=torch.int32)
    b = torch.tensor([2, 2, 3, -5] * 8, dtype=torch.int32)
    results = [torch.zeros(32, dtype=torch.int32) for _ in range(4)]
    with emulated("sm_80"):
        kernels.integers[(1,)](a, b, *results, BLOCK=32)
    assert torch.equal(results[0], torch.div(a, b, rounding_mode="trunc"))
    assert torch.equal(results[1], torch.fmod(a, b))
    assert torch.equal(results[2], a * b) and torch.equal(results[3], a >> 3)


@pytest.mark.parametrize("fused", [True, False])
def test_a_product_that_feeds_a_sum_is_contracted_as_the_option_says(fused):
    a, b, c = (torch.randn(256, generator=torch.Generator().manual_seed(i)) for i in range(3))
    got = torch.empty(256)
    with emulated("sm_90"):
        kernels.multiply_add[(1,)](a, b, c, got, BLOCK=256, enable_fp_fusion=fused)
    exact = a.numpy().astype(np.longdouble) * b.numpy() + c.numpy()  # 64 bits of fraction: no tie is misjudged here
    separate = a.numpy() * b.numpy() + c.numpy()
    expected = exact.astype(np.float32) if fused else separate
    np.testing.assert_array_equal(got.numpy(), expected)
    assert (exact.astype(np.float32) != separate).any()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_host_descriptors_are_tma_where_there_is_tma_and_pointers_else(arch, schedule):
    """The target decides."""
    a, b = operands("fp16", 100, 72, 136)
    c = torch.full((100, 72), float("nan"), dtype=torch.float16)
    with emulated(arch, schedule) as device:
        kernels.descriptor_product[(2, 2)](
            TensorDescriptor.from_tensor(a, [64, 32]),
            TensorDescriptor.from_tensor(b, [32, 64]),
            TensorDescriptor.from_tensor(c, [64, 64]),
            136,
            BLOCK_M=64,
            BLOCK_N=64,
            BLOCK_K=32,
            num_stages=3,
        )
    rule = tensor_core.instruction(arch, FAMILIES[arch], "fp16", "fp16", "fp32")
    expected = tensor_core.product(rule, codes(a, "fp16"), codes(b, "fp16")).view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(c.numpy().view(np.uint16), expected.view(np.uint16))
    assert ("ttng.async_tma_copy_global_to_local" in device.launches[-1].operations) == (arch != "sm_80")


def paged(arch: str, count: int, schedule: str = "eager", rewrite=None) -> tuple[torch.Tensor, torch.Tensor]:
    """What `paged_product` of `count` pages gives, and what it should."""
    generator = torch.Generator().manual_seed(count)
    a, pages = (torch.randint(-3, 4, shape, generator=generator).half() for shape in ((16, 16), (5, 16, 64)))
    table, out = torch.tensor([3, 0, 4, 1], dtype=torch.int32), torch.full((16, 64), 77.0)
    with emulated(arch, schedule, options=LaunchOptions(rewrite=rewrite)):
        try:
            kernels.paged_product[(1,)](a, pages, table, out, count, SIZE=16, COLUMNS=64, num_stages=3)
        except RuntimeError as error:
            if str(error) != "PassManager::run failed" or installed_release().numbers >= RELEASES[-1].numbers:
                raise
            pytest.skip(f"triton {triton.__version__} pipelines no loop that makes descriptors")
    return out, a.float() @ pages[table[:count]].float().sum(0)


@pytest.mark.parametrize("schedule", ["eager", "latest"])
@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_descriptor_that_no_copy_goes_through_need_not_be_made(arch, count, schedule):
    """The compiler runs ahead of the loop: it makes a page's descriptor under the predicate of its copy, and takes its address
    without one."""
    out, expected = paged(arch, count, schedule)
    assert torch.equal(out, expected)


@pytest.mark.parametrize(
    ("removed", "outcome"), [("tensormap_create", "uninitialised read"), ("tensormap_fenceproxy_acquire", "race")]
)
def test_a_copy_through_a_descriptor_that_is_not_ready_fails_by_name(removed, outcome):
    line = re.compile(rf'^\s*"ttng.{removed}"\(.*\n', re.MULTILINE)
    with pytest.raises(EmulatedFault, match=r"ttng.async_tma_copy_global_to_local: no ") as caught:
        paged("sm_90", 4, rewrite=lambda text: line.sub("", text))
    assert caught.value.outcome == outcome
    assert torch.equal(*paged("sm_90", 0, rewrite=lambda text: line.sub("", text)))  # no copy goes through one


def test_a_drawn_schedule_repeats_itself():
    a, b = operands("fp16", 128, 128, 256)
    said = []
    for _ in range(2):
        with emulated("sm_80", "drawn:11") as device:
            multiply(device, a, b, tile=(64, 64, 32))
        said.append(device.launches[-1].timeline)
    assert said[0] == said[1]
    with emulated("sm_80", "drawn:12") as device:
        multiply(device, a, b, tile=(64, 64, 32))
    assert device.launches[-1].timeline != said[0]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_loop_that_the_compiler_specialises_gives_the_same_words(arch, schedule):
    a, b = operands("fp16", 200, 136, 192)
    c = torch.full((200, 136), float("nan"), dtype=torch.float16)
    with emulated(arch, schedule) as device:
        kernels.persistent_product[(2,)](
            TensorDescriptor.from_tensor(a, [128, 64]),
            TensorDescriptor.from_tensor(b.T.contiguous(), [64, 64]),
            TensorDescriptor.from_tensor(c, [128, 64]),
            200,
            136,
            192,
            BLOCK_M=128,
            BLOCK_N=64,
            BLOCK_K=64,
            PROGRAMS=2,
            num_stages=3,
        )
    rule = tensor_core.instruction(arch, FAMILIES[arch], "fp16", "fp16", "fp32")
    expected = tensor_core.product(rule, codes(a, "fp16"), codes(b, "fp16")).view(np.float32).astype(np.float16)
    np.testing.assert_array_equal(c.numpy().view(np.uint16), expected.view(np.uint16))
    assert ("ttg.warp_specialize" in device.launches[-1].operations) == (arch == "sm_100")
