"""Contract under test: words computed in integer arithmetic on a GPU are the reference's, specials and accumulators included.

Here the GPU is emulated. `python -m benchmarks.gpu_oracle hold` asks every instruction, on a real one where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from bitverdict.harness.contracts.oracle.dot_lowering import chained_product
from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.gpu_oracle import operands, products
from bitverdict.reference.formats import FORMATS, decode
from bitverdict.reference.tensor_core import (
    Accumulator,
    BlockOrder,
    Choices,
    Instruction,
    ScaledWindow,
    ZeroTerms,
    instruction,
    product,
    scaled_product,
)
from bitverdict.reference.tensor_core.product_query import with_product_model

WGMMA = instruction("sm_90", "wgmma", "fp16", "fp16", "fp32")
EMULATED_FP8 = instruction("sm_90", "mma.sync", "e4m3", "e4m3", "fp32")
NVFP4 = instruction("sm_100", "tcgen05", "e2m1", "e2m1", "fp32", scale="ue4m3")
M, N, K = 20, 18, 48


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[None]:
    with emulated("sm_90"):
        yield


def any_codes(name: str, shape: tuple[int, int], seed: int) -> np.ndarray:
    """Every other row has NaN and infinities; the others have none."""
    fmt = FORMATS[name]
    found = np.random.default_rng(seed).integers(0, 1 << fmt.width, shape).astype(fmt.storage)  # (rows, columns)
    found[::2] = np.where(np.isfinite(decode(fmt, found[::2])), found[::2], 0)
    return found


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [(WGMMA, replace(WGMMA, fraction_bits=23)), (EMULATED_FP8, replace(EMULATED_FP8, accumulator=Accumulator.IN_SUM))],
    ids=["wgmma", "fp8 by mma.sync"],
)
def test_words_of_a_product_are_the_references(rule: Instruction, wrong: Instruction) -> None:
    a, b = any_codes(rule.a, (M, K), 1), np.ascontiguousarray(any_codes(rule.b, (N, K), 2).T)
    c = any_codes(rule.d, (M, N), 3)
    got = products.on_gpu("cuda")(rule, a, b, c)
    assert np.array_equal(got, product(rule, a, b, c))
    assert (got != product(wrong, a, b, c)).any(), "the operands expose no fault"


def test_words_of_nvfp4_are_the_references() -> None:
    rng = np.random.default_rng(4)
    a, b = any_codes("e2m1", (M, 96), 5), np.ascontiguousarray(any_codes("e2m1", (N, 96), 6).T)
    one, other = rng.integers(0, 256, (M, 6)).astype(np.uint8), rng.integers(30, 90, (N, 6)).astype(np.uint8)
    c = any_codes("fp32", (M, N), 7)
    got = products.scaled_on_gpu("cuda")(NVFP4, a, one, b, other, c)
    assert np.array_equal(got, scaled_product(NVFP4, a, one, b, other, c))
    assert len(np.unique(got)) > M * N // 4


def test_blocks_in_descending_order_are_the_reference_s() -> None:
    rule = instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32", choices=Choices(block_order=BlockOrder.DESCENDING))
    a, b = any_codes("fp16", (M, K), 11), np.ascontiguousarray(any_codes("fp16", (N, K), 12).T)
    got = products.on_gpu("cuda")(rule, a, b, None)
    assert np.array_equal(got, product(rule, a, b))
    assert not np.array_equal(got, product(instruction("sm_80", "mma.sync", "fp16", "fp16", "fp32"), a, b))


@pytest.mark.parametrize("window", ScaledWindow, ids=str)
def test_a_group_of_zeros_under_a_large_scale_cuts_no_other_group(window: ScaledWindow) -> None:
    rule = replace(NVFP4, choices=replace(NVFP4.choices, scaled_window=window))
    rng = np.random.default_rng(9)
    a, b = rng.integers(0, 16, (M, 64)).astype(np.uint8), rng.integers(0, 16, (64, N)).astype(np.uint8)
    a[:, :16] = 0
    one, other = (rng.integers(1, 8, (rows, 4)).astype(np.uint8) for rows in (M, N))
    one[:, 0], other[:, 0] = 0x7E, 0x7E
    got = products.scaled_on_gpu("cuda")(rule, a, one, b, other, None)
    assert np.array_equal(got, scaled_product(rule, a, one, b, other))
    taking = replace(rule, choices=Choices(scaled_window=ScaledWindow.BY_SCALE, zero_terms=ZeroTerms.TAKE_PART))
    assert not np.array_equal(got, scaled_product(taking, a, one, b, other)), "the group of zeros changes no word here"


def test_integers_wrap_as_the_reference_does() -> None:
    rule = instruction("sm_90", "wgmma", "int8", "int8", "int32")
    rng = np.random.default_rng(8)
    a, b = rng.integers(-128, 128, (M, K)).astype(np.int8), rng.integers(-128, 128, (K, N)).astype(np.int8)
    c = np.full((M, N), np.iinfo(np.int32).max - 5, np.int32)
    got = products.on_gpu("cuda")(rule, a, b, c)
    assert np.array_equal(got, product(rule, a, b, c))
    assert (got < 0).any(), "no sum wrapped"


def test_a_contracts_plan_takes_its_words_from_it() -> None:
    a, b = any_codes("fp16", (M, K), 1), np.ascontiguousarray(any_codes("fp16", (N, K), 2).T)
    with with_product_model(products.answer_on("cuda")):
        got = chained_product(WGMMA, a, b)
    assert np.array_equal(got, product(WGMMA, a, b))


def test_every_code_is_packed_as_the_number_it_is() -> None:
    for name in ("fp16", "bf16", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1"):
        fmt = FORMATS[name]
        words, kinds = operands.table(name, name)
        values = decode(fmt, np.arange(len(words)).astype(fmt.storage))
        significand = (words << 16 >> 16).astype(np.float64)
        finite = np.isfinite(values)
        found = np.ldexp(significand, np.maximum(words >> 16, -200) - fmt.mantissa_bits)
        assert np.array_equal(found[finite], values[finite]), name
        assert ((kinds & 3) >= operands.INFINITE)[~finite].all() and not ((kinds & 3) >= operands.INFINITE)[finite].any(), name


def test_what_is_not_computed_on_a_gpu_is_refused() -> None:
    codes = torch.zeros(16, 4, dtype=torch.int16)
    with pytest.raises(ValueError, match="use scaled_words"):
        products.words(NVFP4, codes, codes)
    with pytest.raises(ValueError, match="use words"):
        products.scaled_words(WGMMA, (codes, codes), (codes, codes))
    with pytest.raises(ValueError, match="on the host"):
        products.words(replace(WGMMA, choices=replace(WGMMA.choices, zero_terms=ZeroTerms.TAKE_PART)), codes, codes)
    with pytest.raises(ValueError, match="do not meet"):
        products.words(WGMMA, codes, codes[:8])
