"""Right words without a launch say nothing about a kernel."""

from __future__ import annotations

from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

NO_KERNEL = "no Triton kernel was launched: what was judged is no kernel, so its right words say nothing about one"


class KernelLaunched(CaseCheck):
    """A pass of a case with work to do is inconclusive where no Triton kernel was launched."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        must = judgement.contract.must_launch and judgement.has_work
        if not must or judgement.launch_result.launches or verdict.outcome is not Outcome.PASS:
            return verdict
        return Verdict(decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, message=NO_KERNEL)
