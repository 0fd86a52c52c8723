"""A job's findings in the forms that CI services read: GitHub's workflow commands and Markdown, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape
from xml.etree import ElementTree

from bitverdict import __version__
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.report.ci.findings import Finding, Found

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ELEMENTS = {Decision.FAIL: "failure", Decision.ERROR: "error", Decision.PASS: ""}
MOST_FINDINGS = 50  # in the summary


def commands(findings: Iterable[Finding]) -> Iterator[str]:
    """GitHub's workflow commands, one for each finding."""
    for each in findings:
        where = f"file={_property(each.file)},line={each.line}," if each.file else ""
        yield f"::{'warning' if each.error else 'error'} {where}title={_property(each.title)}::{_data(each.told)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(found: Found) -> str:
    """The job's summary, in Markdown: what was judged by kernel and target, then each finding."""
    places: dict[tuple[str, str], Counter] = {}
    for each in found.judged:
        counts = places.setdefault((each.name, each.target), Counter())
        counts[each.verdict.decision] += 1
        counts["words"] += each.verdict.words
    shown = (Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE, Decision.ERROR, Decision.NOT_RUN)
    lines = ["## bitverdict", "", f"{len(found.judged)} cases judged, {len(found.findings)} findings", ""]
    lines += [f"| kernel | target | {' | '.join(shown)} | words compared |", f"| --- | --- |{' ---: |' * (len(shown) + 1)}"]
    for (name, target), counts in sorted(places.items()):
        numbers = " | ".join(str(counts[decision]) for decision in shown)
        lines.append(f"| {_cell(name)} | {target} | {numbers} | {counts['words']:,} |")
    for finding in found.findings[:MOST_FINDINGS]:
        file = finding.file.replace("`", "'")  # in a span of code nothing else is markup
        at = f" (`{file}:{finding.line}`)" if file else ""
        lines += ["", f"### {_cell(finding.title)}{at}", "", *(f"    {line}" for line in finding.told.splitlines())]
    if len(found.findings) > MOST_FINDINGS:
        lines += ["", f"{len(found.findings) - MOST_FINDINGS} more findings are in the SARIF file."]
    lines += [f"\nThis run did not come to its end: {path.name}" for path in found.unended]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escape(" ".join(text.splitlines()), quote=False).replace("|", "\\|")


def sarif(found: Found) -> str:
    """A SARIF 2.1.0 log of one run: a rule for each clause, a result for each finding."""
    clauses = list(dict.fromkeys(each.clause for each in found.findings))
    rules = [{"id": _rule(clause), "shortDescription": {"text": clause}} for clause in clauses]
    driver = {"name": "bitverdict", "version": __version__, "rules": rules}
    invocation = {"executionSuccessful": not found.unended and not any(each.error for each in found.findings)}
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": [_result(each, clauses) for each in found.findings]}
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(each: Finding, clauses: list[str]) -> dict:
    name = hashlib.sha256("\0".join([each.name, each.clause, each.outcome, each.file]).encode()).hexdigest()[:32]
    made: dict = {
        "ruleId": _rule(each.clause),
        "ruleIndex": clauses.index(each.clause),
        "level": "warning" if each.error else "error",
        "message": {"text": f"{each.name}: {each.told}"},
        "partialFingerprints": {"bitverdict/v1": name},
        "properties": {"kernel": each.name, "cases": dict(each.cases)},
    }
    if each.file:
        region = {"startLine": max(each.line, 1)}
        made["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": each.file.replace("\\", "/")}, "region": region}}]
    return made


def _rule(clause: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in clause).split())


def junit(found: Found) -> str:
    """JUnit XML: a suite for each kernel on each target, a test case for each case."""
    whole = ElementTree.Element("testsuites", name="bitverdict")
    suites: dict[str, ElementTree.Element] = {}
    for each in found.judged:
        name = f"{each.name}-{each.target}"
        if name not in suites:
            suites[name] = ElementTree.SubElement(whole, "testsuite", name=name)
        seconds = f"{each.verdict.seconds.get('total', 0.0):.3f}"
        entry = ElementTree.SubElement(suites[name], "testcase", classname=name, name=_printable(each.case), time=seconds)
        if kind := _ELEMENTS.get(each.verdict.decision, "skipped"):
            said = _printable(f"{each.verdict.outcome}: {each.verdict.message}")
            ElementTree.SubElement(entry, kind, message=said, type=str(each.verdict.outcome))
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
        for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(attribute, str(sum(entry.find(kind) is not None for entry in suite)))
    return ElementTree.tostring(whole, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
