"""Contract under test: a `tl.dot` of three axes is a product for each of its batch, in the order of the instruction it becomes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bitverdict.harness.emulator import emulated
from bitverdict.reference import tensor_core
from tests.support import tile_kernels as kernels
from tests.support.emulated_products import codes, operands

BATCH, SIZE, K = 4, 16, 64
FORMS = [
    ("sm_80", "fp16", "tf32"),
    ("sm_100", "fp16", "tf32"),
    ("sm_90", "tf32", "tf32"),
    ("sm_90", "tf32", "ieee"),
    ("sm_80", "int8", "tf32"),
]


def chain(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """One ascending chain of fused multiply-adds: of drawn operands no sum lies on a tie of a long double."""
    total = np.zeros((SIZE, SIZE), np.float32)
    for k in range(K):
        total = (left[:, k : k + 1].astype(np.longdouble) * right[k].astype(np.longdouble) + total).astype(np.float32)
    return total


@pytest.mark.parametrize(("arch", "fmt", "precision"), FORMS)
def test_each_product_of_a_batch_is_a_chain_of_its_own(arch: str, fmt: str, precision: str) -> None:
    a, b = operands(fmt, BATCH * SIZE, BATCH * SIZE, K)
    a, b = a.reshape(BATCH, SIZE, K), b.reshape(K, BATCH, SIZE).transpose(0, 1).contiguous()
    out = torch.zeros(BATCH, SIZE, SIZE, dtype=torch.int32 if fmt == "int8" else torch.float32)
    with emulated(arch) as device:
        kernels.batched_product[(1,)](a, b, out, BATCH, SIZE, K, precision)
    assert device.launches[-1].instructions == {"fma" if precision == "ieee" else "mma.sync"}
    for left, right, got in zip(a, b, out, strict=True):
        if fmt == "int8":
            assert torch.equal(got, (left.long() @ right.long()).int())
        elif precision == "ieee":
            assert (got.numpy() == chain(left.numpy(), right.numpy())).all()
        else:
            model = tensor_core.instruction(arch, "mma.sync", fmt, fmt, "fp32")
            held = [codes(each, fmt) & np.uint32(0xFFFFE000) if fmt == "tf32" else codes(each, fmt) for each in (left, right)]
            expected = tensor_core.product(model, *held, np.zeros((SIZE, SIZE), np.uint32))
            assert (got.numpy().view(np.uint32) == expected).all()
