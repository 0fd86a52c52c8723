"""Every kernel in every configuration, asked whether equal calls give equal words: what docs/invariance.md is printed from.

    python -m benchmarks.invariance --target emulated:sm_90 --out FILE [--resume] [--seconds S] [--jobs N] [STEM ...]

A case in each configuration of a kernel is repeated, moved in memory, put in other orders and streams, cut and permuted. A case of
each element type is launched in all configurations. FILE gets a line of JSON a case, as `bitverdict invariance --json` writes it,
behind a line that says where it was made. Cases of all kernels come by turns, so that a run which is cut short has seen each.
--resume keeps what FILE has, and asks the other cases.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks.campaign import REQUIRED_PATH, Option, parse, records
from benchmarks.campaign import commit as head
from bitverdict.harness.checks.invariance.invariance_finding import CHECKS
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.supervision import leave
from bitverdict.harness.model.targets import Target, target
from bitverdict.harness.report.invariance.campaign import ExaminationRequest
from bitverdict.harness.report.invariance.cases import choose_cases
from bitverdict.harness.report.invariance.report_lines import line_of
from bitverdict.harness.report.invariance.tasks import findings_of, task_of
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.harness.workers.task import Task

SIZES = 4  # smaller batches of each size
ALONE = frozenset(CHECKS) - {"configurations"}


def work_of(stem: str, where: Target) -> list[tuple[ExaminationRequest, Task]]:
    """The cases of one kernel, by turns: one in each configuration by itself, one of each type in all configurations."""
    contract = resolve(stem)
    if contract.lacking(where):
        return []
    cases = of_each_configuration(contract, contract.required(where), where)
    alone = [(ExaminationRequest(stem, case, where), task_of(case, ALONE, SIZES)) for case in cases]
    together = [(ExaminationRequest(stem, case, where), task_of(case, ("configurations",))) for case in of_each_type(cases)]
    return [each for turn in itertools.zip_longest(alone, together) for each in turn if each is not None]


def of_each_configuration(contract: Contract, cases: Sequence[Case], target: Target) -> list[Case]:
    """Of `cases` the largest in each configuration, which differ in type and layout as far as they can."""
    configs: dict[Any, list[Case]] = {}
    for case in choose_cases(contract, cases, target):
        configs.setdefault(case.config, []).append(case)
    return [listed[place % len(listed)] for place, listed in enumerate(configs.values())]


def of_each_type(cases: Sequence[Case]) -> list[Case]:
    """Of `cases` one of each element type."""
    found: dict[Any, Case] = {}
    for case in cases:
        found.setdefault(getattr(case.problem, "dtype", getattr(case.problem, "format", "")), case)
    return list(found.values())


def done_in(file: Path) -> set[str]:
    """The cases that stand in `file`, a line that was cut off not among them: it is taken away."""
    return {key_of(row["kernel"], row["case"], row["checks"]) for row in records(file)[1:]}


def key_of(stem: str, case: dict, checks: Sequence[str]) -> str:
    """What was asked of a kernel."""
    return json.dumps([stem, case, sorted(checks)], sort_keys=True)


def made_where(where: Target, commit: str = "") -> dict:
    """What a page says of a run."""
    return {
        "target": where.name,
        "arch": where.arch,
        "machine": where.model or "emulated",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "commit": commit or head(),
        "torch": torch.__version__.partition("+")[0],
        "triton": triton.__version__,
    }


def main() -> int:
    asked = parse(
        __doc__, "stems*", target="emulated:sm_90", out=REQUIRED_PATH,
        seconds=Option(float("inf"), "take no further case after so many"), jobs=0, resume=False,
        commit=Option("", "what FILE says the code is (default: that of git)"),
    )  # fmt: skip
    where, begun = target(asked.target), time.monotonic()
    by_kernel = [work_of(stem, where) for stem in asked.stems or kernels_with_a_contract()]
    work = [each for turn in itertools.zip_longest(*by_kernel) for each in turn if each is not None]
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    done = done_in(asked.out) if asked.resume else set()
    left = [(each, task) for each, task in work if key_of(each.name, task.given["case"], task.given["checks"]) not in done]
    places = {id(task): each for each, task in left}
    counts = {"cases": 0, "fail": 0}
    with asked.out.open("a" if done else "w") as out, WorkerPool(jobs=asked.jobs, timeout=300) as pool:
        if not done:
            out.write(json.dumps(made_where(where, asked.commit) | {"planned": len(work)}) + "\n")
        taken = ((task, where) for _, task in left if time.monotonic() - begun < asked.seconds)
        for task, _, verdict in pool.judge_all(taken):
            each, found = places[id(task)], findings_of(verdict)
            line = json.loads(line_of(each.name, each.target.name, each.case, found, verdict))
            out.write(json.dumps(line | {"checks": task.given["checks"]}) + "\n")
            out.flush()
            counts["cases"] += 1
            counts["fail"] += verdict.failed
            for finding in found:
                if finding.fails:
                    print(f"FAIL {each.name} {finding.check}: {finding.changed}: {finding.sentence}", flush=True)
    there = f", {len(done)} were there" if done else ""
    print(f"{counts['cases']} of {len(work)} cases{there}, {counts['fail']} fail, {time.monotonic() - begun:.0f} s")
    return 1 if counts["fail"] else 0


if __name__ == "__main__":
    leave(main())
