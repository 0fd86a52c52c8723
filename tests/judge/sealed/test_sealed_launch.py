"""Contract under test: a sealed case is launched by another process, and comes to the verdict that it has unsealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bitverdict.harness.judge.judge import judge
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import target
from bitverdict.harness.model.verdict import Decision, Verdict
from bitverdict.kernels.matmul import Problem
from tests.support import judged_launcher
from tests.support.sealed_here import sealed_here

TARGET = target("emulated:sm_90")


def case_of(text: str, directory: Path) -> Case:
    (file := directory / "candidate.py").write_text(text)
    return Case(contract="matmul", problem=Problem(m=33, n=17, k=19), data_seed=1, launcher=f"{file}:matmul")


def alike(one: Verdict, other: Verdict) -> bool:
    """But for the seconds, and what is said of sealed cases alone."""
    return bare(one) == bare(other)


def bare(verdict: Verdict) -> Verdict:
    more = {
        name: {key: told for key, told in getattr(verdict, name).items() if key != "provenance"} for name in ("details", "recorded")
    }
    return replace(verdict, seconds={}, **more)


def test_a_sealed_case_has_the_verdict_it_has_unsealed(tmp_path: Path) -> None:
    case = case_of(judged_launcher.TUTORIAL, tmp_path)
    each = (case, replace(case, calls=2))
    with sealed_here() as here:
        sealed = [judge(replace(one, sealed=True), TARGET) for one in each]
    assert len(here.started) == 1
    for one, verdict in zip(each, sealed, strict=True):
        unsealed = judge(one, TARGET)
        assert unsealed.decision is Decision.PASS and "real values" in unsealed.basis
        assert alike(Verdict.from_json(verdict.to_json()), Verdict.from_json(unsealed.to_json())), (verdict, unsealed)
