"""Contract under test: operands reach a launcher bit for bit inside poison, and no byte written outside a view goes unseen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.contract import Operand
from harness.transfer import POISONS, TORCH_DTYPES, Guard, Poison, contiguous, guarded_allocations, poison_word, words
from harness.verdict import Outcome

CPU = torch.device("cpu")


def guard(data_seed: int = 0) -> Guard:
    return Guard(Poison.of(data_seed))


@given(
    shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    format_name=st.sampled_from(sorted(set(TORCH_DTYPES) - {"bool"})),
    extra=st.integers(0, 3),
    offset=st.integers(0, 9),
    transpose=st.booleans(),
    data_seed=st.integers(0, 9),
)
def test_codes_survive_the_way_to_a_tensor_and_back(shape, format_name, extra, offset, transpose, data_seed) -> None:
    dtype = TORCH_DTYPES[format_name]
    codes = np.random.default_rng(0).integers(0, 1 << 8 * min(4, dtype.itemsize), shape).astype(f"u{dtype.itemsize}")
    strides = contiguous(tuple(reversed(shape)))[::-1] if transpose else contiguous(shape)
    strides = tuple(s * (1 + extra) for s in strides)
    lent = guard(data_seed)
    tensor = lent.lend(Operand(name="a", format=format_name, codes=codes, strides=strides, offset=offset), CPU)
    assert (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (dtype, shape, strides)
    assert np.array_equal(words(tensor), codes)
    assert lent.trespass() is None


def test_a_view_without_offset_is_aligned_as_an_allocation_is() -> None:
    codes = np.zeros((3, 5), np.uint16)
    assert guard().lend(Operand(name="a", format="fp16", codes=codes), CPU).data_ptr() % 64 == 0
    assert guard().lend(Operand(name="a", format="fp16", codes=codes, offset=1), CPU).data_ptr() % 64 == 2


@pytest.mark.parametrize("element", [-1, 15, 400, 5, 0])
def test_every_byte_written_through_an_input_is_a_verdict(element: int) -> None:
    lent = guard()
    operand = Operand(name="a", format="fp16", codes=np.zeros((3, 4), np.uint16), strides=(5, 1))
    tensor = lent.lend(operand, CPU)
    tensor.as_strided((1,), (1,), tensor.storage_offset() + element).view(torch.int16).fill_(0x1234)
    found = lent.trespass()
    assert found is not None
    assert found.outcome is (Outcome.INPUT_CHANGED if 0 <= element < 14 else Outcome.STRAY_WRITE)


@pytest.mark.parametrize(
    "make",
    [
        lambda a: torch.empty((3, 4), dtype=torch.float16),
        lambda a: torch.empty_like(a),
        lambda a: a.new_empty((3, 4)),
        lambda a: torch.empty_strided((3, 4), (4, 1), dtype=torch.float16),
        lambda a: a.new_empty((3, 4), device="cpu"),
    ],
)
@pytest.mark.parametrize("data_seed", range(len(POISONS)))
def test_what_a_launcher_allocates_is_poisoned_and_guarded(make, data_seed: int) -> None:
    lent = guard(data_seed)
    a = torch.zeros((3, 4), dtype=torch.float16)
    with guarded_allocations(lent):
        made = make(a)  # (3, 4)
    assert (words(made) == poison_word(POISONS[data_seed], 2)).all()
    made.fill_(1.0)
    assert lent.trespass() is None
    made.as_strided((1,), (1,), made.storage_offset() + 12).fill_(1.0)
    found = lent.trespass()
    assert found is not None and "0 bytes past its end" in found.message


@pytest.mark.parametrize(
    "make",
    [lambda a: torch.zeros((3, 4)), lambda a: torch.full((3, 4), 2.5), lambda a: torch.ones_like(a), lambda a: a.new_zeros((3, 4))],
)
def test_an_allocation_with_values_keeps_them_and_is_guarded(make) -> None:
    lent, a = guard(), torch.zeros((3, 4))
    plain = make(a)  # (3, 4)
    with guarded_allocations(lent):
        made = make(a)  # (3, 4)
    assert torch.equal(made, plain)
    made.as_strided((1,), (1,), made.storage_offset() - 1).fill_(1.0)
    assert lent.trespass() is not None


def test_a_write_into_a_gap_of_a_strided_output_is_a_stray_write() -> None:
    lent = guard()
    with guarded_allocations(lent):
        made = torch.empty_strided((3, 4), (6, 1), dtype=torch.float32)  # (3, 4)
    made.fill_(0.0)
    assert lent.trespass() is None
    made.as_strided((1,), (1,), made.storage_offset() + 4).fill_(1.0)
    found = lent.trespass()
    assert found is not None and "in a gap of its strides" in found.message


def test_two_cases_with_neighbouring_seeds_do_not_share_a_poison() -> None:
    assert len({Poison.of(seed).output for seed in range(len(POISONS))}) == len(POISONS)
    assert all(Poison.of(seed).output != Poison.of(seed).around_inputs for seed in range(9))


def test_a_format_no_tensor_carries_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"fp13.*known: fp32"):
        guard().lend(Operand(name="a", format="fp13", codes=np.zeros(1, np.uint16)), CPU)
