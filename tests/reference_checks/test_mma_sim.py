"""Contract under test: each instruction that MMA-Sim claims too has its words, as a snapshot holds them.

Both are models. docs/amd_arithmetic.md and docs/arithmetic.md say what a word of a chip settles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import mma_sim_page
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
    + [(FLUSHED, {"tree": 2}), (HALF, {"step": BYTES.step}), (BYTES, {"step": HALF.step})],
    ids=lambda value: name_of(value) if isinstance(value, Instruction) else next(iter(value)),
)
def test_a_wrong_number_shows_in_the_stored_words(
    rule: Instruction, changed: dict[str, Any], stored: dict[str, np.ndarray]
) -> None:
    of_rule = [other for other in counterparts() if other.rule == rule and other.in_snapshot]
    assert sum(stored_differences(other, stored, replace(rule, **changed)) for other in of_rule) > 0


def printed(folder: Path, differ: int = 0, left_out: str = "") -> Path:
    """What a comparison of every instruction prints, planted."""
    of_all = [other.name for other in counterparts() if other.rule.arch.startswith("sm_") and other.name != left_out]
    lines = [f"| {name} | 1,048,576 | {differ if place == 3 else 0:,} | 0 | 2 |" for place, name in enumerate(of_all)]
    (folder / "words.txt").write_text("\n".join(["| instruction | words | differ | intended | by choice |", "| --- |", *lines]))
    (folder / "doubles.txt").write_text("| sm_90 mma.sync fp64 m16n8k4 | 1,024 | 0 |\n")
    return folder


def test_the_page_counts_every_instruction_that_both_claim(tmp_path: Path) -> None:
    table, whole = mma_sim_page.table(printed(tmp_path))
    assert whole and "| sm_75 mma.sync | 2 | 1,048,576 | 2,097,152 | 0 | 0 | 4 |" in table.splitlines()
    assert "| sm_90 mma.sync fp64 | 1 | 1,024 | 1,024 | 0 | 0 | 0 |" in table.splitlines()


def test_a_word_that_differs_or_an_instruction_left_out_is_told(tmp_path: Path) -> None:
    table, whole = mma_sim_page.table(printed(tmp_path, differ=7))
    assert not whole and "| sm_80 mma.sync | 8 | 1,048,576 | 8,388,608 | 0 | 7 | 16 |" in table
    assert not mma_sim_page.table(printed(tmp_path, left_out="sm_90 wgmma tf32 x tf32 -> fp32 k8"))[1]


def test_the_table_stands_between_its_marks_alone() -> None:
    text = (SNAPSHOT.parents[2] / "docs" / "arithmetic.md").read_text()
    assert "| x |" in mma_sim_page.page(text, "| x |") and "mxf4nvf4 | 3 | " not in mma_sim_page.page(text, "| x |")
    with pytest.raises(ValueError, match="these two lines once"):
        mma_sim_page.page(text.replace(mma_sim_page.END, ""), "| x |")
