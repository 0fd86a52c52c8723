"""The figures of `docs/replay.md`, from the results of a run."""

from __future__ import annotations

from bitverdict.harness.report.launch_replay.summary import Summary, lines

FIGURES = "<!-- figures: written by benchmarks/corpus_replay.py --page -->", "<!-- end of figures -->"


def page(text: str, told: Summary, of: str) -> str:
    """`text` of the page with the figures of a run in their place; `of` says which commit, machine and date. ValueError where the
    page has no place for them."""
    begin, end = FIGURES
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"the page has no {begin!r} followed by {end!r}")
    return f"{head}{begin}\n{of}\n\n{table(told)}\n{end}{tail}"


def table(told: Summary) -> str:
    """What a reader asks for first, a line each; below it what differs or was not compared."""
    rows = (
        ("launches compared", told.launches),
        ("kernels", told.kernels),
        ("words compared", told.words),
        ("words written", told.written),
        ("words that differ, outside of enclosures", told.differing),
        ("words enclosed", told.enclosed),
        ("of these another word than the emulated GPU's", told.enclosed_differing),
        ("of these outside of their bounds", told.outside),
        ("launches with atomics, among those compared", told.with_atomics),
        ("launches not compared", sum(told.not_compared.values())),
        ("launches that the GPU did not run to the end", len(told.raised)),
        ("launches lost on the way", told.lost),
    )
    listed = "\n".join(["| what | count |", "| --- | --- |", *(f"| {name} | {count:,} |" for name, count in rows)])
    return listed + "\n\n" + "\n".join(f"- {line}" for line in lines(told)[1:])


__all__ = ["FIGURES", "page"]
