"""The tree of a sum, from the sum alone.

Idea (FPRev, arXiv 2411.00442): give one leaf a number M so large that units beside it vanish, another leaf -M, all others one unit.
Units that are added before the two masks have met vanish; the others are counted by the result. So the result tells how many leaves
lie below the node where the two meet, `size(i, j)`. Sizes of all pairs are the tree.

Not all pairs are asked. The sizes of one leaf with all others of a set sort that set into what joins the leaf's way to the root,
one node after another. Each of these groups is then a set of its own. A random leaf leads, so that a chain of n terms costs about
2 n log n probes in whichever direction it runs, and a chain of fused sums about 2 n.

Of a fused sum several children meet at one node: in a group of the way, size(i, j) is then that of the node for leaves of different
children.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from bitverdict.reference.sums.tree import NestedLeaves, Tree

Ask = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(masks (P, 2), units (P, T) bool) -> (P,) units counted, NaN where the result is no finite number. The masks of a row are leaves
that hold M and -M, -1 for none; the leaves of `units` hold one unit, all others zero."""


class NoTree(Exception):
    """The results are those of no tree of additions that lose what is small beside M; the message says which result is not."""


@dataclass
class _Node:
    children: list[_Node | int] = field(default_factory=list)

    def to_lists(self) -> NestedLeaves:
        """As nested lists, without a call for each level."""
        lists: dict[int, list[NestedLeaves]] = {id(self): []}
        todo = [self]
        while todo:
            node = todo.pop()
            for child in node.children:
                if isinstance(child, _Node):
                    lists[id(child)] = []
                    lists[id(node)].append(lists[id(child)])
                    todo.append(child)
                else:
                    lists[id(node)].append(child)
        return lists[id(self)]


@dataclass(frozen=True)
class _Task:
    """`leaves` are whole children of `parent`, a node above `size` leaves."""

    leaves: tuple[int, ...]
    size: int
    parent: _Node


def sizes(pairs: np.ndarray, terms: np.ndarray, count: int, ask: Ask, most: int) -> np.ndarray:
    """(P,) how many of the leaves `terms` lie below the node where the two of each of `pairs` (P, 2) meet.

    `count`: positions of leaves. `most` units are counted at a time. Raises NoTree for a count that no tree gives.
    """
    groups = -(-len(terms) // most)
    units = np.zeros((groups, count), bool)
    for place in range(groups):
        units[place, terms[place::groups]] = True
    mask_pairs = np.repeat(pairs, groups, axis=0)  # (P * groups, 2)
    unit_masks = np.tile(units, (len(pairs), 1))  # (P * groups, T)
    np.put_along_axis(unit_masks, mask_pairs, False, axis=1)
    unit_counts = ask(mask_pairs, unit_masks)
    wrong_places = (
        ~np.isfinite(unit_counts)
        | (unit_counts < 0)
        | (unit_counts > unit_masks.sum(axis=1))
        | (unit_counts != np.rint(unit_counts))
    )
    if wrong_places.any():
        at = int(np.argmax(wrong_places))
        raise NoTree(
            f"with masks at terms {mask_pairs[at, 0]} and {mask_pairs[at, 1]} the result counts "
            f"{unit_counts[at]} of {unit_masks[at].sum()} units"
        )
    result: np.ndarray = len(terms) - unit_counts.reshape(len(pairs), groups).sum(axis=1).astype(np.int64)
    return result


def recover(terms: Sequence[int], count: int, ask: Ask, *, most_units: int, seed: int = 0) -> Tree:
    """The tree of the leaves `terms` among `count` positions. Raises NoTree where there is none.

    All sets of one depth are asked at once, so that a caller may launch many probes together."""
    leaves = np.asarray(sorted(terms), np.int64)
    if len(leaves) < 2:
        return Tree.from_lists([int(each) for each in leaves], count) if len(leaves) else Tree(count, ())
    rng = np.random.default_rng(seed)
    top = _Node()
    tasks = [_Task(tuple(leaves.tolist()), len(leaves) + 1, top)]
    while tasks:
        leaders = [int(rng.choice(task.leaves)) for task in tasks]
        pairs = [(lead, leaf) for task, lead in zip(tasks, leaders, strict=True) for leaf in task.leaves if leaf != lead]
        found = sizes(np.asarray(pairs, np.int64), leaves, count, ask, most_units) if pairs else np.zeros(0, np.int64)
        after: list[_Task] = []
        start = 0
        for task, lead in zip(tasks, leaders, strict=True):
            own = found[start : start + len(task.leaves) - 1]
            others = np.asarray([leaf for leaf in task.leaves if leaf != lead], np.int64)
            start += len(own)
            after += _place_leader(task, lead, others, own)
        tasks = after
    nested = top.to_lists()
    return Tree.from_lists(nested, count)


def _place_leader(task: _Task, lead: int, other_leaves: np.ndarray, node_sizes: np.ndarray) -> list[_Task]:
    """Build the way from `lead` up to the parent of `task`; what joins it are tasks of their own."""
    further: list[_Task] = []
    below: _Node | int = lead
    reach = 1
    for size in np.unique(node_sizes[node_sizes < task.size]).tolist():
        group = other_leaves[node_sizes == size]
        if reach + len(group) != size:
            met = f"{reach + len(group)} terms meet term {lead} there or before"
            raise NoTree(f"terms {lead} and {group[0]} meet above {size} terms, and {met}")
        node = _Node([below])
        below, reach = node, size
        if len(group) == 1:
            node.children.append(int(group[0]))
        else:
            further.append(_Task(tuple(group.tolist()), size, node))
    task.parent.children.append(below)
    rest = other_leaves[node_sizes >= task.size]
    if (node_sizes > task.size).any():
        raise NoTree(f"terms {lead} and {other_leaves[np.argmax(node_sizes)]} are of one node and meet above it")
    if len(rest) == 1:
        task.parent.children.append(int(rest[0]))
    elif len(rest):
        further.append(_Task(tuple(rest.tolist()), task.size, task.parent))
    return further
