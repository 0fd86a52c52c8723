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

    def select_cases(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        """`sources` with the cases that are asked for; one that has none is left out. UsageError for what cannot be asked."""
        if self.line and (self.expression is not None or self.last_failed):
            raise UsageError(f"--case {self.line!r}: names one case; leave -k and --lf out")
        if self.line:
            return [with_named_case(source, self.line) for source in sources]
        chosen = self._that_failed(sources) if self.last_failed else list(sources)
        return self._that_match(chosen) if self.expression is not None and chosen else chosen

    def _that_failed(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        last = last_runs(map(_subject_of, sources), before=self.before)
        failed = [(source, _cases(source, last[_subject_of(source)])) for source in sources]
        return [replace(source, only=tuple(cases), selection_reason="--lf") for source, cases in failed if cases]

    def _that_match(self, sources: Sequence[CaseSource]) -> list[CaseSource]:
        expression = Expression(self.expression or "")
        seen_outcomes = {part for word in expression.words for part in word.split()} & _OUTCOMES
        last = last_runs(map(_subject_of, sources), before=self.before) if seen_outcomes else {}
        case_words: list[Words] = []
        selected_sources = []
        for source in sources:
            words = words_function(source, last.get(_subject_of(source)))
            required_cases = source.required()
            kept = [case for case in required_cases if expression(words(case))]
            if kept and source.only is not None:
                selected_sources.append(
                    replace(source, only=tuple(kept), selection_reason=f"{source.selection_reason} -k {self.expression!r}")
                )
            elif kept:
                keeps = lambda case, words=words: expression(words(case))
                selected_sources.append(replace(source, keeps=keeps, selection_reason=f"-k {self.expression!r}"))
            elif not selected_sources:
                case_words += map(words, required_cases)
        if not selected_sources:
            why = (
                expression.unknown(case_words)
                or f"holds for none of {len(case_words)} required cases; ask for less, or name one by --case"
            )
            raise UsageError(f"-k {self.expression!r}: {why}")
        return selected_sources


_OUTCOMES = {part for outcome in Outcome for part in outcome.split()}


def with_named_case(source: CaseSource, line: str) -> CaseSource:
    """`source` with the case of `line` alone."""
    case = case_of(line, source.contract, source.required(), source.launcher)
    prepared_case = source.prepare(case)
    if prepared_case is None:
        raise UsageError(f"--case {line!r}: is no case of {source.name}: its claims and requires exclude it")
    if prepared_case.problem != case.problem:
        said = "its claims and requires do not take it; the nearest that they take is"
        raise UsageError(f"--case {line!r}: {said} {describe(prepared_case)!r}")
    try:
        source.contract.operands(prepared_case)
    except ValueError as error:  # a regime that it does not have
        raise UsageError(f"--case {line!r}: {error}") from None
    return replace(source, only=(prepared_case,), selection_reason="--case")


def words_function(source: CaseSource, last: LastRun | None) -> Callable[[Case], Words]:
    """What says the words of a case of `source`."""
    names = (source.address, source.name, source.target.name, source.target.arch)
    outcomes = last.outcomes if last is not None else {}

    def words(case: Case) -> Words:
        expected = source.contract.expected_outcome(case, source.target)
        came = [outcomes[case.key]] if case.key in outcomes else []
        return words_of(case, names, [*came, *([] if expected.result else [expected.outcome])])

    return words


def _subject_of(source: CaseSource) -> tuple[str, str, str]:
    return source.address, source.launcher, source.target.name


def _cases(source: CaseSource, last: LastRun) -> list[Case]:
    """The cases that failed, as `source` asks them; those that are none of its contract any more are left out."""
    cases = []
    for record in last.failed_records():
        with suppress(Exception):  # the contract was edited since
            case = case_from_record(source.contract, record | {"contract": source.address, "launcher": source.launcher})
            if (ready := source.prepare(dataclasses.replace(case, contract=source.address))) is not None:
                cases.append(replace(ready, tuning=case.tuning, calls=case.calls))
    return list({case.key: case for case in cases}.values())
