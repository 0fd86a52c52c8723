"""What was found, as lines of a report and of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from bitverdict.harness.checks.invariance.invariance_finding import End, InvarianceFinding
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.report.invariance.campaign import Examination
from bitverdict.harness.session.case_line import describe

ORDER = (End.FAULT, End.DIFFERS, End.NOT_DECIDED, End.SAME_WORDS, End.NOT_APPLICABLE)
"""The worst first: what a check of several calls came to."""


def report(rows: Iterable[Examination], *, is_full: bool = False) -> Iterator[str]:
    """A block for each kernel and target: a line a check, below it the first that fails or differs. `is_full`: every finding."""
    places: dict[tuple[str, str], list[Examination]] = {}
    for row in rows:
        places.setdefault((row.name, row.target), []).append(row)
    for (name, target), found in places.items():
        yield f"{name} on {target}, {len(found)} cases"
        for check in dict.fromkeys(each.check for row in found for each in row.findings):
            yield from _of_a_check(check, [(row, each) for row in found for each in row.findings if each.check == check], is_full)


def _of_a_check(check: str, findings: Sequence[tuple[Examination, InvarianceFinding]], is_full: bool) -> Iterator[str]:
    worst = min((check_finding.end for _, check_finding in findings), key=ORDER.index)
    row, worst_finding = next((row, check_finding) for row, check_finding in findings if check_finding.end is worst)
    counts = {end: sum(check_finding.end is end for _, check_finding in findings) for end in ORDER}
    if worst is End.NOT_APPLICABLE:
        yield f"  {check}: not applicable: {worst_finding.reason}"
    else:
        words = sum(check_finding.compared for _, check_finding in findings)
        told = ", ".join(f"{count} {end}" for end, count in counts.items() if count)
        fails = any(check_finding.fails for _, check_finding in findings)
        yield (
            f"  {check}: "
            f"{'FAIL' if fails else 'pass' if worst is End.SAME_WORDS else 'information'}: {told}; {words:,} words compared"
        )
        if worst is not End.SAME_WORDS:
            yield f"    {worst_finding.changed}: {worst_finding.sentence}"
            yield f"    case: {describe(row.case)}"
    for _, check_finding in findings if is_full else ():
        yield f"    {check_finding.end}: {check_finding.changed}: {check_finding.sentence}"


def line(row: Examination) -> str:
    """One case, as JSON."""
    return line_of(row.name, row.target, row.case, row.findings, row.verdict)


def line_of(name: str, target: str, case: Case, findings: Sequence[InvarianceFinding], verdict: Verdict) -> str:
    """What came of a case of the kernel `name`, as JSON."""
    found = {"kernel": name, "target": target, "case": case.to_json(), "decision": str(verdict.decision)}
    return json.dumps(found | {"message": verdict.message, "findings": [each.to_json() for each in findings]})
