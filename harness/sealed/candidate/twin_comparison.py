"""A sealed launch on a real GPU held to the emulated launch of the same case, on which all of it is observed.

On the real GPU the candidate's process has the device memory: where its words come from is not observed, nor what it does to a
result afterwards. So a pass there rests on the emulated launch too. A candidate that launches otherwise on the two fails. So does
one that returns memory again, or changes it after the return, on the emulated GPU. One that has no result there is inconclusive.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.harness.checks import provenance
from bitverdict.harness.checks.emulated_twin import TwinLaunch
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict
from bitverdict.harness.sealed.candidate.by_bytes import LAUNCHED_KERNELS, OPERATORS

EMULATED_ONLY_FAULTS = (Outcome.MEMORY_RETURNED, Outcome.WORDS_CHANGED)
"""Faults of a candidate that the emulated GPU shows, and a real one whose memory another process has does not."""


class SealedTwin(CaseCheck):
    """A sealed launch on a real GPU passes only with what the emulated launch shows."""

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        if not judgement.case.sealed or judgement.target.emulated:
            return verdict
        return compare_to_twin(verdict, judgement.launch_result, judgement.twin)


def compare_to_twin(verdict: Verdict, launch_result: LaunchResult, twin: TwinLaunch | None) -> Verdict:
    """`verdict` of the launch `launch_result` on a real GPU, with what its process says of it, held to its `twin`."""
    if twin is not None and (known := twin.launch_result.launch_record.get(provenance.PROVENANCE_KEY)):
        verdict = provenance.judge_provenance(verdict, known)
    said = [f"on {twin.target.name}: {verdict.details['provenance']}"] if twin and "provenance" in verdict.details else []
    told = {
        name: launch_result.launch_record[name] for name in (LAUNCHED_KERNELS, OPERATORS) if name in launch_result.launch_record
    }
    verdict = replace(verdict, details=verdict.details | told | {"provenance": "; ".join([provenance.NOT_OBSERVED, *said])})
    if verdict.decision is not Decision.PASS or twin is None or not twin.open:
        return verdict
    if twin.launch_result.outcome in EMULATED_ONLY_FAULTS:
        return replace(verdict, decision=Decision.FAIL, outcome=twin.launch_result.outcome, message=twin.open, words=0)
    if twin.launch_result.outcome is not None:
        message = f"{provenance.NOT_OBSERVED} on the GPU, and {twin.open}"
        return replace(verdict, decision=Decision.INCONCLUSIVE, outcome=Outcome.INCONCLUSIVE, message=message)
    if launch_result.launches != twin.launch_result.launches:
        return replace(verdict, decision=Decision.FAIL, outcome=Outcome.BEHAVES_DIFFERENTLY, message=twin.open, words=0)
    return verdict
