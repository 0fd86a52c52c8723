"""The order of one sum, as a tree: leaves are its terms, a node adds its children.

A node of two children is an addition. One of more is a fused sum, as a tensor core makes: its children are aligned together and
rounded once. Children have no order: an addition gives the same word both ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

NestedLeaves = Any  # a leaf's number, or a list of Nested


@dataclass(frozen=True)
class Tree:
    """`leaves` positions of terms, of which those in the tree are numbered as the terms are. Node `leaves + i` has `children[i]`,
    which come before it; the last node is the root. Canonical: equal trees are equal records."""

    leaves: int
    children: tuple[tuple[int, ...], ...]
    single: int = -1  # the one leaf of a tree without a node

    @classmethod
    def from_lists(cls, leaf_lists: NestedLeaves, leaves: int) -> Tree:
        """The tree of nested lists of leaves; a list of one is what it holds."""
        node_children: list[tuple[int, ...]] = []
        least: dict[int, int] = {}  # of a list by its id, and of a node by its number: the smallest leaf
        post: list[list[NestedLeaves]] = []  # every list, before those that it holds
        todo: list[NestedLeaves] = [leaf_lists]
        while todo:
            node = todo.pop()
            if isinstance(node, list):
                post.append(node)
                todo.extend(node)

        def smallest(node: NestedLeaves) -> int:
            return least[id(node)] if isinstance(node, list) else int(node)

        for node in reversed(post):
            least[id(node)] = min(smallest(child_list) for child_list in node)
        top: list[int] = []
        stack: list[tuple[NestedLeaves, list[int], list[int] | None]] = [(leaf_lists, top, None)]
        number_of: dict[int, int] = {}  # node's number -> its smallest leaf
        while stack:
            node, into, inside = stack.pop()
            if not isinstance(node, list):
                into.append(int(node))
            elif inside is None:
                inside = []
                stack.append((node, into, inside))
                stack.extend((child_list, inside, None) for child_list in sorted(node, key=smallest, reverse=True))
            elif len(inside) == 1:
                into.append(inside[0])
            else:
                number = leaves + len(node_children)
                node_children.append(tuple(sorted(inside, key=lambda child: number_of.get(child, child))))
                number_of[number] = least[id(node)]
                into.append(number)
        return cls(leaves, tuple(node_children)) if node_children else cls(leaves, (), top[0] if top else -1)

    @property
    def root(self) -> int:
        """The last node, or the one leaf; -1 of no term."""
        return self.leaves + len(self.children) - 1 if self.children else self.single

    def of_node(self, node: int) -> tuple[int, ...]:
        """Its children; none of a leaf."""
        return self.children[node - self.leaves] if node >= self.leaves else ()

    @cached_property
    def parents(self) -> dict[int, int]:
        """Node or leaf -> the node that adds it."""
        return {child: self.leaves + place for place, inside in enumerate(self.children) for child in inside}

    @cached_property
    def below(self) -> dict[int, tuple[int, ...]]:
        """Node or leaf -> its leaves."""
        leaves_below: dict[int, tuple[int, ...]] = {}
        for place, inside in enumerate(self.children):
            for child in inside:
                if child < self.leaves:
                    leaves_below[child] = (child,)
            leaves_below[self.leaves + place] = tuple(leaf for child in inside for leaf in leaves_below[child])
        return leaves_below if leaves_below else {self.single: (self.single,)}

    @property
    def terms(self) -> tuple[int, ...]:
        """The leaves that the tree has."""
        return self.below[self.root] if self.root >= 0 else ()

    def to_lists(self, node: int | None = None) -> NestedLeaves:
        """The inverse of `of`."""
        found: dict[int, NestedLeaves] = {}
        for place, inside in enumerate(self.children):
            found[self.leaves + place] = [found.get(child, child) for child in inside]
        node = self.root if node is None else node
        return found.get(node, node)

    def depth(self) -> int:
        """Additions on the longest way from a leaf to the root."""
        reach: dict[int, int] = {}
        for place, inside in enumerate(self.children):
            reach[self.leaves + place] = 1 + max(reach.get(child, 0) for child in inside)
        return reach.get(self.root, 0)

    def levels(self) -> list[list[int]]:
        """Nodes in groups: those of one group need only those of earlier ones."""
        reach: dict[int, int] = {}
        groups: list[list[int]] = []
        for place, inside in enumerate(self.children):
            at = max((reach[child] + 1 for child in inside if child in reach), default=0)
            reach[self.leaves + place] = at
            groups.extend([] for _ in range(at + 1 - len(groups)))
            groups[at].append(self.leaves + place)
        return groups

    def kind(self, node: int) -> tuple[int, int]:
        """(leaves, nodes) among its children."""
        leaves = sum(child < self.leaves for child in self.of_node(node))
        return leaves, len(self.of_node(node)) - leaves


def chain(leaves: Sequence[NestedLeaves]) -> NestedLeaves:
    """One after another, from the first."""
    found: NestedLeaves = leaves[0]
    for each in leaves[1:]:
        found = [found, each]
    return found


def blocks(leaves: Sequence[int], block: int) -> NestedLeaves:
    """A chain of fused sums of `block` terms and what came before."""
    found: NestedLeaves = list(leaves[:block])
    for start in range(block, len(leaves), block):
        found = [found, *leaves[start : start + block]]
    return found


def halves(leaves: Sequence[NestedLeaves]) -> NestedLeaves:
    """A power of two of terms: each of the first half with its counterpart of the second, and so on."""
    found = list(leaves)
    while len(found) > 1:
        half = len(found) // 2
        found = [[found[i], found[half + i]] for i in range(half)]
    return found[0]
