"""A job's findings in the forms that CI services read: GitHub's workflow commands and Markdown, SARIF 2.1.0, JUnit XML."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from html import escape

from bitverdict import __version__
from bitverdict.harness.model.log_lines import case_count, count_text
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.report.ci.findings import ClauseFinding, JournalFindings
from bitverdict.harness.session.result_files import JUnit, printable

SARIF_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
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
    findings = count_text(len(journal_findings.findings), "finding")
    lines = ["## bitverdict", "", f"{case_count(len(journal_findings.judged))} judged, {findings}", ""]
    lines += [f"| kernel | target | {' | '.join(shown)} | words compared |", f"| --- | --- |{' ---: |' * (len(shown) + 1)}"]
    for (name, target), counts in sorted(places.items()):
        numbers = " | ".join(str(counts[decision]) for decision in shown)
        lines.append(f"| {_cell(name)} | {target} | {numbers} | {counts['words']:,} |")
    for entry in journal_findings.findings[:MOST_FINDINGS]:
        file = entry.file.replace("`", "'")  # in a span of code nothing else is markup
        at = f" (`{file}:{entry.line}`)" if file else ""
        lines += ["", f"### {_cell(entry.title)}{at}", "", *(f"    {line}" for line in entry.description.splitlines())]
    if len(journal_findings.findings) > MOST_FINDINGS:
        lines += ["", f"{len(journal_findings.findings) - MOST_FINDINGS} more findings are in the SARIF file."]
    lines += [f"\nThis run did not come to its end: {path.name}" for path in journal_findings.unended_runs]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return escape(" ".join(text.splitlines()), quote=False).replace("|", "\\|")


def sarif(journal_findings: JournalFindings) -> str:
    """A SARIF 2.1.0 log of one run: a rule for each clause, a result for each finding."""
    clauses = list(dict.fromkeys(entry.clause for entry in journal_findings.findings))
    rules = [{"id": _rule(clause), "shortDescription": {"text": clause}} for clause in clauses]
    driver = {"name": "bitverdict", "version": __version__, "rules": rules}
    invocation = {
        "executionSuccessful": not journal_findings.unended_runs and not any(entry.error for entry in journal_findings.findings)
    }
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "results": [_result(entry, clauses) for entry in journal_findings.findings],
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
    xml = JUnit()
    for judged_case in found.judged:
        xml.add(judged_case.name, judged_case.target, printable(judged_case.case), judged_case.verdict)
    return xml.text() + "\n"
