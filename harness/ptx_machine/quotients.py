"""The sums that ptxas contracts of itself where Triton's PTX leaves it a choice: those of a quotient.

ptxas ends `div.full.f32` in a product. Where one sum alone takes the quotient it makes an fma of the two: read off machine code for
sm_80, sm_90 and sm_100, and held to the words of an H200 (`benchmarks.corpus_replay --ptx`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from bitverdict.harness.emulator.ptx.meanings import meaning
from bitverdict.harness.emulator.ptx.opcodes import Words
from bitverdict.harness.emulator.ptx.steps import Block, Step
from bitverdict.reference.special_functions.instructions import division_factors

ACCESSES = ("ld.", "st.", "atom.", "red.")
SIGN, _FMA = 1 << 31, meaning("fma.rn.f32").compute


def contract_quotients(blocks: Sequence[Block]) -> None:
    """Let each sum of a quotient that nothing else reads compute the fma. ptxas contracts inside of a block: a branch, a label or a
    guarded access to memory, which is a block of its own there, keeps the two apart, and a barrier does not."""
    uses = Counter(name for block in blocks for step in block.steps for name in step.reads if isinstance(name, str))
    labelled = {block.target for block in blocks} | {number + 1 for number, block in enumerate(blocks) if block.branch}
    quotients: dict[str, tuple[Block, Step]] = {}
    for number, block in enumerate(blocks):
        quotients = {} if number in labelled else quotients
        for step in list(block.steps):
            quotient_names = [name for name in step.reads if isinstance(name, str) and name in quotients]
            if step.statement.opcode == "div.full.f32" and not step.guard and uses[step.writes[0]] == 1:
                if all(isinstance(name, str) for name in step.reads):
                    quotients[step.writes[0]] = block, step
            elif quotient_names and step.statement.opcode in ("add.f32", "sub.f32"):
                place, (home, quotient) = step.reads.index(quotient_names[0]), quotients.pop(quotient_names[0])
                signs = [0, 0] if step.statement.opcode == "add.f32" else [SIGN, 0] if place else [0, SIGN]
                factors = f"{quotient_names[0]}.left", f"{quotient_names[0]}.right"
                at = next(index for index, candidate in enumerate(home.steps) if candidate is quotient)
                home.steps.insert(at, Step(quotient.statement, quotient.reads, factors, division_factors))
                step.reads = (*factors, step.reads[1 - place])
                step.compute = partial(_signed_fma, np.array(signs, np.uint32))
            elif step.guard and step.statement.opcode.startswith(ACCESSES):
                quotients = {}
            quotients = {name: each for name, each in quotients.items() if each[1] is step or name not in step.writes}


def _signed_fma(signs: Words, left: Words, right: Words, addend: Words) -> Words:
    return _FMA(left ^ signs[0], right, addend ^ signs[1])


__all__ = ["contract_quotients"]
