"""Large products as pytest nodes: one case a node, on a GPU, in the worker that judges the small cases there.

Which cases there are does not depend on the machine, so that all workers collect the same; what a machine lacks a feature for is
skipped with its name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.workers.pool import WorkerPool
from bitverdict.kernels.features import Feature


@dataclass(frozen=True)
class LargeNode:
    """One test: a large case on a target. `label` tells apart the cases of one kernel, type and size."""

    case: Case
    kind: str
    label: str
    target: str

    def __str__(self) -> str:
        from bitverdict.harness.lab.large_gemm.operands import size_of

        size = "x".join(map(str, size_of(self.case.problem)))
        return f"{self.case.contract}-{self.kind}-{self.label}-{size}-{self.target}".replace(" ", "_")


def large_nodes(sizes: str, seeds: int, names: Sequence[str]) -> list[LargeNode]:
    """Every large case of `sizes` ("MxNxK,..."), each with `seeds` seeds of data, on each target named. Cases of one type and size
    follow each other: most of them have the same operands, which are drawn once (`large_gemm.operands.draw`)."""
    from bitverdict.harness.lab.large_gemm.cases import cases
    from bitverdict.harness.lab.large_gemm.operands import size_of

    requested_sizes = []
    for text in sizes.split(","):
        size = tuple(int(part) for part in text.split("x") if part.isdigit())
        if len(size) != 3 or text.count("x") != 2 or min(size) < 1:
            raise UsageError(f"size {text!r}: must be MxNxK, for example 8192x8192x8192")
        requested_sizes.append((size[0], size[1], size[2]))
    nodes, config_counts = [], Counter[tuple]()
    for case in cases(requested_sizes, Target("", "sm_90")):  # with the configurations that need TMA
        p = case.problem
        kind = getattr(p, "format", "") or p.dtype + (" ieee" if getattr(p, "precision", "") == "ieee" else "")
        place = (case.contract, kind, *size_of(p))
        label = "autotuned" if case.config is None else str(config_counts[place])
        config_counts[place] += case.config is not None
        for seed in range(seeds):
            seeded = replace(case, data_seed=case.data_seed + seed)
            nodes += [LargeNode(seeded, kind, f"{label}.{seed}" if seeds > 1 else label, name) for name in names]
    return sorted(nodes, key=lambda node: (node.kind, size_of(node.case.problem)), reverse=True)


def missing_features(case: Case, target: Target) -> list[str]:
    """Names of the features that the kernel, in this configuration, requires and `target` lacks."""
    described = getattr(case.config, "loads", "") == "descriptors"
    needs = resolve(case.contract).requires | ({Feature.TMA} if described else set())
    return sorted(str(feature) for feature in needs - target.features)


def large_row(pool: WorkerPool, case: Case, target: Target, products: int) -> dict[str, Any]:
    """The case's row (`bitverdict.harness.lab.large_gemm.cases.Row`) as a mapping, judged in a worker of `pool`."""
    from bitverdict.harness.lab.large_gemm.cases import row_of, task_of

    row = row_of(case, pool.judge(task_of(case, products), target))
    return asdict(row) | {"decision": str(row.decision)}
