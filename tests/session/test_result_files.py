"""Contract under test: JUnit has of each decision the element that a reader of it expects, and counts them by suite."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.session.result_files import JUnit

ELEMENTS = {Decision.PASS: [], Decision.FAIL: ["failure"], Decision.ERROR: ["error"]}


@pytest.mark.parametrize("decision", Decision)
def test_a_case_that_was_not_decided_is_skipped(decision: Decision) -> None:
    xml, elements = JUnit(), ELEMENTS.get(decision, ["skipped"])
    xml.add("kernel", "emulated:sm_90", "a case", Verdict(decision=decision, outcome=Outcome.PASS, message="said\x07"))
    (suite,) = ElementTree.fromstring(xml.text())
    assert [child.tag for child in suite[0]] == elements
    assert [child.get("message") for child in suite[0]] == ["pass: said"] * len(elements)
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    assert {name: suite.get(name) for name in counts} == {name: str(elements.count(tag)) for name, tag in counts.items()}
