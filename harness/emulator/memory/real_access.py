"""Real values on their way between the variables of generated code and memory, in one launch.

Generated code gives the real value of what the next operation writes (`give`), and that operation takes it to where it writes
(`take`). What an operation read it leaves in `found`, and generated code asks for it behind the operation (`real_of_last_read`).
Between two such lines nothing else of the launch runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.memory.real_shadows import ShadowWords, held_dtype, make_shadow_words, read_as, value_of
from bitverdict.harness.emulator.numerics.real_values import Real, Taint, union_of_taints, with_taint

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
    given_reals: ShadowWords | tuple[str, Any, Any] | None = None  # or element, value, error; None: exact words
    read_words: ShadowWords | None = None

    def give(self, op: Operation, element: str, words: Any, real: Real | Taint, hangs: Taint = None) -> None:
        """`op`, which comes next, writes `words` of the type `element`, whose Real (of floats) or Taint is `real`. `hangs`: where
        the place that it writes to, or whether it does, hangs on a rounding."""
        self.giver, self.given_reals = op.line, None
        if isinstance(real, Real):
            value, error = real
            if error is not None or hangs is not None or not _holds_values(value, words, element):
                error = 0.0 if error is None else error
                self.given_reals = element, value, error if hangs is None else np.where(hangs, np.inf, error)
        elif (taint := union_of_taints(real, hangs)) is not None:
            self.given_reals = element, 0.0, np.where(taint, np.inf, 0.0)

    def send(self, op: Operation, carried: ShadowWords | None) -> None:
        """`op`, which comes next, writes words with the real values `carried`; None: they are exact."""
        self.giver, self.given_reals = op.line, carried

    def take(self, op: Operation, shape: tuple[int, ...]) -> ShadowWords | None:
        """What was given, in `shape`, for `op`, which writes now; None for exact words. Where nothing was it is unknown."""
        (giver, given_reals), self.giver, self.given_reals = (self.giver, self.given_reals), -1, None
        if giver != op.line:
            self.hang(op, op.name)
            return make_shadow_words("i8", np.zeros(()), np.full((), np.inf), shape)
        if given_reals is None or isinstance(given_reals, ShadowWords):
            return given_reals
        element, value, error = given_reals
        if np.ndim(error) > len(shape):  # the Taint of integers that were folded
            error = np.where(np.any(np.asarray(error) > 0), np.inf, 0.0)
        found = make_shadow_words(element, value, error, shape)
        return found if is_float(element) else found.where(found.error > 0)  # integers that do not hang are their words

    def read_real(self, op: Operation, shadow_words: ShadowWords | None, words: Any, element: str) -> Real | Taint:
        """The Real of floats, the Taint of others: `words`, as the emulator holds the type `element`, of which memory held
        `shadow_words`, as `op` reads them."""
        if shadow_words is None:
            return Real(value_of(words, element)) if is_float(element) else None
        held = np.asarray(words, held_dtype(element))
        value, error, alike = read_as(shadow_words.reshape(held.shape), held, element)
        if not alike:
            self.hang(op, REREAD)
        if is_float(element):
            return Real(value, error)
        hanging = error > 0
        return hanging if hanging.any() else None

    def real_of_last_read(self, op: Operation, words: Any, element: str) -> Real | Taint:
        """`read_real` of what `op` has just read."""
        found, self.read_words = self.read_words, None
        return self.read_real(op, found, words, element)

    def read(self, op: Operation, view: View, words: np.ndarray, element: str) -> Real | Taint:
        """What the elements of `view`, whose words are `words`, are as `op` reads them as `element`."""
        return self.read_real(op, view.shadow_words(), words, element)


def load_real(
    m: Cta, op: Operation, words: Any, pointer: Any, mask: Any, fill_real: Real | Taint, hangs: Taint, element: str
) -> Real | Taint:
    """The Real of floats, the Taint of others: `words` that `op` has just loaded from `pointer` where `mask`, and which are as
    `other` elsewhere. `hangs`: pointers or masks that do."""
    access, shape, size = m.launch.real_access, np.shape(words), max(held_dtype(element).itemsize, 1)
    assert access is not None
    addresses, loaded_lanes = (
        np.asarray(pointer, np.int64),
        None if mask is None else np.broadcast_to(np.asarray(mask, np.bool_), shape),
    )
    loaded_real = access.read_real(op, m.memory.shadow_words(np.broadcast_to(addresses, shape), loaded_lanes, size), words, element)
    if isinstance(loaded_real, Real):
        if isinstance(fill_real, Real) and loaded_lanes is not None and not loaded_lanes.all():
            loaded_real = select_real(loaded_lanes, loaded_real, fill_real)
        return with_taint(loaded_real, hangs)
    outside = None if loaded_lanes is None or not isinstance(fill_real, np.ndarray) else fill_real & ~loaded_lanes
    return union_of_taints(loaded_real, outside, hangs)


def note_decision(m: Cta, op: Operation, taint: Taint) -> None:
    """`op` reads or writes somewhere, or does not. Where that hangs on a rounding, so does all that the launch may write."""
    if taint is not None and np.any(taint):
        m.launch.reals.hang(op, "address")
        m.launch.reals.is_lost = True


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
            region.carry(places, size, make_shadow_words("i8", np.zeros(()), np.full((), np.inf), places.shape))


def select_real(inside: np.ndarray, one: Real, other: Real) -> Real:
    """`one` where `inside`, else `other`."""
    value = np.where(inside, one.value, other.value)
    if one.error is None and other.error is None:
        return Real(value)
    return Real(value, np.where(inside, *(0.0 if each.error is None else each.error for each in (one, other))))


def is_float(element: str) -> bool:
    return element[0] != "i"


def _holds_values(value: Any, words: Any, element: str) -> bool:
    """Whether `words` hold the real values `value`."""
    held = value_of(np.asarray(words), element)
    return bool(((held == value) | ((held != held) & (value != value))).all())


__all__ = ["REREAD", "RealAccess", "is_float", "load_real", "note_decision", "withheld"]
