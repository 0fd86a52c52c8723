"""Faults of movement: another element of an operand, a lost end of a dimension, tiles of the output in another place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from bitverdict.harness.model.case import SECOND, THIRD, Operand
from bitverdict.harness.model.certificate import Kind
from bitverdict.harness.model.contract import ExpectedOutput

ROW_NUMBERS = ("int32", "int64")


@dataclass(frozen=True)
class MovementFault:
    """Operands of a case with one fault in one dimension of one of them."""

    kind: Kind
    subject: str
    fault: str
    operands: Mapping[str, Operand]


def movement_faults(operands: Mapping[str, Operand]) -> Iterator[MovementFault]:
    """Each dimension of each operand by an index that has lost its lowest bit, and with its last slice as zero.

    Every second slice is then read as the one before it. An exchange of slices would not show in a dimension that is summed over.
    Row numbers are exchanged instead: two that become one would name another case.
    """
    for name, operand in operands.items():
        if name.endswith((SECOND, THIRD)):  # a later call moves its operands as the first one does
            continue
        for axis, size in enumerate(operand.codes.shape if operand.codes.size else ()):
            subject = f"{name} axis {axis}"
            if size > 1:
                order = np.arange(size)
                order = np.roll(order, -1) if operand.format in ROW_NUMBERS else order & ~1
                fault = "index off by one" if operand.format in ROW_NUMBERS else "index without its lowest bit"
                codes = np.take(operand.codes, order, axis)
                yield MovementFault(Kind.MOVEMENT, subject, fault, {**operands, name: replace(operand, codes=codes)})
            if operand.format not in ROW_NUMBERS:  # a row number of zero is another row, and no end
                codes = operand.codes.copy()
                codes[(slice(None),) * axis + (-1,)] = 0
                yield MovementFault(Kind.MASK, subject, "the last one lost", {**operands, name: replace(operand, codes=codes)})


def tiles_exchanged(expected: ExpectedOutput) -> Iterator[tuple[str, np.ndarray]]:
    """(subject, places (*shape,) of the elements that lie where another tile's do) where each pair of neighbouring whole tiles of
    the output is exchanged in one dimension."""
    if expected.tile is None or len(expected.shape) != 2:
        return
    for axis, tile in enumerate(expected.tile):
        pairs = expected.shape[axis] // (2 * tile) if tile else 0
        if pairs:
            order = np.arange(expected.shape[axis])
            order[: 2 * tile * pairs] = order[: 2 * tile * pairs].reshape(pairs, 2, tile)[:, ::-1].reshape(-1)
            yield f"tiles of {expected.name} axis {axis}", order


def says_something(expected: ExpectedOutput) -> bool:
    """Whether two elements of the output are expected in different words: then movement of at least one of its dimensions shows.
    False does not say that nothing does."""
    if expected.words is not None:
        words = expected.words.reshape(-1)
        if expected.inconclusive is not None:
            words = words[~expected.inconclusive.reshape(-1)]
        return _differ(words[:4096]) or _differ(words)
    if expected.value is None or expected.bound is None:
        return False
    with np.errstate(invalid="ignore"):
        least, most = expected.value - expected.bound, expected.value + expected.bound
    sure = np.isfinite(least) & np.isfinite(most)
    if expected.inconclusive is not None:
        sure &= ~expected.inconclusive
    return bool(sure.any() and least[sure].max() > most[sure].min())


def _differ(words: np.ndarray) -> bool:
    return bool(words.size and (words != words[0]).any())
