"""What was found, as lines of a report and of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from bitverdict.harness.checks.invariance.finding import End, Finding
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.report.invariance.campaign import Examined
from bitverdict.harness.session.case_line import describe

ORDER = (End.FAULT, End.DIFFERS, End.NOT_DECIDED, End.SAME, End.NOT_APPLICABLE)
"""The worst first: what a check of several calls came to."""


def report(rows: Iterable[Examined], *, whole: bool = False) -> Iterator[str]:
    """A block for each kernel and target: a line a check, below it the first that fails or differs. `whole`: every finding."""
    places: dict[tuple[str, str], list[Examined]] = {}
    for row in rows:
        places.setdefault((row.name, row.target), []).append(row)
    for (name, target), found in places.items():
        yield f"{name} on {target}, {len(found)} cases"
        for check in dict.fromkeys(each.check for row in found for each in row.findings):
            yield from _of_a_check(check, [(row, each) for row in found for each in row.findings if each.check == check], whole)


def _of_a_check(check: str, found: Sequence[tuple[Examined, Finding]], whole: bool) -> Iterator[str]:
    worst = min((each.end for _, each in found), key=ORDER.index)
    row, first = next((row, each) for row, each in found if each.end is worst)
    counts = {end: sum(each.end is end for _, each in found) for end in ORDER}
    if worst is End.NOT_APPLICABLE:
        yield f"  {check}: not applicable: {first.reason}"
    else:
        words = sum(each.compared for _, each in found)
        told = ", ".join(f"{count} {end}" for end, count in counts.items() if count)
        fails = any(each.fails for _, each in found)
        yield f"  {check}: {'FAIL' if fails else 'pass' if worst is End.SAME else 'information'}: {told}; {words:,} words compared"
        if worst is not End.SAME:
            yield f"    {first.changed}: {first.told}"
            yield f"    case: {describe(row.case)}"
    for _, each in found if whole else ():
        yield f"    {each.end}: {each.changed}: {each.told}"


def line(row: Examined) -> str:
    """One case, as JSON."""
    return line_of(row.name, row.target, row.case, row.findings, row.verdict)


def line_of(name: str, target: str, case: Case, findings: Sequence[Finding], verdict: Verdict) -> str:
    """What came of a case of the kernel `name`, as JSON."""
    found = {"kernel": name, "target": target, "case": case.to_json(), "decision": str(verdict.decision)}
    return json.dumps(found | {"message": verdict.message, "findings": [each.to_json() for each in findings]})
