"""The certificate of a case, as a check: cases are chosen that tell something apart, and a pass says what it could have told."""

from __future__ import annotations

from bitverdict.harness.checks.certificate.certify import with_certificate
from bitverdict.harness.checks.certificate.discriminating_seed import choose_discriminating_seed
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome, Verdict


class CertificateCheck(CaseCheck):
    """A case that can expose no fault is replaced before it is dealt, and inconclusive where it passed."""

    def choose(self, case: Case, contract: Contract, target: Target) -> Case:
        return choose_discriminating_seed(case, contract, target)

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if verdict.outcome is not Outcome.PASS or not judgement.explains_cause:
            return verdict
        by_real = frozenset(
            each.name for each in judgement.expected if each.exact is not None and each.name in judgement.launch_result.real_values
        )
        with judgement.clock.measure("certificate"):
            return with_certificate(
                verdict, judgement.contract, judgement.case, judgement.target, judgement.operands,
                judgement.launch_result.launch_record,
                judgement.expected, by_real,
            )  # fmt: skip
