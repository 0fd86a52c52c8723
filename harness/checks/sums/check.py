"""Words expected by the order of sums that launches show, for a case that asks for it."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.verdict import Verdict

NOTES = "order of sums"


class OrderOfSums(CaseCheck):
    """`recover_order` of a case: bounds become words where the order of the sums is recovered and proved."""

    def before_comparison(self, judgement: Judgement) -> None:
        if not judgement.case.recover_order:
            return
        from bitverdict.harness.checks.sums.words import with_recovered_words

        with judgement.clock.measure("order of sums"):
            judgement.expected, judgement.notes[NOTES] = with_recovered_words(
                judgement.expected, judgement.case, judgement.target, judgement.contract, judgement.launcher, judgement.operands
            )

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        return replace(verdict, details=verdict.details | judgement.notes.get(NOTES, {}))
