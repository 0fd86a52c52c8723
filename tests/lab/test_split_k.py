"""Contract under test: the split-K kernels of `benchmarks/split_k.py` are right and equal word for word, with ragged tiles and with
shares that have no block, so that what is timed is a product."""

from __future__ import annotations

import functools

import pytest
import torch
import triton

from benchmarks import split_k
from bitverdict.harness.emulator import emulated


def parted(a: torch.Tensor, b: torch.Tensor, split: int, block_k: int) -> torch.Tensor:
    """The sum of exact parts in order, for small integers: (m, n) fp16."""
    share = triton.cdiv(triton.cdiv(a.shape[1], block_k), split) * block_k
    parts = [a[:, s * share : (s + 1) * share].float() @ b[s * share : (s + 1) * share].float() for s in range(split)]
    return functools.reduce(torch.add, parts).half()


@pytest.mark.parametrize(("k", "split"), [(136, 2), (136, 4), (40, 4)])
def test_split_parts_add_up_to_the_product_in_both_forms(k: int, split: int) -> None:
    """K of 40 is one block and a half: shares 2 and 3 have none. The counters are at zero again for the second launch."""
    generator = torch.Generator().manual_seed(k + split)
    a, b = (torch.randint(-3, 4, shape, generator=generator).half() for shape in ((72, k), (k, 88)))
    with emulated("sm_90"):
        for last_adds in (False, True, True):
            c = split_k.split_matmul(a, b, tile=(64, 64, 32), num_warps=4, split=split, last_adds=last_adds)
            assert torch.equal(torch.as_tensor(c), parted(a, b, split, 32)), last_adds


def test_every_configuration_is_timed_in_the_forms_it_has() -> None:
    a, b = torch.zeros(64, 64).half(), torch.zeros(64, 64).half()
    forms = [form for form, _ in split_k.calls(a, b)]
    assert (forms.count("not split"), forms.count("second kernel"), forms.count("last program")) == (5, 4, 4)
