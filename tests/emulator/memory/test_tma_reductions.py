"""Contract under test: TMA combines a tile with global memory as its kind and type say, whatever the order of programs, in
whole units of 16 bytes, and a sum of floats draws an advice."""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from functools import reduce

import numpy as np
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support import tile_kernels as kernels

PROGRAMS, ROWS, COLUMNS = 3, 8, 16
COMBINE = {"add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
SPECIAL = torch.tensor([
    2.0**-126, -(2.0**-126), 2.0**-127, 2.0**-149, -(2.0**-149), 0.0, -0.0, 1.0, torch.inf, torch.nan, 1.5 * 2.0**-126,
    -1.5 * 2.0**-126, 6e-8, -6e-8, 6.1e-5, 65504.0,
])  # fmt: skip
OF_AN_H100 = "72c3305f67a5e6c26b3b4a7c9e21db99c83194f89be04427c22123d5a05f61c7"
"""sha256 of what an H100 left of SPECIAL down and SPECIAL across, added, as little-endian uint32."""
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


def combined(arch: str, schedule: str, kind: str, table: torch.Tensor, source: torch.Tensor, programs=PROGRAMS) -> torch.Tensor:
    found = table.clone()
    with emulated(arch, schedule):
        box = TensorDescriptor.from_tensor(found, [ROWS, COLUMNS])
        kernels.descriptor_combined[(programs,)](box, source, kind, ROWS, COLUMNS)
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


def test_a_sum_of_fp32_leaves_the_words_of_an_h100() -> None:
    """Subnormals are kept and NaN is 0x7FFFFFFF: each pair of 16 special operands (NVIDIA H100 80GB HBM3, 2026-11-22)."""
    table, source = torch.meshgrid(SPECIAL, SPECIAL, indexing="ij")  # (16, 16)
    table = torch.cat([torch.zeros(2, 16), table])
    with emulated("sm_90") as device:
        box = TensorDescriptor.from_tensor(table, [16, 16])
        kernels.descriptor_combined[(1,)](box, source.reshape(1, 16, 16).contiguous(), "add", 16, 16)
    words = table[2:].numpy().view(np.uint32)
    assert words[0, :5].tolist() == [0x1000000, 0, 0xC00000, 0x800001, 0x7FFFFF] and words[9, 0] == 0x7FFFFFFF
    assert hashlib.sha256(words.astype("<u4").tobytes()).hexdigest() == OF_AN_H100
    assert any("atomic sum of floats" in said for said in device.advice)


def test_where_no_tma_is_a_sum_of_fp32_counts_subnormals_as_zeros() -> None:
    table = torch.zeros(ROWS + 2, COLUMNS)
    table[2, :3] = torch.tensor([2.0**-127, 2.0**-126, 1.0])
    source = torch.zeros(1, ROWS, COLUMNS)
    source[0, 0, :4] = torch.tensor([2.0**-126, -(2.0**-126) * 1.5, 2.0**-140, -(2.0**-149)])
    found = combined("sm_80", "eager", "add", table, source, programs=1)
    assert found[2, :4].tolist() == [2.0**-126, -0.0, 1.0, 0.0] and torch.signbit(found[2, 1])


def test_atomic_sums_by_pointers_count_subnormals_as_zeros_too() -> None:
    table, source = torch.full((32,), 2.0**-130), torch.full((32,), 2.0**-127)
    table[:2], source[:2] = torch.tensor([2.0**-126, 1.0]), torch.tensor([2.0**-126, -(2.0**-126)])
    with emulated("sm_90"):
        kernels.pointers_added[(1,)](table, source, COUNT=32)
    assert table[:3].tolist() == [2.0**-125, 1.0, 0.0] and not table[2:].any()


def test_what_is_left_of_the_last_16_bytes_of_a_row_is_combined_too() -> None:
    """As on an H100 (rows of 13 words of 16, 2026-11-22). A tensor that does not reach there is hit by a stray write."""
    storage, source = torch.zeros(ROWS, COLUMNS, dtype=torch.int32), torch.ones(1, ROWS, COLUMNS, dtype=torch.int32)
    for base in (storage, storage[:, :13]):
        box = TensorDescriptor(base, [ROWS, 13], [COLUMNS, 1], [ROWS, COLUMNS])
        refused = (
            pytest.raises(EmulatedFault, match=r"stray write: .*write at byte 180 of table")
            if base is not storage
            else nullcontext()
        )
        with emulated("sm_90"), refused:
            kernels.descriptor_combined[(1,)](box, source, "add", ROWS, COLUMNS)
    assert (storage[2:] == 1).all() and not storage[:2].any()
