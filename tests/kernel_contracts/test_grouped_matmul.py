"""Contract under test: the launcher of a list of products refuses a list that its tensors do not hold, and launches nothing for one
without tiles."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from bitverdict.harness.contracts.grouped_matmul import CONTRACT
from bitverdict.harness.emulator import emulated
from bitverdict.harness.model.usage import UsageError
from bitverdict.kernels.grouped_matmul import grouped_matmul


def half(count: int) -> torch.Tensor:
    return torch.zeros(count, dtype=torch.float16)


def listed(*groups: tuple[int, int, int]) -> torch.Tensor:
    return torch.tensor(groups, dtype=torch.int32).reshape(-1, 3)


def test_a_list_without_tiles_launches_nothing() -> None:
    with emulated("sm_90") as device:
        for a, b, sizes in ((half(0), half(63), listed((0, 7, 9))), (half(12), half(0), listed((4, 0, 3))),
                            (half(0), half(0), listed())):  # fmt: skip
            assert grouped_matmul(a, b, sizes, out_dtype=torch.float32).shape == (0,)
    assert not device.launches


@pytest.mark.parametrize(
    ("a", "b", "sizes", "c", "said"),
    [
        (half(6), half(6), listed((2, 2, 3), (1, 1, 1)), None, "a is .* the 7 elements that sizes says"),
        (half(6), half(7), listed((2, 2, 3)), None, "b is .* the 6 elements"),
        (half(6), half(6), listed((2, 2, 3)), half(5), "c is .* the 4 elements"),
        (half(12)[::2], half(6), listed((2, 2, 3)), None, r"a is .* strides \(2,\)"),
        (half(6), half(6), listed((2, -2, 3)), None, "no size of a group is negative"),
        (half(6), half(6), listed((1, 1 << 25, 0)), None, r"span less than 2\^31"),
        (half(6), half(6), listed((2, 2, 3)).long(), None, r"\(groups, 3\) int32"),
        (half(6), half(6), listed((2, 2, 3)).reshape(3), None, r"\(groups, 3\) int32"),
    ],
)
def test_a_list_that_its_tensors_do_not_hold_is_refused(a: Any, b: Any, sizes: Any, c: Any, said: str) -> None:
    with emulated("sm_90") as device, pytest.raises(ValueError, match=said):
        grouped_matmul(a, b, sizes, c)
    assert not device.launches


@pytest.mark.parametrize("sizes", [None, 3, [3], [[1, 2]], [[1, 2, -3]], [[1, 2, True]], [[1, 2, "3"]]])
def test_a_file_with_other_sizes_is_told_of_by_field_and_rule(sizes: Any) -> None:
    record = CONTRACT.case({"sizes": ((1, 2, 3),)}, {}).to_json()
    assert CONTRACT.case_from_json(json.loads(json.dumps(record))).problem.sizes == ((1, 2, 3),)
    with pytest.raises(UsageError, match=r"problem\.sizes is"):
        CONTRACT.case_from_json(record | {"problem": record["problem"] | {"sizes": sizes}})
