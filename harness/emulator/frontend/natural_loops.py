"""The loops of a function of a tile program: which blocks one has, and what decides when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from bitverdict.harness.emulator.mlir_reader import Block, Operation, Program


@dataclass(frozen=True, eq=False)
class Loop:
    """`blocks`, entered at the first of them; `conditions` are the values by which it is left."""

    blocks: tuple[Block, ...]
    conditions: tuple[str, ...]

    def holds(self, op: Operation) -> bool:
        return any(op is each for block in self.blocks for each in block.operations)


def loop_of(program: Program, argument: str, user: Operation) -> Loop | None:
    """The loop whose block has the argument `argument`, in the function in which `user` stands; None where it begins none."""
    for function in program.functions.values():
        if not any(user is each for block in function.blocks for each in block.operations):
            continue
        for block in function.blocks:
            if any(name == argument for name, _ in block.arguments):
                return _natural_loop(function.blocks, block)
    return None


def _natural_loop(blocks: list[Block], header: Block) -> Loop | None:
    """The blocks that come back to `header` without leaving what only it leads to."""
    by_label = {block.label: block for block in blocks}
    after = {block.label: block.operations[-1].successors for block in blocks}
    before: dict[str, list[str]] = {block.label: [] for block in blocks}
    for label, targets in after.items():
        for target in targets:
            before[target].append(label)
    elsewhere = _reachable_labels(
        {label: [] if label == header.label else targets for label, targets in after.items()}, blocks[0].label
    )
    latches = [label for label in before[header.label] if label == header.label or label not in elsewhere]
    if not latches:
        return None
    inside, waiting = {header.label}, list(latches)
    while waiting:
        label = waiting.pop()
        if label not in inside:
            inside.add(label)
            waiting += before[label]
    ends = [by_label[label].operations[-1] for label in inside if not inside.issuperset(after[label])]
    return Loop(tuple(by_label[label] for label in inside), tuple(end.operands[0] for end in ends))


def _reachable_labels(after: dict[str, list[str]], start: str) -> set[str]:
    labels, waiting = set[str](), [start]
    while waiting:
        label = waiting.pop()
        if label not in labels:
            labels.add(label)
            waiting += after[label]
    return labels
