"""Mutants of a model of a tensor core: one constant moved by one step. Hardware words must tell each from the model."""

from __future__ import annotations

from typing import Any

from bitverdict.reference.formats import FORMATS, Rounding
from bitverdict.reference.tensor_core import Accumulator, ExponentFloor, Instruction
from tests.faults.mutants import Mutant, ValueEdit


def mutants_of(rule: Instruction) -> tuple[Mutant, ...]:
    """One each for block length, fraction bits, rounding, output bits, order of the chain, place of c, and lowest E."""
    two_blocks = (tuple(range(rule.block)), tuple(range(rule.block, 2 * rule.block)))
    passes = rule.passes or two_blocks
    nearest, late = rule.rounding is Rounding.NEAREST_EVEN, rule.accumulator is Accumulator.ADDED_AFTER
    moved: dict[str, dict[str, Any]] = {
        "F - 1": {"fraction_bits": rule.fraction_bits - 1},
        "F + 1": {"fraction_bits": rule.fraction_bits + 1},
        "block halved": _halved(rule),
        "blocks in reverse": {"passes": passes[::-1]},
        "output bits - 1": {"output_fraction_bits": rule.output_fraction_bits - 1},
    }
    if rule.passes is None:
        moved["block doubled"] = {"block": 2 * rule.block}
    else:
        moved["passes ascending"] = {"passes": two_blocks}
    if rule.output_fraction_bits < rule.output.mantissa_bits:
        moved["output bits + 1"] = {"output_fraction_bits": rule.output_fraction_bits + 1}
    if floor_is_reached(rule):
        moved["E floor - 1"] = {"exponent_floor": rule.floor - 1}
        moved["E floor + 1"] = {"exponent_floor": rule.floor + 1}
    moved["rounding"] = {"rounding": Rounding.TOWARD_ZERO if nearest else Rounding.NEAREST_EVEN}
    moved["place of c"] = {"accumulator": Accumulator.IN_SUM if late else Accumulator.ADDED_AFTER}
    return tuple(
        Mutant(kernel=rule.name, name=name, edits=tuple(ValueEdit(*change) for change in changes.items()), expected=())
        for name, changes in moved.items()
    )


def floor_is_reached(rule: Instruction) -> bool:
    """Whether products are small enough for E to rest on its floor with bits below the cut."""
    if rule.choices.exponent_floor is not ExponentFloor.PROBED:
        return False
    lowest = sum(FORMATS[name].smallest_exponent - FORMATS[name].mantissa_bits for name in (rule.a, rule.b))
    return lowest < rule.floor - rule.fraction_bits


def _halved(rule: Instruction) -> dict[str, Any]:
    half = rule.block // 2
    if rule.passes is None:
        return {"block": half}
    return {"block": half, "passes": tuple(part for taken in rule.passes for part in (taken[:half], taken[half:]))}
