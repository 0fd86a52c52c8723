"""The hypotheses that the mathematics is right and something was rounded that should not be, or in another way: the store, the
accumulator, an operand, one operation."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bitverdict.harness.judge.explain.changed_operands import rounded_operands
from bitverdict.harness.judge.explain.changed_operations import REDUCED
from bitverdict.harness.judge.explain.evaluation import changed, operations, rounded
from bitverdict.harness.judge.explain.evidence import ENOUGH, Evidence, Finding, Fit, half_ulp
from bitverdict.harness.judge.explain.sums import BLOCKS, weighted
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.formats import FORMATS, Overflow, Rounding, decode, encode

COARSE = ("tf32", "fp16", "bf16", "e4m3", "e5m2")
ACCUMULATORS = ("fp16", "bf16")
ALIKE = 0.97  # of the elements: an fp32 sum beside a tie may round the other way
FEW_ULP = 4
MOST_STEPS = 64  # blocks of K whose sums are rounded one after another
MOST_OPERATIONS = 40


def of_the_store(evidence: Evidence) -> Iterator[Finding]:
    """What the last conversion did instead of rounding to nearest, ties to even."""
    found = FORMATS.get(evidence.format)
    if found is None:
        return
    words, exact = evidence.words, evidence.exact
    usable = evidence.decided & np.isfinite(words) & np.isfinite(exact) & (np.abs(exact) < found.largest)
    if not usable.any() or (evidence.differs & ~usable & np.isfinite(exact) & (np.abs(exact) < found.largest)).any():
        return
    noise = _noise(evidence)
    with np.errstate(invalid="ignore", over="ignore"):
        for name in COARSE:
            coarse = FORMATS[name]
            lost = found.mantissa_bits - coarse.mantissa_bits
            inside = usable & (np.abs(exact) < coarse.largest) & (np.abs(exact) >= coarse.smallest_normal)
            if (
                lost < 1
                or (evidence.differs & usable & ~inside).any()
                or not np.array_equal(_held(words[inside], name), words[inside])
            ):
                continue
            off = np.abs(words - exact)
            step = half_ulp(name, exact)
            bits = _distinct(words[inside], exact[inside]) * lost
            if bits < ENOUGH:
                continue
            everywhere = Fit(bits, "", np.ones(exact.shape, bool))
            slack = noise + half_ulp(evidence.format, exact)
            if (off <= step + slack)[inside].all():
                yield Finding("rounded before the store", f"rounded to {name} before the store", everywhere)
            elif ((off <= 2 * step + slack) & (np.abs(words) <= np.abs(exact) + slack))[inside].all():
                yield Finding("rounded before the store", f"cut to {name} before the store, toward zero", everywhere)
        yield from _other_way(evidence, usable)


def _noise(evidence: Evidence) -> np.ndarray:
    """How far a right sum may be off before the store, where it is known for words."""
    if evidence.sharp:
        return np.zeros(evidence.exact.shape)
    return evidence.noise * np.maximum(evidence.magnitude, np.abs(evidence.exact))


def _other_way(evidence: Evidence, usable: np.ndarray) -> Iterator[Finding]:
    words, exact = evidence.words, evidence.exact
    nearest = _stored(exact, evidence.format, Rounding.NEAREST_EVEN)
    cut = _stored(exact, evidence.format, Rounding.TOWARD_ZERO)
    if fit := _alike(evidence, cut, nearest, evidence.format):
        yield Finding("truncated", "stored toward zero (truncated), not rounded to nearest", fit)
    away = _stored(exact, evidence.format, Rounding.NEAREST_AWAY)
    ties = usable & (away != nearest)
    if ties.any() and (words == away)[usable].all() and not (evidence.differs & ~ties).any() and ties.sum() >= ENOUGH:
        yield Finding(
            "ties away", "ties rounded away from zero, not to even", Fit(float(ties.sum()), "", np.ones(exact.shape, bool))
        )


def saturated(evidence: Evidence) -> Iterator[Finding]:
    """Values beyond a format that came as its largest number, where infinity is expected."""
    found = FORMATS.get(evidence.format)
    if found is None or found.infinity_code is None or not evidence.differs.any():
        return
    wrong = evidence.differs
    beyond = np.abs(evidence.exact) > found.largest
    for name in (evidence.format, *COARSE):
        largest = FORMATS[name].largest
        if (
            (np.abs(evidence.words[wrong]) == largest).all()
            and (np.abs(evidence.exact[wrong]) > largest).all()
            and (beyond[wrong].all() or name != evidence.format)
        ):
            of = "the format" if name == evidence.format else name
            yield Finding(
                "saturated",
                f"saturated to the largest number of {of} ({largest:g}), where infinity is expected",
                Fit(ENOUGH, "", wrong),
            )
            return


def of_the_accumulator(mathematics: Mathematics, evidence: Evidence) -> Iterator[Finding]:
    """Sums that were rounded to a narrow type, after each block of K or by the instruction itself."""
    narrow = sorted({d for _, _, _, _, d in evidence.products if d in ACCUMULATORS})
    magnitude = np.maximum(evidence.magnitude, np.abs(evidence.exact))
    for name in narrow:
        fmt = FORMATS[name]
        count = max((_size(mathematics, axis) for axis in mathematics.summed), default=1)
        with np.errstate(invalid="ignore"):
            near = np.abs(evidence.words - evidence.exact) <= count * 2.0 ** (-fmt.mantissa_bits - 1) * magnitude
        if near[evidence.differs].all():
            said = f"accumulated in {name} (the matrix instructions of the launch add in {name})"
            yield Finding("accumulated", said, Fit(ENOUGH, "", evidence.differs))
            return
    if not mathematics.linear or not mathematics.summed or evidence.exact.ndim != 2:
        return
    axis, right = mathematics.summed[0], _stored(evidence.exact, evidence.format, Rounding.NEAREST_EVEN)
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
                        total = rounded(total + (rounded(part, name) if how == "both" else part), name)
                made = _stored(total, evidence.format, Rounding.NEAREST_EVEN)
                if fit := _alike(evidence, made, right, name):
                    yield Finding("accumulated", f"accumulated in {name}, rounded after each {block} of {axis}", fit)


def _size(mathematics: Mathematics, axis: str) -> int:
    return next((values.shape[mathematics.axes[name].index(axis)] for name, values in mathematics.operands.items()
                 if axis in mathematics.axes.get(name, ()) and name not in mathematics.blocks), 1)  # fmt: skip


def _parts(mathematics: Mathematics, evidence: Evidence, axis: str, length: int, block: int) -> Iterator[np.ndarray]:
    for start in range(0, length, block):
        weights = np.zeros(length)
        weights[start : start + block] = 1.0
        yield weighted(mathematics, axis, weights)[evidence.name]


def _alike(evidence: Evidence, made: np.ndarray, right: np.ndarray, name: str) -> Fit | None:
    """Whether words are those of a simulation, but for a few that rounded the other way."""
    usable = evidence.decided & np.isfinite(evidence.words) & np.isfinite(made) & np.isfinite(right)
    if not usable.any() or (evidence.differs & ~usable).any():
        return None
    agree = usable & (evidence.words == made)
    with np.errstate(invalid="ignore"):
        near = np.abs(evidence.words - made) <= 2 * FEW_ULP * np.maximum(half_ulp(name, made), half_ulp(name, right))
    telling = usable & (made != right)
    if agree.sum() < ALIKE * usable.sum() or not near[usable].all() or not telling.any():
        return None
    if (agree & telling).sum() < ALIKE * telling.sum():
        return None
    bits = float(_distinct(made[telling & agree], right[telling & agree]))
    return Fit(bits, "", np.ones(made.shape, bool)) if bits >= ENOUGH else None


def of_operands_and_operations(mathematics: Mathematics, evidence: Evidence) -> Iterator[Finding]:
    """Operands that were rounded first, and operations of the reference whose result was."""
    from bitverdict.harness.judge.explain.evaluation import evaluated

    for kind, sentence, operands in rounded_operands(mathematics, {}):
        made = evaluated(mathematics, operands)[evidence.name]
        if fit := evidence.fit(made):
            yield Finding(kind, sentence, fit, made)
    if mathematics.linear:
        return
    seen = [each for each in operations(mathematics) if np.issubdtype(np.asarray(each.result).dtype, np.floating)]
    for each in seen[:-1][:MOST_OPERATIONS]:
        for name in ACCUMULATORS:

            def narrowed(function, args, kwargs, name=name):  # type: ignore[no-untyped-def]
                result = np.asarray(function(*args, **kwargs))
                return np.where(np.isfinite(result), rounded(np.where(np.isfinite(result), result, 0.0), name), result)

            def from_narrow(function, args, kwargs, name=name):  # type: ignore[no-untyped-def]
                given = np.asarray(args[0])
                return function(
                    np.where(np.isfinite(given), rounded(np.where(np.isfinite(given), given, 0.0), name), given),
                    *args[1:],
                    **kwargs,
                )

            if each.name in REDUCED:
                made = changed(mathematics, each.number, from_narrow)[evidence.name]
                if fit := evidence.fit(made):
                    yield Finding(
                        "rounded operation",
                        f"equals the reference with {each.texts[0]} rounded to {name} in {each.name}",
                        fit,
                        made,
                    )
            made = changed(mathematics, each.number, narrowed)[evidence.name]
            if fit := evidence.fit(made):
                yield Finding(
                    "rounded operation", f"equals the reference with {each.name}({each.texts[0]}) rounded to {name}", fit, made
                )


def _held(values: np.ndarray, name: str) -> np.ndarray:
    return rounded(values, name)


def _stored(values: np.ndarray, name: str, rounding: Rounding) -> np.ndarray:
    fmt = FORMATS[name]
    overflow = Overflow.SATURATE if fmt.width <= 8 else Overflow.INFINITY
    given = np.where(np.isnan(values), 0.0, values)
    return np.where(np.isnan(values), np.nan, decode(fmt, encode(fmt, given, rounding=rounding, overflow=overflow)))


def _distinct(*given: np.ndarray) -> int:
    return len(np.unique(np.stack([each.ravel() for each in given], axis=1), axis=0)) if given[0].size else 0
