"""Which of the cases of a run are judged: those that an expression names, one in a line, or those that failed the last time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import case_from_record
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.session.case_filter import Expression, Words, words_of
from bitverdict.harness.session.case_line import case_of, describe
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.last_run import LastRun, last_runs


@dataclass(frozen=True)
class Selection:
    """`expression` of ``-k``, `line` of ``--case``, `last_failed` of ``--lf``; `before`: what happened in older journals counts."""

    expression: str | None = None
    line: str = ""
    last_failed: bool = False
    before: str = ""

    def of(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        """`sources` with the cases that are asked for; one that has none is left out. UsageError for what cannot be asked."""
        if self.line and (self.expression is not None or self.last_failed):
            raise UsageError(f"--case {self.line!r}: names one case; leave -k and --lf out")
        if self.line:
            return [named(source, self.line) for source in sources]
        chosen = self._that_failed(sources) if self.last_failed else list(sources)
        return self._that_match(chosen) if self.expression is not None and chosen else chosen

    def _that_failed(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        last = last_runs(map(_whose, sources), before=self.before)
        failed = [(source, _cases(source, last[_whose(source)])) for source in sources]
        return [replace(source, only=tuple(cases), selected="--lf") for source, cases in failed if cases]

    def _that_match(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        expression = Expression(self.expression or "")
        seen_outcomes = {part for word in expression.words for part in word.split()} & _OUTCOMES
        last = last_runs(map(_whose, sources), before=self.before) if seen_outcomes else {}
        seen: list[Words] = []
        found = []
        for source in sources:
            words = worded(source, last.get(_whose(source)))
            asked = source.required()
            kept = [case for case in asked if expression(words(case))]
            if kept and source.only is not None:
                found.append(replace(source, only=tuple(kept), selected=f"{source.selected} -k {self.expression!r}"))
            elif kept:
                keeps = lambda case, words=words: expression(words(case))
                found.append(replace(source, keeps=keeps, selected=f"-k {self.expression!r}"))
            elif not found:
                seen += map(words, asked)
        if not found:
            why = expression.unknown(seen) or f"holds for none of {len(seen)} required cases; ask for less, or name one by --case"
            raise UsageError(f"-k {self.expression!r}: {why}")
        return found


_OUTCOMES = {part for outcome in Outcome for part in outcome.split()}


def named(source: CaseSource, line: str) -> CaseSource:
    """`source` with the case of `line` alone."""
    case = case_of(line, source.contract, source.required(), source.launcher)
    ready = source.prepared(case)
    if ready is None:
        raise UsageError(f"--case {line!r}: is none that {source.name} is asked; its claims and requires leave it out")
    if ready.problem != case.problem:
        said = "its claims and requires do not take it; the nearest that they take is"
        raise UsageError(f"--case {line!r}: {said} {describe(ready)!r}")
    try:
        source.contract.operands(ready)
    except ValueError as error:  # a regime that it does not have
        raise UsageError(f"--case {line!r}: {error}") from None
    return replace(source, only=(ready,), selected="--case")


def worded(source: CaseSource, last: LastRun | None) -> Callable[[Case], Words]:
    """What says the words of a case of `source`."""
    names = (source.address, source.name, source.target.name, source.target.arch)
    outcomes = last.outcomes if last is not None else {}

    def words(case: Case) -> Words:
        expected = source.contract.expected_outcome(case, source.target)
        came = [outcomes[case.key]] if case.key in outcomes else []
        return words_of(case, names, [*came, *([] if expected.result else [expected.outcome])])

    return words


def _whose(source: CaseSource) -> tuple[str, str, str]:
    return source.address, source.launcher, source.target.name


def _cases(source: CaseSource, last: LastRun) -> list[Case]:
    """The cases that failed, as `source` asks them; those that are none of its contract any more are left out."""
    found = []
    for record in last.failed():
        with suppress(Exception):  # the contract was edited since
            case = case_from_record(source.contract, record | {"contract": source.address, "launcher": source.launcher})
            if (ready := source.prepared(dataclasses.replace(case, contract=source.address))) is not None:
                found.append(replace(ready, tuning=case.tuning, calls=case.calls))
    return list({case.key: case for case in found}.values())
