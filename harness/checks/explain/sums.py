"""The hypotheses on a sum of products over K: which elements are missing, and which count twice.

Candidates are the ranges that loops get wrong: the tail, a block, the first, all from an element on. Where there are more elements
of the output than of K, the weight of each k follows from the words themselves, by least squares."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bitverdict.harness.checks.explain.evaluation import evaluate_reference
from bitverdict.harness.checks.explain.evidence import Evidence
from bitverdict.harness.model.mathematics import Mathematics

MOST_SOLVED = 512  # of K: the weights of more are not solved for
SPARE = 8  # elements of the output more than of K
SAMPLES_PER_K = 4  # times K elements of the output are looked at
BLOCKS = (8, 16, 32, 64, 128, 256)


def weighted_sums(mathematics: Mathematics, evidence: Evidence) -> Iterator[tuple[str, str, dict[str, np.ndarray]]]:
    """(kind, sentence, operands) of each set of weights that a sum's elements may have."""
    for axis in mathematics.sum_axes:
        length = _length(mathematics, axis)
        if length < 1:
            continue
        candidates = [*_ranges(axis, length, evidence.k_block), *_solve_weights(mathematics, evidence, axis, length)]
        if evidence.exact.size < length + SPARE and length <= MOST_SOLVED:
            candidates += _single(axis, length)
        for kind, sentence, weights in {each[2].tobytes(): each for each in reversed(candidates)}.values():
            yield kind, sentence, weighted_operands(mathematics, axis, weights)


def evaluate_weighted(mathematics: Mathematics, axis: str, weights: np.ndarray) -> dict[str, np.ndarray]:
    """The outputs where element k of `axis` counts `weights[k]` times."""
    return evaluate_reference(mathematics, weighted_operands(mathematics, axis, weights))


def weighted_operands(mathematics: Mathematics, axis: str, weights: np.ndarray) -> dict[str, np.ndarray]:
    """The operands with which element k of `axis` counts `weights[k]` times."""
    for name, axes in mathematics.axes.items():
        if axis in axes and name in mathematics.operands and name not in mathematics.blocks:
            values = mathematics.operands[name]
            shape = [1] * values.ndim
            shape[axes.index(axis)] = len(weights)
            with np.errstate(invalid="ignore"):
                by = np.where(weights.reshape(shape) == 0, 0.0, values * weights.reshape(shape))
            others = {name: by}
            if not np.isfinite(values).all() or (weights == 0).any():  # 0 * NaN of the other factor is no term that is missing
                others |= _clear_elements(mathematics, axis, weights, name)
            return {**mathematics.operands, **others}
    raise ValueError(f"axis {axis!r}: no operand has it")


def _clear_elements(mathematics: Mathematics, axis: str, weights: np.ndarray, but: str) -> dict[str, np.ndarray]:
    cleared_operands = {}
    for name, axes in mathematics.axes.items():
        if name != but and axis in axes and name in mathematics.operands and name not in mathematics.blocks:
            values = mathematics.operands[name]
            shape = [1] * values.ndim
            shape[axes.index(axis)] = len(weights)
            cleared_operands[name] = np.where(weights.reshape(shape) == 0, 0.0, values)
    return cleared_operands


def _length(mathematics: Mathematics, axis: str) -> int:
    for name, axes in mathematics.axes.items():
        if axis in axes and name in mathematics.operands and name not in mathematics.blocks:
            return mathematics.operands[name].shape[axes.index(axis)]
    return 0


def _ranges(axis: str, length: int, block: int | None) -> Iterator[tuple[str, str, np.ndarray]]:
    """Weights of 0 or 2 for the ranges that loops get wrong."""
    ranges: dict[tuple[int, int], None] = {(length - 1, length): None, (0, 1): None}
    for size in dict.fromkeys([block, *BLOCKS] if block else BLOCKS):
        if size is None or size >= length:
            continue
        tail = length % size
        ranges[(length - (tail or size), length)] = None  # the last block, ragged or whole
        ranges[(0, size)] = None
        ranges[(size, length)] = None  # the first block alone
        ranges[(0, length - (tail or size))] = None  # the last block alone
        if tail:
            ranges[(length - tail - size, length)] = None
        if size == block:
            ranges.update(dict.fromkeys((at, min(at + size, length)) for at in range(0, length, size)))
    ranges.update(dict.fromkeys((at, length) for at in range(max(1, length - 8), length)))
    for start, end in ranges:
        if end - start < length:
            yield "dropped", _omission_sentence(axis, start, end, length, block), _weights_in_range(length, start, end, 0.0)
        if end - start < length:
            yield "twice", _repetition_sentence(axis, start, end), _weights_in_range(length, start, end, 2.0)


def _weights_in_range(length: int, start: int, end: int, weight: float) -> np.ndarray:
    weights = np.ones(length)
    weights[start:end] = weight
    return weights


def _omission_sentence(axis: str, start: int, end: int, length: int, block: int | None) -> str:
    range_text = f"{axis} = {start}" if end - start == 1 else f"{axis} = {start} to {end - 1}"
    if end == length and start:
        tail = block is not None and length % block and start == length - length % block
        steps = f", steps of {block}" if block else ""
        name = axis.upper()
        what = f"its last {name} tail" if tail else f"the last of {name}"
        return f"equals the product without {what} ({range_text}, {name} = {length}{steps})"
    if start == 0 and block and end == length - (length % block or block):
        return f"equals the product of its last block of {axis} alone, without {range_text}"
    return f"equals the product without {range_text}"


def _repetition_sentence(axis: str, start: int, end: int) -> str:
    return f"element {axis} = {start} used twice" if end - start == 1 else f"elements {axis} = {start} to {end - 1} used twice"


def _solve_weights(mathematics: Mathematics, evidence: Evidence, axis: str, length: int) -> Iterator[tuple[str, str, np.ndarray]]:
    """The weights that explain the wrong elements best, where they are whole numbers."""
    there = [name for name, axes in mathematics.axes.items() if axis in axes and name in mathematics.operands]
    factors = [name for name in there if name not in mathematics.blocks]
    if not mathematics.linear or evidence.exact.ndim != 2 or length > MOST_SOLVED or len(factors) != 2:
        return
    left, right = (_lines(mathematics, name, axis) for name in factors)  # (M, K), (N, K)
    if evidence.exact.shape != (len(left), len(right)):
        return
    usable = evidence.differs & np.isfinite(evidence.observed_values) & np.isfinite(evidence.exact)
    for part, _ in evidence.parts:
        usable |= part & evidence.decided_elements & np.isfinite(evidence.observed_values) & np.isfinite(evidence.exact)
        break
    rows, columns = np.nonzero(usable)
    if rows.size < length + SPARE or not (np.isfinite(left).all() and np.isfinite(right).all()):
        return
    chosen = np.random.default_rng(0).permutation(rows.size)[: SAMPLES_PER_K * length]
    rows, columns = rows[chosen], columns[chosen]
    terms = left[rows] * right[columns]  # (E, K)
    with np.errstate(all="ignore"):
        slack = np.maximum(evidence.slack(evidence.exact)[rows, columns], 2.0**-60)  # (E,)
        off = evidence.observed_values[rows, columns] - terms.sum(axis=1)  # (E,)
        found = np.linalg.lstsq(terms / slack[:, None], off / slack, rcond=None)[0]  # (K,)
    integer_weights = np.rint(found)
    if (
        np.abs(found - integer_weights).max() > 0.2
        or (integer_weights == integer_weights[0]).all()
        or np.abs(integer_weights).max() > 3
    ):
        return
    yield (
        "dropped" if (integer_weights <= 0).all() else "twice" if (integer_weights >= 0).all() else "weights",
        _weights_sentence(axis, 1 + integer_weights.astype(int)),
        1 + integer_weights,
    )


def _weights_sentence(axis: str, weights: np.ndarray) -> str:
    phrases = []
    used = np.flatnonzero(weights != 1)
    if (weights[used] == 2).all() and used[-1] - used[0] == used.size - 1:
        return _repetition_sentence(axis, int(used[0]), int(used[-1]) + 1)
    for weight, name in ((0, "without"), (2, "with twice"), (3, "with three times"), (-1, "minus")):
        found = np.flatnonzero(weights == weight)
        if found.size:
            phrases.append(f"{name} {axis} = {_runs_text(found)}")
    return "equals the product " + ", ".join(phrases)


def _runs_text(found: np.ndarray) -> str:
    runs = np.split(found, np.flatnonzero(np.diff(found) != 1) + 1)
    told = [f"{run[0]}" if run.size == 1 else f"{run[0]} to {run[-1]}" for run in runs[:4]]
    return ", ".join(told) + (f" and {len(runs) - 4} more" if len(runs) > 4 else "")


def _single(axis: str, length: int) -> Iterator[tuple[str, str, np.ndarray]]:
    for k in range(length if length > 1 else 0):
        yield "dropped", _omission_sentence(axis, k, k + 1, length, None), _weights_in_range(length, k, k + 1, 0.0)
        yield "twice", _repetition_sentence(axis, k, k + 1), _weights_in_range(length, k, k + 1, 2.0)


def _lines(mathematics: Mathematics, name: str, axis: str) -> np.ndarray:
    """(lines, K): an operand times its scales, `axis` last."""
    values, axes = _axis_last(mathematics, name, axis)
    for scale, (along, block) in mathematics.blocks.items():
        if along == axis and set(mathematics.axes[scale]) == set(axes):
            scales, _ = _axis_last(mathematics, scale, axis)
            values = values * np.repeat(scales, block, axis=-1)[..., : values.shape[-1]]
    return values


def _axis_last(mathematics: Mathematics, name: str, axis: str) -> tuple[np.ndarray, tuple[str, ...]]:
    values, axes = mathematics.operands[name], mathematics.axes[name]
    return np.moveaxis(values, axes.index(axis), -1), axes
