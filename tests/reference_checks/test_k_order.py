"""Contract under test: the order in which wide operand registers feed mma.sync."""

from __future__ import annotations

import numpy as np
import pytest

from bitverdict.reference.k_order import instruction_order
from bitverdict.reference.tensor_core import instruction


def test_the_first_instruction_takes_the_low_register_of_every_thread() -> None:
    """By hand, for fp16 in loads of four: a quad of threads holds k 4t..4t+3, the low 32 bits are the first two."""
    assert instruction_order(32, 16, 4).tolist() == [
        0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31,
    ]  # fmt: skip


def test_of_half_a_group_one_instruction_takes_both_registers() -> None:
    """By hand: 16 of fp16 are one m16n8k16, 16 of tf32 two m16n8k8, in loads of four."""
    assert instruction_order(16, 16, 4).tolist() == [0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15]
    assert instruction_order(16, 32, 4).tolist() == [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15]


@pytest.mark.parametrize(("k", "bits", "width"), [(16, 16, 2), (32, 8, 4), (8, 32, 1), (64, 16, 1)])
def test_registers_that_one_instruction_reads_at_once_leave_k_ascending(k: int, bits: int, width: int) -> None:
    assert np.array_equal(instruction_order(k, bits, width), np.arange(k))


@pytest.mark.parametrize(("k", "bits", "width"), [(32, 16, 4), (96, 16, 4), (64, 16, 8), (32, 32, 4), (128, 8, 16)])
def test_each_element_is_taken_once_and_groups_stay_in_order(k: int, bits: int, width: int) -> None:
    order = instruction_order(k, bits, width)
    assert sorted(order.tolist()) == list(range(k))
    assert (np.diff(order // (8 * width)) >= 0).all()
    per_instruction = 8 * (32 // bits)
    for start in range(0, k, per_instruction):  # one instruction, one register of every thread
        assert len(set(order[start : start + per_instruction] % width // (32 // bits))) == 1


def test_it_is_the_grouping_that_ptxas_gives_fp8_on_hopper() -> None:
    low, high = instruction("sm_90", "mma.sync", "e4m3", "e4m3", "fp32").steps
    order = instruction_order(32, 16, 4)
    assert tuple(order[:16]) == low
    assert tuple(order[16:]) == high


@pytest.mark.parametrize(("k", "width"), [(8, 4), (24, 4), (48, 4), (32, 3)])
def test_a_k_that_does_not_fill_the_registers_is_refused(k: int, width: int) -> None:
    with pytest.raises(ValueError, match=rf"k={k}, k_width={width}: k must be {4 * width} or a multiple of {8 * width}, "):
        instruction_order(k, 16, width)
