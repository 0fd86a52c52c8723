"""Contract under test: promoted fp32 sums in integer arithmetic are the reference's, special values and ties included.

Here the GPU is emulated. `python -m benchmarks.promoted_sums` asks ten million words of a real one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks import promoted_sums as drawn
from bitverdict.harness.contracts import fp8_blockwise_matmul
from bitverdict.harness.contracts.oracle.dot_lowering import dot_plan
from bitverdict.harness.emulator import emulated
from bitverdict.harness.lab.gpu_oracle import products, promoted_sums
from bitverdict.reference.scalar_arithmetic import fp32
from bitverdict.reference.tensor_core.product_query import with_product_model

SIDE = 48
PLAN = dot_plan("sm_90", "e4m3", block_m=128, block_n=128, block_k=128, num_warps=8)


@pytest.fixture(scope="module", autouse=True)
def gpu() -> Iterator[None]:
    with emulated("sm_90"):
        yield


@pytest.mark.parametrize("draw", drawn.DRAWS)
def test_a_promoted_block_is_added_as_the_reference_adds_it(draw: str) -> None:
    operands = drawn.asked(draw, SIDE, np.random.default_rng(3))
    due = drawn.due(*operands)
    assert np.array_equal(drawn.computed(*operands), due)
    assert len(np.unique(due)) > SIDE


def test_a_sum_that_is_rounded_up_past_every_exponent_is_infinite() -> None:
    """2^128 and the next power are both beyond fp32: the carry left the word's field."""
    inner, rows, columns, total = (
        np.array(each, np.uint32) for each in ([[0x3F800000]], [0xBF800001], [0x7F7FFFFF], [[0xFF7FFFFF]])
    )
    assert drawn.computed(inner, rows, columns, total).item() == 0xFF800000


def test_a_sum_in_another_order_or_not_fused_is_told_apart() -> None:
    inner, rows, columns, total = drawn.asked("usual", SIDE, np.random.default_rng(5))
    got = drawn.computed(inner, rows, columns, total)
    one, two, three, four = (each.view(np.float32) for each in (inner, rows[:, None], columns[None, :], total))
    apart = fp32.add(fp32.multiply(fp32.multiply(one, two), three), four).view(np.uint32)  # the sum is not fused
    other_first = fp32.fma(fp32.multiply(one, three), two, four).view(np.uint32)  # the scale of the column first
    assert (got != apart).any() and (got != other_first).any()


def test_a_contracts_promoted_sums_are_computed_whole_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(7)
    m, n, k = 20, 18, 300
    a, b = (
        rng.integers(0, 127, (rows, k)).astype(np.uint8) | (rng.integers(0, 2, (rows, k)) << 7).astype(np.uint8) for rows in (m, n)
    )
    a[3, 5] = 0x7F  # NaN
    scales = [rng.uniform(0.01, 4.0, (rows, 3)).astype(np.float32).view(np.uint32) for rows in (m, 1)]
    due = fp8_blockwise_matmul.block_scaled_sums(PLAN, 128, a, b, *scales)
    added: list[tuple] = []
    add = promoted_sums.add_promoted
    monkeypatch.setattr(promoted_sums, "add_promoted", lambda *given: (added.append(given), add(*given)))
    with with_product_model(products.answer_on("cuda"), promoting=products.promoted_on("cuda")):
        got = fp8_blockwise_matmul.block_scaled_sums(PLAN, 128, a, b, *scales)
    assert np.array_equal(got, due) and len(added) == 3
    assert np.array_equal((due == 0x7FFFFFFF).any(axis=1), np.arange(m) == 3)


def test_a_product_that_no_gpu_computes_leaves_the_sum_to_the_reference() -> None:
    a, b = np.full((2, 5), 0x38, np.uint8), np.full((3, 5), 0x40, np.uint8)
    plan = dot_plan("sm_90", "fp32", precision="ieee", block_m=16, block_n=16, block_k=16, num_warps=4)
    ones = np.ones((2, 1), np.float32).view(np.uint32), np.ones((3, 1), np.float32).view(np.uint32)
    wide = [(each.astype(np.float32)).view(np.uint32) for each in (a, b)]
    with with_product_model(products.answer_on("cuda"), promoting=products.promoted_on("cuda")):
        got = fp8_blockwise_matmul.block_scaled_sums(plan, 128, *wide, *ones)
    assert np.array_equal(got.view(np.float32), np.full((2, 3), 5.0 * 0x38 * 0x40, np.float32))


def test_a_sum_of_no_block_is_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        promoted_sums.promoted_total([])
