"""The code that carries enclosures (`numerics.enclosures`) behind each operation of a program that has some.

A program is translated without enclosures first. Where the compiled program leaves open which product a sum takes
(`OpenChoice`), it is translated again, with them. Behind the code of each operation on floats comes the same operation on the
ends of what is enclosed; it runs only where an operand is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bitverdict.harness.emulator.faults import NotModelled
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics import enclosures

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translate import Lowering, Translator

_MONOTONE = {
    "arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
    "math.fma", "math.floor", "math.ceil", "tt.clampf", "arith.extf", "arith.truncf", "tt.fp_to_fp",
}  # fmt: skip
"""Monotone in each operand, rounding included: the ends of the operands give those of the result."""
_RISING = {"tt.expand_dims", "tt.broadcast", "tt.splat", "tt.unsplat", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.cat",
           "arith.select"}  # fmt: skip
"""What moves or picks: all operands at their low ends give the low end."""
_FOLDS = {"tt.reduce", "tt.scan"}
_RISING_COMBINATIONS = {"arith.addf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf"}
_FUNCTIONS = {
    "arith.divf", "math.absf", "math.exp", "math.exp2", "math.log", "math.log2", "math.sqrt", "math.rsqrt", "math.sin", "math.cos",
    "math.erf", "tt.precise_divf", "tt.precise_sqrt", "tt.approx_divf", "tt.extern_elementwise",
}  # fmt: skip
"""Computed at each word of an enclosure: nothing is known of them as they are rounded."""
_STEPS = {"arith.cmpf", "arith.fptosi", "arith.fptoui"}
"""Monotone steps to what is no float: ends that give the same settle it."""
_EQUALITIES = {1, 6, 8, 13}  # predicates of arith.cmpf that are no steps: oeq, one, ueq, une
_HANDS_ON = {"tt.return", "tt.call", "ttg.convert_layout", "ttg.warp_specialize", "ttg.warp_yield", "ttg.warp_return"}
"""Their results are their operands, which are known by identity."""
_READS = {
    "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_poll", "ttg.async_copy_global_to_local",
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather", "ttng.async_tma_reduce",
}  # fmt: skip
"""What reads global memory otherwise than `tt.load`."""


class OpenChoice(NotModelled):
    """A sum of which the compiled program does not show what became of it: an enclosure holds each possibility."""


class Enclosing:
    """Writes what an operation does to enclosures."""

    def __init__(self, t: Translator) -> None:
        self.t = t
        self.depth = 0  # of regions whose values are parts of those of the program

    @contextmanager
    def region(self) -> Iterator[None]:
        """While entered, values are parts of others, whose enclosures are not known by them."""
        self.depth += 1
        yield
        self.depth -= 1

    def write(self, op: Operation, lowering: Lowering) -> None:
        """Write the code of `op`, and behind it what `op` does to enclosures."""
        t, replaced = self.t, len(self.t.replaced)
        open_ = self._lowered(op, lowering)
        if self.depth:
            return
        if len(t.replaced) > replaced:  # what stands there is the result of a later operation
            with t.when(t.calls(enclosures.inside, *map(t.value, op.operands))):
                t.emit("{}", t.calls(enclosures.refuse, op))
            return
        self._follow(op, open_)

    def _lowered(self, op: Operation, lowering: Lowering) -> bool:
        """Write the code of `op`. Whether it leaves a choice open: then the code is that of sums that take no product."""
        t = self.t
        fused, comment, lines = t.fused, t.comment, len(t.lines)
        try:
            lowering(t, op)
        except OpenChoice:
            if self.depth:
                raise
        else:
            return False
        del t.lines[lines:], t.numbers[lines:]
        t.fused, t.comment = False, comment
        try:
            lowering(t, op)
        finally:
            t.fused = fused
        return True

    def _follow(self, op: Operation, open_: bool) -> None:
        """Behind the code of `op`: carry enclosures on, or refuse them."""
        t, name = self.t, op.name
        if name in _READS:
            t.emit("{}", t.calls(enclosures.untouched, op))
        if name == "tt.load":
            pointer, mask = t.value(op.operands[0]), t.operands(op, "pointer", "mask?", "other?")[1]
            kind = t.result(op)
            t.emit("{}", t.calls(enclosures.loaded, op, t.value(op.results[0]), pointer, mask, kind.dtype, kind.is_float))
            if len(op.operands) < 3:
                return
        elif name == "tt.store":
            pointer, value, mask = t.operands(op, "pointer", "value", "mask?")
            t.emit("{}", t.calls(enclosures.stored, op, pointer, value, mask, t.operand(op, 1).dtype))
            return
        floats = [i for i, kind in enumerate(op.inputs) if kind is not None and kind.kind in ("scalar", "tensor") and kind.is_float]
        if not floats or name in _HANDS_ON:
            return
        with self._where_enclosed(op, floats, open_):
            self._choices(op, floats, open_)

    @contextmanager
    def _where_enclosed(self, op: Operation, floats: list[int], open_: bool) -> Iterator[None]:
        t = self.t
        t.emit("if {}:", True if open_ else t.calls(enclosures.inside, *(t.value(op.operands[i]) for i in floats)))
        with t.indented():
            yield

    def _choices(self, op: Operation, floats: list[int], open_: bool) -> None:
        t, name = self.t, op.name
        held = [each for each in (*op.operands, *op.results) if each in t.lane_words.held]
        kinds = [t.typed(op, kind) for kind in op.outputs]
        step = name in _STEPS and not (name == "arith.cmpf" and op.integer("predicate") in _EQUALITIES)
        known = name in _MONOTONE | _RISING | _FUNCTIONS or step or (name in _FOLDS and _rises(op))
        if not known or (not step and not all(kind.is_float for kind in kinds)) or (held and name in _FOLDS):
            t.emit("{}", t.calls(enclosures.refuse, op))
            return
        for each in dict.fromkeys(each for each in op.operands if each in held):  # words that do differ from lane to lane
            with t.when(t.code("{} is not None", t.lane_words.words(each))):
                t.emit("{}", t.calls(enclosures.refuse, op))
        from bitverdict.harness.emulator.frontend.lowerings.sums import factors_of, may_be_product

        fresh = {i: f"{op.operands[i]}~{t.name('choice')}" for i in floats}
        for i, each in fresh.items():
            t.types[each] = t.types.get(op.operands[i])
        sums = name in ("arith.addf", "arith.subf", *_FOLDS)
        wide: dict[int, Any] = {i: sums and t.fused and may_be_product(t, op.operands[i], divided=True) for i in floats}
        for i in floats:
            if wide[i] and (pair := factors_of(t, op.operands[i])) is not None:
                rounded = t.name("rounded")
                t.emit("{} = {}", rounded, t.apply(enclosures.inexact, t.operand(op, i).format, t.value(op.operands[i]), *pair))
                wide[i] = rounded
        joined = t.name("enclosure")
        t.emit("{} = None", joined)
        before = t.indent
        self._loops(op, fresh, wide)
        results = [f"{result}~{t.name('other')}" for result in op.results]
        for result, kind in zip(results, kinds, strict=True):
            t.types[result] = kind
        again = replace(op, operands=[fresh.get(i, each) for i, each in enumerate(op.operands)], results=results)
        from bitverdict.harness.emulator.frontend.translate import LOWERINGS

        LOWERINGS[name](t, again)
        others = tuple(t.value(each) for each in results)
        if step:
            t.emit("{}", t.apply(enclosures.settled, op, t.value(op.results[0]), others[0]))
            t.indent = before
            return
        formats = tuple(kind.format for kind in kinds)
        t.emit("{} = {}", joined, t.apply(enclosures.joined, op, joined, others, formats))
        t.indent = before
        t.emit("{}", t.calls(enclosures.hold, op, tuple(t.value(each) for each in op.results), joined, formats, open_))

    def _loops(self, op: Operation, fresh: dict[int, str], wide: dict[int, Any]) -> None:
        """The heads of the loops over what the operands may be; the code goes on inside."""
        t = self.t

        def kind(i: int) -> Type:
            return t.operand(op, i)

        if op.name in _RISING | _FOLDS:
            targets = t.values(fresh.values())
            given: list[Any] = [tuple(t.value(op.operands[i]) for i in fresh), tuple(kind(i).dtype for i in fresh),
                                tuple(wide[i] for i in fresh)]  # fmt: skip
            t.emit(
                "for {}, in {}:" if len(fresh) == 1 else "for {} in {}:", targets, t.apply(enclosures.sides, t.code("m"), *given)
            )
            t.indent += "    "
            return
        for i, each in fresh.items():
            value, dtype = t.value(op.operands[i]), kind(i).dtype
            if op.name in _FUNCTIONS:
                called = t.apply(enclosures.every, t.code("m"), op, value, dtype)
            else:
                called = t.apply(enclosures.ends, t.code("m"), value, dtype, wide[i])
            t.emit("for {} in {}:", t.value(each), called)
            t.indent += "    "


def _rises(op: Operation) -> bool:
    """Whether the reduction or scan `op` is of one tensor, by what never falls where an operand rises."""
    body = [inner for region in op.regions for block in region for inner in block.operations]
    return len(op.operands) == 1 and all(inner.name in _RISING_COMBINATIONS or inner.name.endswith(".return") for inner in body)
