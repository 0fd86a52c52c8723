"""The sums that ptxas contracts of itself where Triton's PTX leaves it a choice: those of a quotient.

ptxas ends `div.full.f32` in a product. Where one sum alone takes the quotient it makes an fma of the two: read off machine code
(docs/emulator.md), and held to the words of an H200 (`benchmarks.corpus_replay --ptx`).
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

SIGN, _FMA = 1 << 31, meaning("fma.rn.f32").compute


def contract_quotients(blocks: Sequence[Block]) -> None:
    """Let each sum of a quotient of its block that nothing else reads compute the fma."""
    uses = Counter(name for block in blocks for step in block.steps for name in step.reads if isinstance(name, str))
    for block in blocks:
        quotients: dict[str, Step] = {}
        for step in block.steps:
            names = [name for name in step.reads if isinstance(name, str)]
            quotient_names = [name for name in names if name in quotients]
            if step.statement.opcode == "div.full.f32" and len(names) == 2 and not step.guard and uses[step.writes[0]] == 1:
                quotients[step.writes[0]] = step
            elif step.statement.opcode in ("add.f32", "sub.f32") and quotient_names:
                number = step.reads.index(quotient_names[0])
                signs = np.array([0, 0] if step.statement.opcode == "add.f32" else [SIGN, 0] if number else [0, SIGN], np.uint32)
                step.reads = (*quotients[quotient_names[0]].reads, step.reads[1 - number])
                step.compute = partial(_quotient_sum, signs)
            quotients = {name: each for name, each in quotients.items() if each is step or not {*each.reads} & {*step.writes}}


def _quotient_sum(signs: Words, dividend: Words, divisor: Words, addend: Words) -> Words:
    left, right = division_factors(*np.broadcast_arrays(dividend, divisor))
    return _FMA(left ^ signs[0], right, addend ^ signs[1])


__all__ = ["contract_quotients"]
