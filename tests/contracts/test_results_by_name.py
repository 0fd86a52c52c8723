"""Contract under test: a launcher that returns too few results, or too many, has the wrong shape; it is no error of the harness."""

from __future__ import annotations

import pytest
import torch

from bitverdict.harness.contracts.base.single_config import results_by_name
from bitverdict.harness.judge.launch import _read_outputs
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Outcome

ONE = torch.ones(2, 2)


@pytest.mark.parametrize(
    ("returned", "named"),
    [((ONE, ONE), {"y", "r"}), ([ONE, ONE], {"y", "r"}), (ONE, {"y"}), ((ONE,), {"y"}), ((ONE, ONE, ONE), {"y"}), (None, {"y"})],
)
def test_results_have_the_names_of_their_places(returned: object, named: set[str]) -> None:
    results = results_by_name(returned, "y", "r")
    assert set(results) == named and all(value is ONE for value in results.values()) is not (returned is None or len(returned) == 3)


@pytest.mark.parametrize("stem", ["rms_norm", "cross_entropy", "quantize_mxfp"])
@pytest.mark.parametrize("returned", [(ONE, ONE, ONE), None])
def test_too_many_results_and_none_are_the_wrong_shape(stem: str, returned: object) -> None:
    contract = resolve(stem)
    case = next(iter(contract.required(target("emulated:sm_90"))))
    names = ("x", "w", "dy", "targets", "g")
    results = contract.launch(case, dict.fromkeys(names, ONE), lambda *_: returned)
    assert _read_outputs(dict(results)).outcome is Outcome.WRONG_SHAPE
