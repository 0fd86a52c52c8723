"""Which nodes a pytest session has: each contract on each target, in as many shards as keep the workers of pytest-xdist busy.

A node's cases are judged one after the other. On a GPU most of a cold case is its compilation, so one node of 128 cases would be
judged for minutes after all others. `--bv-shards` says how many shards a node has; without it the required cases do.
"""

from __future__ import annotations

from typing import Any

import pytest

from bitverdict.harness.frontends.pytest_nodes import Node
from bitverdict.harness.frontends.pytest_targets import target_names
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import gpus_called

CASES = 4
"""Required cases of one shard, at least: on a GPU 5 s of compiling in the slowest contract (block_scaled_matmul, H100)."""


def all_nodes(config: pytest.Config) -> list[Node]:
    """The nodes of every contract on every target that is asked for, shards of one node far from each other: a worker of
    pytest-xdist begins with neighbours."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    asked, workers = config.getoption("--bv-shards"), int(given.get("workercount", 1))
    found = []
    for stem in kernels_with_a_contract():
        for name in target_names(config):
            shards = asked or shards_of(stem, name, workers)
            found += [Node(stem, name, shard, shards) for shard in range(shards)]
    return sorted(found, key=lambda node: (node.shard + 0.5) / node.shards)


def shards_of(stem: str, target: str, workers: int) -> int:
    """How many shards the node of `stem` on `target` has in a session of so many workers: 1 on an emulated target."""
    if workers < 2 or not target.startswith("cuda"):
        return 1
    where, contract = gpus_called(target)[0], resolve(stem)
    if contract.lacking(where):
        return 1
    return max(1, min(workers, len(contract.required(where)) // CASES))
