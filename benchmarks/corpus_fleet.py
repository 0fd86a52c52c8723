"""Entries of the corpus on a Ray cluster: batches of one package at one place, each a task of Ray's.

A batch is judged by `benchmarks/corpus.py` itself, in a process of its own on the node, which installs a missing package.
Its outcomes come back together. A batch that came to none is said on standard error; its entries stay left, and the same command
goes on with them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.corpus_run import Outcome
from bitverdict.harness.frontends import fleet
from bitverdict.harness.model.paths import ROOT
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.model.verdict import Basis, Decision, Verdict
from bitverdict.harness.model.verdict import Outcome as Ending
from bitverdict.harness.workers.task import TASK_RESULT, Task, task_result_of

ENTRIES = 8  # of a batch: its package is imported once
STARTED_WITHIN = 600.0  # seconds in which a node has installed and imported a package


@dataclass(frozen=True)
class Batch:
    """`entries` of `package`, by name, to be run on `on`: a target, or the interpreter."""

    package: str
    on: str
    entries: tuple[str, ...]


def batches(left: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[Batch]:
    """What is left of each package at each place, by at most `ENTRIES` at a time."""
    for (package, on), names in left.items():
        for begin in range(0, len(names), ENTRIES):
            yield Batch(package, on, tuple(names[begin : begin + ENTRIES]))


def judged(asked: Target, given: Mapping[str, Any]) -> Verdict:
    """The task of a node: the outcomes of one batch."""
    with tempfile.TemporaryDirectory(prefix="bitverdict-corpus-") as own:
        kept = Path(own, "results.jsonl")
        command = [sys.executable, "-m", "benchmarks.corpus", given["folder"], "--results", str(kept)]
        command += ["--target", given["target"], "--on", given["on"], "--seconds", str(given["seconds"])]
        command += ["--package", given["package"], *(word for name in given["entries"] for word in ("--entry", name))]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        from benchmarks.corpus import read

        found = [asdict(each) for each in read(kept).values()] if kept.exists() else []
    if not found:
        raise RuntimeError(f"corpus.py ended with {ended.returncode} and no outcome: {ended.stderr.strip()[-300:]}")
    return Verdict(decision=Decision.PASS, outcome=Ending.PASS, basis=Basis.NO_BASIS, details={TASK_RESULT: found})


def on_ray(asked: Iterable[Batch], folder: Path, named: str, seconds: float) -> Iterator[Outcome]:
    """The outcomes of `asked`, as batches end, from the cluster at RAY_ADDRESS. UsageError where there is none."""
    where, sources = target(f"emulated:{named}"), sorted((ROOT / "benchmarks").glob("corpus*.py"))
    cluster = fleet.cluster("ray")
    with fleet.pool(cluster, jobs=0, timeout=STARTED_WITHIN, files=sources) as pool, pool.interruptible():

        def judge(batch: Batch, place: int) -> tuple[Batch, Verdict]:
            given = {**asdict(batch), "folder": str(folder), "target": named, "seconds": seconds}
            limit = STARTED_WITHIN + seconds * len(batch.entries)
            task = Task(function=f"{__name__}:{judged.__name__}", contract=batch.package, given=given, timeout=limit)
            return batch, pool.judge(task, where, place=place)

        for batch, verdict in pool.spread(asked, judge):
            if (found := task_result_of(verdict)) is None:
                print(f"{batch.package}: {len(batch.entries)} entries came to nothing: {verdict.message}", file=sys.stderr)
            for each in found or ():
                yield Outcome(**{**each, "kernels": tuple(each["kernels"])})
