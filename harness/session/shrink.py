"""The smallest case that shows the same bug, the signature held: outcome, message without its numbers, line.

Verdicts are remembered by case, so that whoever shrinks sees a function (a race would have it shrink noise) and walks over what is
already judged for nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session.case_source import CaseSource, walk
from bitverdict.harness.session.deadline import Clock
from bitverdict.harness.session.reducer import Reducer


class KernelFailed(Exception):
    """Base of one exception class a signature: Hypothesis tells bugs apart by class and line, never by message."""

    signature: tuple[str, str, str]


_kinds: dict[tuple[str, str, str], type[KernelFailed]] = {}


def failure_class(signature: tuple[str, str, str]) -> type[KernelFailed]:
    """The exception class of a bug; the same object for the same signature."""
    if signature not in _kinds:
        name = "".join(part for part in signature[0].title() if part.isalnum()) or "Bug"
        _kinds[signature] = type(f"{name}{len(_kinds)}", (KernelFailed,), {"signature": signature})
    return _kinds[signature]


class VerdictCache:
    """Verdicts by (target, case); `judge` is asked once for each."""

    def __init__(self, judge: Callable[[Case], Verdict]) -> None:
        self.judge, self.known = judge, dict[str, Verdict]()
        self.asked = 0

    def __call__(self, case: Case) -> Verdict:
        if case.key not in self.known:
            self.asked += 1
            self.known[case.key] = self.judge(case)
        return self.known[case.key]


def shrink(
    source: CaseSource,
    case: Case,
    verdict: Verdict,
    judge: VerdictCache,
    *,
    draws: int,
    seconds: float,
    clock: Clock = time.monotonic,
) -> tuple[Case, Verdict]:
    """A smaller case of `source` with the signature of `verdict` (or the same one), within about `seconds` of
    `clock`.

    Fields first (`bitverdict.harness.session.reducer`): a few dozen launches, and the same end whatever the beginning. Where no
    field can be made smaller, because the contract's records are of another kind, Hypothesis shrinks its own draws."""
    end = clock() + seconds

    def shows(candidate: Case) -> bool | None:
        """None when the time is over and `candidate` was not judged before."""
        if source.launcher and source.prepare(candidate) != candidate:
            return False  # a user's launcher is not asked this
        if candidate.key not in judge.known and clock() > end:
            return None
        found = judge(candidate)
        return found.failed and found.signature == verdict.signature

    best = Reducer(source.contract, source.target, shows).least(case)
    if best == case and draws and clock() < end:
        best = _by_draws(source, case, verdict, shows, draws)
    return best, judge(best)


def _by_draws(source: CaseSource, case: Case, verdict: Verdict, shows: Callable[[Case], bool | None], draws: int) -> Case:
    """What Hypothesis makes of its own draws: it walks them again, the verdicts known, and shrinks the first with the bug."""
    best, failure_type = case, failure_class(verdict.signature)

    def visit(candidate: Case) -> None:
        nonlocal best
        if shows(candidate):
            best = candidate  # the last one raised is the smallest: Hypothesis runs it once more at its end
            raise failure_type(verdict.message)

    try:
        walk(source, draws, visit, phases=("generate", "shrink"))
    except KernelFailed:
        pass
    except Exception as error:
        if "Flaky" not in type(error).__name__:  # the end of the time makes candidates pass that failed before
            raise
    return best
