"""Contract under test: two 4-bit codes a byte along any axis, low nibble the even index, odd lengths with a zero high nibble."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from bitverdict.reference.packing import pack, unpack
from tests.faults import reference_modules as corpus
from tests.faults.mutants import Mutant, mutant_module


def test_the_even_index_is_the_low_nibble() -> None:
    assert pack(np.array([0x1, 0x2, 0x3], np.uint8)).tolist() == [0x21, 0x03]
    assert unpack(np.array([0x21, 0x03], np.uint8), length=3).tolist() == [0x1, 0x2, 0x3]


def test_rows_pack_into_one_another_along_the_first_axis() -> None:
    assert pack(np.array([[1, 2], [3, 4], [5, 6]], np.uint8), axis=0).tolist() == [[0x31, 0x42], [0x05, 0x06]]


def test_every_byte_is_the_packing_of_its_nibbles() -> None:
    every = np.arange(256, dtype=np.uint8)
    assert unpack(every).reshape(256, 2).tolist() == [[byte % 16, byte // 16] for byte in range(256)]
    assert np.array_equal(pack(unpack(every)), every)


def round_trips(pack_codes, unpack_codes) -> bool:
    rng = np.random.default_rng(3)
    for shape in [(1,), (7,), (8,), (0,), (3, 4), (5, 3, 7), (2, 0, 3)]:
        for axis in range(-len(shape), len(shape)):
            codes = rng.integers(0, 16, shape, dtype=np.uint8)
            packed = pack_codes(codes, axis)
            if packed.shape[axis] != (shape[axis] + 1) // 2:
                return False
            if not np.array_equal(unpack_codes(packed, axis, length=shape[axis]), codes):
                return False
    return True


def test_packing_round_trips_on_every_axis_and_odd_length() -> None:
    assert round_trips(pack, unpack)


def test_packing_agrees_with_arithmetic_written_out_by_element() -> None:
    codes = np.random.default_rng(4).integers(0, 16, (5, 6, 3), dtype=np.uint8)
    for axis in range(3):
        packed = pack(codes, axis)
        for index in product(*map(range, packed.shape)):
            low, high = list(index), list(index)
            low[axis], high[axis] = 2 * index[axis], 2 * index[axis] + 1
            odd_end = high[axis] == codes.shape[axis]
            assert packed[index] == codes[tuple(low)] + 16 * (0 if odd_end else codes[tuple(high)])


def test_packing_agrees_with_triton() -> None:
    import torch
    from triton.tools import mxfp

    for shape in [(4, 7), (5, 6), (3, 5, 8)]:
        codes = np.random.default_rng(6).integers(0, 16, shape, dtype=np.uint8)
        tensor = mxfp.MXFP4Tensor(size=shape)
        tensor.data = torch.from_numpy(codes)
        for axis in range(len(shape)):
            assert np.array_equal(tensor.to_packed_tensor(axis).numpy(), pack(codes, axis))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pack(np.array([16], np.uint8)), "0x10 does not fit four bits"),
        (lambda: pack(np.array([1], np.int64)), "uint8, got int64"),
        (lambda: pack(np.zeros((2, 2), np.uint8), axis=2), "axis 2 is not one of 2"),
        (lambda: pack(np.uint8(3)), "axis -1 is not one of 0"),
        (lambda: unpack(np.zeros(2, np.uint8), length=5), "5 codes take 3 bytes along axis -1, got 2"),
        (lambda: unpack(np.zeros(2, np.uint8), length=2), "2 codes take 1 bytes"),
    ],
)
def test_what_cannot_be_packed_is_refused_with_the_rule(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("mutant", corpus.PACKING, ids=lambda mutant: mutant.name)
def test_swapped_nibbles_are_caught(mutant: Mutant) -> None:
    with mutant_module(mutant) as swapped:
        by_hand = swapped.pack(np.array([0x1, 0x2], np.uint8)).tolist() == [0x21]
        assert not (by_hand and round_trips(pack, swapped.unpack))
