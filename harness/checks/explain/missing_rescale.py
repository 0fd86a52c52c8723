"""The hypotheses on a softmax that is made in blocks of keys or in parts: what was summed before a larger maximum is not rescaled.

The reference has one maximum m for all. A loop has the maximum m_j of the blocks up to j, and multiplies what it has summed by
exp(m_j - m_(j + 1)) at each step. Where it does not, an element of block j counts exp(m - m_j) times as much as it should."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from bitverdict.harness.checks.explain.changed_reductions import reduced_axis
from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text

POWERS = ("exp", "exp2")
MAXIMA = ("max", "amax")
SUMS = ("sum", "add.reduce")
VIEWS = ("getitem", "reshape", "expand_dims", "astype")
BLOCKS = (8, 16, 32, 64, 128, 256)
PARTS = (2, 3, 4, 8, 16)
KIND = "rescaling"


def not_rescaled(trace: list[Operation]) -> Iterator[tuple[str, str, Mapping[int, Change], int]]:
    """(kind, sentence, changes, place) of each way in which a softmax in blocks or parts may forget a maximum."""
    for power in trace:
        if power.name in POWERS and (found := _scores(trace, power)) is not None:
            scores, axis = found
            for said, factor in _factors(scores, axis, np.exp if power.name == "exp" else np.exp2):
                yield from _of_uses(trace, power, said, factor)


def _scores(trace: list[Operation], power: Operation) -> tuple[np.ndarray, int] | None:
    """(values, axis) where `power` is that of values less their maximum along an axis."""
    difference = _operation(trace, power.origins[0])
    if difference is None or difference.name != "subtract":
        return None
    largest = _operation(trace, difference.origins[1])
    while largest is not None and largest.name in VIEWS:
        largest = _operation(trace, largest.origins[0])
    if largest is None or largest.name not in MAXIMA or (axis := reduced_axis(largest)) is None:
        return None
    scores = np.asarray(difference.arguments[0])
    return (scores, axis % scores.ndim) if scores.shape == np.shape(largest.arguments[0]) == np.shape(power.result) else None


def _operation(done: list[Operation], number: int) -> Operation | None:
    return done[number] if 0 <= number < len(done) else None


def _factors(scores: np.ndarray, axis: int, power: Callable) -> Iterator[tuple[tuple[str, str], np.ndarray]]:
    """((how it is cut, what is wrong), by how much too much each element counts)."""
    lines = np.moveaxis(scores, axis, -1)
    length = lines.shape[-1]
    place = np.broadcast_to(np.arange(length), lines.shape)
    places = [place]
    if (first := _starts_of_sequences(lines)) is not None:
        places.append(np.maximum(place - first[..., None], 0))
    for index in places:
        for cut, fault, factor in _of_blocks(lines, index, length, "", power):
            yield (cut, fault), np.moveaxis(factor, -1, axis)
    for part in dict.fromkeys(-(-length // parts) for parts in PARTS if parts < length):
        cut = f"in parts of {part}"
        largest = _largest(lines, place // part)
        own = np.take_along_axis(largest, place // part, axis=-1)
        yield (cut, "parts"), np.moveaxis(_power(power, largest.max(axis=-1, keepdims=True) - own), -1, axis)
        shares = power(lines - largest.max(axis=-1, keepdims=True))
        sums = np.stack([np.where(place // part == index, shares, 0.0).sum(axis=-1) for index in range(largest.shape[-1])], axis=-1)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = 1 / np.take_along_axis(sums, place // part, axis=-1)
        yield (cut, "mean"), np.moveaxis(np.where(np.isfinite(mean), mean, 1.0), -1, axis)
        for inside, fault, factor in _of_blocks(lines, place, part, f" of {cut.removeprefix('in ')}", power):
            yield (inside, fault), np.moveaxis(factor, -1, axis)


def _of_blocks(
    lines: np.ndarray, place: np.ndarray, part: int, suffix: str, power: Callable
) -> Iterator[tuple[str, str, np.ndarray]]:
    """(how it is cut, what is wrong, factor) of blocks of each part, one after another."""
    for block in (block for block in BLOCKS if block < part):
        blocks = -(-part // block)
        number = place // part * blocks + place % part // block
        largest = _largest(lines, number)
        missing = -largest.shape[-1] % blocks
        largest = np.pad(largest, [*((0, 0) for _ in lines.shape[:-1]), (0, missing)], constant_values=-np.inf)
        running_maximum = np.maximum.accumulate(largest.reshape(*lines.shape[:-1], -1, blocks), axis=-1)
        end = np.broadcast_to(running_maximum[..., -1:], running_maximum.shape)
        before = np.concatenate([running_maximum[..., :1], running_maximum[..., :-1]], axis=-1)
        before = np.where(np.isfinite(before), before, running_maximum)
        cut = f"in blocks of {block}{suffix}"
        with np.errstate(invalid="ignore"):  # of blocks where no element counts
            exponents = (("later", end - running_maximum), ("old", running_maximum - before))
        for what, exponent in exponents:
            yield cut, what, _power(power, np.take_along_axis(exponent.reshape(largest.shape), number, axis=-1))
        if power is np.exp:
            with np.errstate(invalid="ignore"):
                inside = lines - np.take_along_axis(running_maximum.reshape(largest.shape), number, axis=-1)
            yield cut, "base", _power(np.exp, (np.log(2) - 1) * inside)


def _power(power: Callable, exponent: np.ndarray) -> np.ndarray:
    """The factor; 1 where a block has no element that counts."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(exponent), power(np.where(np.isfinite(exponent), exponent, 0.0)), 1.0)


def _starts_of_sequences(lines: np.ndarray) -> np.ndarray | None:
    """Where rows of a square see a part of the keys alone: the first key of the sequence that a row belongs to."""
    if lines.ndim < 2 or lines.shape[-1] != lines.shape[-2]:
        return None
    visible = np.isfinite(lines)
    first = np.where(visible.any(axis=-1), visible.argmax(axis=-1), 0)
    while not np.array_equal(earlier := np.take_along_axis(first, first, axis=-1), first):
        first = np.minimum(earlier, first)
    return first if first.any() else None


def _largest(lines: np.ndarray, number: np.ndarray) -> np.ndarray:
    """(..., blocks): the largest element of each block; `number`: the block of an element."""
    return np.stack([np.where(number == at, lines, -np.inf).max(axis=-1) for at in range(int(number.max()) + 1)], axis=-1)


def _of_uses(
    trace: list[Operation], power: Operation, said: tuple[str, str], factor: np.ndarray
) -> Iterator[tuple[str, str, Mapping[int, Change], int]]:
    """The factor in all uses of the powers, in their sum alone, or in the others alone."""
    cut, fault = said
    text = f"equals the reference {cut} of {operation_text(power)}"
    powers = np.asarray(power.result)
    with np.errstate(invalid="ignore"):  # a power beyond every number, of a block that is scaled by 0
        scaled_powers = powers * factor
    everywhere: dict[int, Change] = {power.number: lambda function, args, kwargs: scaled_powers}
    sums = [user for user in trace if user.name in SUMS and user.origins[:1] == (power.number,)]
    sums = [user for user in sums if np.shape(user.arguments[0]) == powers.shape]
    if fault == "old":
        yield KIND, f"{text}, with the old maximum, of the blocks before, in the powers of each block", everywhere, power.number
        return
    if fault == "base":
        yield "base", f"{text}, with exp2 in the place of exp, but exp where a block is rescaled", everywhere, power.number
        return
    if fault == "mean":
        yield KIND, f"{text} that are joined by their plain mean, whatever their sums", everywhere, power.number
        return
    join_phrase = "when the parts are joined" if fault == "parts" else "when a later block has a larger maximum"
    has_other_uses = any(power.number in user.parents and user not in sums for user in trace)
    if has_other_uses:
        yield KIND, f"{text}, with nothing rescaled {join_phrase}", everywhere, power.number
    if sums:
        of_sums: dict[int, Change] = {user.number: _of_values(scaled_powers) for user in sums}
        yield KIND, f"{text}, without rescaling the running sum {join_phrase}", of_sums, power.number
    if sums and has_other_uses:
        as_before: dict[int, Change] = {user.number: _of_values(powers) for user in sums}
        yield KIND, f"{text}, without rescaling the accumulator {join_phrase}", everywhere | as_before, power.number


def _of_values(values: np.ndarray) -> Change:
    return lambda function, args, kwargs: function(values, *args[1:], **kwargs)
