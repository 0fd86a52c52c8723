"""The certificate of a case, as a check: cases are chosen that tell something apart, and a pass says what it could have told."""

from __future__ import annotations

from bitverdict.harness.checks.certificate.certify import certified
from bitverdict.harness.checks.certificate.telling import choose_discriminating_seed
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome, Verdict


class Certified(CaseCheck):
    """A case that can tell nothing apart is replaced before it is dealt, and inconclusive where it passed."""

    def choose(self, case: Case, contract: Contract, target: Target) -> Case:
        return choose_discriminating_seed(case, contract, target)

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if verdict.outcome is not Outcome.PASS or not judgement.explained:
            return verdict
        by_real = frozenset(
            each.name for each in judgement.expected if each.exact is not None and each.name in judgement.launch_result.real_values
        )
        with judgement.clock.on("certificate"):
            return certified(
                verdict, judgement.contract, judgement.case, judgement.target, judgement.operands, judgement.launch_result.recorded,
                judgement.expected, by_real,
            )  # fmt: skip
