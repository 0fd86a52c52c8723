"""The cause of a wrong result, in one sentence, or none.

It is asked after a comparison failed, and never decides one. Where two hypotheses hold that mean different things nothing is
said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bitverdict.harness.checks.explain.changed_operations import changes_of
from bitverdict.harness.checks.explain.evaluation import Operation, cost, evaluate_reference, evaluate_with_changes, operations
from bitverdict.harness.checks.explain.evidence import ENOUGH, MOST_BITS, CauseFinding, Evidence, learned_noise
from bitverdict.harness.checks.explain.hypotheses import ZEROS, SearchTooLong, SearchWork, evaluate_or_none, hypotheses
from bitverdict.harness.checks.explain.roundings import of_operands_and_operations, of_the_accumulator, of_the_store, saturation
from bitverdict.harness.checks.explain.unwritten import lines_never_written, never_written_tiles
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.diagnose import values
from bitverdict.harness.judge.real_values import mathematics as held_to_mathematics
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.verdict import CONSTANT_CAUSE, Outcome
from bitverdict.reference.formats import FORMATS, encode

WRONG_OUTCOMES = {Outcome.WRONG_WORDS, Outcome.OUTSIDE_BOUND, Outcome.WRONG_MATHEMATICS, Outcome.LOST_PRECISION}
FP32_CHAIN = 2.0**-20  # of its magnitude: what a few fp32 operations and functions lose before a store hides it
COARSE_OPERANDS, COARSE_SUMS = ("e4m3", "e5m2"), 2.0**-12  # fp8 products that keep 13 bits of a sum
MAX_ALTERNATIVES = 2  # things of different names that give one result on a case
PLACES = {
    "tile of another program", "moved", "first block for all", "shifted operand", "first for all", "halves exchanged",
    "neighbours exchanged", "reversed operand", "rows and columns exchanged", "transposed operand",
    "stride ignored", "block of another step",
}  # fmt: skip
"""Kinds that name one movement by the operand or by the result."""
ZERO_KINDS = {"dropped", "element left out", "left out", "cut"}
"""Kinds that a result of zeros may be told by: many other changes give zeros too, by chance."""
OMISSION_KINDS = {"dropped", "element left out", "left out", "stopped"}
"""Kinds that name one thing that is missing by what it is made of."""


@dataclass(frozen=True)
class Cause:
    """`sentence` says what the wrong result equals, `kind` names its class for a count; `kinds`: of all that holds."""

    kind: str
    sentence: str
    kinds: tuple[str, ...] = ()


def cause_of(
    mathematics: Mathematics | None,
    expected: ExpectedOutput,
    launch_result: LaunchResult,
    outcome: Outcome,
    poison: int | None = None,
    other_outputs: Sequence[ExpectedOutput] = (),
) -> Cause | None:
    """Why the output `expected.name` of a launch is wrong; None where nothing, or more than one thing, explains it.
    Of two hypotheses the one is told that `other_outputs` do not contradict."""
    words = launch_result.outputs.get(expected.name)
    if outcome not in WRONG_OUTCOMES or words is None or words.shape != tuple(expected.shape) or not words.size:
        return None
    launches = tuple(launch_result.launch_record.get("launches", ()))
    tile = _tile(expected, launches)
    differs, decided_elements, _, _ = compare_words(expected, words)
    unwritten_lines, written_elements = "", np.ones(words.shape, bool)
    if poison is not None:
        unwritten = words == words.dtype.type(poison)
        if findings := list(never_written_tiles(unwritten, differs, tile, launches)):
            return Cause(findings[0].kind, findings[0].sentence)
        if unwritten_lines := lines_never_written(unwritten, differs):
            written_elements = ~unwritten
    mathematics = mathematics or _value_alone(expected)
    found = _explanation(
        mathematics, expected, launch_result, outcome, (differs, decided_elements, written_elements, tile, launches), other_outputs
    )
    if not unwritten_lines:
        return found
    elsewhere = f"; elsewhere {found.sentence}" if found is not None else ""
    return Cause("never written", f"{unwritten_lines} never written{elsewhere}")


def _explanation(
    mathematics: Mathematics | None,
    expected: ExpectedOutput,
    launch_result: LaunchResult,
    outcome: Outcome,
    comparison: tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, int] | None, tuple[Mapping, ...]],
    other_outputs: Sequence[ExpectedOutput],
) -> Cause | None:
    """What explains the elements that were written; `known`: (differs, decided, written, tile, launches)."""
    if mathematics is None:
        return None
    try:
        evidence = _evidence(mathematics, expected, launch_result, *comparison, outcome)
        if evidence is None or not evidence.differs.any():
            return None
        done = evaluate_or_none(lambda: operations(mathematics)) or []
        causes = list(_findings(mathematics, evidence, outcome, done, SearchWork(cost(done) + evidence.exact.size)))
        if len(causes) > 1 and other_outputs:
            evidences = [
                one
                for each in other_outputs
                if (one := _evidence_of_output(mathematics, each, launch_result, comparison[4], outcome)) is not None
            ]
            right = [each for each in evidences if not each.differs.any()]
            causes = _not_contradicted(causes, evidences) or _not_contradicted(causes, right) or causes
        return choose_cause(causes, evidence, generic=_generic(mathematics, evidence))
    except SearchTooLong:
        return None


def _evidence_of_output(
    mathematics: Mathematics, expected: ExpectedOutput, launch_result: LaunchResult, launches: tuple[Mapping, ...], outcome: Outcome
) -> Evidence | None:
    """Another output of the launch, as evidence; None where it came in no shape to be compared."""
    got = launch_result.outputs.get(expected.name)
    if got is None or got.shape != tuple(expected.shape) or not got.size:
        return None
    differs, decided, _, _ = compare_words(expected, got)
    return _evidence(mathematics, expected, launch_result, differs, decided, np.ones(got.shape, bool), None, launches, outcome)


def _not_contradicted(findings: list[CauseFinding], other_evidence: list[Evidence]) -> list[CauseFinding]:
    """The findings that predict the other outputs as they came, or say nothing of them."""

    def agrees(each: CauseFinding, other: Evidence) -> bool:
        made = each.outputs.get(other.name)
        return made is None or made.shape != other.exact.shape or not (other.decided_elements & ~other.close_elements(made)).any()

    return [each for each in findings if all(agrees(each, other) for other in other_evidence)]


def _value_alone(expected: ExpectedOutput) -> Mathematics | None:
    """What is expected as a mathematics without operands: of it alone is known where values lie and how they are rounded."""
    exact = expected.exact if expected.exact is not None else expected.value
    if exact is None and expected.words is not None:
        exact = values(expected.format, expected.words.view(f"u{expected.words.dtype.itemsize}"))
    return None if exact is None else Mathematics(function=lambda xp: exact, operands={}, outputs=(expected.name,))


def choose_cause(findings: Iterable[CauseFinding], evidence: Evidence, *, generic: bool = True) -> Cause | None:
    """The cause of which `findings` speak. None where they predict different results, or where too many different things give
    one result; of two both are said. A finding that holds everywhere comes before those that hold in a part.

    `generic`: no axis is so short that places of different names are one place."""
    candidates = [
        cause_finding
        for cause_finding in findings
        if cause_finding.kind in ZERO_KINDS
        or cause_finding.prediction is None
        or cause_finding.prediction[cause_finding.fit.region].any()
    ]
    candidates = [cause_finding for cause_finding in candidates if not cause_finding.fit.where] or candidates
    if not candidates:
        return None
    best_finding, sentences = candidates[0], [candidates[0].sentence]
    for rival in candidates[1:]:
        if best_finding.place is not None and best_finding.place == rival.place and _one_result(best_finding, rival, evidence):
            continue
        if rival.sentence in sentences or (rival.kind == best_finding.kind and rival.prediction is None is best_finding.prediction):
            continue
        if not _one_result(best_finding, rival, evidence):
            return None
        one_thing = {best_finding.kind, rival.kind} <= OMISSION_KINDS and len(sentences) >= MAX_ALTERNATIVES
        if not one_thing and not (generic and {best_finding.kind, rival.kind} <= PLACES):
            sentences.append(rival.sentence)
    if len(sentences) > MAX_ALTERNATIVES:
        return None
    where = f" ({best_finding.fit.where})" if best_finding.fit.where else ""
    return Cause(
        best_finding.kind, ", or ".join(sentences) + where, tuple(dict.fromkeys(cause_finding.kind for cause_finding in candidates))
    )


def _generic(mathematics: Mathematics, evidence: Evidence) -> bool:
    """Whether each axis of the operands and of the output has three elements at least."""
    shapes = [np.shape(values) for values in mathematics.operands.values()] + [evidence.exact.shape]
    return all(size > 2 for shape in shapes for size in shape)


def _one_result(own_finding: CauseFinding, rival: CauseFinding, evidence: Evidence) -> bool:
    """Whether two predictions are stored as the same words, so that no data of this kind tells them apart. Real values are not
    stored: of them two are one that lie no further apart than what both may be off."""
    if own_finding.prediction is None or rival.prediction is None:
        return False
    both = own_finding.fit.region & rival.fit.region  # all that is wrong lies in both
    first, second = own_finding.prediction[both], rival.prediction[both]
    if not evidence.sharp and (format := FORMATS.get(evidence.format)) is not None:
        return bool((encode(format, first) == encode(format, second)).all())
    with np.errstate(invalid="ignore"):
        near = np.abs(first - second) <= (evidence.slack(own_finding.prediction) + evidence.slack(rival.prediction))[both]
    return bool((near | (first == second) | (np.isnan(first) & np.isnan(second))).all())


def _evidence(
    mathematics: Mathematics,
    expected: ExpectedOutput,
    launch_result: LaunchResult,
    differs: np.ndarray,
    decided_elements: np.ndarray,
    written_elements: np.ndarray,
    tile: tuple[int, int] | None,
    launches: tuple[Mapping, ...],
    outcome: Outcome,
) -> Evidence | None:
    """What hypotheses are held to, of `decided_elements` alone; None where the mathematics does not give what is expected."""
    output_words = launch_result.outputs[expected.name]
    differs, decided_elements = differs & written_elements, decided_elements & written_elements
    exact = evaluate_or_none(lambda: evaluate_reference(mathematics).get(expected.name))
    if exact is None or exact.shape != output_words.shape:
        return None
    if expected.exact is not None:
        agrees = _agree(expected, exact)
        decided_elements = decided_elements & agrees
        if (differs & ~agrees).any():
            return None
    elif expected.words is not None and expected.format not in FORMATS:
        agrees = exact == values(expected.format, expected.words.view(f"u{expected.words.dtype.itemsize}"))
        decided_elements = decided_elements & agrees
        if (differs & ~agrees).any():
            return None
    words, magnitude = values(expected.format, output_words), _magnitude(mathematics, expected.name, exact)
    products = frozenset(tuple(one) for one in launch_result.launch_record.get("instructions", ()))
    coarse = any(one[2] in COARSE_OPERANDS for one in products)
    observed_values, noise, sharp = words, learned_noise(expected, exact, magnitude, COARSE_SUMS if coarse else FP32_CHAIN), False
    if (
        outcome is Outcome.WRONG_MATHEMATICS
        and (real := held_to_mathematics(expected, launch_result.real_values.get(expected.name))) is not None
    ):
        observed_values, noise, sharp = real.real, np.where(real.known_elements, real.tolerance, 0.0), True  # type: ignore[assignment]
        differs, decided_elements = real.wrong_elements & written_elements, real.known_elements & written_elements
    known_tile = _k_block(expected, launches)
    return Evidence(
        name=expected.name,
        format=expected.format,
        exact=exact,
        observed_values=observed_values,
        words=words,
        differs=differs,
        decided_elements=decided_elements,
        written_elements=written_elements,
        magnitude=magnitude,
        noise=noise,
        sharp=sharp,
        tile=tile,
        k_block=known_tile,
        launches=launches,
        products=products,  # type: ignore[arg-type]
    )


def _agree(expected: ExpectedOutput, exact: np.ndarray) -> np.ndarray:
    """Where `exact`, the mathematics as float64 gives it here, is that of `expected`: no further off than what both round, by the
    contract's running error, or a right result for the contract when it is stored."""
    assert expected.exact is not None
    known = np.zeros(exact.shape) if expected.exact_error is None else expected.exact_error
    with np.errstate(invalid="ignore"):
        near = np.abs(exact - expected.exact) <= 2 * np.where(np.isfinite(known), known, 0.0)
    same = near | (exact == expected.exact) | (np.isnan(exact) & np.isnan(expected.exact))
    if not same.all() and (format := FORMATS.get(expected.format)) is not None:
        wrong, *_ = compare_words(expected, encode(format, exact))
        same |= ~wrong
    return same


def _magnitude(mathematics: Mathematics, name: str, exact: np.ndarray) -> np.ndarray:
    """What an element's sums are made of: of sums of products that of the terms' magnitudes, else about the size of the output."""
    finite = np.abs(exact[np.isfinite(exact)])
    usual = float(np.median(finite)) if finite.size else 1.0
    if mathematics.linear:
        operands = {key: np.abs(each) if isinstance(each, np.ndarray) else each for key, each in mathematics.operands.items()}
        found = evaluate_reference(mathematics, operands)[name]
        return np.where(np.isfinite(found) & (found > 0), found, usual or 1.0)
    return np.maximum(np.where(np.isfinite(exact), np.abs(exact), 0.0), usual) + 2.0**-1000


def _findings(
    mathematics: Mathematics, evidence: Evidence, outcome: Outcome, done: list[Operation], work: SearchWork
) -> Iterator[CauseFinding]:
    """Every hypothesis that holds, those that say most first."""
    if outcome is not Outcome.LOST_PRECISION:
        for hypothesis in hypotheses(mathematics, evidence, done, work):
            work.spend(hypothesis.times)
            predicted_outputs = evaluate_or_none(hypothesis.predict)
            prediction = predicted_outputs.get(evidence.name) if isinstance(predicted_outputs, Mapping) else predicted_outputs
            if (
                prediction is not None
                and (fit := evidence.fit(prediction))
                # one element has given a number
                and (not hypothesis.kind.startswith(CONSTANT_CAUSE) or fit.bits >= ENOUGH + MOST_BITS)
                and (hypothesis.sentence != ZEROS or fit.where or mathematics.linear)
            ):
                outputs = predicted_outputs if isinstance(predicted_outputs, Mapping) else {}
                yield CauseFinding(hypothesis.kind, hypothesis.sentence, fit, prediction, outputs, hypothesis.place)
    if outcome is Outcome.LOST_PRECISION:
        yield from _overflows(mathematics, evidence)
    if outcome is not Outcome.WRONG_MATHEMATICS:
        for each in (of_the_store, saturation):
            yield from each(evidence)
        work.spend()
        yield from of_the_accumulator(mathematics, evidence)
        yield from of_operands_and_operations(mathematics, evidence, work.spend)


def _overflows(mathematics: Mathematics, evidence: Evidence) -> Iterator[CauseFinding]:
    """What changes no mathematics and keeps values small, left out: the largest that is not taken away before an exponential."""
    if not (evidence.differs & ~np.isfinite(evidence.words)).any():
        return
    for operation in operations(mathematics):
        for kind, sentence, change in changes_of(operation):
            if kind == "left out":
                made = evaluate_or_none(lambda: evaluate_with_changes(mathematics, {operation.number: change})[evidence.name])
                if made is not None and not np.isfinite(made).all() and (fit := evidence.fit(made, wild=True)):
                    yield CauseFinding(kind, f"overflows fp32: {sentence}", fit, made)


def _tile(expected: ExpectedOutput, launches: tuple[Mapping, ...]) -> tuple[int, int] | None:
    """Of the output: what the contract says, else what the last launch's largest product shows."""
    if expected.tile is not None:
        return expected.tile
    tiles = [launch["tile"] for launch in launches if len(launch.get("tile", ())) == 3]
    return (tiles[-1][0], tiles[-1][1]) if tiles and len(expected.shape) == 2 else None


def _k_block(expected: ExpectedOutput, launches: tuple[Mapping, ...]) -> int | None:
    tiles = [launch["tile"] for launch in launches if len(launch.get("tile", ())) == 3]
    return expected.k_block or (tiles[-1][2] if tiles else None)
