"""What the discrimination certificate, and the cases that judge every code and pair of codes, cost the required cases of kernels.

    python -m benchmarks.certificate_cost [--target emulated:sm_90] [--cases N] [--turns 3] STEM ...

Each required case is judged in this process in three ways, which take turns: without the certificate's check, as every run does,
and with ``--certificate``. The first time of each case compiles and is left out. Seconds are of the processor, so that what runs
beside it counts little; every run's also have the choice of cases that tell something apart. `--cases` takes every Nth to make so
many.

Printed are ratios of sums over the cases, the median of the turns and their least and greatest. *Codes and pairs* are the cases of
the regimes `COVERAGE`: the sum over all cases, as every run does, by the sum over the others. Status 1: a case did not pass.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from unittest.mock import patch

from benchmarks.campaign import parse, run_script
from bitverdict.harness.checks.certificate import check, discriminating_seed
from bitverdict.harness.contracts.inputs.all_codes import ALL_CODES, PAIRS
from bitverdict.harness.judge import judge as judging
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session.case_source import CaseSource

COVERAGE = (PAIRS, ALL_CODES, "all codes by size", "codes", "cover a", "cover b")
"""Regimes that are there so that every code of an operand is judged, and every pair of codes of two factors."""

WITHOUT, EVERY_RUN, ASKED = "without", "as every run", "--certificate"


@dataclass
class Taken:
    """Seconds of one case, one number a turn, by way."""

    case: Case
    seconds: dict[str, list[float]]


def judged(case: Case, where: Target, way: str) -> tuple[float, bool]:
    """Seconds of the processor that `case` takes, and whether it passes."""
    asked = replace(case, certificate=way == ASKED)

    def run() -> bool:
        return judging.judge(asked, where).decision in (Decision.PASS, Decision.NOT_RUN)

    if way != WITHOUT:
        return _timed(run)
    with patch.object(check, "with_certificate", lambda verdict, *_: verdict):
        return _timed(run)


def _timed(run: Callable[[], bool]) -> tuple[float, bool]:
    begun = time.process_time()
    passed = run()
    return time.process_time() - begun, passed


def chosen_in(stem: str, where: Target) -> float:
    """Seconds of the processor in which a run chooses, of its required cases, those that tell something apart."""
    discriminating_seed._chosen_cases.clear()
    first, _ = _timed(lambda: bool(CaseSource(stem, where).required()))
    known, _ = _timed(lambda: bool(CaseSource(stem, where).required()))  # the choice is known now: what is left lists the cases
    return max(first - known, 0.0)


def ratio(above: list[float], below: list[float]) -> str:
    """The median of the turns' ratios, and their least and greatest."""
    turns = sorted(one / other for one, other in zip(above, below, strict=True))
    return f"{statistics.median(turns):.3f} ({turns[0]:.3f} to {turns[-1]:.3f})"


def summed(taken: list[Taken], way: str) -> list[float]:
    """Of each turn the seconds of all cases."""
    return [sum(turn) for turn in zip(*(each.seconds[way] for each in taken), strict=True)]


def told(taken: list[Taken], choosing: float) -> str:
    """The ratios of these cases. `choosing`: seconds of the choice, which every run makes once."""
    without, every = summed(taken, WITHOUT), [each + choosing for each in summed(taken, EVERY_RUN)]
    whole = [each + choosing for each in summed(taken, ASKED)]
    others = [each for each in taken if each.case.regime.partition("/")[0] not in COVERAGE]
    rest = f"{len(taken) - len(others)} of {len(taken)} cases"
    if others and len(others) < len(taken):
        rest += f", {ratio(summed(taken, EVERY_RUN), summed(others, EVERY_RUN))}"
    return (
        f"{len(taken)} cases, {statistics.median(without):.1f} s without; every run {ratio(every, without)}; "
        f"--certificate {ratio(whole, without)}; codes and pairs: {rest}"
    )


def main() -> int:
    given = parse(__doc__, "stems+", target="emulated:sm_90", cases=0, turns=3)
    where, everything, choosing, wrong = target(given.target), list[Taken](), 0.0, 0
    for stem in given.stems:
        cases = CaseSource(stem, where).required()
        cases = cases[:: max(1, len(cases) // given.cases)] if given.cases else cases
        taken = [Taken(case, {way: [] for way in (WITHOUT, EVERY_RUN, ASKED)}) for case in cases]
        spent = chosen_in(stem, where)
        for each in taken:
            for turn in range(-1, given.turns):
                ways = list(each.seconds)
                for way in ways[turn % 3 :] + ways[: turn % 3]:
                    seconds, passed = judged(each.case, where, way)
                    wrong += not passed
                    if turn >= 0:
                        each.seconds[way].append(seconds)
        print(f"{stem}: {told(taken, spent)}", flush=True)
        everything, choosing = everything + taken, choosing + spent
    print(f"all on {where.name}: {told(everything, choosing)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_script(main)
