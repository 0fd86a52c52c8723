"""Honest launchers pass sealed exactly as unsealed: each judged both ways on one emulated target, case by case.

Run: `python -m benchmarks.sealed_honest [--cases 2] [--target emulated:sm_90] [--jobs N] [NAME ...]`. The launchers are those of
`tests/support/honest_launchers/listed.py`; NAME is a part of the name of one. Compared are decision, outcome, message, the count of
words and their digests, and the line. Exit status 1 where a launcher differs in any of its cases, or cannot be judged sealed.
N is one job a core by default, on a real GPU no more than its memory has room for. The last line says where the time went.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.campaign import parse, run_script
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Decision, Verdict, normalise_message
from bitverdict.harness.sealed.jail.protections import protections
from bitverdict.harness.workers.gpu_lease import free_places
from bitverdict.harness.workers.pool import WorkerPool
from tests.support.honest_launchers.listed import Honest, listed

CASES = 2
Chosen = tuple[Honest, Case | UsageError | str]


@dataclass
class Seconds:
    """Where the time of a run went, by what was done meanwhile; places add up what they did side by side."""

    spent: Counter[str] = field(default_factory=Counter)
    _adding: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def of(self, what: str) -> Iterator[None]:
        begun = time.monotonic()
        yield
        with self._adding:
            self.spent[what] += time.monotonic() - begun

    def __str__(self) -> str:
        return ", ".join(f"{what} {seconds:.0f} s" for what, seconds in self.spent.most_common())


def compared(verdict: Verdict) -> dict[str, object]:
    """What of a verdict must not hang on whether the launcher was sealed."""
    return {
        "decision": str(verdict.decision),
        "outcome": str(verdict.outcome),
        "message": normalise_message(verdict.message),
        "words": verdict.words,
        "digests": verdict.recorded.get("digests", {}),
        "location": Path(verdict.location).name,
    }


def differing(sealed: Verdict, unsealed: Verdict, there: Target) -> dict[str, tuple[object, object]]:
    """(sealed, unsealed) of each that differs. On a real GPU the emulated launch beside a sealed one gives real values, also of
    later calls, so that more words can be decided: fewer may not."""
    one, other = compared(sealed), compared(unsealed)
    found = {name: (one[name], other[name]) for name in one if one[name] != other[name]}
    if not there.emulated and sealed.words > unsealed.words:
        del found["words"]
    return found


def cases_of(honest: Honest, there: Target, most: int) -> list[Case]:
    """The first cases of a launcher, sealed, from all over its required ones."""
    cases = honest.source(there).required()
    step = max(len(cases) // most, 1)
    return cases[::step][:most]


def _chosen(honest: Honest, there: Target, most: int) -> list[Chosen]:
    """Its cases; instead of them what the target lacks, or why it cannot be judged."""
    try:
        if lacking := honest.source(there).unserved_reason:
            return [(honest, lacking)]
        return [(honest, case) for case in cases_of(honest, there, most)]
    except UsageError as error:
        return [(honest, error)]


def most_jobs(there: Target) -> int:
    """One a core; on a real GPU as many of them as its memory has room for."""
    cores = len(os.sched_getaffinity(0))
    return cores if there.emulated else max(1, min(cores, len(free_places([there]))))


def main() -> int:
    arguments = parse(__doc__, "names*", cases=CASES, target="emulated:sm_90", jobs=int)
    there = target(arguments.target)
    jobs = arguments.jobs or most_jobs(there)
    same, differ, begun, seconds = Counter[str](), Counter[str](), time.monotonic(), Seconds()
    decisions, cases = Counter[str](), 0
    print(protections().sentence(), flush=True)
    with tempfile.TemporaryDirectory() as folder, WorkerPool(jobs=jobs) as pool:
        chosen = [
            honest for honest in listed(Path(folder)) if not arguments.names or any(n in honest.name for n in arguments.names)
        ]

        def work() -> Iterator[Chosen]:
            for honest in chosen:
                with seconds.of("choosing cases"):
                    items = _chosen(honest, there, arguments.cases)
                yield from items

        def judged(item: Chosen, place: int) -> tuple[Honest, str, str]:
            honest, case = item
            if isinstance(case, UsageError):
                return honest, f"cannot be judged: {case}", ""
            if isinstance(case, str):
                return honest, "", case
            with seconds.of("judging sealed"):
                sealed = pool.judge(case, there, place=place)
            with seconds.of("judging unsealed"):
                unsealed = pool.judge(replace(case, sealed=False), there, place=place)
            found = differing(sealed, unsealed, there)
            said = "".join(f"\n    {name}: sealed {one!r:.300}, unsealed {other!r:.300}" for name, (one, other) in found.items())
            return honest, f"{case.to_json()}{said}"[-1500:] if found else "", str(unsealed.decision)

        bad: dict[str, str] = {}
        seen: dict[str, str] = {}
        for honest, difference, decision in pool.spread(work(), judged):
            seen[honest.name] = honest.group
            cases += 1
            decisions[decision or "cannot be judged"] += 1
            if difference and honest.name not in bad:
                bad[honest.name] = difference
                print(f"{honest.group}: {honest.name}\n  {difference}", flush=True)
        for name, group in seen.items():
            (differ if name in bad else same)[group] += 1
    print(f"\n{'group':24s} {'same':>5s} {'differ':>7s}")
    for group in dict.fromkeys([*same, *differ]):
        print(f"{group:24s} {same[group]:5d} {differ[group]:7d}")
    told = ", ".join(f"{count} {decision}" for decision, count in decisions.most_common())
    print(f"{same.total()} of {same.total() + differ.total()} launchers are judged alike, by {cases} cases unsealed: {told}")
    print(f"on {there.name}, {time.monotonic() - begun:.0f} s by {jobs} jobs: {seconds}")
    return int(differ.total() > 0 or decisions[str(Decision.PASS)] == 0)


if __name__ == "__main__":
    run_script(main)
