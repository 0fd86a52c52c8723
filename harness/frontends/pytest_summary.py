"""What pytest's last lines say: words compared by kernel and type, what did not run and why, where the time went.

Nodes tell by `user_properties`, which come through xdist: "tally" is JSON, [kernel, type, cases, words, words with K of 4,096 or
more] a row; "not_run" a sentence; "not tested" what the required cases of a described kernel should ask and cannot, or its launcher
excludes, the same of all targets told once; "seconds" is JSON, of the cases' seconds by bucket; "exposed faults" and
"certificates", where they are asked, are JSON: counts of what cases exposed, and lines of each case.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

DEEP_K = 4096
HTML = "html"  # the property that holds what a page tells of a node, as JSON
LONG_SESSION, SHOWN_FILES, SLOWEST = 60.0, 12, 5  # seconds from which a session says where its time went; files and nodes it names


def tally_row(kernel: str, kind: str, cases: int, words: int, k: int) -> list:
    return [kernel, kind, cases, words, words if k >= DEEP_K else 0]


def tally_text(rows: Iterable[list]) -> str:
    """Rows summed by kernel and type, as the text of a property."""
    sums: dict[tuple[str, str], list[int]] = {}
    for kernel, kind, *counts in rows:
        kept = sums.setdefault((kernel, kind), [0] * len(counts))
        sums[kernel, kind] = [a + b for a, b in zip(kept, counts, strict=True)]
    return json.dumps([[*key, *counts] for key, counts in sums.items()])


def lines(reports: Iterable[Any]) -> Iterator[str]:
    """The lines, of the reports of all nodes, whatever came of them. Only words of nodes that passed are said to agree."""
    passed_rows, not_run, not_asked_counts, failed_count = [], Counter[str](), Counter[str](), 0
    reports = list(reports)
    for report in reports:
        properties = report.user_properties
        told = [row for name, value in properties if name == "tally" for row in json.loads(value)]
        if report.passed:
            passed_rows += told
        failed_count += report.failed and any(name == "judged" for name, _ in properties)
        not_run.update(value for name, value in properties if name == "not_run")
        not_asked_counts.update(value for name, value in properties if name == "not tested")
    yield from drawn_lines(reports)
    rows = json.loads(tally_text(passed_rows))
    if rows:
        yield "output words compared and equal, by kernel and type (those with K of 4,096 or more):"
    for kernel, kind, cases, words, deep_words in sorted(rows):
        said = f"{words:>14,} words ({deep_words:,})" if words else "refusals and faults that are expected: no words"
        yield f"  {kernel:<24} {kind:<10} {cases:>6,} {'cases' if cases > 1 else 'case '} {said}"
    if rows or failed_count:
        words, deep_words = sum(row[3] for row in rows), sum(row[4] for row in rows)
        fewest = min((row[3] for row in rows if row[3]), default=0)
        yield (
            f"{words:,} words compared and equal, {deep_words:,} of them with K of 4,096 or more, "
            f"{fewest:,} or more in every kernel and "
            f"type that ran; {failed_count} nodes failed"
        )
    for label, counts in (("not run", not_run), ("not tested", not_asked_counts)):
        for sentence, nodes in sorted(counts.items()):
            yield f"{label}: {sentence}" + (f" ({nodes} nodes)" if nodes > 1 else "")


def drawn_lines(reports: Iterable[Any]) -> Iterator[str]:
    """How many cases the nodes that passed judged because they are required, and how many because Hypothesis drew them."""
    told = [dict(report.user_properties) for report in reports if report.passed]
    nodes = [properties for properties in told if "drawn" in properties and "cases" in properties]
    if nodes:
        drawn = sum(properties["drawn"] for properties in nodes)
        required = sum(properties["cases"] for properties in nodes) - drawn
        yield f"{len(nodes)} nodes that passed judged {required:,} required cases and {drawn:,} drawn ones"
    for properties in nodes:
        if "few drawn" in properties:
            yield f"few drawn: {properties['few drawn']}"


def certificate_lines(reports: Iterable[Any]) -> Iterator[str]:
    """What the passing cases of all nodes exposed: of each case, where that was asked, of each contract, and of each target."""
    from bitverdict.harness.session.discrimination import Discrimination
    from bitverdict.harness.session.tables import text_of

    discrimination = Discrimination()
    for report in reports:
        for name, value in report.user_properties:
            if name == "certificates":
                yield from json.loads(value)
            elif name == "exposed faults":
                discrimination.add(json.loads(value))
    if discrimination.places:
        yield from text_of(discrimination.table()).splitlines()
        yield from discrimination.lines()


def write_html(path: Path, reports: Iterable[Any]) -> None:
    """The page of all nodes, whatever came of them."""
    from bitverdict.harness.report.collect import header, merge_runs
    from bitverdict.harness.report.page import write_page

    parts = [json.loads(value) for report in reports for name, value in report.user_properties if name == HTML]
    write_page(path, merge_runs(parts), header())


def time_lines(reports: Iterable[Any], *, least: float = LONG_SESSION) -> Iterator[str]:
    """Where the time of a session of `least` seconds went: seconds of all workers by test file, of judged cases by bucket, and the
    nodes that took longest. "lease": a GPU's place was waited for."""
    files: Counter = Counter()  # float seconds
    buckets: Counter = Counter()
    nodes: list[tuple[float, str, dict[str, float]]] = []
    for report in reports:
        files[report.nodeid.partition("::")[0].rpartition("/")[2]] += report.duration
        for name, value in report.user_properties if report.when == "call" else ():
            if name == "seconds":
                spent = json.loads(value)
                buckets.update(spent)
                nodes.append((report.duration, report.nodeid.partition("[")[2].rstrip("]"), spent))
    if (total := files.total()) < least:
        return
    shown = files.most_common(SHOWN_FILES)
    yield f"where {total:.0f} s of all workers went, by test file:"
    others = [("the others", total - sum(seconds for _, seconds in shown))] if len(files) > SHOWN_FILES else []
    for name, seconds in [*shown, *others]:
        yield f"  {name:<44} {seconds:>7.1f} s {seconds / total:>5.0%}"
    if buckets:
        whole = buckets.pop("total", 0.0)
        yield f"judged cases, {whole:.0f} s: {_by_bucket(buckets)}"
    for took, name, spent in sorted(nodes, key=lambda node: -node[0])[:SLOWEST]:
        spent.pop("total", None)
        yield f"  {name:<44} {took:>7.1f} s: {_by_bucket(Counter(spent))}"


def _by_bucket(buckets: Counter) -> str:
    """Seconds by bucket, the most first, without those that round to none."""
    return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in buckets.most_common() if seconds >= 0.05)
