"""Contract under test: operands reach a launcher bit for bit inside poison, and no byte written outside a view goes unseen."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitverdict.harness.judge.guarded_buffers import (
    POISONS,
    TORCH_DTYPES,
    Guard,
    Poison,
    _Place,
    contiguous,
    guarded_allocations,
    poison_word,
    words,
)
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.verdict import Outcome

CPU = torch.device("cpu")


def guard(data_seed: int = 0, *, on_device: bool | None = None) -> Guard:
    return Guard(Poison.of_seed(data_seed), on_device=on_device)


WAYS = pytest.mark.parametrize("on_device", [False, True], ids=["compared on the host", "compared on the device"])


@given(
    shape=st.lists(st.integers(0, 5), max_size=3).map(tuple),
    format_name=st.sampled_from(sorted(set(TORCH_DTYPES) - {"bool"})),
    extra=st.integers(0, 3),
    offset=st.integers(0, 9),
    transpose=st.booleans(),
    data_seed=st.integers(0, 9),
    on_device=st.booleans(),
)
def test_codes_survive_the_way_to_a_tensor_and_back(shape, format_name, extra, offset, transpose, data_seed, on_device) -> None:
    dtype = TORCH_DTYPES[format_name]
    codes = np.random.default_rng(0).integers(0, 1 << 8 * min(4, dtype.itemsize), shape).astype(f"u{dtype.itemsize}")
    strides = contiguous(tuple(reversed(shape)))[::-1] if transpose else contiguous(shape)
    strides = tuple(s * (1 + extra) for s in strides)
    uploaded = guard(data_seed, on_device=on_device)
    tensor = uploaded.upload(Operand(name="a", format=format_name, codes=codes, strides=strides, offset=offset), CPU)
    assert (tensor.dtype, tuple(tensor.shape), tensor.stride()) == (dtype, shape, strides)
    assert np.array_equal(words(tensor), codes)
    assert uploaded.out_of_bounds() is None


@WAYS
def test_a_view_without_offset_is_aligned_as_an_allocation_is(on_device: bool) -> None:
    codes, uploaded = np.zeros((3, 5), np.uint16), guard(on_device=on_device)
    operands = [Operand(name=str(offset), format="fp16", codes=codes, offset=offset) for offset in (3, 0, 1)]
    tensors = uploaded.upload_all(operands, CPU)
    assert [tensor.data_ptr() % 64 for tensor in tensors.values()] == [6, 0, 2] and list(tensors) == ["3", "0", "1"]


@WAYS
@pytest.mark.parametrize("element", [-1, 15, 400, 5, 0])
def test_every_byte_written_through_an_input_is_a_verdict(element: int, on_device: bool) -> None:
    uploaded = guard(on_device=on_device)
    operand = Operand(name="a", format="fp16", codes=np.zeros((3, 4), np.uint16), strides=(5, 1))
    tensor = uploaded.upload(operand, CPU)
    tensor.as_strided((1,), (1,), tensor.storage_offset() + element).view(torch.int16).fill_(0x1234)
    found = uploaded.out_of_bounds()
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
@WAYS
@pytest.mark.parametrize("data_seed", range(len(POISONS)))
def test_what_a_launcher_allocates_is_poisoned_and_guarded(make, data_seed: int, on_device: bool) -> None:
    uploaded = guard(data_seed, on_device=on_device)
    a = torch.zeros((3, 4), dtype=torch.float16)
    with guarded_allocations(uploaded):
        made = make(a)  # (3, 4)
    assert (words(made) == poison_word(POISONS[data_seed], 2)).all()
    made.fill_(1.0)
    assert uploaded.out_of_bounds() is None
    made.as_strided((1,), (1,), made.storage_offset() + 12).fill_(1.0)
    found = uploaded.out_of_bounds()
    assert found is not None and "0 bytes past its end" in found.message


@pytest.mark.parametrize(
    "make",
    [lambda a: torch.zeros((3, 4)), lambda a: torch.full((3, 4), 2.5), lambda a: torch.ones_like(a), lambda a: a.new_zeros((3, 4))],
)
@WAYS
def test_an_allocation_with_values_keeps_them_and_is_guarded(make, on_device: bool) -> None:
    uploaded, a = guard(on_device=on_device), torch.zeros((3, 4))
    plain = make(a)  # (3, 4)
    with guarded_allocations(uploaded):
        made = make(a)  # (3, 4)
    assert torch.equal(made, plain)
    made.as_strided((1,), (1,), made.storage_offset() - 1).fill_(1.0)
    assert uploaded.out_of_bounds() is not None


@WAYS
def test_a_write_into_a_gap_of_a_strided_output_is_a_stray_write(on_device: bool) -> None:
    uploaded = guard(on_device=on_device)
    with guarded_allocations(uploaded):
        made = torch.empty_strided((3, 4), (6, 1), dtype=torch.float32)  # (3, 4)
    made.fill_(0.0)
    assert uploaded.out_of_bounds() is None
    made.as_strided((1,), (1,), made.storage_offset() + 4).fill_(1.0)
    found = uploaded.out_of_bounds()
    assert found is not None and "in a gap of its strides" in found.message


OPERANDS = [
    Operand(name="a", format="fp16", codes=np.arange(35, dtype=np.uint16).reshape(5, 7), strides=(9, 1), offset=3),
    Operand(name="empty", format="int8", codes=np.zeros((0, 3), np.uint8)),
    Operand(name="b", format="fp32", codes=np.arange(12, dtype=np.uint32).reshape(3, 4).T),
    Operand(name="scale", format="e8m0", codes=np.arange(5, dtype=np.uint8)),
]


@WAYS
@pytest.mark.parametrize(("place", "outcome"), [(2, None), (3, Outcome.STRAY_WRITE), (-1, Outcome.STRAY_WRITE)])
def test_of_an_operand_written_in_place_only_elements_may_change(place: int, outcome: Outcome | None, on_device: bool) -> None:
    uploaded = guard(on_device=on_device)
    strided = Operand(name="x", format="fp16", codes=np.ones(5, np.uint16), strides=(2,))
    x = uploaded.upload_all([strided, Operand(name="other", format="fp16", codes=np.ones(3, np.uint16))], CPU)["x"]
    x.as_strided((1,), (1,), x.storage_offset() + place).fill_(7.0)
    found = uploaded.out_of_bounds({"x"})
    assert (found.outcome if found else None) == outcome
    without = uploaded.out_of_bounds()
    assert without is not None and without.outcome is (Outcome.INPUT_CHANGED if place >= 0 else Outcome.STRAY_WRITE)


def case_of_buffers(on_device: bool) -> Guard:
    """Four inputs and three outputs, one of them strided; each output written whole, as a right kernel does."""
    uploaded = guard(1, on_device=on_device)
    uploaded.upload_all(OPERANDS, CPU)
    with guarded_allocations(uploaded):
        made = [torch.empty((6, 5)), torch.empty_strided((3, 4), (6, 1), dtype=torch.float16), torch.empty((0, 4))]
    for tensor in made:
        tensor.zero_()
    return uploaded


@given(writes=st.lists(st.tuples(st.integers(0, 6), st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=3))
def test_both_ways_of_comparing_report_every_write_alike(writes: list[tuple[int, float, int]]) -> None:
    told = []
    for on_device in (False, True):
        uploaded = case_of_buffers(on_device)
        for number, share, bits in writes:
            storage = uploaded.buffers[number].storage
            storage[int(share * storage.numel())] ^= bits
        told.append(uploaded.out_of_bounds())
    assert told[0] == told[1]


def test_each_byte_near_a_buffer_that_is_not_owned_is_found_on_the_device() -> None:
    uploaded = case_of_buffers(on_device=True)
    assert uploaded.out_of_bounds() is None
    for buffer in uploaded.buffers:
        owned = torch.zeros(buffer.storage.numel(), dtype=torch.bool)  # (bytes,)
        if buffer.arena is None and buffer.length:
            size = buffer.view.dtype.itemsize
            strides = [stride * size for stride in buffer.view.stride()]
            owned.as_strided((*buffer.view.shape, size), (*strides, 1), buffer.start).fill_(True)
        ends = (0, buffer.storage.numel() - 1)
        for place in {*ends, *range(buffer.start - 9, buffer.start + buffer.length + 9)}:
            buffer.storage[place] ^= 0x40
            found = uploaded.out_of_bounds()
            buffer.storage[place] ^= 0x40
            assert (found is None) == bool(owned[place]), (buffer.name, place)
            assert found is None or found.details["buffer"] == buffer.name
    assert uploaded.out_of_bounds() is None


def test_a_write_into_the_harness_s_own_copy_is_a_stray_write() -> None:
    uploaded = case_of_buffers(on_device=True)
    arena = uploaded.buffers[0].arena
    assert arena is not None and arena.before is not None
    arena.before[70_000:70_003] ^= 1
    found = uploaded.out_of_bounds()
    assert found is not None and found.outcome is Outcome.STRAY_WRITE and "3 bytes of the harness's own copy" in found.message


def test_inputs_too_large_for_a_copy_beside_them_are_read_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitverdict.harness.judge.guarded_buffers.COPIED_BYTES", 1 << 10)
    uploaded = case_of_buffers(on_device=True)
    assert uploaded.buffers[0].arena is not None and uploaded.buffers[0].arena.before is None and uploaded.out_of_bounds() is None
    uploaded.buffers[2].storage[uploaded.buffers[2].start] ^= 1
    found = uploaded.out_of_bounds()
    assert found is not None and found.message.startswith("input b changed: 1 bytes, the first at [0, 0]")


def test_nothing_is_read_back_from_a_device_but_one_flag_a_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded, brought = case_of_buffers(on_device=True), []
    uploaded.buffers = [buffer for buffer in uploaded.buffers if buffer.view.is_contiguous() or buffer.arena is not None]
    plain = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: brought.append(tensor.numel()) or plain(tensor))
    assert uploaded.out_of_bounds() is None and brought == [5]  # the arena, and two bands of each of two outputs


@pytest.mark.parametrize(("elements", "offset", "span"), [(0, 0, 0), (1, 0, 512), (256, 0, 512), (257, 0, 1024), (256, 1, 1024)])
def test_bands_begin_at_the_next_512_bytes_after_an_operand(elements: int, offset: int, span: int) -> None:
    assert _Place.of_view((elements,), (1,), offset, torch.float16).span == span


def test_two_cases_with_neighbouring_seeds_do_not_share_a_poison() -> None:
    assert len({Poison.of_seed(seed).output for seed in range(len(POISONS))}) == len(POISONS)
    assert all(Poison.of_seed(seed).output != Poison.of_seed(seed).around_inputs for seed in range(9))


def test_a_format_no_tensor_carries_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"fp13.*known: fp32"):
        guard().upload(Operand(name="a", format="fp13", codes=np.zeros(1, np.uint16)), CPU)
