"""Every shipped kernel on every emulated target: a few required cases each, or the missing feature. Prints docs/targets.md.

Run: `python benchmarks/targets.py [--cases N] [--seconds S] [STEM ...] > docs/targets.md` (1 case and 300 s). What the time does
not reach is printed as "not judged". Exit status 1 where a case did not pass."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bitverdict.harness.model.architectures import CHIPS, EMULATED
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Decision
from bitverdict.harness.session.case_source import CaseSource
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.reference.tensor_core.lookup import EVERY_ONE

Cell = tuple[str, str]


def work(stems: list[str], most: int, until: float, lacking: dict[Cell, str]) -> Iterator[tuple[Case, Target]]:
    """The first required cases of each kernel on each target, until the time `until`; fills `lacking` by the way."""
    for stem in stems:
        for arch in EMULATED:
            machine = target(f"emulated:{arch}")
            source = CaseSource(stem, machine)
            if source.lacking:
                lacking[stem, arch] = ", ".join(sorted(map(str, source.lacking)))
            elif time.monotonic() < until:
                yield from ((case, machine) for case in source.required()[:most])


def told(verdicts: Counter[Decision], words: int) -> str:
    counts = (f"{count} {decision.value}" for decision, count in sorted(verdicts.items(), key=lambda row: row[0].value))
    return f"{', '.join(counts)}; {words:,} words"


def page(stems: list[str], most: int, judged: dict[Cell, str], lacking: dict[Cell, str]) -> str:
    """The page: kernels by targets, then the evidence that each target's numbers rest on."""
    cells = judged | {cell: f"needs {what}" for cell, what in lacking.items()}
    lines = [
        "# Every kernel on every emulated target",
        "",
        f"`python benchmarks/targets.py --cases {most}` printed this page: "
        f"at most {most} required cases of each kernel on each target.",
        "A cell has the verdicts of the cases that were judged and the output words compared, "
        "or the features that the target lacks.",
        "A pass of 0 words is an expected refusal or fault. No GPU was run for this page: each target is a model.",
        "",
        f"| kernel | {' | '.join(EMULATED)} |",
        f"| --- | {' | '.join('---' for _ in EMULATED)} |",
        *(f"| {stem} | {' | '.join(cells.get((stem, arch), 'not judged') for arch in EMULATED)} |" for stem in stems),
        "",
        "What the numbers of each target's matrix instructions rest on ([arithmetic.md](arithmetic.md)):",
        "",
        "| target | chip | evidence |",
        "| --- | --- | --- |",
    ]
    for arch in EMULATED:
        kinds = sorted({rule.evidence.basis for rule in EVERY_ONE if rule.arch == arch})
        lines.append(f"| emulated:{arch} | {CHIPS[arch].model} | {'; '.join(kinds)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("stems", nargs="*")
    asked = parser.parse_args()
    stems = asked.stems or list(kernels_with_a_contract())
    judged: dict[Cell, Counter[Decision]] = defaultdict(Counter)
    words: Counter[Cell] = Counter()
    lacking: dict[Cell, str] = {}
    with WorkerPool(jobs=len(os.sched_getaffinity(0))) as pool:
        for case, machine, verdict in pool.judge_all(work(stems, asked.cases, time.monotonic() + asked.seconds, lacking)):
            judged[case.contract, machine.arch][verdict.decision] += 1
            words[case.contract, machine.arch] += verdict.words
            if verdict.decision is not Decision.PASS:
                print(f"{machine.name}: {verdict.outcome}: {verdict.message}\n  {case.to_json()}", file=sys.stderr)
    cells = {cell: told(verdicts, words[cell]) for cell, verdicts in judged.items()}
    print(page(stems, asked.cases, cells, lacking))
    return int(any(decision is not Decision.PASS for verdicts in judged.values() for decision in verdicts))


if __name__ == "__main__":
    sys.exit(main())
