"""Words that a kernel only restores: each is an affine function of one word that torch or the host computed, and of nothing else.

`passed_words` finds words that a kernel stores as it was given them. A launcher may have torch compute half of a result, and a
kernel double it. So the launch is executed again, with all floats drawn anew that neither torch nor the host computed. A word that
changes depends on them: the kernel has computed it. Of the others two kinds are not a kernel's work:

- words that change with a float argument of the launch, after the host has read memory, and with nothing that the kernel loads;
- words that are affine in what torch computed (along a line of four points, to within the roundings of an fp32 product, of a sum,
  and of the result), and that depend on one element of it alone. Which one two launches a bit of its number say: of those elements
  that have the bit, and of those that have not, only the one half may change the word.

So a kernel that applies a nonlinear function to what torch computed keeps its words, as one that sums it does, or multiplies two
tensors that torch quantized. Not seen is what a kernel restores by a function that is not affine, or from several parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2
from typing import TYPE_CHECKING

import numpy as np
import torch

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.provenance import LOWEST_COMPUTED, Kind, Origin
from bitverdict.harness.emulator.tracked_words import RESOLUTION, Words, as_words, bits_of, drawn, entropy

if TYPE_CHECKING:
    from bitverdict.harness.emulator.passed_words import TracedLaunch

POINTS = (-1.0, 0.0, 1.0, 2.0)  # along a line of contents, at equal distances
_EPS32 = 2.0**-23


def find_restored(
    launch: TracedLaunch, given: list[Words], stored: list[Words], again: Callable[[Sequence[object]], object]
) -> list[Words]:
    """Of what was `stored` what is no kernel's work by the rule above, with the origins of that; `given` is what torch or the host
    computed. What cannot be repeated is not cleared: where a launch faults on drawn words, and on its own in another order, its
    words are no kernel's."""
    repeats = _Repeats(launch, given, stored, again)
    try:
        return repeats.find_words()
    except EmulatedFault as fault:
        said = f"what {launch.kernel} was given, and no other words ({fault.outcome} on others)"
        number = launch.provenance.number(Origin(Kind.HOST, said))
        return [each.with_origins(number) for each in repeats.left]


def find_steered(launch: TracedLaunch, stored_words: list[Words], rerun: Callable[[Sequence[object]], object]) -> list[Words]:
    """Of what was `stored` what depends on nothing that the launch loads, where the host has read what may tell of a result: then
    it has chosen these words, by integers, by the grid, by places, or by which kernel it launched."""
    given_words = launch.loaded_words() + [words for words in launch.computed_words() if words.region is not None]
    if not given_words:
        return []
    generator, remaining_words = np.random.default_rng(2), stored_words
    remaining_bits = [words.bits(words.region.raw) for words in remaining_words if words.region is not None]
    remaining_words, remaining_bits = _only([bits != 0 for bits in remaining_bits], remaining_words, remaining_bits)
    bits = min((entropy(words.dtype) for words in remaining_words), default=1)
    enough = ceil(
        (RESOLUTION + log2(max(sum(words.places.size for words in remaining_words), 1))) / bits
    )  # an equal word by chance is less likely
    for turn in range(1, enough + 1):
        if not remaining_words:
            break
        try:
            _redraw_words(launch, given_words, generator, turn, integers=True)
            rerun(launch.values)
        except EmulatedFault:
            try:
                _redraw_words(launch, given_words, generator, turn, integers=False)
                rerun(launch.values)
            except EmulatedFault:
                break
        now = [words.bits(words.region.raw) for words in remaining_words if words.region is not None]
        remaining_words, remaining_bits = _only(
            [one == other for one, other in zip(now, remaining_bits, strict=True)], remaining_words, remaining_bits
        )
    number = launch.provenance.number(Origin(Kind.HOST, f"choices of {launch.kernel}'s launch, after a read by the host"))
    return [words.with_origins(number) for words in remaining_words]


def _only(chosen: list[np.ndarray], words: list[Words], bits: list[np.ndarray]) -> tuple[list[Words], list[np.ndarray]]:
    kept = [(each.only(some), now[some]) for some, each, now in zip(chosen, words, bits, strict=True) if some.any()]
    return [each for each, _ in kept], [now for _, now in kept]


def _redraw_words(launched: TracedLaunch, given: list[Words], generator: np.random.Generator, turn: int, *, integers: bool) -> None:
    """Memory as before the launch, but for the floats of `given`, which are drawn, and the integers, which are put in another order
    if `integers` says so: others may lead to no memory."""
    launched.rewind()
    for words in given:
        assert words.region is not None
        there = as_words(words.region.raw, words.first_byte, words.dtype)
        if words.dtype.is_floating_point:
            there[words.places] = drawn(words.dtype, words.places.size, generator, turn)
        elif integers:
            there[words.places] = generator.permutation(there[words.places])


class _Repeats:
    def __init__(
        self,
        launch: TracedLaunch,
        passed_words: list[Words],
        stored_words: list[Words],
        again: Callable[[Sequence[object]], object],
    ) -> None:
        self.launched, self.again = launch, again
        told = [
            words.only(words.numbers >= LOWEST_COMPUTED)
            for words in passed_words
            if words.region is not None and words.dtype.is_floating_point
        ]
        self.given = [words for words in told if words.places.size]
        self.scalars = [place for words in passed_words if words.region is None for place in words.places.tolist()]
        self.operands, self.generator = launch.operands(), np.random.default_rng(1)
        self.left = stored_words
        self.actual = self._current_bits()
        self.elements = sum(words.places.size for words in self.given)
        self.line = self.generator.uniform(0.5, 2, self.elements)  # (elements,) the computed words along the line, at 1

    def find_words(self) -> list[Words]:
        """The words that are no kernel's work."""
        if not self.given and not self.scalars:
            return []
        self._keep([now == then for now, then in zip(self._after(), self.actual, strict=True)])
        if not self.left:
            return []
        return [*self._by_arguments(), *self._by_elements()]

    # -- one more launch ----------------------------------------------------------------------------------------------------
    def _after(
        self, *, computed_lanes: np.ndarray | None = None, values: np.ndarray | None = None, scalars: bool = False
    ) -> list[np.ndarray]:
        """The bits of the words that are left, after a launch with other operands; where `computed` (elements,) with `values` of
        those elements, drawn ones where there are none; with other float arguments if `scalars`. Where it faults on drawn operands,
        after one with their own words in another order."""
        try:
            return self._relaunch(drawn_operands=True, computed_lanes=computed_lanes, values=values, scalars=scalars)
        except EmulatedFault:
            return self._relaunch(drawn_operands=False, computed_lanes=computed_lanes, values=values, scalars=scalars)

    def _relaunch(
        self, *, drawn_operands: bool, computed_lanes: np.ndarray | None, values: np.ndarray | None, scalars: bool
    ) -> list[np.ndarray]:
        self.launched.rewind()
        for words in self.operands:
            assert words.region is not None
            own = words.bits(words.region.raw)
            bits = drawn(words.dtype, words.places.size, self.generator) if drawn_operands else self.generator.permutation(own)
            self._put(words, np.ones(words.places.size, np.bool_), bits)
        first = 0
        for words in self.given if computed_lanes is not None else ():
            here = slice(first, first := first + words.places.size)
            bits = drawn(words.dtype, words.places.size, self.generator) if values is None else bits_of(values[here], words.dtype)
            assert computed_lanes is not None
            self._put(words, computed_lanes[here], bits)
        arguments = list(self.launched.values)
        if scalars:
            for place in self.scalars:
                arguments[place] = float(np.float32(self.generator.uniform(1, 2)))
        self.again(arguments)
        return self._current_bits()

    @staticmethod
    def _put(words: Words, where: np.ndarray, bits: np.ndarray) -> None:
        assert words.region is not None
        as_words(words.region.raw, words.first_byte, words.dtype)[words.places[where]] = bits[where]

    def _current_bits(self) -> list[np.ndarray]:
        return [each.bits(each.region.raw) for each in self.left if each.region is not None]

    def _keep(self, chosen: list[np.ndarray]) -> None:
        """Of the words that are left keep the `chosen`, (words,) each."""
        kept = [(each.only(some), now[some]) for each, now, some in zip(self.left, self.actual, chosen, strict=True) if some.any()]
        self.left, self.actual = [each for each, _ in kept], [now for _, now in kept]

    def _changed_lanes(self, now: list[np.ndarray]) -> list[np.ndarray]:
        return [words != then for words, then in zip(now, self.actual, strict=True)]

    # -- the two kinds --------------------------------------------------------------------------------------------------------
    def _by_arguments(self) -> list[Words]:
        """The words that change with float arguments and with nothing that the kernel loads."""
        if not self.scalars:
            return []
        by_memory = self._changed_lanes(self._after(computed_lanes=np.ones(self.elements, np.bool_)))
        by_arguments = self._changed_lanes(self._after(scalars=True))
        mine = [one & ~other for one, other in zip(by_arguments, by_memory, strict=True)]
        number = self.launched.provenance.number(
            Origin(Kind.HOST, f"float arguments of {self.launched.kernel}, after a read by the host")
        )
        found = [each.only(some).with_origins(number) for each, some in zip(self.left, mine, strict=True) if some.any()]
        self._keep([~some for some in mine])
        return found

    def _by_elements(self) -> list[Words]:
        """The words that are affine in one computed element."""
        whole = np.ones(self.elements, np.bool_)
        if not self.elements or not self.left:
            return []
        along = [self._after(computed_lanes=whole, values=at * self.line) for at in POINTS]
        self._keep([_affine([bits[place] for bits in along], words.dtype) for place, words in enumerate(self.left)])
        numbers = [np.zeros(words.places.size, np.int64) for words in self.left]
        for bit in range(max((self.elements - 1).bit_length(), 1)):
            if not self.left:
                return []
            has = (np.arange(self.elements) >> bit & 1).astype(np.bool_)
            one, other = (self._changed_lanes(self._after(computed_lanes=half)) for half in (has, ~has))
            alone = [a ^ b for a, b in zip(one, other, strict=True)]
            numbers = [number | a.astype(np.int64) << bit for number, a in zip(numbers, one, strict=True)]
            numbers = [number[some] for number, some in zip(numbers, alone, strict=True) if some.any()]
            self._keep(alone)
        origins = np.concatenate([words.numbers for words in self.given])
        return [
            words.only(inside).with_origins(origins[number[inside]])
            for words, number in zip(self.left, numbers, strict=True)
            if (inside := number < self.elements).any()
        ]


def _values(bits: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """(words,) float64: `bits` of the float type `dtype`."""
    held = torch.from_numpy(bits.copy().view(f"i{bits.itemsize}" if bits.itemsize > 1 else "u1"))
    return held.view(dtype).to(torch.float64).numpy()


def _affine(bits: list[np.ndarray], dtype: torch.dtype) -> np.ndarray:
    """(words,) whether the values of words, `bits` at four points at equal distances, lie on a line that is not constant. Each
    may be off by half a unit of its own type, and by the roundings of a product and of a sum in fp32."""
    if not dtype.is_floating_point:
        return np.zeros(bits[0].shape, np.bool_)
    values = [_values(each, dtype) for each in bits]
    with np.errstate(all="ignore"):
        most = np.maximum.reduce([np.abs(each) for each in values])
        allowed = 2 * (torch.finfo(dtype).eps / 2 + 2 * _EPS32 / 2) * most + 2 * torch.finfo(dtype).smallest_normal
        bends = [np.abs(one - 2 * two + three) <= 2 * allowed for one, two, three in zip(values, values[1:], values[2:])]
        return bends[0] & bends[1] & (values[0] != values[-1])


__all__ = ["find_restored"]
