"""What a person reads of a kernel's mutants: the score, what the cases would miss, and apart from it what is doubtful."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from bitverdict.harness.mutants.counts import counted
from bitverdict.harness.mutants.record import End, Judged

MOST_EQUIVALENT = 10  # listed, where there are more


def report(judged: Sequence[Judged], name: str, target: str, whose: str, seconds: float) -> str:
    """The report on `judged` mutants of the kernel `name`. `whose`: "your test" or "the contract". `seconds`: it took."""
    counts = counted(judged)
    by_end = Counter(each.result.end for each in judged)
    lines = [f"{name} on {target}: {len(judged)} mutants, {counts.live} live, {counts.killed} killed"]
    if counts.score is not None:
        lines[0] += f": score {100 * counts.score:.1f} %"
    if seconds > 0:
        lines[0] += f" ({counts.killed / seconds:.2g} kills a second)"
    if survivors := _of(judged, End.SURVIVED):
        lines += ["", f"{whose} would miss {'this fault' if len(survivors) == 1 else f'these {len(survivors)} faults'}:"]
        lines += _listed(survivors)
    elif counts.live:
        lines += ["", f"{whose} misses none of these"]
    if doubtful := _of(judged, End.DOUBTFUL):
        lines += ["", f"{len(doubtful)} doubtful: nobody has proved that they can be noticed", *_listed(doubtful)]
    if equivalent := _of(judged, End.EQUIVALENT):
        lines += ["", f"{len(equivalent)} equivalent: they compute what the kernel computes, and count for nothing"]
        lines += _listed(equivalent[:MOST_EQUIVALENT])
        lines += [f"  and {len(equivalent) - MOST_EQUIVALENT} more"] if len(equivalent) > MOST_EQUIVALENT else []
    if errors := _of(judged, End.ERROR):
        lines += ["", f"{len(errors)} not judged, by an error of the harness or the machine", *_listed(errors)]
    if invalid := by_end[End.INVALID]:
        lines += ["", f"{invalid} invalid: the compiler refuses them"]
    return "\n".join(lines)


def _of(judged: Iterable[Judged], end: End) -> list[Judged]:
    return sorted((each for each in judged if each.result.end is end), key=lambda each: (each.mutant.file, each.mutant.line))


def _listed(judged: Iterable[Judged]) -> Iterator[str]:
    for each in judged:
        mutant = each.mutant
        yield f"  {mutant.file}:{mutant.line}: {mutant.operator}"
        yield f"    - {mutant.before}"
        yield f"    + {mutant.after}"
        if each.result.why:
            yield f"    {each.result.why}"
