"""Contract under test: docs/emulator.md shows the ordering table that the emulator goes by, and names each outcome it raises."""

from __future__ import annotations

import re
from pathlib import Path

from bitverdict.harness.emulator.async_rules import KINDS, RULES, rule_of
from bitverdict.harness.emulator.residency import MULTIPROCESSORS
from bitverdict.harness.model.verdict import Outcome

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENT = CHECKOUT / "docs" / "emulator.md"


def test_the_document_has_every_rule_word_for_word():
    text = DOCUMENT.read_text()
    for rule in RULES:
        assert f"| {rule.operation} | {rule.touches} | {rule.until} | {rule.source} |" in text


def test_the_document_says_of_every_kind_what_the_emulator_goes_by():
    text = DOCUMENT.read_text()
    for kind in KINDS:
        pipe = "each partition's own" if kind.pipe_per_agent else "the program's" if kind.pipe else "none"
        end = "yes" if kind.must_finish_before_exit else "no"
        assert f"| {kind.name} | {kind.completes_by.value} | {pipe} | {kind.proxy.value} | {end} |" in text


def test_every_outcome_that_the_emulator_raises_is_in_the_document():
    """It is an outcome of the harness, too."""
    text = DOCUMENT.read_text()
    raised, outcomes = set(), {outcome.value for outcome in Outcome}
    for path in (CHECKOUT / "harness" / "emulator").rglob("*.py"):
        for name in re.findall(r'(?:Emulated|OnChip)Fault\(\s*f?"([a-z{} ]+)"', path.read_text()):
            form = re.compile(re.sub(r"\{\w+\}", "[a-z]+", name))  # f"stray {verb}"
            meant = set(filter(form.fullmatch, outcomes))
            assert meant, f"{path.name} raises {name!r}, which is no outcome"
            raised |= meant
    assert {"race", "deadlock", "not modelled", "barrier misuse", "stray read", "stray write"} <= raised
    assert all(outcome in text for outcome in raised)


def test_the_document_shows_what_its_command_prints(tmp_path):
    """But for numbers of lines, steps and bytes, which move with the kernel, and the attributes of the operation that is executed:
    older releases print `cache` and `evict`."""
    from tests.emulator.ordering.test_hazards import EVERY
    from tests.faults.show_hazard import SHOWN, told

    hazard = next(hazard for hazard in EVERY if SHOWN in f"{hazard.kind} {hazard.kernel}")

    def numberless(text: str) -> str:
        return re.sub(r"\d+", "#", re.sub(r" +", " ", re.sub(r"\{cache = \d+ : i32, evict = \d+ : i32, ", "{", text)))

    assert numberless(told(hazard, tmp_path)) in numberless(DOCUMENT.read_text())


def test_the_document_counts_hazards_and_idioms_as_they_are():
    from tests.emulator.ordering import test_order as order
    from tests.emulator.ordering.test_hazards import EVERY
    from tests.emulator.ordering.test_idioms import IDIOMS, TWINS

    text = " ".join(DOCUMENT.read_text().split())
    assert f"makes {len(EVERY)} hazards of {len({hazard.kind for hazard in EVERY})} kinds" in text
    assert f"holds {len(IDIOMS)} legal but surprising idioms" in text and f"({len(TWINS)} twins)" in text
    assert f"holds {len(order.TWINS)} twins of {len(order.KERNELS)} right kernels" in text


def test_the_document_has_the_multiprocessors_that_launchers_are_told():
    text = DOCUMENT.read_text()
    for arch, chip in (("sm_80", "A100"), ("sm_90", "H100 SXM"), ("sm_100", "B200")):
        assert f"{chip} ({MULTIPROCESSORS[arch].count})" in text


def test_each_rule_reads_as_a_sentence_where_a_finding_names_it():
    told = rule_of("another program")
    assert told.startswith(
        "the programs of a launch run in any order, and at once: only an atomic of the one that reads what an atomic of"
    )
    assert all(" until nothing" not in rule_of(rule.operation) and rule.source in rule_of(rule.operation) for rule in RULES)
