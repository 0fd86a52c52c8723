"""Contract under test: every kernel keeps its contract on every target it can run on: required cases whole, then draws."""

from __future__ import annotations

from bitverdict.harness.frontends.pytest_nodes import Node, NodeJudge


def test_a_kernel_keeps_its_contract(node: Node, node_judge: NodeJudge, record_property) -> None:
    properties: list[tuple[str, object]] = []
    try:
        node_judge.hold(node, properties)
    finally:
        for name, value in properties:
            record_property(name, value)
