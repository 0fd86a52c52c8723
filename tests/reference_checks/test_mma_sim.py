"""Contract under test: each instruction that MMA-Sim claims too has its words, as a snapshot holds them.

Both are models. docs/amd_arithmetic.md and docs/arithmetic.md say what a word of a chip settles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.mma_sim import digest, operands, our_words
from benchmarks.mma_sim_names import Counterpart, counterparts
from bitverdict.reference.tensor_core import Instruction, instruction
from tests.reference_checks.test_mfma import BYTES, FLUSHED, HALF, WIDE, name_of

CONSUMER = instruction("sm_120", "mma.sync", "e4m3", "e4m3", "fp32", kind="f8f6f4")
TURING = instruction("sm_75", "mma.sync", "fp16", "fp16", "fp32")
SNAPSHOT = Path(__file__).parents[1] / "model_words" / "mma_sim.npz"


@pytest.fixture(scope="module")
def stored() -> dict[str, np.ndarray]:
    with np.load(SNAPSHOT) as held:
        return dict(held)


def stored_differences(other: Counterpart, stored: dict[str, np.ndarray], rule: Instruction) -> int:
    """Words of MMA-Sim's in the snapshot that `rule` does not give, those that are meant left out."""
    draw = np.random.default_rng([int(stored["data_seed"]), *other.name.encode()])
    given = operands(other.rule, other.k, int(stored["words"]), draw)
    message = "NumPy draws other operands: write the snapshot again (benchmarks/mma_sim.py)"
    assert np.array_equal(digest(given), stored[f"{other.name}/operands"]), message
    theirs, ours = stored[f"{other.name}/d"], our_words(rule, given)
    differ = other.differing(theirs, ours)
    return int((differ & ~other.intended(theirs, ours)).sum())


@pytest.mark.parametrize("other", [other for other in counterparts() if other.in_snapshot], ids=name_of)
def test_each_instruction_has_the_stored_words_of_mma_sim(other: Counterpart, stored: dict[str, np.ndarray]) -> None:
    assert stored_differences(other, stored, other.their_rule) == 0


@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        (rule, changed)
        for rule in (HALF, BYTES, WIDE)
        for changed in ({"fraction_bits": 23}, {"fraction_bits": 25}, {"block": rule.block // 2})
    ]
    + [(rule, {"fraction_bits": bits}) for rule in (CONSUMER, TURING) for bits in (rule.fraction_bits - 1, rule.fraction_bits + 1)]
    + [
        (FLUSHED, {"tree": 2}),
        (HALF, {"step": BYTES.step}),
        (BYTES, {"step": HALF.step}),
    ],
    ids=lambda value: name_of(value) if isinstance(value, Instruction) else next(iter(value)),
)
def test_a_wrong_number_shows_in_the_stored_words(
    rule: Instruction, changed: dict[str, Any], stored: dict[str, np.ndarray]
) -> None:
    of_rule = [other for other in counterparts() if other.rule == rule and other.in_snapshot]
    assert sum(stored_differences(other, stored, replace(rule, **changed)) for other in of_rule) > 0
