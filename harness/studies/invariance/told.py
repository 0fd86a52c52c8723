"""What was found, as lines of a report and of JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from bitverdict.harness.judge.invariance.finding import End, Finding
from bitverdict.harness.session.case_line import describe
from bitverdict.harness.studies.invariance.campaign import Examined

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
    found = {"kernel": row.name, "target": row.target, "case": row.case.to_json()}
    end = {"decision": str(row.verdict.decision), "message": row.verdict.message}
    return json.dumps(found | end | {"findings": [each.to_json() for each in row.findings]})
