"""What a kernel promises beside right words, as a check of a case of one call."""

from __future__ import annotations

from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.judge.remote_launcher import launcher_of_case
from bitverdict.harness.model.verdict import Verdict


class KeptPromises(CaseCheck):
    """A pass fails where the kernel promises determinism or batch invariance and the case shows otherwise."""

    def after_case(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        case, contract, target = judgement.case, judgement.contract, judgement.target
        if not (contract.batch_invariant or contract.deterministic or case.promises):
            return verdict
        from bitverdict.harness.checks.invariance.promise_check import held_to_promises

        with judgement.clock.measure("launch"):
            return held_to_promises(verdict, case, target, contract, launcher_of_case(case, target))
