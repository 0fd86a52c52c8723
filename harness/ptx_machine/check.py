"""PTX of a case's launches: it says what the tile program leaves open, and with `ptx` it must leave the same words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bitverdict.harness.judge.devices import launched_with
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.protocols import LaunchObserver
from bitverdict.harness.model.verdict import PTX_LAUNCHES, Basis, Decision, Outcome, Verdict
from bitverdict.harness.ptx_machine.open_words import OpenWords

if TYPE_CHECKING:
    from bitverdict.harness.model.case import Case

DETAIL = "words of PTX"


class OpenWordsObserver(LaunchObserver):
    """Words that the tile program leaves open are those of the launch's PTX."""

    def options(self, case: Case, *, far: bool) -> Mapping[str, Any]:
        if far:
            return {}
        return {"probes": (OpenWords(),)}


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
