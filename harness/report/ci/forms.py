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
from bitverdict.harness.report.ci.findings import ClauseFinding, JournalFindings

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ELEMENTS = {Decision.FAIL: "failure", Decision.ERROR: "error", Decision.PASS: ""}
MOST_FINDINGS = 50  # in the summary


def commands(findings: Iterable[ClauseFinding]) -> Iterator[str]:
    """GitHub's workflow commands, one for each finding."""
    for each in findings:
        where = f"file={_property(each.file)},line={each.line}," if each.file else ""
        yield f"::{'warning' if each.error else 'error'} {where}title={_property(each.title)}::{_data(each.description)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(journal_findings: JournalFindings) -> str:
    """The job's summary, in Markdown: what was judged by kernel and target, then each finding."""
    places: dict[tuple[str, str], Counter] = {}
    for each in journal_findings.judged:
        counts = places.setdefault((each.name, each.target), Counter())
        counts[each.verdict.decision] += 1
        counts["words"] += each.verdict.words
    shown = (Decision.PASS, Decision.FAIL, Decision.INCONCLUSIVE, Decision.ERROR, Decision.NOT_RUN)
    lines = ["## bitverdict", "", f"{len(journal_findings.judged)} cases judged, {len(journal_findings.findings)} findings", ""]
    lines += [f"| kernel | target | {' | '.join(shown)} | words compared |", f"| --- | --- |{' ---: |' * (len(shown) + 1)}"]
    for (name, target), counts in sorted(places.items()):
        numbers = " | ".join(str(counts[decision]) for decision in shown)
        lines.append(f"| {_cell(name)} | {target} | {numbers} | {counts['words']:,} |")
    for finding in journal_findings.findings[:MOST_FINDINGS]:
        file = finding.file.replace("`", "'")  # in a span of code nothing else is markup
        at = f" (`{file}:{finding.line}`)" if file else ""
        lines += ["", f"### {_cell(finding.title)}{at}", "", *(f"    {line}" for line in finding.description.splitlines())]
    if len(journal_findings.findings) > MOST_FINDINGS:
        lines += ["", f"{len(journal_findings.findings) - MOST_FINDINGS} more findings are in the SARIF file."]
    lines += [f"\nThis run did not come to its end: {path.name}" for path in journal_findings.unended_runs]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escape(" ".join(text.splitlines()), quote=False).replace("|", "\\|")


def sarif(journal_findings: JournalFindings) -> str:
    """A SARIF 2.1.0 log of one run: a rule for each clause, a result for each finding."""
    clauses = list(dict.fromkeys(each.clause for each in journal_findings.findings))
    rules = [{"id": _rule(clause), "shortDescription": {"text": clause}} for clause in clauses]
    driver = {"name": "bitverdict", "version": __version__, "rules": rules}
    invocation = {
        "executionSuccessful": not journal_findings.unended_runs and not any(each.error for each in journal_findings.findings)
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(each, clauses) for each in journal_findings.findings],
    }
    return json.dumps({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(clause_finding: ClauseFinding, clauses: list[str]) -> dict:
    name = hashlib.sha256(
        "\0".join([clause_finding.name, clause_finding.clause, clause_finding.outcome, clause_finding.file]).encode()
    ).hexdigest()[:32]
    result: dict = {
        "ruleId": _rule(clause_finding.clause),
        "ruleIndex": clauses.index(clause_finding.clause),
        "level": "warning" if clause_finding.error else "error",
        "message": {"text": f"{clause_finding.name}: {clause_finding.description}"},
        "partialFingerprints": {"bitverdict/v1": name},
        "properties": {"kernel": clause_finding.name, "cases": dict(clause_finding.cases)},
    }
    if clause_finding.file:
        region = {"startLine": max(clause_finding.line, 1)}
        result["locations"] = [
            {"physicalLocation": {"artifactLocation": {"uri": clause_finding.file.replace("\\", "/")}, "region": region}}
        ]
    return result


def _rule(clause: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in clause).split())


def junit(found: JournalFindings) -> str:
    """JUnit XML: a suite for each kernel on each target, a test case for each case."""
    root = ElementTree.Element("testsuites", name="bitverdict")
    suites: dict[str, ElementTree.Element] = {}
    for judged_case in found.judged:
        name = f"{judged_case.name}-{judged_case.target}"
        if name not in suites:
            suites[name] = ElementTree.SubElement(root, "testsuite", name=name)
        seconds = f"{judged_case.verdict.seconds.get('total', 0.0):.3f}"
        entry = ElementTree.SubElement(suites[name], "testcase", classname=name, name=_printable(judged_case.case), time=seconds)
        if kind := _ELEMENTS.get(judged_case.verdict.decision, "skipped"):
            said = _printable(f"{judged_case.verdict.outcome}: {judged_case.verdict.message}")
            ElementTree.SubElement(entry, kind, message=said, type=str(judged_case.verdict.outcome))
    for suite in suites.values():
        suite.set("tests", str(len(suite)))
        for kind, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
            suite.set(attribute, str(sum(entry.find(kind) is not None for entry in suite)))
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable() or c in "\n\t")
