"""Contract under test: every kernel keeps its contract on every target it can run on: required cases, then draws.

Required cases are judged whole, but for those that a run for a commit leaves to other commits (`tests.support.shares.turn`)."""

from __future__ import annotations

from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge
from tests.support.shares import turn


def test_a_kernel_keeps_its_contract(node: Node, node_judge: NodeJudge, record_property) -> None:
    properties: list[tuple[str, object]] = []
    try:
        node_judge.hold(node, properties, turn())
    finally:
        for name, value in properties:
            record_property(name, value)
