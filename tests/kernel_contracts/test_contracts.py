"""Contract under test: every kernel keeps its contract on every target it can run on: cover list whole, then draws."""

from __future__ import annotations

from bitverdict.harness.frontends.pytest_plugin import Court, Node


def test_a_kernel_keeps_its_contract(node: Node, court: Court, record_property) -> None:
    properties: list[tuple[str, object]] = []
    try:
        court.hold(node, properties)
    finally:
        for name, value in properties:
            record_property(name, value)
