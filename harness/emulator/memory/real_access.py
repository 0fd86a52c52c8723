"""Real values on their way between the variables of generated code and memory, in one launch.

Generated code gives the real value of what the next operation writes (`give`), and that operation takes it to where it writes
(`take`). What an operation read it leaves in `found`, and generated code asks for it behind the operation (`got`). Between two such
lines nothing else of the launch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.memory.real_shadows import Moved, held_as, moved, read_as, value_of
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, either, with_taint

if TYPE_CHECKING:
    from bitverdict.harness.emulator.execution.cta import Cta
    from bitverdict.harness.emulator.memory.onchip import View
    from bitverdict.harness.emulator.mlir_reader import Operation

REREAD = "bit cast through memory"


@dataclass(eq=False)
class RealAccess:
    """What generated code gave for the next write, and what the last read `found`. `hang` is told why something is unknown."""

    hang: Callable[[Operation, str], None]
    giver: int = -1  # the line of the operation that something was given for
    given: Moved | tuple[str, Any, Any] | None = None  # or element, value, error; None: exact words
    found: Moved | None = None

    def give(self, op: Operation, element: str, words: Any, real: Real | Taint, hangs: Taint = None) -> None:
        """`op`, which comes next, writes `words` of the type `element`, whose Real (of floats) or Taint is `real`. `hangs`: where
        the place that it writes to, or whether it does, hangs on a rounding."""
        self.giver, self.given = op.line, None
        if isinstance(real, Real):
            value, error = real
            if error is not None or hangs is not None or not _same(value, words, element):
                error = 0.0 if error is None else error
                self.given = element, value, error if hangs is None else np.where(hangs, np.inf, error)
        elif (taint := either(real, hangs)) is not None:
            self.given = element, 0.0, np.where(taint, np.inf, 0.0)

    def send(self, op: Operation, carried: Moved | None) -> None:
        """`op`, which comes next, writes words with the real values `carried`; None: they are exact."""
        self.giver, self.given = op.line, carried

    def take(self, op: Operation, shape: tuple[int, ...]) -> Moved | None:
        """What was given, in `shape`, for `op`, which writes now; None for exact words. Where nothing was it is unknown."""
        (giver, given), self.giver, self.given = (self.giver, self.given), -1, None
        if giver != op.line:
            self.hang(op, op.name)
            return moved("i8", np.zeros(()), np.full((), np.inf), shape)
        if given is None or isinstance(given, Moved):
            return given
        element, value, error = given
        if np.ndim(error) > len(shape):  # the Taint of integers that were folded
            error = np.where(np.any(np.asarray(error) > 0), np.inf, 0.0)
        found = moved(element, value, error, shape)
        return found if is_float(element) else found.where(found.error > 0)  # integers that do not hang are their words

    def got(self, op: Operation, found: Moved | None, words: Any, element: str) -> Real | Taint:
        """The Real of floats, the Taint of others: `words`, as the emulator holds the type `element`, of which memory held `found`,
        as `op` reads them."""
        if found is None:
            return Real(value_of(words, element)) if is_float(element) else None
        held = np.asarray(words, held_as(element))
        value, error, alike = read_as(found.reshape(held.shape), held, element)
        if not alike:
            self.hang(op, REREAD)
        if is_float(element):
            return Real(value, error)
        hanging = error > 0
        return hanging if hanging.any() else None

    def got_found(self, op: Operation, words: Any, element: str) -> Real | Taint:
        """`got` of what `op` has just read."""
        found, self.found = self.found, None
        return self.got(op, found, words, element)

    def read(self, op: Operation, view: View, words: np.ndarray, element: str) -> Real | Taint:
        """What the elements of `view`, whose words are `words`, are as `op` reads them as `element`."""
        return self.got(op, view.carried(), words, element)


def loaded(
    m: Cta, op: Operation, words: Any, pointer: Any, mask: Any, other: Real | Taint, hangs: Taint, element: str
) -> Real | Taint:
    """The Real of floats, the Taint of others: `words` that `op` has just loaded from `pointer` where `mask`, and which are as
    `other` elsewhere. `hangs`: pointers or masks that do."""
    access, shape, size = m.launch.real_access, np.shape(words), max(held_as(element).itemsize, 1)
    assert access is not None
    addresses, chosen = np.asarray(pointer, np.int64), None if mask is None else np.broadcast_to(np.asarray(mask, np.bool_), shape)
    found = access.got(op, m.memory.carried(np.broadcast_to(addresses, shape), chosen, size), words, element)
    if isinstance(found, Real):
        if isinstance(other, Real) and chosen is not None and not chosen.all():
            found = chosen_of(chosen, found, other)
        return with_taint(found, hangs)
    outside = None if chosen is None or not isinstance(other, np.ndarray) else other & ~chosen
    return either(found, outside, hangs)


def decided(m: Cta, op: Operation, taint: Taint) -> None:
    """`op` reads or writes somewhere, or does not. Where that hangs on a rounding, so does all that the launch may write."""
    if taint is not None and np.any(taint):
        m.launch.reals.hang(op, "address")
        m.launch.reals.lost = True


def withheld(m: Cta, op: Operation, pointer: Any, mask: Any, hangs: Taint, size: int) -> None:
    """Behind a store under `mask`: nothing is known of the words of `size` bytes that it did not write where the mask `hangs`."""
    if hangs is None or not (left := hangs & ~np.asarray(mask, np.bool_)).any():
        return
    m.launch.reals.hang(op, "mask")
    addresses, left = np.broadcast_arrays(np.asarray(pointer, np.int64), left)
    addresses = addresses[left]
    for region in m.memory.regions:
        places = (addresses[(addresses >= region.base) & (addresses < region.end)] - region.base) // size
        if places.size:
            region.carry(places, size, moved("i8", np.zeros(()), np.full((), np.inf), places.shape))


def chosen_of(inside: np.ndarray, one: Real, other: Real) -> Real:
    """`one` where `inside`, else `other`."""
    value = np.where(inside, one.value, other.value)
    if one.error is None and other.error is None:
        return Real(value)
    return Real(value, np.where(inside, *(0.0 if each.error is None else each.error for each in (one, other))))


def is_float(element: str) -> bool:
    return element[0] != "i"


def _same(value: Any, words: Any, element: str) -> bool:
    """Whether `words` hold the real values `value`."""
    held = value_of(np.asarray(words), element)
    return bool(((held == value) | ((held != held) & (value != value))).all())


__all__ = ["REREAD", "RealAccess", "decided", "is_float", "loaded", "withheld"]
