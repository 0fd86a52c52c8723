"""The hypotheses on a wrong result: each changes one thing of the reference, and predicts what the output would then hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain import constants
from bitverdict.harness.checks.explain.changed_operands import changed_indices, changed_operands, missing_elements, pad_operands
from bitverdict.harness.checks.explain.changed_operations import stopped_after
from bitverdict.harness.checks.explain.changed_uses import at_one_use, constants_in_reverse, ignored_operands, outside_the_root
from bitverdict.harness.checks.explain.evaluation import (
    Change,
    Operation,
    changed_with_operands,
    evaluate_reference,
    evaluate_with_changes,
    on_sample,
)
from bitverdict.harness.checks.explain.evidence import Evidence
from bitverdict.harness.checks.explain.masked_elements import counted_in_one, narrow_result, without_last_powers
from bitverdict.harness.checks.explain.missing_rescale import not_rescaled
from bitverdict.harness.checks.explain.moved_operations import moved_behind, without_in_one_sum
from bitverdict.harness.checks.explain.places import relocations, transpositions
from bitverdict.harness.checks.explain.sums import weighted_sums
from bitverdict.harness.checks.explain.turns import changes_of_each_site
from bitverdict.harness.model.mathematics import Mathematics

MOST_WORK = 5e8  # elements that the evaluations for one failure work through (`evaluation.cost`): beyond them nothing is said
MOST_SOLVED = 24  # numbers of a reference that are solved for
ZEROS = "zeros: nothing was added or stored"


class SearchTooLong(Exception):
    """The search has done what it may."""


@dataclass
class SearchWork:
    """How much the search may still evaluate. It counts elements, no seconds: a busy machine says what a quiet one says."""

    evaluation_cost: float  # of one evaluation of the reference
    budget: float = MOST_WORK

    def spend(self, times: float = 1.0) -> None:
        self.budget -= times * self.evaluation_cost
        if self.budget < 0:
            raise SearchTooLong


@dataclass(frozen=True)
class Hypothesis:
    """`predict` gives all outputs, or this one alone; None where a few elements already contradict it. `place`: the operation that
    is another. `times`: how many evaluations of the case's own size it is like."""

    kind: str
    sentence: str
    predict: Callable[[], Mapping[str, np.ndarray] | np.ndarray | None]
    place: int | None = None
    times: float = 1.0


def hypotheses(mathematics: Mathematics, evidence: Evidence, trace: list[Operation], work: SearchWork) -> Iterator[Hypothesis]:
    """Every hypothesis on the mathematics."""
    name = evidence.name

    def of_operands(found: Iterable[tuple[str, str, Mapping]]) -> Iterator[Hypothesis]:
        for kind, sentence, operands in found:
            yield Hypothesis(kind, sentence, partial(_of_operands, mathematics, operands, evidence))

    def of_operations(found: Iterable[tuple[str, str, Mapping[int, Change], int]]) -> Iterator[Hypothesis]:
        for kind, sentence, changes, place in found:
            yield Hypothesis(kind, sentence, partial(evaluate_with_changes, mathematics, changes, trace), place)

    def of_arrays(found: Iterable[tuple[str, str, np.ndarray]]) -> Iterator[Hypothesis]:
        for kind, sentence, prediction in found:
            yield Hypothesis(kind, sentence, partial(np.asarray, prediction))

    yield from of_operands(weighted_sums(mathematics, evidence))
    yield from of_arrays(transpositions(evidence))
    yield from of_operands(changed_operands(mathematics, evidence.k_block))
    yield from of_operands(changed_indices(mathematics))
    products = [
        each for each in trace if each.name == "matmul" and not mathematics.sum_axes
    ]  # else their elements have been weighed
    yield from of_operations(changes_of_each_site(products))
    yield from of_operands(() if mathematics.linear else missing_elements(mathematics))
    yield from of_operations(changes_of_each_site([each for each in trace if each.name != "matmul"]))
    for of_several in (outside_the_root, at_one_use, constants_in_reverse):
        for kind, sentence, changes in of_several(trace):
            yield Hypothesis(kind, sentence, partial(evaluate_with_changes, mathematics, changes, trace), min(changes))
    yield from of_operands(ignored_operands(mathematics, trace))
    if not mathematics.linear:
        for kind, sentence, predict in pad_operands(mathematics, name):
            yield Hypothesis(kind, sentence, predict)
        yield from _of_masks_and_order(mathematics, evidence, trace, of_operations)
        yield from _of_numbers(mathematics, evidence, trace, work)
    yield from of_arrays(stopped_after(trace, evidence.exact.shape))
    yield from of_arrays(relocations(evidence))
    yield Hypothesis("dropped", ZEROS, lambda: np.zeros(evidence.exact.shape))


def _of_masks_and_order(
    mathematics: Mathematics,
    evidence: Evidence,
    trace: list[Operation],
    of_operations: Callable[[Iterable[tuple[str, str, Mapping[int, Change], int]]], Iterator[Hypothesis]],
) -> Iterator[Hypothesis]:
    """Elements that a mask lets in or leaves out, sums that are not rescaled, and operations at another place."""
    for sentence, operands, changes, place, sizes in counted_in_one(mathematics, trace):
        times = max(np.size(operands[each]) / max(np.size(values), 1) for each, values in mathematics.operands.items())
        yield Hypothesis(
            "fill", sentence, partial(_predict_narrowed, mathematics, operands, changes, sizes, evidence), place, times
        )
    yield from of_operations(without_last_powers(trace))
    yield from of_operations(not_rescaled(trace))
    yield from of_operations(moved_behind(trace))
    yield from of_operations(without_in_one_sum(mathematics, trace))


def _predict_narrowed(
    mathematics: Mathematics,
    operands: Mapping[str, np.ndarray],
    changes: Mapping[int, Change],
    sizes: tuple[int, int],
    evidence: Evidence,
) -> np.ndarray:
    made = changed_with_operands(mathematics, operands, changes)[evidence.name]
    return narrow_result(made, evidence.exact.shape, sizes)


def _of_numbers(mathematics: Mathematics, evidence: Evidence, trace: list[Operation], work: SearchWork) -> Iterator[Hypothesis]:
    """Other numbers in operations, and other forms of a function."""

    def evaluate(operation: Operation, change: Change) -> np.ndarray | None:
        work.spend()
        return evaluate_or_none(lambda: evaluate_with_changes(mathematics, {operation.number: change}, trace)[evidence.name])

    for operation in trace:
        for kind, sentence, change in (*constants.other_whole_numbers(operation), *constants.other_function(operation, trace)):
            yield Hypothesis(
                kind, sentence, partial(evaluate_with_changes, mathematics, {operation.number: change}, trace), operation.number
            )
    numbers = [each for each in trace if constants.number_in(each) is not None and each.name in constants.WITH_NUMBERS]
    for operation in numbers[:MOST_SOLVED]:
        if (found := constants.solve_number(operation, evidence, partial(evaluate, operation))) is not None:
            kind, sentence, change = found
            yield Hypothesis(
                kind, sentence, partial(evaluate_with_changes, mathematics, {operation.number: change}, trace), operation.number
            )


def _of_operands(mathematics: Mathematics, operands: Mapping, evidence: Evidence) -> dict[str, np.ndarray] | None:
    """The outputs of changed operands, where a few wrong elements do not contradict it."""
    if evidence.exact.ndim == 2:
        rows, columns = evidence.sample
        few = on_sample(mathematics, operands, evidence.name, rows, columns)
        at = np.ix_(rows, columns)
        if few is not None and (evidence.differs[at] & ~evidence.close_elements(few, at)).any():
            return None
    return evaluate_reference(mathematics, operands)


def evaluate_or_none(evaluate: Callable[[], object]) -> Any:
    """What a change gives; None where the function cannot take it (a shape that does not fit, an index outside)."""
    try:
        return evaluate()
    except Exception:  # of a reference of the user's, on operands that it was not written for
        return None
