"""The sums that ptxas contracts of itself where Triton's PTX leaves it a choice: those of a quotient.

ptxas ends `div.full.f32` in a product. Where sums alone take the quotient it makes an fma of each: read off machine code for sm_80,
sm_90 and sm_100, and held to the words of an H200 (`benchmarks.corpus_replay --ptx`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import Words
from bitverdict.harness.emulator.ptx.steps import Block, Step
from bitverdict.reference.special_functions.instructions import division_factors

ACCESSES = ("ld.", "st.", "atom.", "red.")
SIGN, _FMA = 1 << 31, meaning("fma.rn.f32").compute


def contract_quotients(blocks: Sequence[Block]) -> None:
    """Let sums compute the fma where nothing but sums reads a quotient. ptxas contracts inside of a block: a branch, a label or a
    guarded access to memory, which is a block of its own there, keeps the two apart, and a barrier does not. Of two quotients in a
    sum it takes the one that no other sum reads, or else the first."""
    uses = Counter(name for block in blocks for step in block.steps for name in step.reads if isinstance(name, str))
    labelled = {block.target for block in blocks} | {number + 1 for number, block in enumerate(blocks) if block.branch}
    open_quotients: dict[str, _Quotient] = {}  # by the register that holds it here
    read_quotients: dict[int, _Quotient] = {}  # in the order in which sums read them
    for number, block in enumerate(blocks):
        open_quotients = {} if number in labelled else open_quotients
        for step in block.steps:
            if step.statement.opcode in ("add.f32", "sub.f32"):
                for quotient in (open_quotients[name] for name in step.reads if isinstance(name, str) and name in open_quotients):
                    quotient.sums.append(step)
                    read_quotients.setdefault(id(quotient), quotient)
            elif step.guard and step.statement.opcode.startswith(ACCESSES):
                open_quotients = {}
            open_quotients = {name: quotient for name, quotient in open_quotients.items() if name not in step.writes}
            if step.statement.opcode == "div.full.f32" and not step.guard and all(isinstance(name, str) for name in step.reads):
                open_quotients[step.writes[0]] = _Quotient(block, step)
    for quotient in sorted(read_quotients.values(), key=lambda each: len(each.sums) > 1):
        name = quotient.step.writes[0]
        steps = {id(each) for each in quotient.sums if len(each.reads) == 2}  # and not an fma by now
        if len(quotient.sums) == len(steps) == uses[name]:
            quotient.contract(name)


@dataclass(eq=False)
class _Quotient:
    """A division of `block`, and the sums behind it that read the quotient."""

    block: Block
    step: Step
    sums: list[Step] = field(default_factory=list)

    def contract(self, name: str) -> None:
        factors = f"{name}.left", f"{name}.right"
        at = next(index for index, candidate in enumerate(self.block.steps) if candidate is self.step)
        self.block.steps.insert(at, Step(self.step.statement, self.step.reads, factors, division_factors))
        for each in self.sums:
            place = each.reads.index(name)
            signs = [0, 0] if each.statement.opcode == "add.f32" else [SIGN, 0] if place else [0, SIGN]
            each.reads = (*factors, each.reads[1 - place])
            each.compute = partial(_signed_fma, np.array(signs, np.uint32))


def _signed_fma(signs: Words, left: Words, right: Words, addend: Words) -> Words:
    return _FMA(left ^ signs[0], right, addend ^ signs[1])


__all__ = ["contract_quotients"]
