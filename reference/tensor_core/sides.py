"""The sides of a disagreement that changes an instruction's numbers: the rule under each, and which are open for a shape.

The other disagreements of `Choices` change the step itself, which reads them there.
"""

from __future__ import annotations

from dataclasses import replace

from bitverdict.reference.tensor_core.constructors import BLOCKS, register_halves
from bitverdict.reference.tensor_core.record import Accumulator, BlockOrder, Choices, ConsumerFp8, Instruction

FP8 = ("e4m3", "e5m2")


def apply_choices(rule: Instruction, choices: Choices) -> Instruction:
    """`rule`, which has the sides taken, with `choices` and the numbers that follow from them."""
    result = replace(rule, choices=choices)
    if runs_in_halves(rule):
        whole = BLOCKS[rule.a]
        match choices.block_order:
            case BlockOrder.DESCENDING:
                return replace(result, passes=(tuple(range(rule.block, whole)), tuple(range(rule.block))))
            case BlockOrder.ONE_BLOCK:
                return replace(result, block=whole)
    if consumer_fp8(rule) and choices.consumer_fp8 is ConsumerFp8.WIDENED:
        return replace(
            result, block=16, passes=register_halves(32), accumulator=Accumulator.ADDED_AFTER, widened="fp16", kind="mma.sync"
        )
    return result


def runs_in_halves(rule: Instruction) -> bool:
    """Whether its instruction of full K runs as two blocks (sm_80, sm_86, sm_87, sm_89: fp16, bf16, tf32)."""
    return rule.family == "mma.sync" and rule.fraction_bits == 24 and rule.block < BLOCKS.get(rule.a, 0)


def consumer_fp8(rule: Instruction) -> bool:
    """Whether it is fp8 of sm_120 or a chip like it."""
    return (rule.family, rule.kind) == ("mma.sync", "f8f6f4") and rule.a in FP8 and rule.b in FP8


def sides(rule: Instruction, k: int) -> dict[str, Choices]:
    """The sides that are open for the shape of this `k`, by the name of each; empty where there is none. The taken one is first.

    `rule` is that of the whole instruction, as `instruction` gives it without `k`.
    """
    if runs_in_halves(rule) and rule.block < k:
        return {f"BlockOrder.{side.name}": replace(rule.choices, block_order=side) for side in BlockOrder}
    if consumer_fp8(rule):
        return {f"ConsumerFp8.{side.name}": replace(rule.choices, consumer_fp8=side) for side in ConsumerFp8}
    return {}
