"""What pytest's last lines say: words compared by kernel and type, what did not run and for which missing feature.

Nodes tell by `user_properties`, which come through xdist: "tally" is JSON, [kernel, type, cases, words, words with K of 4,096 or
more] a row; "not_run" a sentence.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

DEEP = 4096


def tally_row(kernel: str, kind: str, cases: int, words: int, k: int) -> list:
    return [kernel, kind, cases, words, words if k >= DEEP else 0]


def tallied(rows: Iterable[list]) -> str:
    """Rows summed by kernel and type, as the text of a property."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kernel, kind, *counts in rows:
        kept = sums.setdefault((kernel, kind), [0] * len(counts))
        sums[kernel, kind] = [a + b for a, b in zip(kept, counts, strict=True)]
    return json.dumps([[*key, *counts] for key, counts in sums.items()])


def lines(reports: Iterable[Any]) -> Iterator[str]:
    """The lines, of the reports of all nodes, whatever came of them. Only words of nodes that passed are said to agree."""
    passed, not_run, convicted = [], Counter[str](), 0
    for report in reports:
        properties = report.user_properties
        told = [row for name, value in properties if name == "tally" for row in json.loads(value)]
        if report.passed:
            passed += told
        convicted += report.failed and any(name == "judged" for name, _ in properties)
        not_run.update(value for name, value in properties if name == "not_run")
    rows = json.loads(tallied(passed))
    if rows:
        yield "output words compared and equal, by kernel and type (those with K of 4,096 or more):"
    for kernel, kind, cases, words, deep in sorted(rows):
        said = f"{words:>14,} words ({deep:,})" if words else "refusals and faults that are owed: no words"
        yield f"  {kernel:<24} {kind:<10} {cases:>6,} cases {said}"
    if rows or convicted:
        words, deep = sum(row[3] for row in rows), sum(row[4] for row in rows)
        fewest = min((row[3] for row in rows if row[3]), default=0)
        yield (
            f"{words:,} words compared and equal, {deep:,} of them with K of 4,096 or more, {fewest:,} or more in every kernel and "
            f"type that ran; {convicted} nodes failed"
        )
    for sentence, nodes in sorted(not_run.items()):
        yield f"not run: {sentence}" + (f" ({nodes} nodes)" if nodes > 1 else "")
