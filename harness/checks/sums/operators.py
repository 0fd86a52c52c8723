"""How the nodes of recovered trees round: orders with the operators that were measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from bitverdict.harness.checks.sums.masks import Scale, span_of
from bitverdict.harness.checks.sums.probes import NotRecovered, SummedOutput
from bitverdict.reference.formats import FORMATS
from bitverdict.reference.sums.arithmetic import Addition, Operator, Order
from bitverdict.reference.sums.rounding import Span, measure_nodes, operator_of
from bitverdict.reference.sums.tree import Tree


def candidates(summed_output: SummedOutput, members: np.ndarray, trees: list[Tree], scale: Scale) -> Iterator[list[Order]]:
    """Orders of all classes with the operators that were measured; several where a root does not show its own."""
    arch = summed_output.launches.target.arch
    own = [summed_output.formats[name].name for name, _ in summed_output.terms.segments[0].factors]
    operators_of_kind: dict[tuple[int, int], list[Operator]] = {}
    span = span_of(summed_output)
    span = Span(span.low, min(span.high, scale.high))
    for place, tree in enumerate(trees):
        carriers = None
        kinds: dict[tuple[int, int], list[int]] = {}
        for node in range(tree.leaves, tree.leaves + len(tree.children)):
            kinds.setdefault(tree.kind(node), []).append(node)
        for kind, nodes in kinds.items():
            if kind in operators_of_kind:
                continue
            carriers = summed_output.carriers(np.flatnonzero(members == place)) if carriers is None else carriers
            inner = [node for node in nodes if node != tree.root]
            chosen = [inner[i] for i in sorted({0, len(inner) // 2, len(inner) - 1})] if inner else nodes
            by = carriers
            measures = measure_nodes(
                tree,
                chosen,
                lambda values, by=by: summed_output.probe_results(summed_output.factors_for(values), by),  # type: ignore[misc]
                span,
                summed_output.bits,
            )
            seen = [entry for entry in measures if entry is not None]
            usable = [entry for one in dict.fromkeys(seen) if (entry := operator_of(one, kind, own, arch)) is not None]
            if seen and not usable:
                rounds = f"{seen[0].bits} bits, {'truncated' if seen[0].truncates else 'to nearest'}"
                raise NotRecovered(
                    f"{summed_output.name}: nodes of {kind[0]} terms and {kind[1]} sums keep {rounds}: no operator of {arch} does"
                )
            if usable and inner:
                operators_of_kind[kind] = usable
            elif usable or kind not in operators_of_kind:
                operators_of_kind.setdefault(
                    kind, [*usable, Addition("fp32"), Addition("fp16"), Addition("bf16")] if sum(kind) == 2 else usable
                )
    if any(not entry for entry in operators_of_kind.values()):
        kind = next(kind for kind, entry in operators_of_kind.items() if not entry)
        raise NotRecovered(
            f"{summed_output.name}: how nodes of {kind[0]} terms and {kind[1]} sums round does not show in the output"
        )
    formats = tuple(own)
    for chosen_operators in product(*(dict.fromkeys(entry) for entry in operators_of_kind.values())):
        by_kind = dict(zip(operators_of_kind, chosen_operators, strict=True))
        orders = []
        for place, tree in enumerate(trees):
            operators = tuple(by_kind[tree.kind(node)] for node in range(tree.leaves, tree.leaves + len(tree.children)))
            orders.append(Order(tree, operators, frozenset(), formats))
            orders[-1] = replace(orders[-1], fused_leaves=_fused_leaves(summed_output, members, place, orders[-1]))
        yield orders


def _fused_leaves(summed_output: SummedOutput, members: np.ndarray, place: int, order: Order) -> frozenset[int]:
    """The leaves of additions of fp32 whose product is not rounded before it is added."""
    tree = order.tree
    if len(order.formats) != 2 or sum(FORMATS[form].mantissa_bits + 1 for form in order.formats) <= 24 or not tree.children:
        return frozenset()
    leaf_pairs = [
        (leaf, above) for leaf in tree.terms if isinstance(order.operators[(above := tree.parents[leaf]) - tree.leaves], Addition)
    ]
    if not leaf_pairs:
        return frozenset()
    factors = np.ones((2, len(leaf_pairs), tree.leaves))
    factors[0] = 0.0
    for row, (leaf, above) in enumerate(leaf_pairs):
        beside = next(child for child in tree.of_node(above) if child != leaf)
        factors[:, row, leaf] = 1 + 2.0**-12
        factors[0, row, tree.below[beside][0]] = -(1 + 2.0**-11)
    left = summed_output.probe_results(factors, summed_output.carriers(np.flatnonzero(members == place)))
    return frozenset(leaf for (leaf, _), each in zip(leaf_pairs, left, strict=True) if each == 2.0**-24)
