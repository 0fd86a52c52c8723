"""The smallest case that shows the same bug: Hypothesis walks the same draws again and shrinks, the signature held.

Verdicts are remembered by case, so that Hypothesis sees a function (a race would have it shrink noise) and walks over what is
already judged for nothing. Then, and for a case of the cover list, which Hypothesis never drew, single fields are made smaller.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator

from harness.contract import Case
from harness.docket import Docket, walk
from harness.verdict import Verdict

_kinds: dict[tuple[str, str, str], type[Exception]] = {}


class Convicted(Exception):
    """Base of one exception class a signature: Hypothesis tells bugs apart by class and line, never by message."""


def conviction_class(signature: tuple[str, str, str]) -> type[Exception]:
    """The exception class of a bug; the same object for the same signature."""
    if signature not in _kinds:
        name = "".join(part for part in signature[0].title() if part.isalnum()) or "Bug"
        _kinds[signature] = type(f"{name}{len(_kinds)}", (Convicted,), {"signature": signature})
    return _kinds[signature]


class Memory:
    """Verdicts by (target, case); `judge` is asked once for each."""

    def __init__(self, judge: Callable[[Case], Verdict]) -> None:
        self.judge, self.known = judge, dict[str, Verdict]()
        self.asked = 0

    def __call__(self, case: Case) -> Verdict:
        if case.key not in self.known:
            self.asked += 1
            self.known[case.key] = self.judge(case)
        return self.known[case.key]


def shrink(docket: Docket, case: Case, verdict: Verdict, judge: Memory, *, draws: int, seconds: float) -> tuple[Case, Verdict]:
    """A smaller case of `docket` with the signature of `verdict` (or the same one), within about `seconds`."""
    end = time.monotonic() + seconds
    best, wanted = case, conviction_class(verdict.signature)

    def visit(candidate: Case) -> None:
        nonlocal best
        if candidate.key not in judge.known and time.monotonic() > end:
            return
        found = judge(candidate)
        if found.convicted and found.signature == verdict.signature:
            best = candidate  # the last one raised is the smallest: Hypothesis runs it once more at its end
            raise wanted(found.message)

    try:
        walk(docket, draws, visit, shrink=True)
    except Convicted:
        pass
    except Exception as error:
        if "Flaky" not in type(error).__name__:  # the end of the time makes candidates pass that failed before
            raise
    best = _by_field(docket, best, verdict, judge, end) if time.monotonic() < end else best
    return best, judge(best)


def _by_field(docket: Docket, case: Case, verdict: Verdict, judge: Memory, end: float) -> Case:
    """`case` with fields replaced by smaller ones as long as the same bug shows; legal cases that owe a result only."""
    progress = True
    while progress and time.monotonic() < end:
        progress = False
        for candidate in _smaller(case):
            if time.monotonic() > end:
                break
            try:
                legal = docket.contract.owed(candidate, docket.target).result
            except (ValueError, TypeError, ArithmeticError):
                continue
            found = judge(candidate) if legal else None
            if found is not None and found.convicted and found.signature == verdict.signature:
                case, progress = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases one field away: plainer schedule and data first, then each integer of the problem nearer to 0."""
    plainer = (
        dataclasses.replace(case, schedule="eager"),
        dataclasses.replace(case, regime="normal"),
        dataclasses.replace(case, data_seed=0),
    )
    yield from (candidate for candidate in plainer if candidate != case)
    if not dataclasses.is_dataclass(case.problem) or isinstance(case.problem, type):
        return
    for field in dataclasses.fields(case.problem):
        value = getattr(case.problem, field.name)
        if type(value) is int and value > 1:
            for less in sorted({1, value // 2, value - value % 16 if value % 16 else value - 16, value - 1} - {value}):
                if 0 < less < value:
                    yield dataclasses.replace(case, problem=dataclasses.replace(case.problem, **{field.name: less}))
