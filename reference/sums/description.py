"""A tree of additions in words: one line that says its shape, and brackets."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import groupby, pairwise

from bitverdict.reference.sums.tree import NestedLeaves, Tree, chain

MOST_CHARACTERS = 600  # characters of brackets


class Shapes:
    """The nodes of a tree by their shape, whatever their leaves are."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    @cached_property
    def keys(self) -> dict[int, int]:
        """Node or leaf -> a number that it shares with those of its shape; 0 of a leaf."""
        known: dict[tuple[int, ...], int] = {}
        found: dict[int, int] = {}
        for place, inside in enumerate(self.tree.children):
            own = tuple(sorted(found.setdefault(child, 0) if child < self.tree.leaves else found[child] for child in inside))
            found[self.tree.leaves + place] = known.setdefault(own, len(known) + 1)
        return found

    def describe(self, node: int) -> str:
        """The shape below `node`."""
        tree = self.tree
        inside = tree.of_node(node)
        if not inside:
            return "one term"
        if all(child < tree.leaves for child in inside) and len(inside) > 2:
            return f"a fused sum of {len(inside)} terms"
        few = len(tree.below[node]) < 4  # three terms one after another are a balanced tree over four places too
        named = (self._chain, self._bits) if few else (self._bits, self._chain)
        return named[0](node) or self._lanes(node) or named[1](node) or self._describe_balanced(node) or self._describe_any(node)

    def _describe_any(self, node: int) -> str:
        inside = self.tree.of_node(node)
        if len(inside) == 2:
            return f"the sum of ({self.describe(inside[0])}) and ({self.describe(inside[1])})"
        return f"a tree of {len(self.tree.below[node])} terms"

    def _chain(self, node: int) -> str:
        """What is added one after another."""
        tree, position, steps = self.tree, node, list[tuple[int, ...]]()
        while inside := tree.of_node(position):
            counts = sorted(((len(tree.below[child]), child) for child in inside), reverse=True)
            inner = [child for child in inside if child >= tree.leaves]
            if (
                not inner
                or self._is_fused(position) != self._is_fused(node)
                or (len(counts) > 1 and self.keys[counts[0][1]] == self.keys[counts[1][1]])
            ):
                break
            main = counts[0][1]
            steps.append(tuple(child for child in inside if child != main))
            position = main
        alike = bool(steps) and {self.keys[child] for child in tree.of_node(position)} == {self.keys[child] for child in steps[-1]}
        if len(steps) < (1 if steps and (len(steps[0]) > 1 or alike) else 2):
            return ""
        steps.reverse()
        base = tree.of_node(position)
        step_keys = [tuple(sorted(self.keys[step_child] for step_child in step)) for step in steps]
        rest = [(key, len(list(group))) for key, group in groupby(step_keys)]
        first = tuple(sorted(self.keys[step_child] for step_child in base))
        if len(base) == 2 and len(set(first)) == 1 and step_keys[0] == first[:1]:  # a chain of single ones begins with two
            falls = len(steps) > 1 and min(tree.below[steps[0][0]]) > min(tree.below[steps[1][0]])
            steps[:0] = [base[1:], base[:1]] if falls else [base[:1], base[1:]]
            rest[0] = (rest[0][0], rest[0][1] + 2)
        elif first == step_keys[0]:
            steps.insert(0, base)
            rest[0] = (rest[0][0], rest[0][1] + 1)
        elif self.keys[position] == step_keys[0][0] and len(step_keys[0]) == 1:
            steps.insert(0, (position,))
            rest[0] = (rest[0][0], rest[0][1] + 1)
        else:
            rest.insert(0, ((self.keys[position],), 1))
            steps.insert(0, (position,))
        parts, start = [], 0
        for _, count in rest:
            parts.append(self._steps(steps[start : start + count]))
            start += count
        places = [min(min(self.tree.below[step_child]) for step_child in step) for step in steps]
        return f"{' then '.join(parts)}, {_direction(places)}"

    def _is_fused(self, node: int) -> bool:
        """Whether it is a fused sum, or one of a single term behind others: what is left of K."""
        inside = self.tree.of_node(node)
        if len(inside) > 2:
            return True
        leaves, nodes = self.tree.kind(node)
        return leaves == 1 and nodes == 1 and len(self.tree.of_node(inside[0] if inside[0] >= self.tree.leaves else inside[1])) > 2

    def _steps(self, steps: Sequence[tuple[int, ...]]) -> str:
        first, count = steps[0], len(steps)
        if len(first) == 1 and first[0] < self.tree.leaves:
            return f"{count} terms one after another" if count > 1 else "one term"
        if all(each < self.tree.leaves for each in first):
            return f"a chain of {count} fused sums of {len(first)}" if count > 1 else f"a fused sum of {len(first)}"
        inside = " and ".join(self.describe(each) for each in first)
        return f"{count} parts one after another, each {inside}" if count > 1 else inside

    def _describe_balanced(self, node: int) -> str:
        """Halves of one shape, again and again, and what lies below them."""
        tree, front, distances = self.tree, [node], list[set[int]]()
        while all(len(tree.of_node(distance_set)) == 2 for distance_set in front):
            below = [child for distance_set in front for child in tree.of_node(distance_set)]
            if len({self.keys[child] for child in below}) != 1:
                break
            distances.insert(0, {tree.below[b][0] - tree.below[a][0] for a, b in map(tree.of_node, front)})
            front = below
        if not distances:
            return ""
        apart = ", ".join(str(next(iter(distance_set))) if len(distance_set) == 1 else "several" for distance_set in distances)
        if front[0] < tree.leaves:
            return f"a balanced tree over {len(front)} terms, {apart} apart"
        return f"a balanced tree over {len(front)} parts, {apart} apart; each {self.describe(front[0])}"

    def _bits(self, node: int) -> str:
        """A balanced tree some of whose leaves are not there, because the tile is larger than the sum."""
        tree = self.tree
        leaves = list(tree.below[node])
        order = list[int]()
        position = node
        while inside := tree.of_node(position):
            if len(inside) != 2:
                return ""
            left_leaves, right_leaves = (tree.below[child] for child in inside)
            bits = range(max(leaves).bit_length())
            split = [
                bit
                for bit in bits
                if bit not in order and len({x >> bit & 1 for x in left_leaves}) == 1 == len({x >> bit & 1 for x in right_leaves})
            ]
            split = [bit for bit in split if left_leaves[0] >> bit & 1 != right_leaves[0] >> bit & 1]
            if not split:
                return ""
            order.append(max(split))
            position = max(inside, key=lambda child: len(tree.below[child]))
        order += [bit for bit in range(max(leaves).bit_length()) if bit not in order]
        if (
            Tree.from_lists(_by_bits(leaves, order), tree.leaves).to_lists()
            != Tree.from_lists(tree.to_lists(node), tree.leaves).to_lists()
        ):
            return ""
        apart = ", ".join(str(1 << bit) for bit in reversed(order))
        many = f"{len(leaves)} terms" if len(leaves) == 1 << len(order) else f"{len(leaves)} terms in {1 << len(order)} places"
        return f"a balanced tree over {many}, {apart} apart"

    def _lanes(self, node: int) -> str:
        """Every so many-th term one after another, and then what these give, as a balanced tree."""
        tree = self.tree
        leaves = sorted(tree.below[node])
        nested_lists = Tree.from_lists(tree.to_lists(node), tree.leaves).to_lists()
        for bits in range(1, max(leaves).bit_length()):
            lanes = [leaves[lane :: 1 << bits] for lane in range(min(1 << bits, len(leaves)))]
            if leaves != list(range(len(leaves))) or len(lanes[0]) < 3:
                return ""
            order = self._split(node, bits)
            made = _by_bits(list(range(len(lanes))), order, [chain(lane) for lane in lanes]) if order else []
            if order and Tree.from_lists(made, tree.leaves).to_lists() == nested_lists:
                apart, count = ", ".join(str(1 << bit) for bit in reversed(order)), len(lanes)
                return (
                    f"{count} lanes, each of terms {count} apart one after another; then a balanced tree over lanes, {apart} apart"
                )
        return ""

    def _split(self, node: int, bits: int) -> list[int]:
        """The bits by which a node of `bits` levels divides its leaves, from the root; empty where it does not."""
        order: list[int] = []
        position = node
        for _ in range(bits):
            inside = self.tree.of_node(position)
            if len(inside) != 2:
                return []
            one, other = (self.tree.below[child] for child in inside)
            split = [
                bit
                for bit in range(bits)
                if bit not in order and len({x >> bit & 1 for x in one}) == 1 == len({x >> bit & 1 for x in other})
            ]
            if not split:
                return []
            order.append(split[-1])
            position = inside[0]
        return order


def _by_bits(leaves: list[int], order: Sequence[int], parts: Sequence[NestedLeaves] = ()) -> NestedLeaves:
    """Halves by the bits of `order`; `parts` stand in the place of the leaves that number them."""
    if len(leaves) == 1:
        return parts[leaves[0]] if parts else leaves[0]
    sides = [[leaf for leaf in leaves if leaf >> order[0] & 1 == side] for side in (0, 1)]
    return [_by_bits(side, order[1:], parts) for side in sides if side]


def _direction(places: Sequence[int]) -> str:
    distances = {b - a for a, b in pairwise(places)}
    if len(distances) == 1:
        step = distances.pop()
        return ("ascending" if step > 0 else "descending") + (f", {abs(step)} apart" if abs(step) > 1 else "")
    return (
        "ascending"
        if min(distances) > 0
        else "descending"
        if max(distances) < 0
        else f"in the order of {', '.join(map(str, places[:6]))} ..."
    )


def describe_tree(tree: Tree) -> str:
    """The shape of `tree` in one line."""
    return f"{len(tree.terms)} terms: {Shapes(tree).describe(tree.root)}" if tree.root >= 0 else "no term"


def brackets(tree: Tree, most_characters: int = MOST_CHARACTERS) -> str:
    """The tree as nested brackets, runs of neighbours as ``0..15``; cut in the middle where it is longer than `most_characters`."""
    texts: dict[int, str] = {}
    for place, inside in enumerate(tree.children):
        parts, run = [], list[int]()
        for child in (*inside, -1):
            if 0 <= child < tree.leaves and (not run or child == run[-1] + 1):
                run.append(child)
                continue
            parts += [f"{run[0]}..{run[-1]}"] if len(run) > 2 else list(map(str, run))
            run = [child] if 0 <= child < tree.leaves else []
            if child >= tree.leaves:
                parts.append(texts.pop(child))
        texts[tree.leaves + place] = f"({' '.join(parts)})"
    whole = texts.get(tree.root, str(tree.root))
    return whole if len(whole) <= most_characters else f"{whole[: most_characters // 2]} ... {whole[-most_characters // 2 :]}"
