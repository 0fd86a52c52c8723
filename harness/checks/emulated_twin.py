"""A user's launcher on a real GPU, and the same case on the emulated GPU of its architecture, in one process.

The emulated launch says two things that the real one cannot. What the tile program computes without rounding: it is the same
program, so its mathematics is judged by these real values. And, where all of it is exact, which words must come: a GPU whose words
differ has computed something else, though inside the bound. `TwinLaunch.open` says why words are not held to the emulated GPU's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import Comparison
from bitverdict.harness.judge.devices import emulated_like
from bitverdict.harness.judge.diagnose import clusters, first_words, heat, values
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract, ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome, Verdict

TWIN_WORDS = "words of the emulated GPU"  # in details: why they were not compared


@dataclass(frozen=True)
class TwinLaunch:
    """The emulated launch of a case that a real GPU runs. `open`: why the words of the GPU are not held to its own; empty where
    they are."""

    target: Target
    launch_result: LaunchResult
    open: str = ""
    words: Mapping[str, np.ndarray] = field(default_factory=dict)


class EmulatedTwin(CaseCheck):
    """A user's launcher on a real GPU is launched on the emulated GPU too, and held to its words."""

    def before_comparison(self, judgement: Judgement) -> None:
        def launch_on_target(there: Target) -> LaunchResult:
            return judgement.launch_on(there, judgement.clock)

        twin = launch_twin(judgement.case, judgement.contract, judgement.target, judgement.launch_result, launch_on_target)
        if twin is not None:
            judgement.launch_result.real_values, judgement.launch_result.hangs = (
                twin.launch_result.real_values,
                twin.launch_result.hangs,
            )
        judgement.twin = twin

    def compare(self, judgement: Judgement, expected: ExpectedOutput, comparison: Comparison) -> Comparison:
        return held_to_emulated(expected, judgement.launch_result.outputs[expected.name], comparison, judgement.twin)

    def after_comparison(self, judgement: Judgement, verdict: Verdict) -> Verdict:
        return with_twin_details(verdict, judgement.twin)


def launch_twin(
    case: Case, contract: Contract, target: Target, launch_result: LaunchResult, launch_on: Callable[[Target], LaunchResult]
) -> TwinLaunch | None:
    """The launch of `case` on the emulated GPU, by `launch_on`, beside `launch_result` of the real GPU `target`.

    None for shipped kernels (their expected bits come from the plan), when real values are off, and for an unsealed second call. A
    sealed one is launched there because a real GPU does not show in whose memory a result lies."""
    twin = emulated_like(target)
    if twin is None or contract.declared(case) is None or not case.real_values or (case.calls != 1 and not case.sealed):
        return None
    emulated = launch_on(twin)
    if emulated.outcome is not None:
        said = f"{emulated.outcome}: {emulated.message}" if emulated.message else str(emulated.outcome)
        return TwinLaunch(twin, LaunchResult(emulated.outcome), f"on {twin.name} there is no result ({said})")
    why = _why_open(launch_result, emulated)
    return TwinLaunch(twin, emulated, why, {} if why else emulated.outputs)


def _why_open(seen: LaunchResult, emulated: LaunchResult) -> str:
    """Why two right launches may differ in words; empty where they may not."""
    if seen.launches != emulated.launches:
        return f"{seen.launches} kernels were launched on the GPU, {emulated.launches} on the emulated one"
    if _tuner_choices(seen) != _tuner_choices(emulated):
        return "autotuners took other configurations"
    if emulated.enclosures:
        return f"the compiled program leaves a choice open in {', '.join(sorted(emulated.enclosures))}"
    if emulated.order_hazard:
        return f"{emulated.order_hazard}: no order is the GPU's"
    return ""


def _tuner_choices(seen: LaunchResult) -> list[tuple[str, str]]:
    return sorted((told["kernel"], told["choice"]) for told in seen.launch_record.get("tuned", ()))


def held_to_emulated(expected: ExpectedOutput, words: np.ndarray, comparison: Comparison, twin: TwinLaunch | None) -> Comparison:
    """`comparison` of the GPU's `words`, or that they are not the emulated GPU's, where those are exact."""
    twin_words = twin.words.get(expected.name) if twin is not None else None
    if (
        twin is None
        or twin_words is None
        or comparison.outcome not in (Outcome.PASS, Outcome.INCONCLUSIVE)
        or twin_words.shape != words.shape
    ):
        return comparison
    differs = (words != twin_words.view(words.dtype)) & ~_both_nan(expected.format, words, twin_words.view(words.dtype))
    if not differs.any():
        return comparison
    like = ExpectedOutput(name=expected.name, format=expected.format, shape=expected.shape, words=twin_words, tile=expected.tile)
    word_entries = first_words(like, words, differs)
    message = (
        f"{expected.name}: {int(differs.sum())} of {words.size} words are not those of {twin.target.name}, which executes the same "
        f"program bit for bit; they lie inside the bound\n"
        f"first at {word_entries[0]['at']}: got {word_entries[0]['got']}, {twin.target.name} has {word_entries[0]['expected']}"
    )
    details = {
        "output": expected.name,
        "wrong": int(differs.sum()),
        "of": words.size,
        "never_written": 0,
        "first": word_entries,
        "clusters": clusters(like, words, differs),
        "heat": heat(like, differs),
    }
    return Comparison(Outcome.WRONG_WORDS, words.size, message=message, details=details, by_words=words.size)


def with_twin_details(verdict: Verdict, twin: TwinLaunch | None) -> Verdict:
    """`verdict` of a real GPU with what the emulated launch beside it was good for: in its basis, or why it was not."""
    if twin is None:
        return verdict
    if twin.open:
        return replace(verdict, details=verdict.details | {TWIN_WORDS: f"not compared: {twin.open}"})
    return replace(verdict, basis=f"{verdict.basis}; words compared with those of {twin.target.name}")


def _both_nan(format_name: str, got: np.ndarray, due: np.ndarray) -> np.ndarray:
    return np.isnan(values(format_name, got)) & np.isnan(values(format_name, due))
