"""What atomics make of real values: of words in global and shared memory, lane after lane as of the words themselves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bitverdict.harness.emulator.memory.atomic_sums import ADDS_FLOATS
from bitverdict.harness.emulator.memory.real_shadows import EXACT, KINDS, ShadowWords, read_as, value_of
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.numerics.real_values import Real, add

Combination = Callable[[Real, Real], Real]
_EXCHANGES = 10


class RealUpdate:
    """Real values beside one atomic on `lanes` words of type `element`.

    `given` are those of its values (None: exact), `combination` makes of those that are there and these what is there afterwards.
    None: the values themselves go there. `exact`: exact words give exact ones. `found` are those before, one a lane; None where all
    are exact."""

    def __init__(
        self, element: str, lanes: int, given: ShadowWords | None, combination: Combination | None, *, exact: bool
    ) -> None:
        self.element, self.lanes, self.combination, self.exact = element, lanes, combination, exact
        self.given = None if given is None else given.reshape(-1)
        self.found: ShadowWords | None = None

    def read(self, old_shadow: ShadowWords | None, lanes: np.ndarray) -> None:
        """`lanes` find what is `there`."""
        if old_shadow is None:
            return
        if self.found is None:
            self.found = _exact(self.lanes)
        for mine, theirs in zip(_parts(self.found), _parts(old_shadow), strict=True):
            mine[lanes] = theirs

    def combine(
        self,
        old_shadow: ShadowWords | None,
        lanes: np.ndarray,
        old_words: np.ndarray,
        new_words: np.ndarray,
        wrote: np.ndarray | None = None,
    ) -> ShadowWords | None:
        """What is there once `lanes` combined `new_words` with `old_words`, whose real values were `old_shadow`. Where not `wrote`
        (None: everywhere) nothing was changed, because another word than expected was there. None: it is exact."""
        self.read(old_shadow, lanes)
        mine = None if self.given is None else self.given[lanes]
        if old_shadow is None and mine is None and (self.exact or self.combination is None):
            return None
        if self.combination is None:
            result = mine or _exact(lanes.size)
        else:
            value, error = self.combination(self._real(old_shadow, old_words), self._real(mine, new_words))
            kind = np.full(np.shape(value), KINDS[self.element], np.uint8)
            result = ShadowWords(kind, value, np.zeros(np.shape(value)) if error is None else error)
        if wrote is None:
            return result
        if not wrote.all():
            result = ShadowWords(
                *(np.where(wrote, a, b) for a, b in zip(_parts(result), _parts(old_shadow or _exact(lanes.size)), strict=True))
            )
        if old_shadow is None:
            return result
        hangs = (old_shadow.kind != EXACT) & (old_shadow.error > 0)  # which word was there decided what is
        return ShadowWords(
            np.where(hangs, np.uint8(KINDS[self.element]), result.kind), result.value, np.where(hangs, np.inf, result.error)
        )

    def _real(self, carried: ShadowWords | None, words: np.ndarray) -> Real:
        if carried is None:
            return Real(value_of(words, self.element))
        value, error, _ = read_as(carried, words, self.element)
        return Real(value, error)


def update_of(op: Operation, element: str, lanes: int, given_reals: ShadowWords | None) -> RealUpdate:
    """What the atomic `op` (`tt.atomic_rmw` and its kin) makes of real values."""
    what = op.integer("atomic_rmw_op", 0)
    if what == ADDS_FLOATS:
        return RealUpdate(element, lanes, given_reals, add, exact=False)
    if what in (0, _EXCHANGES):
        return RealUpdate(element, lanes, given_reals, None, exact=True)
    return RealUpdate(element, lanes, given_reals, combine_unknowns, exact=True)


def combine_unknowns(there: Real, given: Real) -> Real:
    """What a combination of integers leaves: unknown where one of the two is."""
    errors = [np.asarray(0.0 if each.error is None else each.error) for each in (there, given)]
    return Real(given.value, np.where((errors[0] > 0) | (errors[1] > 0), np.inf, 0.0))


def _exact(lanes: int) -> ShadowWords:
    return ShadowWords(np.zeros(lanes, np.uint8), np.zeros(lanes), np.zeros(lanes))


def _parts(each: ShadowWords) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return each.kind, each.value, each.error


__all__ = ["Combination", "RealUpdate", "combine_unknowns", "update_of"]
