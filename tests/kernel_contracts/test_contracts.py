"""Contract under test: every kernel keeps its contract on every target it can run on: required cases, then draws.

Required cases are judged whole, but for those that a run for a commit leaves to other commits (`tests.support.shares.turn`).
Such a run judges a kernel that several targets can run on one of three of them."""

from __future__ import annotations

import pytest

from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from bitverdict.harness.model.addresses import resolve
from bitverdict.harness.model.targets import target
from tests.support.shares import turn


def _kind(item: pytest.Function) -> str:
    """The kernel, of a target that can run it; what cannot be run is said of each by itself."""
    node = item.callspec.params["node"]
    return str(node) if resolve(node.stem).lacking(target(node.target)) else node.stem


@pytest.mark.share(3, _kind)
def test_a_kernel_keeps_its_contract(node: Node, node_judge: NodeJudge, record_property) -> None:
    properties: list[tuple[str, object]] = []
    try:
        node_judge.hold(node, properties, turn())
    finally:
        for name, value in properties:
            record_property(name, value)
