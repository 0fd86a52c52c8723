"""How the nodes of a known tree round, from the sum alone.

A node with 2^e in one child and x in another is asked for 2^e + x: a leaf that joins above takes 2^e away again, so that what is
left needs few bits and no later addition changes it. Of the root nothing takes it away: there the output must hold it.

Write s for the distance of numbers of p bits at 2^e. Rounding to nearest gives 2^e + s for x = 0.75 s and for 1.25 s, truncation
2^e and 2^e + s. A node of more bits keeps x. In a fused sum of m terms of 2^(e - F) the terms count where F fraction bits are kept
below the largest term, and nothing is left of them where fewer are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import Rounding
from bitverdict.reference.sums.arithmetic import Addition, FusedSum, Operator
from bitverdict.reference.sums.tree import Tree
from bitverdict.reference.tensor_core import INSTRUCTIONS, Instruction
from bitverdict.reference.tensor_core.record import Accumulator

AskValues = Callable[[np.ndarray], np.ndarray]
"""(P, T) values of the leaves -> (P,) results, in float64."""
BITS = {24: "fp32", 11: "fp16", 8: "bf16", 14: "", 53: "fp64"}
"""Significant bits that a node may keep -> the format of an addition of two that keeps as many."""


@dataclass(frozen=True)
class NodeRounding:
    """What was seen of one node: significant bits, whether it truncates, and, of a fused sum, whether more fraction bits than the
    number given were kept below the largest term, as (bits, kept)."""

    bits: int
    truncates: bool
    alignment: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True)
class Span:
    """Exponents of the powers of two that every leaf holds."""

    low: int
    high: int


def measure_nodes(tree: Tree, nodes: Sequence[int], ask: AskValues, span: Span, root_bits: int) -> list[NodeRounding | None]:
    """What `nodes` do, each; None where nothing can be seen. `root_bits`: significant bits of the output."""
    probes: list[tuple[int, np.ndarray, float, float]] = []  # node, values (T,), what is left of exact addition, s
    for node in nodes:
        for bits in BITS:
            for share in (0.75, 1.25):
                if (made := _probe(tree, node, bits, share, span, root_bits)) is not None:
                    probes.append((node, *made))
    if not probes:
        return [None] * len(nodes)
    got = ask(np.stack([values for _, values, _, _ in probes]))
    shares_of: dict[tuple[int, float], list[float]] = {}
    for (node, _, held, step), result in zip(probes, got, strict=True):
        shares_of.setdefault((node, step), []).append((result - held) / step)
    results: list[NodeRounding | None] = []
    for node in nodes:
        best = None
        for (of, step), shares in shares_of.items():
            if of == node and tuple(shares) in ((1.0, 1.0), (0.0, 1.0)):
                bits = span.high + 1 - int(np.log2(step))
                if best is None or bits > best.bits:
                    best = NodeRounding(bits, tuple(shares) == (0.0, 1.0))
        results.append(best)
    return _measure_alignment(tree, nodes, results, ask, span, root_bits)


def _probe(tree: Tree, node: int, bits: int, share: float, span: Span, root_bits: int) -> tuple[np.ndarray, float, float] | None:
    """(values of the leaves, what of the large one is left in the result, s), or None where leaves or output cannot hold it."""
    step = span.high + 1 - bits
    if step - 2 < span.low:
        return None
    return _probe_beside(tree, node, [share * 2.0**step], span, root_bits, float(2.0**step))


def _probe_beside(
    tree: Tree, node: int, small_values: Sequence[float], span: Span, root_bits: int, step: float
) -> tuple[np.ndarray, float, float] | None:
    inside = tree.of_node(node)
    values = np.zeros(tree.leaves)
    own = [child for child in inside if child < tree.leaves]
    others = [child for child in inside if child >= tree.leaves]
    places = [tree.below[child][0] for child in (*own, *others)]
    if len(places) < len(small_values) + 1:
        return None
    values[places[0]] = 2.0**span.high
    values[places[1 : 1 + len(small_values)]] = small_values
    above = tree.parents.get(node)
    if above is None:
        return (values, 2.0**span.high, step) if root_bits >= span.high + 1 - np.log2(step) else None
    beside = next(child for child in tree.of_node(above) if child != node)
    values[tree.below[beside][0]] = -(2.0**span.high)
    return values, 0.0, step


def _measure_alignment(
    tree: Tree, nodes: Sequence[int], roundings: list[NodeRounding | None], ask: AskValues, span: Span, root_bits: int
) -> list[NodeRounding | None]:
    """`roundings`, with what is known of the alignment of fused sums."""
    probes: list[tuple[int, int, np.ndarray, float, float]] = []
    for place, (node, node_rounding) in enumerate(zip(nodes, roundings, strict=True)):
        if node_rounding is None or len(tree.of_node(node)) < 3:
            continue
        step = span.high + 1 - node_rounding.bits
        for extra in (1, 2, 3):
            if step - extra < span.low:
                continue
            made = _probe_beside(tree, node, [2.0 ** (step - extra)] * 2**extra, span, root_bits, float(2.0**step))
            if made is not None:
                probes.append((place, node_rounding.bits - 1 + extra, *made))
    if not probes:
        return roundings
    got = ask(np.stack([values for _, _, values, _, _ in probes]))
    aligned = list(roundings)
    for (place, fraction, _, held, unit), result in zip(probes, got, strict=True):
        known = aligned[place]
        assert known is not None
        aligned[place] = NodeRounding(known.bits, known.truncates, (*known.alignment, (fraction, (result - held) / unit == 1.0)))
    return aligned


def operator_of(node_rounding: NodeRounding, kind: tuple[int, int], formats: Sequence[str], arch: str) -> Operator | None:
    """The operator that rounds as `node_rounding`, of a node of `kind` (leaves, nodes); None where none is known on `arch`."""
    leaves, nodes = kind
    if leaves + nodes == 2 and not node_rounding.truncates:
        name = BITS[node_rounding.bits]
        return Addition(name) if name else None
    rule = instruction_of(node_rounding, leaves, formats, arch) if nodes <= 1 and len(formats) == 2 else None
    return FusedSum(rule) if rule is not None else None


def instruction_of(node_rounding: NodeRounding, leaves: int, formats: Sequence[str], arch: str) -> Instruction | None:
    """The matrix instruction of `arch` whose block step rounds as `node_rounding`, for factors in `formats`."""
    for rule in INSTRUCTIONS:
        if rule.arch != arch or rule.d not in ("fp32", "fp16") or rule.scale is not None or rule.passes is not None:
            continue
        if rule.accumulator is not Accumulator.IN_SUM or leaves > rule.block or not _takes(rule, formats):
            continue
        truncates = rule.rounding is Rounding.TOWARD_ZERO
        if (rule.output_fraction_bits + 1, truncates) != (node_rounding.bits, node_rounding.truncates):
            continue
        if all((rule.fraction_bits >= fraction) == kept for fraction, kept in node_rounding.alignment):
            return rule
    return None


def _takes(rule: Instruction, formats: Sequence[str]) -> bool:
    own = tuple("tf32" if form == "fp32" else form for form in formats)
    return (rule.a, rule.b) == own or (rule.a == rule.b == "fp16" and set(own) <= {"e4m3", "e5m2"})
