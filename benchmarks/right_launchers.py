"""No false failure: launchers that are right in ways no plan knows, over all emulated targets and all regimes.

Run: `python -m benchmarks.right_launchers [--cases 90] [--target TARGET] [--markdown] [--jobs N] [NAME ...]` (cases a launcher and
target: 3,240 in all; 2 quiet cores take about fifteen minutes, more take less). The launchers are those of
`tests/support/right_launchers.py`: fp32 by tf32 as it is and rounded by `cvt.rna`, block scales whose padding is zero, six
orders of sums, split K with atomics, split K under a lock, and stream K. Cases are the contract's list and draws; their regimes go
round, `exact` among them. `largest` is too, which launchers are not asked otherwise: sums that may meet both infinities are
inconclusive. The table goes to standard output, each case that is not right to standard error. Exit status 1 where a case fails
(what is neither right nor inconclusive), or where more than one in twenty of a launcher is inconclusive, those of `largest` apart.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.campaign import parse, refuse, run_script
from bitverdict.harness.contracts.inputs import block_scaled_inputs
from bitverdict.harness.contracts.inputs import regimes as operands
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, target, targets
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session.case_source import CaseSource, in_turns
from bitverdict.harness.workers.pool import WorkerPool

CASES, INCONCLUSIVE = 90, 0.05
DRAWS = 6  # for one case: those of other types become one that the launcher takes, and some are known then
FILE = Path(__file__).resolve().parent.parent / "tests" / "support" / "right_launchers.py"
LAUNCHERS = {
    "tf32": "matmul", "nearest_tf32": "matmul", "zero_padding": "block_scaled_matmul", "descending": "matmul",
    "interleaved": "matmul", "restarted": "matmul", "thirds": "matmul", "pairs": "matmul", "split_with_atomics": "matmul",
    "split_under_a_lock": "matmul", "streamed": "matmul", "ascending": "matmul",
}  # fmt: skip
REGIMES = {"matmul": (*operands.REGIMES, operands.EXACT), "block_scaled_matmul": block_scaled_inputs.REGIMES}


def cases_of(name: str, most: int, where: list[Target]) -> Iterator[tuple[Case, Target]]:
    """Up to `most` cases of a launcher on each target, targets in turns."""
    stem = LAUNCHERS[name]
    lists = []
    for there in where:
        source = CaseSource(stem, there, launcher=f"{FILE}:{name}")
        first = source.required()[:most]
        more = most - len(first)
        cases = first + (source.drawn(DRAWS * more)[:more] if more else [])
        lists.append([(replace(case, regime=regime_of(stem, case, place)), there) for place, case in enumerate(cases)])
    yield from in_turns(lists)


def regime_of(stem: str, case: Case, place: int) -> str:
    """The regime of the case at `place`: they go round; a case made for its operands keeps them."""
    if case.regime not in REGIMES[stem]:
        return case.regime
    asked = REGIMES[stem]
    if getattr(case.problem, "format", "nvfp4") != "nvfp4":
        asked = tuple(regime for regime in asked if regime != "ends")  # of e8m0 they leave what widening holds
    return asked[place % len(asked)]


def line(row: Sequence[object], markdown: bool) -> str:
    """One row of the table."""
    if markdown:
        return f"| {' | '.join(str(part) for part in row)} |"
    return f"{row[0]!s:20s} {row[1]!s:20s} " + " ".join(f"{part!s:>9s}" for part in row[2:])


def main() -> int:
    given = parse(__doc__, "names*", cases=CASES, target=[], markdown=False, jobs=0)
    if unknown := set(given.names) - set(LAUNCHERS):
        refuse(f"{unknown.pop()!r}: no such launcher; there are {', '.join(LAUNCHERS)}")
    where = [target(name) for name in given.target] if given.target else [here for here in targets() if here.emulated]
    failed, judged, fewest = 0, 0, 1.0
    regimes_seen, begun = Counter[str](), time.monotonic()
    heads = (
        "launcher",
        "contract",
        "cases",
        *(there.arch for there in where),
        "regimes",
        "pass",
        "failed",
        "inconclusive",
        "words",
    )
    print(line(heads, given.markdown) + (f"\n{line(['---'] * len(heads), True)}" if given.markdown else ""))
    with WorkerPool(jobs=given.jobs) as pool:
        for name in given.names or LAUNCHERS:
            words, decisions, seen, asked = 0, Counter[Decision](), Counter[str](), Counter[Decision]()
            regimes = Counter[str]()
            for case, there, verdict in pool.judge_all(cases_of(name, given.cases, where)):
                decisions[verdict.decision] += 1
                seen[there.arch] += 1
                regimes[case.regime] += 1
                words += verdict.words
                if case.regime == "largest" and verdict.decision is Decision.INCONCLUSIVE:
                    continue
                asked[verdict.decision] += 1
                if verdict.decision is not Decision.PASS:
                    print(
                        f"{there.name}: {verdict.decision}: {verdict.outcome}: {verdict.message} [{verdict.location}]\n"
                        f"  {case.to_json()}",
                        file=sys.stderr,
                        flush=True,
                    )
            count = decisions.total()
            failed, judged = failed + count - decisions[Decision.PASS] - decisions[Decision.INCONCLUSIVE], judged + count
            fewest = min(fewest, asked[Decision.PASS] / max(asked.total(), 1))
            regimes_seen += regimes
            row = (
                name,
                LAUNCHERS[name],
                count,
                *(seen[there.arch] for there in where),
                len(regimes),
                decisions[Decision.PASS],
                count - decisions[Decision.PASS] - decisions[Decision.INCONCLUSIVE],
                decisions[Decision.INCONCLUSIVE],
                f"{words:,}",
            )
            print(line(row, given.markdown), flush=True)
    print(f"\nRegimes: {', '.join(f'{regime} {count}' for regime, count in sorted(regimes_seen.items()))}.")
    print(f"{time.monotonic() - begun:.0f} s.")
    print(f"{judged} cases of right launchers: {failed} failed; of each at least {fewest:.1%} are right")
    return int(failed > 0 or fewest < 1 - INCONCLUSIVE)


if __name__ == "__main__":
    run_script(main)
