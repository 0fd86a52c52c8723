"""The words that a tree of additions gives: every node rounds as its operator says.

An `Addition` is the sum of two, rounded to nearest even in its format (IEEE 754). The value of a leaf there is the product of its
factors, rounded to that format first, or not where a fused multiply-add takes the product in. A fused sum is a block step of a
matrix instruction (`reference/tensor_core`): its leaves are products, and a node among its children is its accumulator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bitverdict.reference.formats import FORMATS, decode, encode
from bitverdict.reference.fused_multiply_add import fused_multiply_add
from bitverdict.reference.sums.tree import Tree
from bitverdict.reference.tensor_core import Instruction, elements
from bitverdict.reference.tensor_core.product import words

MOST_VALUES = 1 << 22  # values of leaves and nodes that are held at a time


@dataclass(frozen=True)
class Addition:
    """Of two, rounded to nearest even in `format`: "fp16", "bf16", "fp32" or "fp64"."""

    format: str = "fp32"

    @property
    def name(self) -> str:
        """As a report writes it."""
        return f"{self.format} addition, to nearest even"


@dataclass(frozen=True)
class FusedSum:
    """A block step of the matrix instruction `rule`."""

    rule: Instruction

    @property
    def name(self) -> str:
        """As a report writes it."""
        rule = self.rule
        rounded = f"{rule.d}, {str(rule.rounding.value).replace('_', ' ')}"
        return f"fused sum cut at {rule.fraction_bits} fraction bits, rounded to {rounded} ({rule.name})"


Operator = Addition | FusedSum


@dataclass(frozen=True)
class Order:
    """How one sum is computed: a tree, the operator of each node, the leaves whose products fused multiply-adds take in, and the
    formats of the factors."""

    tree: Tree
    operators: tuple[Operator, ...]
    fused_leaves: frozenset[int]
    formats: tuple[str, ...]

    def evaluate(self, factors: np.ndarray) -> np.ndarray:
        """(P,) float64 values of the sums whose terms have `factors` (F, P, T): exact numbers of the root's format."""
        _, outputs, count = factors.shape
        step = max(1, MOST_VALUES // max(count + len(self.tree.children), 1))
        found = np.empty(outputs)  # (P,)
        with np.errstate(all="ignore"):
            for start in range(0, outputs, step):
                found[start : start + step] = self._evaluate_batch(factors[:, start : start + step])
        return found

    def _evaluate_batch(self, factors: np.ndarray) -> np.ndarray:
        tree, (_, outputs, count) = self.tree, factors.shape
        if tree.root < 0:
            return np.zeros(outputs)
        leaves = factors.prod(axis=0).T  # (T, P) exact: of two factors of at most 26 bits
        if not tree.children:
            result: np.ndarray = leaves[tree.root]
            return result
        wide = any(isinstance(each, Addition) and each.format == "fp64" for each in self.operators)
        node_values = np.empty((count + len(tree.children), outputs), np.float64 if wide else np.float32)  # (T + nodes, P)
        node_values[:count] = self._leaves(leaves)
        evaluated_nodes: set[int] = set()
        for level in tree.levels():
            additions: dict[str, list[int]] = {}
            for node in level:
                operator = self.operators[node - tree.leaves]
                if isinstance(operator, FusedSum):
                    if node not in evaluated_nodes:
                        self._fused_chain(node, operator, factors, node_values, evaluated_nodes)
                elif self.fused_leaves and not self.fused_leaves.isdisjoint(tree.of_node(node)):
                    node_values[node] = self._multiply_add(node, factors, node_values)
                else:
                    additions.setdefault(operator.format, []).append(node)
            for form, nodes in additions.items():
                left, right = (node_values[[tree.of_node(node)[side] for node in nodes]] for side in (0, 1))  # (nodes, P)
                node_values[nodes] = _round_to(left + right, form) if form in ("fp32", "fp64") else _narrow_sum(left, right, form)
        result = node_values[tree.root].astype(np.float64)
        return result

    def _leaves(self, leaves: np.ndarray) -> np.ndarray:
        """(T, P), each leaf of an addition rounded to its format."""
        rounded_leaves = leaves
        for form in {each.format for each in self.operators if isinstance(each, Addition)} - {"fp64", "fp32"}:
            mine = [
                leaf
                for leaf in self.tree.terms
                if isinstance(each := self.operators[self.tree.parents[leaf] - self.tree.leaves], Addition) and each.format == form
            ]
            if mine:
                rounded_leaves = rounded_leaves.copy() if rounded_leaves is leaves else rounded_leaves
                rounded_leaves[mine] = _round_to(leaves[mine], form)
        return rounded_leaves

    def _multiply_add(self, node: int, factors: np.ndarray, held: np.ndarray) -> np.ndarray:
        """(P,) of a fused multiply-add."""
        one, other = self.tree.of_node(node)
        product, addend = (one, other) if one in self.fused_leaves else (other, one)
        a, b = (factors[side, :, product].astype(np.float32) for side in (0, 1))
        return fused_multiply_add(a, b, held[addend].astype(np.float32)).view(np.float32)

    def _fused_chain(
        self, node: int, operator: FusedSum, factors: np.ndarray, node_values: np.ndarray, evaluated_nodes: set[int]
    ) -> None:
        """Every node of a chain of full blocks of one instruction that begins at `node`, in one call."""
        tree, rule = self.tree, operator.rule
        run = [node]
        while (
            len(self._own(run[-1])) == rule.block
            and (above := tree.parents.get(run[-1])) is not None
            and self.operators[above - tree.leaves] == operator
            and tree.kind(above)[1] == 1
        ):
            run.append(above)
        order = [leaf for each in run for leaf in self._own(each)]
        inner = [child for child in tree.of_node(node) if child >= tree.leaves]
        rows = [
            encode(FORMATS["fp32" if form == "tf32" else form], np.ascontiguousarray(factors[side][:, order]))  # (P, K)
            for side, form in enumerate((rule.a, rule.b))
        ]
        c = words(rule.output, node_values[inner[0]].astype(np.float64)) if inner else None  # (P,)
        node_values[run[-1]] = decode(rule.output, elements(rule, rows[0], rows[1], c))
        evaluated_nodes.update(run)

    def _own(self, node: int) -> list[int]:
        return [child for child in self.tree.of_node(node) if child < self.tree.leaves]


def _round_to(values: np.ndarray, form: str) -> np.ndarray:
    if form == "fp64":
        return values
    if form in ("fp32", "fp16"):
        return values.astype(np.float32 if form == "fp32" else np.float16)
    return decode(FORMATS[form], encode(FORMATS[form], values.astype(np.float64)))


def _narrow_sum(left: np.ndarray, right: np.ndarray, form: str) -> np.ndarray:
    """Rounded once: float64 holds the sum of two fp16 or bf16 numbers exactly, or to far more bits than a tie needs."""
    return _round_to(left.astype(np.float64) + right.astype(np.float64), form)


def encode_values(values: np.ndarray, form: str) -> np.ndarray:
    """Words of float64 `values` in `form`, rounded to nearest even."""
    return encode(FORMATS[form], np.asarray(values, np.float64))


def operators_named(order: Order) -> list[str]:
    """The names of the operators of `order`, the most frequent first."""
    counted: dict[str, int] = {}
    for each in order.operators:
        counted[each.name] = counted.get(each.name, 0) + 1
    return sorted(counted, key=lambda name: -counted[name])
