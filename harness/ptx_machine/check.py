"""`ptx` of a case: the PTX of its launches is executed beside the tile program, and must leave the same words."""

from __future__ import annotations

from dataclasses import replace

from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.verdict import PTX_LAUNCHES, Basis, Decision, Outcome, Verdict

DETAIL = "words of PTX"


class BelowTheTileProgram(CaseCheck):
    """A case that passes is launched once more, with its PTX beside it. What differs is a fault of the compiler's, or of ours: the
    kernel has no part in it. A launch whose PTX is not executed is named as advice."""

    def after_case(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if not judgement.case.ptx or not judgement.target.emulated or verdict.outcome is not Outcome.PASS:
            return verdict
        from bitverdict.harness.ptx_machine.below_the_tile_program import PtxTwin

        twin = PtxTwin()
        in_turn = replace(judgement, case=replace(judgement.case, schedule="eager"))  # as PTX's atomics come one after another
        with launched_with(probes=(twin,)):
            in_turn.launch_on(judgement.target, judgement.clock)
        left_out, words = sum(bool(result.not_run) for result in twin.results), sum(result.words for result in twin.results)
        details = {**verdict.details, DETAIL: words, PTX_LAUNCHES: [len(twin.results) - left_out, left_out, words]}
        for result in twin.results:
            if result.difference:
                message = f"{result.kernel}: {result.difference}"
                return Verdict(
                    decision=Decision.FAIL,
                    outcome=Outcome.COMPILER_FAULT,
                    message=message,
                    basis=Basis.OBSERVED_FAULT,
                    details=details,
                )
        reasons = dict.fromkeys(
            f"{result.kernel}: its PTX was not executed: {result.not_run}" for result in twin.results if result.not_run
        )
        return replace(verdict, details=details, advice=(*verdict.advice, *reasons))
