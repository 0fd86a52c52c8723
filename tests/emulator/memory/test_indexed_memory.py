"""Contract under test: gather, scatter and atomic updates of shared memory reach the elements that their indices name, and no
other; what is not there, not written yet, still in flight, or written twice is a fault by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.emulator.ordering.test_hazards import text_at
from tests.faults.mutants import replaced_once
from tests.support import indexed_kernels as kernels
from tests.support.emulated_launches import load

SHAPE = ROWS, COLUMNS = 32, 64


def drawn(high: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, high, SHAPE, dtype=torch.int32, generator=torch.Generator().manual_seed(seed))


def one_each(axis: int) -> torch.Tensor:
    """Indices along `axis` that name each element of a line once."""
    return torch.rand(SHAPE, generator=torch.Generator().manual_seed(axis)).argsort(axis).int()


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_and_scatter_move_the_elements_that_indices_name(axis: int) -> None:
    values, indices = torch.randn(SHAPE), one_each(axis)
    gathered, scattered = torch.empty(SHAPE), torch.empty(SHAPE)
    with emulated(("sm_80", "sm_100")[axis]):
        kernels.picked[(1,)](values, indices, gathered, scattered, axis)
    assert torch.equal(gathered, torch.take_along_dim(values, indices.long(), axis))
    assert torch.equal(scattered, values)


def in_order(values: np.ndarray, indices: np.ndarray, mask: np.ndarray, update: Callable) -> tuple[np.ndarray, np.ndarray]:
    """(what each update finds, the tile afterwards), one element after another."""
    tile, before = values.copy(), np.zeros_like(values)
    for i, j in np.argwhere(mask).tolist():
        before[i, j] = tile[i, indices[i, j]]
        tile[i, indices[i, j]] = update(tile[i, indices[i, j]], values[i, j])
    return before, tile


UPDATES = {"add": np.add, "max": np.maximum, "xor": np.bitwise_xor, "xchg": lambda _, new: new}


@pytest.mark.parametrize("update", UPDATES)
def test_updates_of_one_element_follow_one_another(update: str) -> None:
    values, indices = drawn(1 << 20, 1) - (1 << 19), drawn(COLUMNS, 2)
    before, tile = torch.empty_like(values), torch.empty_like(values)
    masked = update != "add"
    with emulated("sm_90") as device:
        kernels.updated[(1,)](values, indices, before, tile, update, masked)
    mask = np.arange(ROWS * COLUMNS).reshape(SHAPE) % 3 > 0 if masked else np.ones(SHAPE, np.bool_)
    expected = in_order(values.numpy(), indices.numpy(), mask, UPDATES[update])
    assert (before.numpy() == expected[0]).all() and (tile.numpy() == expected[1]).all()
    assert not device.advice


def test_a_sum_of_floats_by_atomics_rounds_each_and_draws_an_advice() -> None:
    values, indices = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1)), drawn(COLUMNS, 2)
    before, tile = torch.empty(SHAPE), torch.empty(SHAPE)
    with emulated("sm_90") as device:
        kernels.updated[(1,)](values, indices, before, tile, "add", False)
    expected = in_order(values.numpy(), indices.numpy(), np.ones(SHAPE, np.bool_), np.add)
    assert (before.numpy() == expected[0]).all() and (tile.numpy() == expected[1]).all()
    assert any("atomic sum of floats" in said for said in device.advice)


def test_an_exchange_of_16_bits_is_refused_as_ptxas_refuses_it() -> None:
    values = torch.zeros(SHAPE, dtype=torch.float16)
    with emulated("sm_90"), pytest.raises(EmulatedFault, match=r"refused: ttg.local_atomic_scatter_rmw on 16-bit f16") as raised:
        kernels.updated[(1,)](values, drawn(COLUMNS), values.clone(), values.clone(), "xchg", False)
    assert raised.value.details["layer"] == "ptxas"


def half_written(indices: torch.Tensor) -> None:
    values, gathered = torch.randn(SHAPE), torch.empty(SHAPE)
    with emulated("sm_90"):
        kernels.half_written[(1,)](values, indices, gathered)
    assert torch.equal(gathered, torch.take_along_dim(values, indices.long(), 1))


def test_of_a_tile_that_is_half_written_the_written_half_may_be_read() -> None:
    half_written(drawn(COLUMNS // 2))
    with pytest.raises(EmulatedFault, match=r"uninitialised read: ttg.local_gather"):
        half_written(drawn(COLUMNS // 2) + (torch.arange(ROWS * COLUMNS) == 77).reshape(SHAPE) * (COLUMNS // 2))


@pytest.mark.parametrize("index", [-1, COLUMNS])
def test_an_index_outside_the_axis_is_an_illegal_address(index: int) -> None:
    indices = drawn(COLUMNS // 2)
    indices[3, 5] = index
    with pytest.raises(EmulatedFault, match=f"illegal address: ttg.local_gather reads index {index} along axis 1"):
        half_written(indices)


@pytest.mark.parametrize("apart", [0, 1])
def test_two_values_that_differ_scattered_to_one_element_are_a_race(apart: int) -> None:
    """Two that are equal may go to one element."""
    values, indices = torch.ones(SHAPE), torch.arange(COLUMNS, dtype=torch.int32).repeat(ROWS, 1)
    indices[4, 7], values[4, 7] = 9, 1 + apart
    with emulated("sm_100"):
        if apart:
            with pytest.raises(EmulatedFault, match=r"race: lanes of one ttg.local_scatter write different values") as raised:
                kernels.spread[(1,)](values, indices, torch.empty(SHAPE))
            assert "tile.scatter(" in text_at(raised.value.location)
            return
        found = torch.empty(SHAPE)
        kernels.spread[(1,)](values, indices, found)
    assert found.sum() == ROWS * COLUMNS - 1


@pytest.mark.parametrize("schedule", ["eager", "latest"])
def test_elements_that_are_still_copied_may_not_be_read(schedule: str, tmp_path: Path) -> None:
    values, indices, gathered = torch.randn(SHAPE), drawn(COLUMNS), torch.empty(SHAPE)
    with emulated("sm_80", schedule):
        kernels.under_way[(1,)](values, indices, gathered)
    assert torch.equal(gathered, torch.take_along_dim(values, indices.long(), 1))
    path = tmp_path / "unwaited.py"
    path.write_text(replaced_once(Path(kernels.__file__).read_text(), "    async_copy.wait_group(0)\n", "", "under_way"))
    with emulated("sm_80", schedule), pytest.raises(EmulatedFault, match=r"race: ttg.local_gather reads .* cp.async"):
        load(path).under_way[(1,)](values, indices, gathered)
