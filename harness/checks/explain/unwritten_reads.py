"""The hypothesis that a launch reads uninitialised words: of a tensor that the launcher allocated and did not fill.

To load such words is no fault: a kernel may select them away. So the case is launched again twice. The first launch holds the same
poison, gives the same words, and says which lines take unwritten words, and of which allocation. The second has zeros in that one
allocation. It is the cause where each wrong element has another word then, or is right: poison may be too small for a word, and
show in real values alone. What nobody wrote at all is no matter of a read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from bitverdict.harness.checks.explain.cause import Cause
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.launch import Allocations
from bitverdict.harness.judge.real_values import mathematics
from bitverdict.harness.model.contract import ExpectedOutput

KIND = "uninitialised words"
MOST_ALLOCATIONS = 2  # that are zeroed, a launch each
MOST_LINES = 3  # told


class Relaunch(NamedTuple):
    """What the emulated launch of a case came to, and how it is launched once more."""

    first_launch: LaunchResult
    launch: Callable[[Allocations], LaunchResult]


def explain_by_unwritten_input(expected: ExpectedOutput, seen: LaunchResult, relaunch: Relaunch) -> Cause | None:
    """The cause of the wrong elements of `expected.name` in the launch `seen`, where they hang on uninitialised words."""
    name, first = expected.name, relaunch.first_launch
    wrong_elements = _failing_elements(expected, seen)
    if name not in first.outputs or not wrong_elements.any() or (wrong_elements & ~_failing_elements(expected, first)).any():
        return None
    tracked_launch = relaunch.launch(Allocations(tracks_unwritten=True))
    if not _same_words(first, tracked_launch, name) or (wrong_elements & tracked_launch.unwritten[name]).any():
        return None
    allocations = list(dict.fromkeys(allocation for _, allocation, _ in tracked_launch.unwritten_reads))
    if len(allocations) > MOST_ALLOCATIONS:
        return None
    hang = {
        each: zeroed
        for each in allocations
        if (zeroed := _hangs(each, wrong_elements, expected, tracked_launch, relaunch)) is not None
    }
    told = [_read_sentence(expected, tracked_launch, each, zeroed) for each, zeroed in hang.items()]
    return Cause(KIND, "; ".join(told)) if told else None


def _hangs(
    allocation: str, wrong_elements: np.ndarray, expected: ExpectedOutput, tracked_launch: LaunchResult, again: Relaunch
) -> LaunchResult | None:
    """The launch with zeros in `allocation`, where each of the `wrong_elements` comes to another word there, or is right."""
    zeroed = again.launch(Allocations(zero_allocation=allocation))
    if zeroed.outcome is not None or zeroed.outputs[expected.name].shape != wrong_elements.shape:
        return None
    changed = zeroed.outputs[expected.name] != tracked_launch.outputs[expected.name]
    return zeroed if (changed | ~_failing_elements(expected, zeroed))[wrong_elements].all() else None


def _read_sentence(expected: ExpectedOutput, followed: LaunchResult, allocation: str, zeroed: LaunchResult) -> str:
    lines = [(line, where) for line, name, where in followed.unwritten_reads if name == allocation]
    right = "" if _failing_elements(expected, zeroed).any() else f"; with zeros there {expected.name} is right"
    return f"reads uninitialised words ({_list_lines([line for line, _ in lines])}): {allocation}, {lines[0][1]}{right}"


def _list_lines(lines: Sequence[str]) -> str:
    said = list(dict.fromkeys(lines))
    return ", ".join(said[:MOST_LINES]) + (f" and {len(said) - MOST_LINES} more" if len(said) > MOST_LINES else "")


def _failing_elements(expected: ExpectedOutput, seen: LaunchResult) -> np.ndarray:
    """The elements that fail: by their real values, where these tell any, else by their words."""
    got = seen.outputs.get(expected.name)
    if got is None or got.shape != tuple(expected.shape):
        return np.zeros(tuple(expected.shape), np.bool_)
    found = mathematics(expected, seen.real_values.get(expected.name))
    return found.wrong_elements if found is not None and found.wrong_elements.any() else compare_words(expected, got)[0]


def _same_words(first: LaunchResult, followed: LaunchResult, name: str) -> bool:
    """Whether two launches of one case gave the same words."""
    return followed.outcome is None and name in followed.outputs and np.array_equal(first.outputs[name], followed.outputs[name])
