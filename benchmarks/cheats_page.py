"""The page of `benchmarks/cheats.py`: its cheats by family, where each pattern is told, and how each ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from tests.faults.cheats.handed_in import HERE
from tests.faults.cheats.records import CHEATS, NOT_OURS, SOURCES, Cheat

NOT_RUN = "not run"
_HEAD = """# Cheats

Printed by `python -m benchmarks.cheats --page --results FILE`, from what `python -m benchmarks.cheats --results FILE` found.
Each cheat is a candidate in `tests/faults/cheats/`, written for this project from patterns of public lists. No code of theirs is in
it. Most are launchers of `matmul` around a kernel that computes the first of the k products alone. Without a cheat it fails.

A cheat must end as *fail*, *inconclusive*, *error*, a usage error or *nothing ran*, and what is said of it must be what its record
names: an error of the harness that ends a run is none of these. *Unsealed* says what the ordinary run makes of it, in the process
that judges: `pass` is why `--sealed` exists.

The sealed runs are of 2026-11-28, at commit 3513e72b, on 16 cores with bubblewrap, on emulated sm_90. The unsealed ones are of
2026-11-29, at 4a7a9000, of *Processes* at 57114df1, on 16 cores and on two. What is *not run* would harm the machine without a
seal: fill it, reach all of its processes, or leave files where others look.
"""


def page(known: Mapping[str, Mapping[str, str]]) -> str:
    """The page. `known`: by the id of a cheat and the run, how it ended."""
    return "\n".join([_HEAD, *_counts(known), *_families(known), *_sources(), *_left_out()]) + "\n"


def _counts(known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    yield "| run | cheats | pass | fail | inconclusive | other |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for run, said in (("unsealed", "unsealed, command line"), ("command", "sealed, command line"), ("pytest", "sealed, pytest")):
        words = [known.get(cheat.id, {}).get(run, NOT_RUN).partition(":")[0] for cheat in CHEATS]
        ran = [word for word in words if word not in ("-", NOT_RUN)]
        counts = [ran.count(word) for word in ("pass", "fail", "inconclusive")]
        yield f"| {said} | {len(ran)} | {' | '.join(map(str, counts))} | {len(ran) - sum(counts)} |"


def _families(known: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    for family, cheats in groupby(CHEATS, key=lambda cheat: cheat.family):
        yield f"\n## {family.replace('_', ' ').capitalize()}\n"
        said = (HERE / f"{family}.py").read_text().split('"""')[1].split("\n\n")[0]
        yield " ".join(said.split()) + "\n"
        yield "| cheat | pattern of | unsealed | sealed, command line | sealed, pytest | what shows it |"
        yield "| --- | --- | --- | --- | --- | --- |"
        for cheat in cheats:
            came = known.get(cheat.id, {})
            ended = " | ".join(came.get(run, NOT_RUN) for run in ("unsealed", "command", "pytest"))
            yield f"| {_name(cheat)} | {', '.join(cheat.sources)} | {ended} | {cheat.why} |"


def _name(cheat: Cheat) -> str:
    return cheat.name.replace("_", " ") + (f" ({cheat.task})" if cheat.task == "described" else "")


def _sources() -> Iterator[str]:
    yield "\n## Where the patterns are detected\n"
    yield "| name | address |\n| --- | --- |"
    for name, address in SOURCES.items():
        yield f"| {name} | {address or 'no list: it attacks what this project does and others do not'} |"


def _left_out() -> Iterator[str]:
    yield "\n## Patterns that are no cheats here\n"
    yield "| pattern | detected by | why |\n| --- | --- | --- |"
    for pattern, sources, why in NOT_OURS:
        yield f"| {pattern} | {', '.join(sources)} | {why} |"
