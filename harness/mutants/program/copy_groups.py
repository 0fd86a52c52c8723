"""Commits of asynchronous copies that a program can do without: the next commit takes their copies along.

`cp.async.wait_group n` waits for all groups of a thread but the last n (PTX ISA). Let a commit be followed, in its block and before
any wait, by another one. Without it two groups are one. Then the last n groups before a wait are the same as before, where on
every way at least n commits lie between the second of the two and the wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, parse_program
from bitverdict.harness.mutants.program.lines import line_of

COMMIT, WAIT = "ttg.async_commit_group", "ttg.async_wait"
NO_WAIT = 63
"""Groups in flight that a wait lets be: more than a program has. The operator that takes a commit out puts such a wait there, whose
token is used."""


def without_a_commit(text: str) -> Iterator[str]:
    """The program `text` without one commit that it can do without, for each of them."""
    if COMMIT not in text:
        return
    program = parse_program(text)
    function = program.entry
    own = sum(_counts(op) for block in function.blocks for op in block.operations)
    if own != sum(map(_counts, program.operations())):
        return  # groups are counted over one function, not inside of regions or of what it calls
    lines = text.split("\n")
    used_values = {operand for op in program.operations() for operand in op.operands}
    for block in function.blocks:
        for place, op in enumerate(block.operations):
            second = _next_commit(block, place)
            if op.name == COMMIT and second is not None and _suffices(function, op, block.operations[second]):
                yield "\n".join(
                    [
                        *lines[: op.line],
                        *_in_its_place(lines[op.line], not used_values.isdisjoint(op.results)),
                        *lines[op.line + 1 :],
                    ]
                )


def _counts(op: Operation) -> bool:
    return op.name == COMMIT or (op.name == WAIT and op.integer("num") != NO_WAIT)


def _next_commit(block: Block, place: int) -> int | None:
    """The place of the commit behind `place` with no wait between; None where there is none in the block."""
    for number, op in enumerate(block.operations[place + 1 :], place + 1):
        if _counts(op):
            return number if op.name == COMMIT else None
    return None


def _suffices(function: Function, first_commit: Operation, second: Operation) -> bool:
    """Whether at least n commits lie between the latest `second` and each wait for all but n, on every way. `first_commit` is none
    of    them."""
    limit = NO_WAIT + 1  # stands for every number above all waits', and for a way on which `second` is not passed
    counts_at_entry = {function.blocks[0].label: limit}
    stack = [function.blocks[0]]
    labels = {block.label: block for block in function.blocks}
    while stack:
        block = stack.pop()
        since = counts_at_entry[block.label]
        for op in block.operations:
            if op is second:
                since = 0
            elif op.name == COMMIT and op is not first_commit:
                since = min(since + 1, limit)
            elif op.name == WAIT and op.integer("num") != NO_WAIT and since < op.integer("num"):
                return False
        for label in block.operations[-1].successors if block.operations else ():
            if since < counts_at_entry.get(label, limit + 1):
                counts_at_entry[label] = since
                stack.append(labels[label])
    return True


def _in_its_place(line: str, used: bool) -> list[str]:
    """Nothing; a wait for nothing where the token is used."""
    if not used:
        return []
    return [replace(line_of(line), name=WAIT, operands=(), types=(), properties={"num": f"{NO_WAIT} : i32"}).text]
