"""Contract under test: the hardware words settle each constant of each model, or a pair of operands is named that would.

Each constant is moved by one step and the words are predicted anew. The table of mismatches is printed (`pytest -s`).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from bitverdict.reference.tensor_core import INSTRUCTIONS, EvidenceKind, Instruction
from tests.faults.instruction_constants import mutants_of
from tests.faults.mutants import mutant_record
from tests.reference_checks.settling_operands import settling_row, written
from tests.reference_checks.tensor_core_words import Words, files, read, required

FILES = files()
FEW = 100  # words: below, an instruction settles next to nothing by itself; those of one kind of tcgen05 are counted together
NOT_SEEN_IN_ONE_BLOCK = {"block doubled", "blocks in reverse"}
NOT_REACHED = {"E floor - 1", "E floor + 1"}  # public operands are near 1
FRACTION = {"F - 1", "F + 1"}
EMULATED_FP32 = FRACTION | {"blocks in reverse", "passes ascending", "rounding"}

# What the public words leave open (docs/arithmetic.md), by instruction. Rounding straight to fp16 hides F; fp8 products near 1
# are exact at F = 25; the wgmma words have c = 0; tf32 words have K = 4.
OPEN = {
    "sm_80 mma.sync fp16 x fp16 -> fp16": FRACTION,
    "sm_89 mma.sync fp16 x fp16 -> fp16": FRACTION,
    "sm_90 mma.sync fp16 x fp16 -> fp16": {"F - 1"},
    "sm_100 mma.sync fp16 x fp16 -> fp16": FRACTION,
    "sm_90 mma.sync tf32 x tf32 -> fp32": {"block halved"},
    "sm_100 mma.sync tf32 x tf32 -> fp32": {"block halved"},
    "sm_90 mma.sync e4m3 x e4m3 -> fp16": FRACTION,
    "sm_90 mma.sync e5m2 x e5m2 -> fp16": FRACTION,
    "sm_100 mma.sync e4m3 x e4m3 -> fp16": FRACTION,
    "sm_100 mma.sync e5m2 x e5m2 -> fp16": FRACTION,
    "sm_100 mma.sync e4m3 x e4m3 -> fp32": EMULATED_FP32 | {"block halved", "output bits - 1"},
    "sm_100 mma.sync e5m2 x e5m2 -> fp32": EMULATED_FP32,
    "sm_90 wgmma e4m3 x e4m3 -> fp32": {"place of c"},
    "sm_90 wgmma e5m2 x e5m2 -> fp32": {"place of c"},
}
# What the 61 words of tcgen05 settle, by kind; all else of it rests on two models.
SETTLED_OF_TCGEN05: dict[str, set[str]] = {
    "f16": set(),
    "tf32": {"F - 1", "rounding", "place of c"},
    "f8f6f4": {"F + 1", "output bits - 1", "rounding"},
    "mxf8f6f4": set(),
    "mxf4": {"rounding"},
    "mxf4nvf4": {"output bits - 1", "rounding"},
}
# What our own words leave open besides the chain of one-block shapes, by instruction and block.
OPEN_IN_OUR_OWN = {("sm_90 mma.sync bf16 x bf16 -> fp32", 8): {"E floor - 1"}}


@dataclass
class Row:
    """One line of the table: all words of one instruction."""

    rule: Instruction
    words: int = 0
    longest: int = 0  # K of the longest row
    mismatches: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def add(self, counted: Row) -> None:
        self.words += counted.words
        self.longest = max(self.longest, counted.longest)
        for constant, count in counted.mismatches.items():
            self.mismatches[constant] += count

    @property
    def unsettled(self) -> set[str]:
        return {constant for constant, count in self.mismatches.items() if not count}

    @property
    def settled(self) -> set[str]:
        return {constant for constant, count in self.mismatches.items() if count}

    @property
    def blind(self) -> set[str]:
        """What no row of one block can show."""
        return NOT_SEEN_IN_ONE_BLOCK if self.longest <= self.rule.span and self.rule.passes is None else set()


def mismatches(held: Words) -> dict[str, int]:
    """By constant: how many words differ once it is moved."""
    return {mutant.name: held.mismatches(mutant_record(mutant, held.rule)) for mutant in mutants_of(held.rule)}


@cache
def counted(path: Path) -> tuple[Row, ...]:
    """A row for each instruction whose words the file holds."""
    return tuple(
        Row(held.rule, held.d.size, held.a.shape[1], mismatches(held))
        for held in read(path)
        if held.rule.d != "int32" and held.scale_a is None and held.d.size >= FEW
    )


def table(*, own: bool) -> dict[Instruction, Row]:
    rows: dict[Instruction, Row] = {}
    for path in FILES:
        if "_own_" in path.name and not own:
            continue
        for row in counted(path):
            rows.setdefault(row.rule, Row(row.rule)).add(row)
    return rows


@cache
def tcgen05() -> dict[str, Row]:
    """The words of tcgen05, by kind: a row whose rule is the first instruction of the kind that has any."""
    rows: dict[str, Row] = {}
    for path in FILES:
        held = [words for words in read(path) if words.rule.family == "tcgen05" and words.d.size < FEW]
        for words in held:
            rows.setdefault(words.rule.kind, Row(words.rule)).add(
                Row(words.rule, words.d.size, words.a.shape[1], mismatches(words))
            )
    return rows


def printed(rows: dict[Any, Row]) -> None:
    constants = sorted({constant for row in rows.values() for constant in row.mismatches})
    print(f"\n{'mismatches when one constant is moved':42}", *(f"{constant:>17}" for constant in ["words", *constants]))
    for name, row in rows.items():
        shape = f"sm_100 tcgen05 {name}, all" if isinstance(name, str) else f"{row.rule.name} n={row.rule.block}"
        print(f"{shape:42}", *(f"{count!s:>17}" for count in [row.words, *(row.mismatches.get(each, "") for each in constants)]))


def settled_by(row: Row, constant: str) -> str:
    moved = next(mutant_record(mutant, row.rule) for mutant in mutants_of(row.rule) if mutant.name == constant)
    found = settling_row(row.rule, moved)
    assert found is not None, f"no operands tell {row.rule.name} from the same with {constant}"
    return f"{row.rule.name}, {constant}: would be settled by {written(row.rule, moved, *found)}"


def test_the_public_words_leave_open_what_is_listed_and_nothing_else() -> None:
    rows = table(own=False)
    if not rows and not required():
        pytest.skip("no hardware words at hand: name their directory in TENSOR_CORE_WORDS")
    printed(rows)
    for row in rows.values():
        never_seen = row.blind | (NOT_REACHED & set(row.mismatches))
        assert row.unsettled == OPEN.get(row.rule.name, set()) | never_seen, row.rule.name
        for constant in sorted(row.unsettled):
            print(settled_by(row, constant))


def test_the_words_of_tcgen05_settle_what_is_listed_and_nothing_else() -> None:
    rows = tcgen05()
    if not rows and not required():
        pytest.skip("no hardware words at hand: name their directory in TENSOR_CORE_WORDS")
    printed(rows)
    assert {kind: row.settled for kind, row in rows.items()} == SETTLED_OF_TCGEN05
    assert sum(row.words for row in rows.values()) == 61
    for rule in INSTRUCTIONS:
        if rule.family == "tcgen05" and rule.d != "int32":
            assert rule.evidence.kind is EvidenceKind.MODEL_ONLY, "no word settles its block, its order or where c enters"


def test_with_our_own_words_nothing_more_is_open() -> None:
    public, rows = table(own=False), table(own=True)
    printed({rule: row for rule, row in rows.items() if rule not in public or row.words > public[rule].words})
    for rule, row in rows.items():
        has_own = rule not in public or row.words > public[rule].words
        listed = OPEN_IN_OUR_OWN.get((rule.name, rule.block), set()) if has_own else OPEN.get(rule.name, set()) | NOT_REACHED
        assert row.unsettled <= listed | row.blind, rule.name
        for constant in sorted(row.unsettled if has_own else ()):
            print(settled_by(row, constant))
