"""Contract under test: on a GPU, products of up to 8192^3 are right bit for bit: small results whole, others by chosen elements.

Collected where a GPU is asked for (`--bv-target cuda`).
"""

from __future__ import annotations

from bitverdict.harness.frontends.pytest_nodes import NodeJudge
from bitverdict.harness.lab.pytest_large import LargeNode


def test_a_large_product_is_right_bit_for_bit(large_node: LargeNode, node_judge: NodeJudge, record_property) -> None:
    properties: list[tuple[str, object]] = []
    try:
        node_judge.hold_large(large_node, properties)
    finally:
        for name, value in properties:
            record_property(name, value)
