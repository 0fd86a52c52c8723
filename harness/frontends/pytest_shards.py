"""Which nodes a pytest session has: each contract on each target, in as many shards as keep the workers of pytest-xdist busy.

A node's cases are judged one after the other. On a GPU most of a cold case is its compilation, so one node of 128 cases would be
judged for minutes after all others. `--bv-shards` says how many shards a node has; without it the required cases do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from bitverdict.harness.frontends.pytest_targets import target_names
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.paths import kernels_with_a_contract
from bitverdict.harness.model.targets import gpus_called

if TYPE_CHECKING:
    from bitverdict.harness.frontends.pytest_nodes import Node

T = TypeVar("T")
CASES = 4
"""Required cases of one shard, at least: on a GPU 5 s of compiling in the slowest contract (block_scaled_matmul, H100)."""

LONGEST = "block_scaled_matmul", "matmul"
"""The contracts that compile longest: 361 and 113 of 645 s of a cold run on an H200."""
LARGE_PART = 4
"""Of so many workers one begins with large products. They keep the GPU busy, from the beginning to the end while others compile."""


def all_nodes(config: pytest.Config) -> list[Node]:
    """The nodes of every contract on every target that is asked for, shards of one node far from each other: a worker of
    pytest-xdist begins with neighbours."""
    given: dict[str, Any] = getattr(config, "workerinput", {})
    shard_count, workers = config.getoption("--bv-shards"), int(given.get("workercount", 1))
    from bitverdict.harness.frontends.pytest_nodes import Node  # torch

    found = []
    for stem in kernels_with_a_contract():
        for name in target_names(config):
            shards = shard_count or shards_of(stem, name, workers)
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


def dealt(items: Sequence[pytest.Item], workers: int) -> list[pytest.Item]:
    """`items` as pytest-xdist gives them out, each worker a stretch of as many: some begin with large products, neighbours of which
    share operands, and all others with the nodes of `LONGEST`. Tests that judge nothing stay neighbours and come last. Who has done
    its own takes others' from the end."""
    given = {item: item.callspec.params if hasattr(item, "callspec") else {} for item in items}
    large, nodes = ([item for item in items if name in given[item]] for name in ("large_node", "node"))
    nodes.sort(key=lambda item: (*LONGEST, given[item]["node"].stem).index(given[item]["node"].stem))
    unjudged_items = [item for item in items if not {"node", "large_node"} & given[item].keys()]
    count = len(large) + len(nodes)
    first = max(-(-workers // LARGE_PART), -(-len(large) * workers // max(count, 1)))
    parts = [_stretch(large, place, first) for place in range(first)] + [[] for _ in range(workers - first)]
    sizes = [(count + place) // workers for place in range(workers)]  # as pytest-xdist counts
    for item in nodes:
        min((part for part, size in zip(parts, sizes, strict=True) if len(part) < size), key=len).append(item)
    return [item for place, part in enumerate(parts) for item in (*part, *_stretch(unjudged_items, place, workers))]


def _stretch(items: Sequence[T], place: int, places: int) -> list[T]:
    """Neighbours among `items`, a part in `places` of them."""
    return list(items[len(items) * place // places : len(items) * (place + 1) // places])
