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
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.emulator.memory.provenance import COMPUTED, Kind, Origin
from bitverdict.harness.emulator.tracked_words import RESOLUTION, Words, as_words, bits_of, drawn, entropy

if TYPE_CHECKING:
    from bitverdict.harness.emulator.passed_words import Launched

POINTS = (-1.0, 0.0, 1.0, 2.0)  # along a line of contents, at equal distances
_EPS32 = 2.0**-23


def restored(launched: Launched, given: list[Words], stored: list[Words], again: Callable[[Sequence[Any]], None]) -> list[Words]:
    """Of what was `stored` what is no kernel's work by the rule above, with the origins of that; `given` is what torch or the host
    computed. What cannot be repeated is not cleared: where a launch faults on drawn words, and on its own in another order, its
    words are no kernel's."""
    repeats = _Repeats(launched, given, stored, again)
    try:
        return repeats.found()
    except EmulatedFault as fault:
        said = f"what {launched.kernel} was given, and no other words ({fault.outcome} on others)"
        number = launched.provenance.number(Origin(Kind.HOST, said))
        return [each.of(number) for each in repeats.left]


def steered(launched: Launched, stored: list[Words], again: Callable[[Sequence[Any]], None]) -> list[Words]:
    """Of what was `stored` what depends on nothing that the launch loads, where the host has read what may tell of a result: then
    it has chosen these words, by integers, by the grid, by places, or by which kernel it launched."""
    given = launched.loaded() + [each for each in launched.computed() if each.region is not None]
    if not given:
        return []
    generator, left = np.random.default_rng(2), stored
    kept = [each.bits(each.region.raw) for each in left if each.region is not None]
    left, kept = _only([bits != 0 for bits in kept], left, kept)
    bits = min((entropy(each.dtype) for each in left), default=1)
    enough = ceil(
        (RESOLUTION + log2(max(sum(each.places.size for each in left), 1))) / bits
    )  # an equal word by chance is less likely
    for turn in range(1, enough + 1):
        if not left:
            break
        try:
            _drawn_anew(launched, given, generator, turn, integers=True)
            again(launched.values)
        except EmulatedFault:
            try:
                _drawn_anew(launched, given, generator, turn, integers=False)
                again(launched.values)
            except EmulatedFault:
                break
        now = [each.bits(each.region.raw) for each in left if each.region is not None]
        left, kept = _only([one == other for one, other in zip(now, kept, strict=True)], left, kept)
    number = launched.provenance.number(Origin(Kind.HOST, f"choices of {launched.kernel}'s launch, after a read by the host"))
    return [each.of(number) for each in left]


def _only(chosen: list[np.ndarray], words: list[Words], bits: list[np.ndarray]) -> tuple[list[Words], list[np.ndarray]]:
    kept = [(each.only(some), now[some]) for some, each, now in zip(chosen, words, bits, strict=True) if some.any()]
    return [each for each, _ in kept], [now for _, now in kept]


def _drawn_anew(launched: Launched, given: list[Words], generator: np.random.Generator, turn: int, *, integers: bool) -> None:
    """Memory as before the launch, but for the floats of `given`, which are drawn, and the integers, which are put in another order
    if `integers` says so: others may lead to no memory."""
    launched.rewind()
    for each in given:
        assert each.region is not None
        there = as_words(each.region.raw, each.first, each.dtype)
        if each.dtype.is_floating_point:
            there[each.places] = drawn(each.dtype, each.places.size, generator, turn)
        elif integers:
            there[each.places] = generator.permutation(there[each.places])


class _Repeats:
    def __init__(self, launched: Launched, given: list[Words], stored: list[Words], again: Callable[[Sequence[Any]], None]) -> None:
        self.launched, self.again = launched, again
        told = [each.only(each.numbers >= COMPUTED) for each in given if each.region is not None and each.dtype.is_floating_point]
        self.given = [each for each in told if each.places.size]
        self.scalars = [place for each in given if each.region is None for place in each.places.tolist()]
        self.operands, self.generator = launched.operands(), np.random.default_rng(1)
        self.left = stored
        self.actual = self._now()
        self.elements = sum(each.places.size for each in self.given)
        self.line = self.generator.uniform(0.5, 2, self.elements)  # (elements,) the computed words along the line, at 1

    def found(self) -> list[Words]:
        """The words that are no kernel's work."""
        if not self.given and not self.scalars:
            return []
        self._keep([now == then for now, then in zip(self._after(), self.actual, strict=True)])
        if not self.left:
            return []
        return [*self._by_arguments(), *self._by_elements()]

    # -- one more launch ----------------------------------------------------------------------------------------------------
    def _after(
        self, *, computed: np.ndarray | None = None, values: np.ndarray | None = None, scalars: bool = False
    ) -> list[np.ndarray]:
        """The bits of the words that are left, after a launch with other operands; where `computed` (elements,) with `values` of
        those elements, drawn ones where there are none; with other float arguments if `scalars`. Where it faults on drawn operands,
        after one with their own words in another order."""
        try:
            return self._launched(drawn_operands=True, computed=computed, values=values, scalars=scalars)
        except EmulatedFault:
            return self._launched(drawn_operands=False, computed=computed, values=values, scalars=scalars)

    def _launched(
        self, *, drawn_operands: bool, computed: np.ndarray | None, values: np.ndarray | None, scalars: bool
    ) -> list[np.ndarray]:
        self.launched.rewind()
        for each in self.operands:
            assert each.region is not None
            own = each.bits(each.region.raw)
            bits = drawn(each.dtype, each.places.size, self.generator) if drawn_operands else self.generator.permutation(own)
            self._put(each, np.ones(each.places.size, np.bool_), bits)
        first = 0
        for each in self.given if computed is not None else ():
            here = slice(first, first := first + each.places.size)
            bits = drawn(each.dtype, each.places.size, self.generator) if values is None else bits_of(values[here], each.dtype)
            assert computed is not None
            self._put(each, computed[here], bits)
        arguments = list(self.launched.values)
        if scalars:
            for place in self.scalars:
                arguments[place] = float(np.float32(self.generator.uniform(1, 2)))
        self.again(arguments)
        return self._now()

    @staticmethod
    def _put(words: Words, where: np.ndarray, bits: np.ndarray) -> None:
        assert words.region is not None
        as_words(words.region.raw, words.first, words.dtype)[words.places[where]] = bits[where]

    def _now(self) -> list[np.ndarray]:
        return [each.bits(each.region.raw) for each in self.left if each.region is not None]

    def _keep(self, chosen: list[np.ndarray]) -> None:
        """Of the words that are left keep the `chosen`, (words,) each."""
        kept = [(each.only(some), now[some]) for each, now, some in zip(self.left, self.actual, chosen, strict=True) if some.any()]
        self.left, self.actual = [each for each, _ in kept], [now for _, now in kept]

    def _changed(self, now: list[np.ndarray]) -> list[np.ndarray]:
        return [words != then for words, then in zip(now, self.actual, strict=True)]

    # -- the two kinds --------------------------------------------------------------------------------------------------------
    def _by_arguments(self) -> list[Words]:
        """The words that change with float arguments and with nothing that the kernel loads."""
        if not self.scalars:
            return []
        by_memory = self._changed(self._after(computed=np.ones(self.elements, np.bool_)))
        by_arguments = self._changed(self._after(scalars=True))
        mine = [one & ~other for one, other in zip(by_arguments, by_memory, strict=True)]
        number = self.launched.provenance.number(
            Origin(Kind.HOST, f"float arguments of {self.launched.kernel}, after a read by the host")
        )
        found = [each.only(some).of(number) for each, some in zip(self.left, mine, strict=True) if some.any()]
        self._keep([~some for some in mine])
        return found

    def _by_elements(self) -> list[Words]:
        """The words that are affine in one computed element."""
        whole = np.ones(self.elements, np.bool_)
        if not self.elements or not self.left:
            return []
        along = [self._after(computed=whole, values=at * self.line) for at in POINTS]
        self._keep([_affine([bits[place] for bits in along], each.dtype) for place, each in enumerate(self.left)])
        numbers = [np.zeros(each.places.size, np.int64) for each in self.left]
        for bit in range(max((self.elements - 1).bit_length(), 1)):
            if not self.left:
                return []
            has = (np.arange(self.elements) >> bit & 1).astype(np.bool_)
            one, other = (self._changed(self._after(computed=half)) for half in (has, ~has))
            alone = [a ^ b for a, b in zip(one, other, strict=True)]
            numbers = [number | a.astype(np.int64) << bit for number, a in zip(numbers, one, strict=True)]
            numbers = [number[some] for number, some in zip(numbers, alone, strict=True) if some.any()]
            self._keep(alone)
        origins = np.concatenate([each.numbers for each in self.given])
        return [
            each.only(inside).of(origins[number[inside]])
            for each, number in zip(self.left, numbers, strict=True)
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


__all__ = ["restored"]
