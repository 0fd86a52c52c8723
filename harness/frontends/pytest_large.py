"""Large products as pytest nodes: one case a node, on a GPU, each worker in a worker of its own on the GPU that it holds a lease
on.

Which cases there are does not depend on the machine, so that all workers collect the same; what a machine lacks a feature for is
skipped with its name.
"""

from __future__ import annotations

import multiprocessing
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Any

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target, visible_device
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.one_thread import one_thread
from bitverdict.kernels.features import Feature

TIMEOUT = 240.0  # seconds of one case, compilation and expected words included


@dataclass(frozen=True)
class LargeNode:
    """One test: a large case on a target. `label` tells apart the cases of one kernel, type and size."""

    case: Case
    kind: str
    label: str
    target: str

    def __str__(self) -> str:
        p = self.case.problem
        return f"{self.case.contract}-{self.kind}-{self.label}-{p.m}x{p.n}x{p.k}-{self.target}".replace(" ", "_")


def large_nodes(sizes: str, seeds: int, names: Sequence[str]) -> list[LargeNode]:
    """Every large case of `sizes` ("MxNxK,..."), each with `seeds` seeds of data, on each target named."""
    from bitverdict.harness.studies.large_gemm.cases import cases

    asked = []
    for text in sizes.split(","):
        size = tuple(int(part) for part in text.split("x") if part.isdigit())
        if len(size) != 3 or text.count("x") != 2 or min(size) < 1:
            raise UsageError(f"size {text!r}: must be MxNxK, for example 8192x8192x8192")
        asked.append((size[0], size[1], size[2]))
    nodes, seen = [], Counter[tuple]()
    for case in cases(asked, Target("", "sm_90")):  # with the configurations that need TMA
        p = case.problem
        kind = getattr(p, "format", "") or p.dtype + (" ieee" if getattr(p, "precision", "") == "ieee" else "")
        place = (case.contract, kind, p.m, p.n, p.k)
        label = "autotuned" if case.config is None else str(seen[place])
        seen[place] += case.config is not None
        for seed in range(seeds):
            seeded = replace(case, data_seed=case.data_seed + seed)
            nodes += [LargeNode(seeded, kind, f"{label}.{seed}" if seeds > 1 else label, name) for name in names]
    return nodes


def lacking(case: Case, target: Target) -> list[str]:
    """Names of the features that the kernel, in this configuration, requires and `target` lacks."""
    described = getattr(case.config, "loads", "") == "descriptors"
    needs = resolve(case.contract).requires | ({Feature.TMA} if described else set())
    return sorted(str(feature) for feature in needs - target.features)


class LargePool:
    """One worker that judges large cases on one target; a fault or a death of it is told, and the next case gets a fresh one."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def judge(self, case: Case, target: Target, products: int) -> dict[str, Any]:
        """The case's row (`bitverdict.harness.studies.large_gemm.cases.Row`) as a mapping."""
        if self._pool is None:
            visible = None if target.emulated else visible_device(target.index)
            spawn = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(1, mp_context=spawn, initializer=_begin, initargs=(visible,))
        try:
            with one_thread():  # the first case starts the worker
                answer = self._pool.submit(judged, case.to_json(), target, products)
            row = answer.result(TIMEOUT)
        except BrokenProcessPool:
            row = {"decision": "fail", "outcome": "killed", "message": "the process died", "words": 0}
        except TimeoutError:
            row = {"decision": "fail", "outcome": "timeout", "message": f"no verdict within {TIMEOUT:g} s", "words": 0}
        if row["decision"] == "fail":  # its CUDA context may be dead: later cases would be its collateral faults
            self.close()
        return row

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            for process in list((pool._processes or {}).values()):
                process.kill()
            pool.shutdown(wait=True, cancel_futures=True)


def _begin(visible: str | None) -> None:
    """In the worker, before CUDA is initialised: see one GPU only."""
    if visible is not None:
        os.environ.update(CUDA_VISIBLE_DEVICES=visible, HARNESS_ONE_GPU="1")


def judged(record: Mapping, target: Target, products: int) -> dict[str, Any]:
    """Judge one large case in this process; its row as a mapping of plain values."""
    from dataclasses import asdict

    from bitverdict.harness.studies.large_gemm.cases import judge_large

    contract = resolve(record["contract"])
    (row,) = judge_large([contract.case_from_json(record)], target, products=products, jobs=0)
    return asdict(row) | {"decision": str(row.decision)}
