"""Contract under test: a copy into tensor memory in the drained tail of a ring, where waits, products and commits are predicated
off, fails by name; under the same predicate it passes (docs/emulator.md, "Found in published kernels")."""

from __future__ import annotations

import pytest
import torch

from bitverdict.harness.emulator import EmulatedFault, emulated
from tests.support.drained_tail import product
from tests.support.emulated_launches import SCHEDULES


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("turns", "outcome", "said"),
    [
        (1, "uninitialised read", "ttng.tmem_copy reads"),  # nothing was ever loaded there
        (2, "race", "the program ends while the tcgen05.cp"),  # what an earlier turn loaded is read, and no wait covers it
        (3, "race", "the program ends while the tcgen05.cp"),
    ],
)
def test_a_copy_without_its_products_predicate_fails_in_a_drained_tail(schedule, turns, outcome, said) -> None:
    with emulated("sm_100", schedule) as device, pytest.raises(EmulatedFault) as caught:
        product(turns, last=1, guarded=False)
    assert caught.value.outcome == outcome and said in caught.value.message
    assert "drained_tail.py" in caught.value.location and "made by" not in caught.value.details
    assert device.findings == [caught.value]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("turns", "last", "guarded"), [(1, 1, True), (2, 1, True), (3, 1, True), (1, 2, False), (2, 2, False)])
def test_under_the_predicate_or_with_a_full_tail_it_passes(schedule, turns, last, guarded) -> None:
    with emulated("sm_100", schedule) as device:
        got, expected = product(turns, last, guarded=guarded)
    assert torch.equal(got, expected) and not device.findings
