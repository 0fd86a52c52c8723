"""What follows a size of a case: along which axes of operands and outputs it runs, and the operands of fewer rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.harness.checks.invariance.calls import Operands
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract

UNITS = tuple(1 << power for power in range(10))
"""Elements of a size that one index of an axis may stand for: two of a packed byte, 32 of a scale, 128 of a tile of scales."""


@dataclass(frozen=True)
class Axis:
    """An axis of an array that a size runs along; `unit` of the size are one index."""

    place: int
    unit: int

    def cut(self, begin: int, size: int) -> slice:
        """The indices of `size` elements from `begin`, a multiple of `unit`."""
        return slice(begin // self.unit, -(-(begin + size) // self.unit))

    def slice_of(self, array: np.ndarray, begin: int, size: int) -> np.ndarray:
        return array[(slice(None),) * self.place + (self.cut(begin, size),)]


Axes = Mapping[str, Axis]
"""By the name of an array, which has one axis along a size."""


def following_axes(samples: Sequence[tuple[int, Mapping[str, tuple[int, ...]]]]) -> Axes | None:
    """The axis of each array that follows a size, by (size, shapes of the arrays) of several cases. None where an array has more
    such axes than one, or follows the size in no known way."""
    axes: dict[str, Axis] = {}
    for name, shape in samples[0][1].items():
        sampled_shapes = [(size, shapes[name]) for size, shapes in samples if name in shapes]
        if len(sampled_shapes) < len(samples) or any(len(sampled_shape) != len(shape) for _, sampled_shape in sampled_shapes):
            return None
        changed_axes = [
            place for place in range(len(shape)) if any(sampled_shape[place] != shape[place] for _, sampled_shape in sampled_shapes)
        ]
        if not changed_axes:
            continue
        place = changed_axes[0]
        unit = next((u for u in UNITS if all(-(-size // u) == sampled_shape[place] for size, sampled_shape in sampled_shapes)), 0)
        if not unit or len(changed_axes) > 1:
            return None
        axes[name] = Axis(place, unit)
    return axes


def shapes_of(operands: Operands) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.codes.shape) for name, each in operands.items()}


def drawn(contract: Contract, case: Case) -> Operands:
    """The operands of a case by name."""
    return {each.name: each for each in contract.operands(case)}


def cut(operands: Operands, like: Operands, axes: Axes, begin: int, size: int) -> Operands:
    """`size` rows of `operands` from `begin`, laid out as those of `like`, a case of that size."""
    cut_operands: Operands = {}
    for name, each in like.items():
        codes = operands[name].codes
        if name in axes:
            codes = axes[name].slice_of(codes, begin, size)
        cut_operands[name] = replace(each, codes=np.ascontiguousarray(codes))
    return cut_operands


def sizes_of_operands(contract: Contract, case: Case, operands: Operands) -> dict[str, Axes]:
    """The numbers of a case that are sizes of its operands, and the axes that follow each."""
    axes_by_size: dict[str, Axes] = {}
    for name, value in contract.sizes(case).items():
        tried = dict.fromkeys(each for each in (value - 1, value - 16, value - 32, value - 128, value // 2, 1) if 0 < each < value)
        smaller = [(each, made) for each in tried if (made := resize_case(contract, case, name, each)) is not None]
        sampled = [(value, shapes_of(operands)), *((each, shapes_of(drawn(contract, made))) for each, made in smaller)]
        if len(sampled) > 1 and (axes := following_axes(sampled)):
            axes_by_size[name] = axes
    return axes_by_size


def resize_case(contract: Contract, case: Case, name: str, value: int) -> Case | None:
    """`case` with another size; None where the contract has none, or cannot feed it."""
    try:
        made = contract.resized(case, name, value)
        return made if made is not None and drawn(contract, made) else None
    except (ValueError, TypeError, IndexError, ZeroDivisionError):
        return None
