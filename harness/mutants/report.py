"""What a person reads of a kernel's mutants: the score, what the cases would miss, and apart from it what is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bitverdict.harness.mutants.counts import count_ends
from bitverdict.harness.mutants.record import End, JudgedMutant

MOST_EQUIVALENT = 10  # listed, where there are more


def report(judged: Sequence[JudgedMutant], name: str, target: str, owner: str, seconds: float) -> str:
    """The report on `judged` mutants of the kernel `name`. `owner`: "your test" or "the contract". `seconds`: it took."""
    counts = count_ends(judged)
    by_end = Counter(each.result.end for each in judged)
    lines = [f"{name} on {target}: {len(judged)} mutants, {counts.live} live, {counts.killed_count} killed"]
    if counts.score is not None:
        lines[0] += f": score {100 * counts.score:.1f} %"
    if seconds > 0:
        lines[0] += f" ({counts.killed_count / seconds:.2g} kills a second)"
    if survivors := _with_end(judged, End.SURVIVAL):
        lines += ["", f"{owner} would miss {'this fault' if len(survivors) == 1 else f'these {len(survivors)} faults'}:"]
        lines += _listing_lines(survivors)
    elif counts.live:
        lines += ["", f"{owner} misses none of these"]
    if doubtful := _with_end(judged, End.DOUBTFUL):
        lines += ["", f"{len(doubtful)} doubtful: no proof that they can be noticed", *_listing_lines(doubtful)]
    if equivalent := _with_end(judged, End.EQUIVALENT):
        lines += ["", f"{len(equivalent)} equivalent: they compute what the kernel computes, and count for nothing"]
        lines += _listing_lines(equivalent[:MOST_EQUIVALENT])
        lines += [f"  and {len(equivalent) - MOST_EQUIVALENT} more"] if len(equivalent) > MOST_EQUIVALENT else []
    if errors := _with_end(judged, End.ERROR):
        lines += ["", f"{len(errors)} not judged, by an error of the harness or the machine", *_listing_lines(errors)]
    if invalid := by_end[End.INVALID]:
        lines += ["", f"{invalid} invalid: the compiler refuses them"]
    return "\n".join(lines)


def _with_end(judged: Iterable[JudgedMutant], end: End) -> list[JudgedMutant]:
    return sorted((each for each in judged if each.result.end is end), key=lambda each: (each.mutant.file, each.mutant.line))


def _listing_lines(judged: Iterable[JudgedMutant]) -> Iterator[str]:
    for entry in judged:
        mutant = entry.mutant
        yield f"  {mutant.file}:{mutant.line}: {mutant.operator}"
        yield f"    - {mutant.before}"
        yield f"    + {mutant.after}"
        if entry.result.why:
            yield f"    {entry.result.why}"
