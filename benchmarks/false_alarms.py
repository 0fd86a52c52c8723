"""No false alarm: every kernel here judged on the emulated GPU over drawn schedules, and nobody kernel under test.

Run: `python -m benchmarks.false_alarms [cases] [STEM ...]` (500 cases a kernel, shared by the emulated targets that have what it
needs; 2 cores take about ten minutes). Half of the cases are the contract's required cases as far as it goes, the rest is drawn,
and each case gets a schedule of its own ("drawn:<place>"). Exit status 1 where a kernel fails or fewer than 95 % are decided."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.campaign import run_script
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, targets
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session.case_source import CaseSource, in_turns
from bitverdict.harness.workers.pool import WorkerPool

CASES, DECIDED = 500, 0.95


def cases_of(stem: str, most: int) -> Iterator[tuple[Case, Target]]:
    """`most` cases of a kernel over the emulated targets that can run it, each under a drawn schedule of its own."""
    able = [d for t in targets() if t.emulated and not (d := CaseSource(stem, t)).missing_features]
    shares = [most // len(able) + (place < most % len(able)) for place in range(len(able))]
    lists = []
    for source, share in zip(able, shares, strict=True):
        first = source.required()[: share // 2]
        more = source.drawn(2 * (share - len(first)))[: share - len(first)]
        lists.append([(case, source.target) for case in [*first, *more]])
    for place, (case, target) in enumerate(in_turns(lists)):
        yield replace(case, schedule=f"drawn:{place}"), target


def main() -> int:
    arguments = sys.argv[1:]
    most = int(arguments.pop(0)) if arguments and arguments[0].isdigit() else CASES
    alarms, fewest = 0, 1.0
    heads = f"{'cases':>5s} {'pass':>6s} {'fail':>9s} {'inconclusive':>9s} {'decided':>8s} {'words':>12s} {'s':>6s}  targets"
    print(f"{'kernel':30s} {heads}")
    with WorkerPool(jobs=len(os.sched_getaffinity(0))) as pool:
        for stem in arguments or kernels_with_a_contract():
            begun, words, decisions, seen = time.monotonic(), 0, Counter[Decision](), Counter[str]()
            for case, target, verdict in pool.judge_all(cases_of(stem, most)):
                decisions[verdict.decision] += 1
                seen[target.name.removeprefix("emulated:")] += 1
                words += verdict.words
                if verdict.failed:
                    print(f"  {target.name} {case.schedule}: {verdict.outcome}: {verdict.message} [{verdict.location}]")
                    print(f"  {case.to_json()}")
            count = decisions.total()
            decided = (decisions[Decision.PASS] + decisions[Decision.FAIL]) / max(count, 1)
            alarms += decisions[Decision.FAIL]
            fewest = min(fewest, decided)
            where = ", ".join(f"{name} {n}" for name, n in sorted(seen.items()))
            print(
                f"{stem:30s} {count:5d} {decisions[Decision.PASS]:6d} {decisions[Decision.FAIL]:9d} "
                f"{decisions[Decision.INCONCLUSIVE]:9d} "
                f"{decided:8.1%} {words:12,d} {time.monotonic() - begun:6.1f}  {where}",
                flush=True,
            )
    print(f"{alarms} false alarms; at least {fewest:.1%} decided")
    return int(alarms > 0 or fewest < DECIDED)


if __name__ == "__main__":
    run_script(main)
