"""What came of a large product, held block by block to what is expected; on a GPU that computes every expected word, by threads.

There the words of a block come from `bitverdict.harness.lab.gpu_oracle`. The host widens operands, rounds to the type of the result
and compares, which takes longer than the GPU does; NumPy lets threads do it side by side. Square blocks have each operand widened
as few times as there are blocks along the other axis.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

import numpy as np

from bitverdict.harness.judge.compare import compare_words
from bitverdict.harness.judge.devices import device_of
from bitverdict.harness.lab.gpu_oracle.products import answer_on, computes, promoted_on
from bitverdict.harness.lab.large_gemm import operands as large_operands
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.targets import Target
from bitverdict.reference.tensor_core.product_query import ProductQuery, with_product_model

THREADS = 8  # each holds about half a GB at 8192 cubed
Place = tuple[slice, slice]


def gpu_for_every_word(case: Case, target: Target, contract: Any, operands: Mapping, launch_record: Mapping) -> str:
    """torch's name of the GPU that can compute all of the case's expected words, "" where there is none or the plan asks for other
    products. Which it asks for is seen at one element."""
    if target.emulated:
        return ""
    queries: list[ProductQuery] = []

    def note_query(one: ProductQuery) -> np.ndarray:
        queries.append(one)
        return one.words()

    smaller, chosen = large_operands.part(case, operands, np.arange(1), np.arange(1))
    with with_product_model(note_query, alone=True):
        contract.expected(smaller, target, chosen, launch_record)
    return str(device_of(target)) if queries and all(map(computes, queries)) else ""


def over_blocks(hold: Callable[[Place], str], blocks: Iterable[Place], gpu: str) -> list[str]:
    """What `hold` returns of each block, in order. With `gpu` the words that it asks for are computed there, and threads hold."""
    if not gpu:
        return [hold(place) for place in blocks]
    with with_product_model(answer_on(gpu), alone=True, promoting=promoted_on(gpu)):
        threads = min(THREADS, len(os.sched_getaffinity(0)))
        if threads == 1:
            return [hold(place) for place in blocks]
        with ThreadPoolExecutor(threads) as pool:
            begun = [pool.submit(copy_context().run, hold, place) for place in blocks]
            return [each.result() for each in begun]


@dataclass
class WordComparison:
    """The words at chosen rows and columns, and of each whether it differs and whether it is decided: (rows, columns) all.

    `due` is the expected word, or the lowest that a bound allows. `places` and `tiles`: of the rows and of the columns."""

    actual: np.ndarray
    expected: np.ndarray
    differs: np.ndarray
    decided_mask: np.ndarray
    places: tuple[np.ndarray, np.ndarray]
    tiles: tuple[np.ndarray, np.ndarray]

    @classmethod
    def for_places(
        cls, kind: np.dtype, places: tuple[np.ndarray, np.ndarray], tiles: tuple[np.ndarray, np.ndarray]
    ) -> WordComparison:
        """Nothing held yet, of words of `kind`."""
        shape = len(places[0]), len(places[1])
        return cls(np.zeros(shape, kind), np.zeros(shape, kind), np.zeros(shape, bool), np.zeros(shape, bool), places, tiles)

    def blocks(self, step: int) -> list[Place]:
        """All places, in blocks of `step` rows and columns."""
        rows, columns = self.actual.shape
        return [
            (slice(top, top + step), slice(left, left + step)) for top in range(0, rows, step) for left in range(0, columns, step)
        ]

    def hold(self, place: Place, words: np.ndarray, expected: ExpectedOutput) -> None:
        """Hold what is at `place` of the whole result `words` to what is expected there: words, or a bound where the target's
        arithmetic is not known."""
        rows, columns = (places[part] for places, part in zip(self.places, place, strict=True))
        self.actual[place] = words[np.ix_(rows, columns)]
        self.differs[place], self.decided_mask[place], _, _ = compare_words(expected, self.actual[place])
        due = expected.words if expected.words is not None else expected.low
        assert due is not None
        self.expected[place] = due.view(self.actual.dtype)

    @property
    def tiles_held(self) -> int:
        return len(np.unique(self.tiles[0])) * len(np.unique(self.tiles[1]))
