"""The hypotheses that the mathematics is right and something was rounded that should not be, or in another way: the store, the
accumulator, an operand, one operation.

`AGREEMENT_SHARE` and `FEW_ULP` were picked, not derived: they say how far a simulated rounding may miss a word and still be told as
the cause. They decide no verdict and no status: only the sentence beside a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from bitverdict.harness.checks.explain.changed_operands import rounded_operands
from bitverdict.harness.checks.explain.changed_reductions import BLOCKS as STEPS
from bitverdict.harness.checks.explain.changed_reductions import REDUCTION_NAMES, reduced_axis
from bitverdict.harness.checks.explain.evaluation import (
    Change,
    Operation,
    evaluate_reference,
    evaluate_with_changes,
    operation_text,
    operations,
    round_to_format,
)
from bitverdict.harness.checks.explain.evidence import ENOUGH, CauseFinding, Evidence, Fit, half_ulp
from bitverdict.harness.checks.explain.sums import BLOCKS, evaluate_weighted
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.formats import FORMATS, Overflow, Rounding, decode, encode

COARSE = ("tf32", "fp16", "bf16", "e4m3", "e5m2")
ACCUMULATORS = ("fp16", "bf16")
OF_TWO = ("add", "subtract", "multiply", "divide", "true_divide")
AGREEMENT_SHARE = 0.97  # of the elements: an fp32 sum beside a tie may round the other way
FEW_ULP = 4  # how far an element that rounded the other way may be off
MOST_STEPS = 64  # blocks of K whose sums are rounded one after another
MOST_OPERATIONS = 40


def of_the_store(evidence: Evidence) -> Iterator[CauseFinding]:
    """What the last conversion did instead of rounding to nearest, ties to even."""
    output_format = FORMATS.get(evidence.format)
    if output_format is None:
        return
    words, exact = evidence.words, evidence.exact
    usable = evidence.decided_elements & np.isfinite(words) & np.isfinite(exact) & (np.abs(exact) < output_format.largest)
    if not usable.any():
        return
    finite_numbers = evidence.decided_elements & np.isfinite(exact) & (np.abs(exact) < output_format.largest)  # a number
    noise = _noise(evidence)
    with np.errstate(invalid="ignore", over="ignore"):
        for name in COARSE:
            coarse = FORMATS[name]
            lost_bits = output_format.mantissa_bits - coarse.mantissa_bits
            if (
                lost_bits < 1
                and coarse.largest < output_format.largest
                and (fit := evidence.fit(_store_words(exact, name, Rounding.NEAREST_EVEN)))
            ):
                yield CauseFinding("rounded before the store", f"rounded to {name} before the store", fit)
            inside = usable & (np.abs(exact) < coarse.largest) & (np.abs(exact) >= coarse.smallest_normal)
            if (
                lost_bits < 1
                or not _between(words, exact, noise, name)[finite_numbers & ~inside].all()
                or not np.array_equal(_hold_in_format(words[inside], name), words[inside])
            ):
                continue
            deviation = np.abs(words - exact)
            step, slack = half_ulp(name, exact), noise + half_ulp(evidence.format, exact)
            moved = np.abs(_store_words(exact, name, Rounding.NEAREST_EVEN) - exact) > slack  # what the rounding can be told by
            bits = _distinct(words[inside & moved], exact[inside & moved]) * lost_bits
            if bits < ENOUGH:
                continue
            everywhere = Fit(bits, "", np.ones(exact.shape, bool))
            if (deviation <= step + slack)[inside].all():
                yield CauseFinding("rounded before the store", f"rounded to {name} before the store", everywhere)
            elif ((deviation <= 2 * step + slack) & (np.abs(words) <= np.abs(exact) + slack))[inside].all():
                yield CauseFinding("rounded before the store", f"cut to {name} before the store, toward zero", everywhere)
        if not (evidence.differs & finite_numbers & ~usable).any():
            yield from _other_way(evidence, usable)


def _between(words: np.ndarray, exact: np.ndarray, noise: np.ndarray, name: str) -> np.ndarray:
    """Which words lie where `name` rounds what is within `noise` of `exact`: beyond its normal numbers too."""
    low, high = (_store_words(end, name, Rounding.NEAREST_EVEN) for end in (exact - noise, exact + noise))
    return (low <= words) & (words <= high)


def _noise(evidence: Evidence) -> np.ndarray:
    """How far a right sum may be off before the store, where it is known for words."""
    if evidence.sharp:
        return np.zeros(evidence.exact.shape)
    return evidence.noise * np.maximum(evidence.magnitude, np.abs(evidence.exact))


def _other_way(evidence: Evidence, usable: np.ndarray) -> Iterator[CauseFinding]:
    words, exact = evidence.words, evidence.exact
    nearest = _store_words(exact, evidence.format, Rounding.NEAREST_EVEN)
    cut = _store_words(exact, evidence.format, Rounding.TOWARD_ZERO)
    if fit := _fit_simulation(evidence, cut, nearest, evidence.format):
        yield CauseFinding("truncated", "stored toward zero (truncated), not rounded to nearest", fit)
    away = _store_words(exact, evidence.format, Rounding.NEAREST_AWAY)
    ties = usable & (away != nearest)
    if ties.any() and (words == away)[usable].all() and not (evidence.differs & ~ties).any() and ties.sum() >= ENOUGH:
        yield CauseFinding(
            "ties away", "ties rounded away from zero, not to even", Fit(float(ties.sum()), "", np.ones(exact.shape, bool))
        )


def saturation(evidence: Evidence) -> Iterator[CauseFinding]:
    """Values beyond a format that came as its largest number, where infinity is expected."""
    found = FORMATS.get(evidence.format)
    if found is None or found.infinity_code is None or not evidence.differs.any():
        return
    wrong_elements = evidence.differs
    beyond = np.abs(evidence.exact) > found.largest
    for name in (evidence.format, *COARSE):
        largest = FORMATS[name].largest
        if (
            (np.abs(evidence.words[wrong_elements]) == largest).all()
            and (np.abs(evidence.exact[wrong_elements]) > largest).all()
            and (beyond[wrong_elements].all() or name != evidence.format)
        ):
            of = "the format" if name == evidence.format else name
            yield CauseFinding(
                "saturated",
                f"saturated to the largest number of {of} ({largest:g}), where infinity is expected",
                Fit(ENOUGH, "", wrong_elements),
            )
            return


def of_the_accumulator(mathematics: Mathematics, evidence: Evidence) -> Iterator[CauseFinding]:
    """Sums that were rounded to a narrow type, after each block of K or by the instruction itself."""
    narrow = sorted({d for _, _, _, _, d in evidence.products if d in ACCUMULATORS})
    magnitude = np.maximum(evidence.magnitude, np.abs(evidence.exact))
    for name in narrow:
        fmt = FORMATS[name]
        count = max((_size(mathematics, axis) for axis in mathematics.sum_axes), default=1)
        with np.errstate(invalid="ignore"):
            near = np.abs(evidence.words - evidence.exact) <= count * 2.0 ** (-fmt.mantissa_bits - 1) * magnitude
        if near[evidence.differs].all():
            said = f"accumulated in {name} (the matrix instructions of the launch add in {name})"
            yield CauseFinding("accumulated", said, Fit(ENOUGH, "", evidence.differs))
            return
    if not mathematics.linear or not mathematics.sum_axes or evidence.exact.ndim != 2:
        return
    axis, right_words = mathematics.sum_axes[0], _store_words(evidence.exact, evidence.format, Rounding.NEAREST_EVEN)
    length = _size(mathematics, axis)
    for block in [evidence.k_block] if evidence.k_block else BLOCKS:
        if block is None or not 1 <= -(-length // block) <= MOST_STEPS:
            continue
        parts = list(_parts(mathematics, evidence, axis, length, block))
        for name in ACCUMULATORS:
            for how in ("sum", "both"):
                total = np.zeros(evidence.exact.shape)
                with np.errstate(invalid="ignore", over="ignore"):
                    for part in parts:
                        total = round_to_format(total + (round_to_format(part, name) if how == "both" else part), name)
                made = _store_words(total, evidence.format, Rounding.NEAREST_EVEN)
                if fit := _fit_simulation(evidence, made, right_words, name):
                    yield CauseFinding("accumulated", f"accumulated in {name}, rounded after each {block} of {axis}", fit)


def _size(mathematics: Mathematics, axis: str) -> int:
    return next((values.shape[mathematics.axes[name].index(axis)] for name, values in mathematics.operands.items()
                 if axis in mathematics.axes.get(name, ()) and name not in mathematics.blocks), 1)  # fmt: skip


def _parts(mathematics: Mathematics, evidence: Evidence, axis: str, length: int, block: int) -> Iterator[np.ndarray]:
    for start in range(0, length, block):
        weights = np.zeros(length)
        weights[start : start + block] = 1.0
        yield evaluate_weighted(mathematics, axis, weights)[evidence.name]


def _fit_simulation(evidence: Evidence, simulation: np.ndarray, right_words: np.ndarray, name: str) -> Fit | None:
    """Whether words are those of a simulation, but for a few that rounded the other way."""
    usable = evidence.decided_elements & np.isfinite(evidence.words) & np.isfinite(simulation) & np.isfinite(right_words)
    if not usable.any() or (evidence.differs & ~usable).any():
        return None
    agree = usable & (evidence.words == simulation)
    with np.errstate(invalid="ignore"):
        near = np.abs(evidence.words - simulation) <= 2 * FEW_ULP * np.maximum(
            half_ulp(name, simulation), half_ulp(name, right_words)
        )
    telling = usable & (simulation != right_words)
    if agree.sum() < AGREEMENT_SHARE * usable.sum() or not near[usable].all() or not telling.any():
        return None
    if (agree & telling).sum() < AGREEMENT_SHARE * telling.sum():
        return None
    bits = float(_distinct(simulation[telling & agree], right_words[telling & agree]))
    return Fit(bits, "", np.ones(simulation.shape, bool)) if bits >= ENOUGH else None


def of_operands_and_operations(mathematics: Mathematics, evidence: Evidence, check: Callable[[], None]) -> list[CauseFinding]:
    """Roundings of operands, and of one operation of the reference. Of several those alone whose words, stored, agree with most
    of what came: a store hides how far two roundings differ, but not how often. `check` raises when the time is over."""
    findings = list(_of_operands_and_operations(mathematics, evidence, check))
    if len(findings) < 2 or evidence.format not in FORMATS:
        return findings
    telling = evidence.decided_elements & (evidence.words != _store_words(evidence.exact, evidence.format, Rounding.NEAREST_EVEN))
    agreed = [
        float((_store_words(each.prediction, evidence.format, Rounding.NEAREST_EVEN) == evidence.words)[telling].mean())
        for each in findings
        if each.prediction is not None
    ]
    return [each for each, share in zip(findings, agreed, strict=True) if share >= max(agreed) - 1 + AGREEMENT_SHARE]


def _of_operands_and_operations(mathematics: Mathematics, evidence: Evidence, check: Callable[[], None]) -> Iterator[CauseFinding]:
    """Operands that were rounded first, and operations of the reference of which something was."""
    for kind, sentence, operands in rounded_operands(mathematics, {}):
        prediction = evaluate_reference(mathematics, operands)[evidence.name]
        if fit := evidence.fit(prediction):
            yield CauseFinding(kind, sentence, fit, prediction)
    if mathematics.linear:
        return
    trace = [operation for operation in operations(mathematics) if np.issubdtype(np.asarray(operation.result).dtype, np.floating)]
    trace = [operation for operation in trace if operation.name not in ("getitem", "arange")]  # these round nothing
    distinct_predictions: list[np.ndarray] = []
    for place, operation in enumerate(trace[:MOST_OPERATIONS]):
        for name in ACCUMULATORS:
            check()
            for sentence, change in _narrowed_uses(operation, name, is_last=place == len(trace) - 1):
                prediction = evaluate_with_changes(mathematics, {operation.number: change})[evidence.name]
                if (fit := evidence.fit(prediction)) and not any(
                    np.array_equal(prediction, other, equal_nan=True) for other in distinct_predictions
                ):
                    distinct_predictions.append(prediction)  # the same by another name tells nothing new
                    yield CauseFinding("rounded operation", f"equals the reference with {sentence}", fit, prediction)


def _narrowed_uses(operation: Operation, name: str, *, is_last: bool) -> Iterator[tuple[str, Change]]:
    """(sentence, change) of what may be held in the format `name` around one operation; `is_last`: the store rounds its result."""
    texts, phrase = operation.texts, operation_text(operation)
    arrays = [np.ndim(each) > 0 and np.asarray(each).dtype == np.float64 for each in operation.arguments]
    if operation.name in REDUCTION_NAMES and arrays[:1] == [True]:
        yield f"{texts[0]} rounded to {name} in {operation.name}", _of_narrow(name, (0,))
    if not is_last:
        yield f"{operation.name}({texts[0]}) rounded to {name}", _to_narrow(name)
    if operation.name in OF_TWO and len(arrays) == 2:
        for place in (place for place in (0, 1) if arrays[place]):
            yield f"{texts[place]} rounded to {name} in {phrase}", _of_narrow(name, (place,))
        if all(arrays) and not is_last:
            yield f"{texts[0]}, {texts[1]} and the result of {phrase} rounded to {name}", _of_narrow(name, (0, 1), result=True)
        if operation.name in ("divide", "true_divide") and arrays[1]:
            yield (
                f"1 / {texts[1]} rounded to {name} in {phrase}",
                lambda function, args, kwargs: args[0] * _narrow(1 / args[1], name),
            )
    axis = reduced_axis(operation)
    if operation.name in ("sum", "add.reduce") and axis is not None:
        length = np.shape(operation.arguments[0])[axis]
        for step in (step for step in STEPS if step < length <= MOST_STEPS * step):
            yield f"{phrase} rounded to {name} after each {step} elements", _added_in_steps(name, axis, step)


def _narrow(values: np.ndarray, name: str) -> np.ndarray:
    given = np.asarray(values)
    return np.where(np.isfinite(given), round_to_format(np.where(np.isfinite(given), given, 0.0), name), given)


def _to_narrow(name: str) -> Change:
    return lambda function, args, kwargs: _narrow(function(*args, **kwargs), name)


def _of_narrow(name: str, places: tuple[int, ...], *, result: bool = False) -> Change:
    def change(function: Callable, args: tuple, kwargs: dict) -> np.ndarray:
        made = function(*(_narrow(each, name) if at in places else each for at, each in enumerate(args)), **kwargs)
        return _narrow(made, name) if result else made

    return change


def _added_in_steps(name: str, axis: int, step: int) -> Change:
    """A sum whose `step` lanes each add one element at a time and are rounded after it; the lanes are added exactly."""

    def change(function: Callable, args: tuple, kwargs: dict) -> np.ndarray:
        lines = np.moveaxis(np.asarray(args[0]), axis, 0)
        lanes = np.zeros((step, *lines.shape[1:]))
        for start in range(0, len(lines), step):
            part = lines[start : start + step]
            lanes[: len(part)] = round_to_format(lanes[: len(part)] + part, name)
        total = np.moveaxis(lanes, 0, axis)
        return function(total, *args[1:], **kwargs)

    return change


def _hold_in_format(values: np.ndarray, name: str) -> np.ndarray:
    return round_to_format(values, name)


def _store_words(values: np.ndarray, name: str, rounding: Rounding) -> np.ndarray:
    fmt = FORMATS[name]
    overflow = Overflow.SATURATE if fmt.width <= 8 else Overflow.INFINITY
    given = np.where(np.isnan(values), 0.0, values)
    return np.where(np.isnan(values), np.nan, decode(fmt, encode(fmt, given, rounding=rounding, overflow=overflow)))


def _distinct(*given: np.ndarray) -> int:
    return len(np.unique(np.stack([each.ravel() for each in given], axis=1), axis=0)) if given[0].size else 0
