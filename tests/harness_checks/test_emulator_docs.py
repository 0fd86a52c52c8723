"""Contract under test: docs/emulator.md shows the ordering table that the emulator goes by, and names each outcome it raises."""

from __future__ import annotations

import re
from pathlib import Path

from harness.emulator.ordering import RULES
from harness.verdict import Outcome

CHECKOUT = Path(__file__).resolve().parents[2]
DOCUMENT = CHECKOUT / "docs" / "emulator.md"


def test_the_document_has_every_rule_word_for_word():
    text = DOCUMENT.read_text()
    for rule in RULES:
        assert f"| {rule.operation} | {rule.touches} | {rule.until} | {rule.source} |" in text


def test_every_outcome_that_the_emulator_raises_is_an_outcome_of_the_court_and_in_the_document():
    text = DOCUMENT.read_text()
    raised = set()
    for path in (CHECKOUT / "harness" / "emulator").rglob("*.py"):
        raised |= set(re.findall(r'EmulatedFault\(\s*"([a-z ]+)"', path.read_text()))
    assert {"race", "deadlock", "not modelled", "barrier misuse"} <= raised
    assert raised <= {outcome.value for outcome in Outcome}
    assert all(outcome in text for outcome in raised)
