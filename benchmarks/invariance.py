"""Every kernel in every configuration, asked whether equal calls give equal words: what docs/invariance.md is printed from.

    python -m benchmarks.invariance --target emulated:sm_90 --out FILE [--seconds S] [--jobs N] [STEM ...]

A case in each configuration of a kernel is repeated, moved in memory, put in other orders and streams, cut and permuted. A case of
each element type is launched in all configurations. FILE gets a line of JSON a case, as `bitverdict invariance --json` writes it,
behind a line that says where it was made. Cases of all kernels come by turns, so that a run which is cut short has seen each.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import time
from pathlib import Path

import torch
import triton

from bitverdict.harness.judge.invariance.finding import CHECKS
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import ROOT, kernels_with_a_contract
from bitverdict.harness.model.supervision import leave
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.studies.invariance.campaign import Asked
from bitverdict.harness.studies.invariance.cases import of_each_configuration, of_each_type
from bitverdict.harness.studies.invariance.tasks import findings_of, task_of
from bitverdict.harness.studies.invariance.told import line_of
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task

SIZES = 4  # smaller batches of each size
ALONE = frozenset(CHECKS) - {"configurations"}


def work_of(stem: str, where: Target) -> list[tuple[Asked, Task]]:
    """The cases of one kernel, by turns: one in each configuration by itself, one of each type in all configurations."""
    contract = resolve(stem)
    if contract.requires - where.features:
        return []
    cases = of_each_configuration(contract, contract.required(where), where)
    alone = [(Asked(stem, case, where), task_of(case, ALONE, SIZES)) for case in cases]
    together = [(Asked(stem, case, where), task_of(case, ("configurations",))) for case in of_each_type(cases)]
    return [each for turn in itertools.zip_longest(alone, together) for each in turn if each is not None]


def made_where(where: Target) -> dict:
    """What a page says of a run."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return {
        "target": where.name,
        "arch": where.arch,
        "machine": where.model or "emulated",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit.stdout.strip() or "unknown",
        "torch": torch.__version__.partition("+")[0],
        "triton": triton.__version__,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.invariance", description=__doc__)
    parser.add_argument("stems", nargs="*", metavar="STEM", help="kernels (default: all)")
    parser.add_argument("--target", default="emulated:sm_90")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="take no further case after so many")
    parser.add_argument("--jobs", type=int, default=0)
    asked = parser.parse_args()
    where, begun = target(asked.target), time.monotonic()
    by_kernel = [work_of(stem, where) for stem in asked.stems or kernels_with_a_contract()]
    work = [each for turn in itertools.zip_longest(*by_kernel) for each in turn if each is not None]
    places = {id(task): each for each, task in work}
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    counts = {"cases": 0, "fail": 0}
    with asked.out.open("w") as out, WorkerPool(jobs=asked.jobs or len(os.sched_getaffinity(0)), timeout=300) as pool:
        out.write(json.dumps(made_where(where) | {"planned": len(work)}) + "\n")
        taken = ((task, where) for _, task in work if time.monotonic() - begun < asked.seconds)
        for task, _, verdict in pool.judge_all(taken):
            each, found = places[id(task)], findings_of(verdict)
            out.write(line_of(each.name, each.target.name, each.case, found, verdict) + "\n")
            out.flush()
            counts["cases"] += 1
            counts["fail"] += verdict.failed
            for finding in found:
                if finding.fails:
                    print(f"FAIL {each.name} {finding.check}: {finding.changed}: {finding.told}", flush=True)
    print(f"{counts['cases']} of {len(work)} cases, {counts['fail']} fail, {time.monotonic() - begun:.0f} s")
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    leave(main())
