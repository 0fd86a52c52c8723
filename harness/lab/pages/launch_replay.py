"""The figures of `docs/replay.md`, from the results of a run."""

from __future__ import annotations

from bitverdict.harness.report.launch_replay.summary import Summary, lines

FIGURES = "<!-- figures: written by benchmarks/corpus_replay.py --page -->", "<!-- end of figures -->"


def page(text: str, summary: Summary, run_label: str) -> str:
    """`text` of the page with the figures of a run in their place; `of` says which commit, machine and date. ValueError where the
    page has no place for them."""
    begin, end = FIGURES
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {begin!r} followed by {end!r}")
    return f"{head}{begin}\n{run_label}\n\n{table(summary)}\n{end}{tail}"


def table(summary: Summary) -> str:
    """What a reader asks for first, a line each; below it what differs or was not compared."""
    rows = (
        ("launches compared", summary.launches),
        ("kernels", summary.kernels),
        ("words compared", summary.words),
        ("words written", summary.written),
        ("words that differ, outside of enclosures", summary.differing),
        ("words enclosed", summary.enclosed),
        ("of these another word than the emulated GPU's", summary.enclosed_differing),
        ("of these outside of their bounds", summary.outside),
        ("launches with atomics, among those compared", summary.with_atomics),
        ("launches not compared", sum(summary.not_compared.values())),
        ("launches that the GPU did not run to the end", len(summary.raised_rows)),
        ("launches lost on the way", summary.lost_launches),
    )
    listed = "\n".join(["| what | count |", "| --- | --- |", *(f"| {name} | {count:,} |" for name, count in rows)])
    return listed + "\n\n" + "\n".join(f"- {line}" for line in lines(summary)[1:])


__all__ = ["FIGURES", "page"]
