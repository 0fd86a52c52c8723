"""Contract under test: the emulated GPU's block-scaled operations: scales in tensor memory, their copy, fp4 widening, descriptors
that a program makes; and what it fails when the compiler's program lacks a step of them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.frontend.lowerings.block_scaled import reshape_view, scale_pieces
from bitverdict.harness.emulator.frontend.lowerings.tensor_maps import make
from bitverdict.harness.emulator.memory.onchip import Space, View, row_major
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.model.triton_release import has_exact_scales
from bitverdict.kernels.block_scaled_matmul import Config, block_scaled_matmul
from bitverdict.kernels.scaled_operands import scale_shape

M, N, K = 128, 128, 512


def operands(k: int = K) -> list[torch.Tensor]:
    """mxfp4 operands, all elements one, all scales one."""
    ones = [torch.full((rows, k // 2), 0x22, dtype=torch.uint8) for rows in (M, N)]
    scales = [torch.full(scale_shape(rows, k, 32), 127, dtype=torch.uint8) for rows in (M, N)]
    return [ones[0], scales[0], ones[1], scales[1]]


def without(name: str, count: int = 0):
    """A rewrite that takes the operations `name` out of the tile program, the first `count` of them or all."""
    line = re.compile(rf'^\s*"{re.escape(name)}"\(.*\n', re.MULTILINE)

    def rewrite(text: str) -> str:
        changed, found = line.subn("", text, count=count)
        assert found, f"the program has no {name}"
        return changed

    return rewrite


@pytest.mark.parametrize("schedule", ["eager", "latest", "drawn:3"])
@pytest.mark.parametrize("config", [Config(), Config(scale_load="5D", descriptors="device"), Config(block_m=256, num_stages=1)])
def test_a_product_of_ones_counts_k(schedule: str, config: Config) -> None:
    with emulated("sm_100", schedule=schedule):
        out = block_scaled_matmul(*operands(), torch.float32, configs=config)
    assert (out == K).all()


@pytest.mark.parametrize(
    ("removed", "config", "outcome"),
    [
        ("ttng.tmem_copy", Config(), "uninitialised read"),
        ("ttng.tensormap_create", Config(descriptors="device"), "uninitialised read"),
        ("ttng.tensormap_fenceproxy_acquire", Config(descriptors="device"), "race"),
    ],
)
@pytest.mark.parametrize("schedule", ["eager", "latest"])
def test_a_program_without_a_step_fails_by_name(removed: str, config: Config, outcome: str, schedule: str) -> None:
    with emulated("sm_100", schedule=schedule, options=LaunchOptions(rewrite=without(removed))):
        with pytest.raises(EmulatedFault) as caught:
            block_scaled_matmul(*operands(), torch.float32, configs=config)
    assert caught.value.outcome == outcome, caught.value.message


def test_a_copy_of_one_operands_scales_only_is_an_uninitialised_read() -> None:
    def drop_second(text: str) -> str:
        places = [found.span() for found in re.finditer(r'^\s*"ttng\.tmem_copy"\(.*\n', text, re.MULTILINE)]
        return "".join([text[: places[1][0]], text[places[1][1] :]])

    with emulated("sm_100", options=LaunchOptions(rewrite=drop_second)):
        with pytest.raises(EmulatedFault, match="tensor memory"):
            block_scaled_matmul(*operands(), torch.float32, configs=Config())


@pytest.mark.parametrize("shape", [(128, 4), (128, 8), (256, 4), (256, 16), (32, 4)])
def test_scales_fill_whole_columns_of_32_lanes_and_no_cell_twice(shape: tuple[int, int]) -> None:
    pieces, strides = scale_pieces(Type("", "memdesc", "i8", shape=shape, space="tensor"))
    offsets = sum(index * stride for index, stride in zip(np.indices(pieces), strides, strict=True))
    assert np.unique(offsets).size == shape[0] * shape[1]
    lanes, columns = offsets // 2048, offsets % 2048 // 4
    assert (lanes.max(), columns.max() + 1) == (31, shape[0] * shape[1] // 128)
    row, scale = np.indices(shape)
    of_rows = lanes.transpose(0, 1, 2, 3).reshape(shape)
    assert (of_rows == row % 32).all()
    assert (offsets.reshape(shape) % 4 == scale % 4).all()


def test_scales_that_are_no_whole_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="48 x 4 scales"):
        scale_pieces(Type("", "memdesc", "i8", shape=(48, 4), space="tensor"))


def test_a_reshaped_view_reads_the_same_elements_in_row_major_order() -> None:
    space = Space("shared memory", 1024)
    view = View(space, 0, (1, 1024), row_major((1, 1024), 1), np.dtype(np.uint8))
    view.put((np.arange(1024) % 251).astype(np.uint8).reshape(1, 1024))
    five = reshape_view(view, (1, 2, 32, 4, 4))
    unpacked = reshape_view(five.transpose([0, 3, 2, 1, 4]), (128, 8))
    expected_outcome = view.get().reshape(1, 2, 32, 4, 4).transpose(0, 3, 2, 1, 4).reshape(128, 8)
    assert np.array_equal(unpacked.get(), expected_outcome)
    assert np.array_equal(reshape_view(unpacked, (8, 128)).get(), expected_outcome.reshape(8, 128))


class Asked:
    """Stands in for the operation that makes a descriptor, and for the machine it runs on."""

    name, location, brief = "ttng.tensormap_create", "kernel.py:1", "tensormap_create"

    def __init__(self) -> None:
        self.tensor_maps: dict = {}
        self.unfenced_maps: set = set()
        self.notes: set = set()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"sizes": (0, 4)}, "size 0"),
        ({"steps": (2, 1)}, "element step 2"),
        ({"spread": True, "strides": (48,)}, "stride 48"),
        ({"spread": True, "sizes": (192, 4)}, "innermost size 192"),
    ],
)
def test_a_descriptor_that_the_hardware_cannot_hold_traps(changed: dict, says: str) -> None:
    fits = {"base": 1 << 20, "sizes": (128, 4), "strides": (64,), "steps": (1, 1), "itemsize": 1, "spread": False, "nan": False}
    machine = Asked()
    make(machine, machine, 7, **fits)
    assert (machine.tensor_maps[7].shape, machine.tensor_maps[7].strides) == ((4, 128), (64, 1))
    make(machine, machine, 8, **fits | {"spread": True})
    assert machine.tensor_maps[8].shape == (4, 64)  # sizes count nibbles, coordinates bytes
    with pytest.raises(EmulatedFault, match=says) as caught:
        make(machine, machine, 9, **fits | changed)
    assert caught.value.outcome == "illegal instruction"


def test_on_hopper_fp4_is_widened_and_every_scale_kind_is_read() -> None:
    for scale, power in ((0, -127), (126, -1), (127, 0), (130, 3)):
        given = operands()
        given[1].fill_(scale)
        with emulated("sm_90"):
            out = block_scaled_matmul(*given, torch.float32, configs=Config())
        assert (out == (K * 2.0**power if scale or has_exact_scales() else 0)).all()
    given[1].fill_(255)
    with emulated("sm_90"):
        assert block_scaled_matmul(*given, torch.float32, configs=Config()).isnan().all()
