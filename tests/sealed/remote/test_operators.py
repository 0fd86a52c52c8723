"""Contract under test: of torch's operators an executor runs those that a launcher needs, and none that reads or writes where an
argument leads it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault
from bitverdict.harness.sealed.remote.errors import WireError
from bitverdict.harness.sealed.remote.operator_arguments import check_given
from bitverdict.harness.sealed.remote.operators import operator

FAR = 1 << 33  # elements away: a process that writes there dies
PLANE, GRADIENT = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 2, 2)
ROWS = torch.ones(3, 4)


def of(*sizes: int, value: int = FAR) -> torch.Tensor:
    return torch.full(sizes, value)


def pooled(indices: torch.Tensor, plane: torch.Tensor = PLANE) -> tuple:
    return GRADIENT, plane, [2, 2], [2, 2], [0, 0], [1, 1], False, indices


def likely(target: torch.Tensor, gradient: torch.Tensor) -> tuple:
    return gradient, ROWS, target, None, 0, -100, torch.ones(())


def normalised(count: int) -> tuple:
    return torch.ones(2, 64), torch.ones(count), torch.ones(64), torch.ones(64), torch.ones(64), True, 0.1, 1e-5


HONEST: dict[str, tuple] = {
    "aten.max_pool2d_with_indices_backward.default": pooled(torch.tensor([[[[0, 2], [8, 15]]]])),
    "aten.adaptive_max_pool2d_backward.default": (GRADIENT, PLANE, of(1, 1, 2, 2, value=15)),
    "aten.nll_loss_backward.default": likely(torch.tensor([0, 3, -100]), torch.ones(3)),
    "aten.native_batch_norm.default": normalised(64),
    "aten.embedding_dense_backward.default": (torch.ones(3, 4), of(3, value=3), 4, -1, False),
    "aten.repeat_interleave.Tensor": (torch.tensor([2, 0, 1]),),
    "aten._softmax_backward_data.default": (ROWS, ROWS, 1, torch.float32),
    "aten.cumsum.default": (ROWS, 1),
    "aten.arange.default": (5,),
    "aten._weight_norm_interface.default": (ROWS, torch.ones(3, 1), 0),
    "aten._fft_r2c.default": (ROWS, [1], 0, True),
}
LIES: list[tuple[str, tuple, dict[str, Any]]] = [
    ("aten.max_pool2d_with_indices_backward.default", pooled(of(1, 1, 2, 2)), {}),
    ("aten.max_pool2d_with_indices_backward.default", pooled(of(1, 1, 2, 2, value=-1)), {}),
    ("aten.max_pool2d_with_indices_backward.default", pooled(of(1, 1, 2, 2, value=0), torch.ones(1, 1 << 12, 4, 4)), {}),
    ("aten.adaptive_max_pool2d_backward.default", (GRADIENT, PLANE, of(1, 1, 2, 2)), {}),
    ("aten.nll_loss_backward.default", likely(of(3), torch.ones(3)), {}),
    ("aten.nll_loss_backward.default", likely(torch.tensor([0, 1, 2]), torch.ones(1)), {}),
    ("aten.native_batch_norm.default", normalised(1), {}),
    ("aten._native_batch_norm_legit.no_stats", (torch.ones(2, 3), None, None, False, 0.1, 1e-5), {}),
    ("aten.embedding_dense_backward.default", (torch.ones(3, 4), of(3), 4, -1, False), {}),
    ("aten.repeat_interleave.Tensor", (torch.tensor([-5, 10]),), {"output_size": 5}),
    ("aten._softmax_backward_data.default", (torch.ones(1), torch.ones(1 << 20), 0, torch.float32), {}),
    ("aten.cumsum.default", (ROWS, 1), {"dtype": FAR}),
    ("aten.arange.default", (5,), {"dtype": 1 << 20}),
    ("aten._weight_norm_interface.default", (torch.ones(1 << 16, 4), torch.ones(1), 0), {}),
    ("aten._fft_r2c.default", (ROWS, [7], 0, True), {}),
]


@pytest.mark.parametrize("name", HONEST)
def test_an_operator_that_is_given_what_fits_runs(name: str) -> None:
    function = operator(name)
    check_given(function, HONEST[name], {})
    function(*HONEST[name])


@pytest.mark.parametrize(("name", "args", "kwargs"), LIES, ids=range(len(LIES)))
def test_an_operator_that_is_given_a_lie_does_not_run(name: str, args: tuple, kwargs: dict[str, Any]) -> None:
    with pytest.raises(WireError, match=r"does not fit|do not fit|must be of"):
        check_given(operator(name), args, kwargs)


@pytest.mark.parametrize(
    "name",
    [
        "aten.ctc_loss.IntList", "aten.segment_reduce.default", "aten.fractional_max_pool2d_backward.default",
        "aten.from_file.default", "aten.remainder.int", "aten._ctc_loss.default", "aten.set_.source_Storage",
        "aten._chunk_cat.default", "aten.no_such.default", "aten.to.prim_dtype", "aten.to.prim_Device",
        "prims.add.default", "aten.grid_sampler_2d_backward.default", "aten.__class__.default",
    ],
)  # fmt: skip
def test_an_operator_that_trusts_its_arguments_is_refused_by_name(name: str) -> None:
    with pytest.raises(EmulatedFault, match="is not run for a launcher"):
        operator(name)
