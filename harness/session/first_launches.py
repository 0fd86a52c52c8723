"""The first launch of a user's launcher: which case it is of, where it is made, and what its verdict makes of the case source.

A tile, a group of programs and configurations of autotuners are seen by an emulated launch alone. So for a real GPU the launch is
made on the emulated target nearest to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bitverdict.harness.judge.first_launch import launcher_traits
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, nearest_emulated
from bitverdict.harness.model.verdict import Verdict
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.session.replay import Judges


@dataclass(frozen=True)
class FirstLaunches:
    """A case source that knows what its first launch showed. `verdicts`: that of the launch, by target's name and case's key; it
    counts where the case comes up again."""

    source: CaseSource
    verdicts: Mapping[tuple[str, str], Verdict] = field(default_factory=dict)


def first_launch(source: CaseSource) -> tuple[Case, Target] | None:
    """The required case whose launch shows what the launcher of `source` is, and where it is made; None where nothing is to be
    shown."""
    seeing = source.target if source.target.emulated else nearest_emulated(source.target.arch)
    case = replace(source, target=seeing).first_case()
    return None if case is None else (case, seeing)


def with_traits(source: CaseSource, verdict: Verdict | None) -> CaseSource:
    """`source` with what `verdict` of its first launch shows; as it is where there is no verdict."""
    return source if verdict is None else replace(source, launcher_traits=launcher_traits(verdict.recorded))


def make_first_launch(source: CaseSource, judges: Judges) -> FirstLaunches:
    """`source` with what its first launch shows, which `judges` make now."""
    first = first_launch(source)
    if first is None:
        return FirstLaunches(source)
    case, seeing = first
    verdict = judges.judge(case, seeing)
    return FirstLaunches(with_traits(source, verdict), {(seeing.name, case.key): verdict})
