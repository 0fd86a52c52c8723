"""Contract under test: a tensor descriptor made with `round_f32_to_tf32` rounds what it loads, and only that, on every target."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator import emulated
from bitverdict.reference.formats import FORMATS, Rounding, decode, encode
from bitverdict.reference.tiled_copy import TF32_NAN, rounded_to_tf32
from tests.support import tile_kernels as kernels

ROWS, COLUMNS = 16, 32
OF_AN_H100 = "f0e4ce8b6142e984f32b8a72d6ce44a58d51cb56a0787d2a3c7d13a6a88b7814"
"""sha256 of what an H100 loaded of `recorded_words`, as little-endian uint32."""
SPECIAL = [
    0x3F801000, 0x3F803000,  # ties: down to even, up to even
    0x3F800FFF, 0x3F801001,  # beside one
    0x3FFFF000, 0xBFFFFFFF,  # a carry into the exponent
    0x7F7FFFFF, 0xFF7FF000,  # beyond the largest
    0x00000001, 0x00001000, 0x00001001, 0x807FFFFF,  # subnormals
    0x7F800000, 0xFF800000, 0x7F800001, 0x7FFFFFFF, 0xFFC01234, 0x80000000, 0,
]  # fmt: skip


def words() -> np.ndarray:
    drawn = np.random.default_rng(5).integers(0, 1 << 32, ROWS * COLUMNS, dtype=np.uint32)
    drawn[: len(SPECIAL)] = SPECIAL
    return drawn.reshape(ROWS, COLUMNS)


def loaded(arch: str, schedule: str = "eager", *, rounds: bool) -> np.ndarray:
    table = torch.from_numpy(words().view(np.float32))
    out = torch.zeros(ROWS, COLUMNS)
    with emulated(arch, schedule):
        descriptor = TensorDescriptor.from_tensor(table, [ROWS, COLUMNS], round_f32_to_tf32=rounds)
        kernels.descriptor_rows[(1,)](descriptor, out, ROWS=ROWS, COLUMNS=COLUMNS)
    return out.numpy().view(np.uint32)


def is_nan(codes: np.ndarray) -> np.ndarray:
    return codes & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000)


def recorded_words() -> np.ndarray:
    """(39424,) what an H100 was asked: `words`, each exponent with twelve low parts under three high ones, drawn words, zeros."""
    low = np.array([0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x2001, 0x2FFF, 0x3000, 0x3001, 0x3FFF], np.uint32)
    high = np.array([0, 0x3FC000, 0x7FC000], np.uint32)
    each_exponent = (np.arange(512, dtype=np.uint32) << 23)[:, None, None] | high[None, :, None] | low[None, None, :]
    drawn = np.random.default_rng(1).integers(0, 1 << 32, 40 * 512, dtype=np.uint32)
    asked = np.concatenate([words().ravel(), each_exponent.ravel(), drawn])
    return np.concatenate([asked, np.zeros(-len(asked) % 512, np.uint32)])


def test_the_rule_gives_the_words_that_an_h100_gave():
    """NVIDIA H100 80GB HBM3, Triton 3.9.0, 2026-11-22: `test_a_gpu_rounds_what_it_loads_and_not_what_it_stores` repeats it."""
    asked = recorded_words()
    assert hashlib.sha256(rounded_to_tf32(asked).tobytes()).hexdigest() == OF_AN_H100
    kept = np.where(is_nan(asked), asked, rounded_to_tf32(asked))  # another rule: NaN stays
    assert hashlib.sha256(kept.tobytes()).hexdigest() != OF_AN_H100


def test_the_rule_is_to_nearest_even_but_for_infinities_and_nan():
    fp32, tf32 = FORMATS["fp32"], FORMATS["tf32"]
    codes = words()
    finite = codes & np.uint32(0x7F800000) != np.uint32(0x7F800000)
    values = decode(fp32, codes)
    assert (rounded_to_tf32(codes)[finite] == encode(tf32, values, rounding=Rounding.NEAREST_EVEN)[finite]).all()
    infinite = ~finite & ~is_nan(codes)
    assert (rounded_to_tf32(codes)[infinite] == codes[infinite]).all()
    assert (rounded_to_tf32(codes)[is_nan(codes)] == TF32_NAN).all()
    for other in (Rounding.NEAREST_AWAY, Rounding.TOWARD_ZERO):  # which the words tell apart
        assert (rounded_to_tf32(codes)[finite] != encode(tf32, values, rounding=other)[finite]).any()


@pytest.mark.parametrize("schedule", ["eager", "latest"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_what_is_loaded_is_rounded_where_the_descriptor_says_so(arch, schedule):
    """On sm_80 Triton rewrites the descriptor to pointers and writes out the rounding itself, which leaves NaN as it is."""
    by_pointers = np.where(is_nan(words()), words(), rounded_to_tf32(words()))
    assert (loaded(arch, schedule, rounds=True) == (by_pointers if arch == "sm_80" else rounded_to_tf32(words()))).all()
    assert (loaded(arch, schedule, rounds=False) == words()).all()
    assert (rounded_to_tf32(words()) != words()).sum() > 400


@pytest.mark.parametrize("rounds", [True, False])
def test_gathered_rows_are_rounded_too(rounds):
    table = torch.from_numpy(words().view(np.float32))
    rows, out = torch.arange(8, dtype=torch.int32) * 2, torch.zeros(8, COLUMNS)
    with emulated("sm_100"):
        descriptor = TensorDescriptor.from_tensor(table, [1, COLUMNS], round_f32_to_tf32=rounds)
        kernels.descriptor_gather[(1,)](descriptor, rows, out, ROWS=8, COLUMNS=COLUMNS)
    expected = rounded_to_tf32(words()) if rounds else words()
    assert (out.numpy().view(np.uint32) == expected[::2]).all()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_what_is_stored_is_not_rounded(arch):
    source = torch.from_numpy(words().view(np.float32))
    table = torch.zeros(ROWS, COLUMNS)
    with emulated(arch):
        descriptor = TensorDescriptor.from_tensor(table, [ROWS, COLUMNS], round_f32_to_tf32=True)
        kernels.descriptor_write[(1,)](descriptor, source, ROWS=ROWS, COLUMNS=COLUMNS)
    assert (table.numpy().view(np.uint32) == words()).all()


NEEDS_TMA = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0),
        reason="needs a CUDA device with TMA (sm_90 or later): the words are the hardware's own",
    ),
]


@pytest.mark.parametrize("rounds", [pytest.param(True, marks=NEEDS_TMA), pytest.param(False, marks=NEEDS_TMA)])
def test_a_gpu_rounds_what_it_loads_and_not_what_it_stores(rounds):
    table = torch.from_numpy(words().view(np.float32)).cuda()
    descriptor = TensorDescriptor.from_tensor(table, [ROWS, COLUMNS], round_f32_to_tf32=rounds)
    out, written = torch.zeros_like(table), torch.zeros_like(table)
    kernels.descriptor_rows[(1,)](descriptor, out, ROWS=ROWS, COLUMNS=COLUMNS)
    expected = rounded_to_tf32(words()) if rounds else words()
    assert (out.cpu().numpy().view(np.uint32) == expected).all()
    into = TensorDescriptor.from_tensor(written, [ROWS, COLUMNS], round_f32_to_tf32=rounds)
    kernels.descriptor_write[(1,)](into, table, ROWS=ROWS, COLUMNS=COLUMNS)
    assert (written.cpu().numpy().view(np.uint32) == words()).all()
