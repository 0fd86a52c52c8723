"""Contract under test: TMA combines a tile with global memory as its kind and type say, whatever the order of programs; rows that
end inside 16 bytes are refused, and a sum of floats draws an advice."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support import tile_kernels as kernels

PROGRAMS, ROWS, COLUMNS = 3, 8, 16
COMBINE = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
FORMS = [
    ("sm_90", "add", torch.int32), ("sm_90", "min", torch.int32), ("sm_90", "max", torch.uint32), ("sm_100", "and", torch.int64),
    ("sm_90", "or", torch.uint32), ("sm_80", "xor", torch.int32), ("sm_90", "add", torch.uint64), ("sm_100", "max", torch.float16),
    ("sm_90", "min", torch.bfloat16), ("sm_80", "max", torch.uint32),
]  # fmt: skip


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    words = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
    return words.view(dtype) if dtype.itemsize == 8 else words.int().view(dtype)


def combined(arch: str, schedule: str, kind: str, table: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    found = table.clone()
    with emulated(arch, schedule):
        box = TensorDescriptor.from_tensor(found, [ROWS, COLUMNS])
        kernels.descriptor_combined[(PROGRAMS,)](box, source, kind, ROWS, COLUMNS)
    return found


def numbers(values: torch.Tensor) -> np.ndarray:
    return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()


@pytest.mark.parametrize(("arch", "kind", "dtype"), FORMS, ids=str)
def test_each_kind_combines_as_its_type_says(arch: str, kind: str, dtype: torch.dtype) -> None:
    """A tile reaches three rows beyond the tensor: nothing is combined there."""
    table, source = drawn((ROWS - 1, COLUMNS), dtype, 0), drawn((PROGRAMS, ROWS, COLUMNS), dtype, 1)
    expected = numbers(table).copy()
    expected[2:] = reduce(COMBINE[kind], numbers(source)[:, : ROWS - 3], expected[2:])
    for schedule in ("eager", "latest", "drawn:1"):
        assert (numbers(combined(arch, schedule, kind, table, source)) == expected).all(), schedule


@pytest.mark.parametrize(("arch", "advised"), [("sm_90", True), ("sm_80", True)])
def test_a_sum_of_floats_takes_one_order_and_counts_subnormals_as_zeros(arch: str, advised: bool) -> None:
    table = torch.zeros(ROWS + 2, COLUMNS)
    table[2, :3] = torch.tensor([2.0**-127, 2.0**-126, 1.0])
    source = torch.zeros(1, ROWS, COLUMNS)
    source[0, 0, :4] = torch.tensor([2.0**-126, -(2.0**-126) * 1.5, 2.0**-140, -(2.0**-149)])
    with emulated(arch) as device:
        box = TensorDescriptor.from_tensor(table, [ROWS, COLUMNS])
        kernels.descriptor_combined[(1,)](box, source, "add", ROWS, COLUMNS)
    assert table[2, :4].tolist() == [2.0**-126, -0.0, 1.0, 0.0] and torch.signbit(table[2, 1])
    assert any("atomic sum of floats" in said for said in device.advice) is advised


def test_atomic_sums_by_pointers_count_subnormals_as_zeros_too() -> None:
    table, source = torch.full((32,), 2.0**-130), torch.full((32,), 2.0**-127)
    table[:2], source[:2] = torch.tensor([2.0**-126, 1.0]), torch.tensor([2.0**-126, -(2.0**-126)])
    with emulated("sm_90"):
        kernels.pointers_added[(1,)](table, source, COUNT=32)
    assert table[:3].tolist() == [2.0**-125, 1.0, 0.0] and not table[2:].any()


def test_rows_that_end_inside_16_bytes_are_refused() -> None:
    storage = torch.zeros(ROWS, COLUMNS, dtype=torch.int32)
    source = torch.ones(1, ROWS, COLUMNS, dtype=torch.int32)
    with (
        emulated("sm_90"),
        pytest.raises(EmulatedFault, match=r"not modelled: ttng.async_tma_reduce reaches .* rows of 52"),
    ):
        box = TensorDescriptor(storage, [ROWS, 13], [COLUMNS, 1], [ROWS, COLUMNS])
        kernels.descriptor_combined[(1,)](box, source, "add", ROWS, COLUMNS)
    assert not storage.any()
