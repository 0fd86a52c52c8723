"""The code that carries enclosures (`numerics.enclosures`) behind each operation of a program that has some.

A program is translated without enclosures first. Where the compiled program leaves open which product a sum takes
(`OpenChoice`), it is translated again, with them. Behind the code of each operation on floats, and on integers and truths that may
come from floats, comes the same operation on the ends of what is enclosed; it runs only where an operand is.
"""

# One file because the tables of operations say which method of the one class writes their code.

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.emulator.frontend.generated_code import RegionDepth
from bitverdict.harness.emulator.frontend.translator import OpenChoice
from bitverdict.harness.emulator.memory.atomic_sums import ADDS_FLOATS, enclose_sum
from bitverdict.harness.emulator.mlir_reader import Function, Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics import enclosure_ends, enclosures
from bitverdict.harness.emulator.numerics.enclosed_products import dot_words

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import LoweringFunction, Translator
    from bitverdict.reference.error_bound import Accumulation

_MONOTONE = {
    "arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf",
    "math.fma", "math.floor", "math.ceil", "tt.clampf", "arith.extf", "arith.truncf", "tt.fp_to_fp", "arith.fptosi", "arith.fptoui",
    "arith.addi", "arith.subi", "arith.muli", "arith.minsi", "arith.maxsi", "arith.extsi", "arith.sitofp", "arith.index_cast",
    "tt.addptr",
}  # fmt: skip
"""Monotone in each operand, rounding included: the ends of the operands give those of the result."""
_WRAPS: dict[str, Callable] = {"arith.addi": np.add, "arith.subi": np.subtract, "arith.muli": np.multiply}
_MONOTONE_OPERATIONS = {
    "tt.expand_dims", "tt.broadcast", "tt.splat", "tt.unsplat", "tt.reshape", "tt.trans", "tt.join", "tt.split", "tt.cat",
}  # fmt: skip
"""What moves: all operands at their low ends give the low end."""
_FOLDS = {"tt.reduce", "tt.scan"}
_RISING_COMBINATIONS = {
    "arith.addf", "arith.maximumf", "arith.minimumf", "arith.maxnumf", "arith.minnumf", "arith.addi", "arith.maxsi", "arith.minsi",
}  # fmt: skip
_OF_TRUTHS = {"arith.andi", "arith.ori"}
SMOOTH = {"math.exp": 0, "math.exp2": 0, "math.log": 0, "math.sqrt": 1, "math.rsqrt": 0, "tt.precise_sqrt": 0}
"""Functions of fp32 that rise or fall all along, but for so many words. Looked for over all words of ex2, lg2 and log, and over a
period of the units whose tables repeat (rcp, rsqrt, sqrt)."""
_NEAREST_WORDS = 1  # on AMD's: a word that the correctly rounded functions of float64 may be off, once they are rounded again
_POLES = {"math.rsqrt"}
"""Functions with a pole between -0 and +0."""
_QUOTIENTS = {"arith.divf", "tt.precise_divf", "tt.approx_divf"}
_SIZES = {"math.absf", "math.absi"}
_ENUMERATED_OPERATIONS = {
    "math.log2", "math.sin", "math.cos", "math.erf", "tt.extern_elementwise", "arith.andi", "arith.ori", "arith.xori", "arith.shli",
    "arith.shrsi", "arith.shrui", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui", "arith.trunci", "arith.extui",
    "arith.minui", "arith.maxui", "arith.uitofp", "math.exp", "math.exp2", "math.log", "math.sqrt", "math.rsqrt", "tt.precise_sqrt",
}  # fmt: skip
"""Computed at each word of an enclosure: nothing is known of them as they are rounded, or as they wrap."""
_COMPARISONS = {"arith.cmpf", "arith.cmpi"}
_EQUALITIES = {"arith.cmpf": {1, 6, 8, 13}, "arith.cmpi": {0, 1}}  # predicates: oeq, one, ueq, une; eq, ne
_FIRST_UNSIGNED_PREDICATE = 6  # the first predicate of arith.cmpi that compares unsigned numbers
_VALUES = ("scalar", "tensor", "pointer")
_HANDS_ON = {
    "tt.return", "tt.call", "ttg.convert_layout", "ttg.warp_specialize", "ttg.warp_yield", "ttg.warp_return",
    "ttng.warp_group_dot_wait", "ttng.wait_barrier",
}  # fmt: skip
"""Their results are their operands, which are known by identity; what a barrier's wait names it leaves as it is."""
_ON_CHIP = {
    "ttg.local_alloc", "ttg.local_store", "ttg.local_load", "ttg.local_gather", "ttg.local_dealloc", "ttg.memdesc_index",
    "ttg.memdesc_subslice", "ttg.memdesc_trans", "ttg.memdesc_reinterpret", "ttg.memdesc_reshape", "ttng.tmem_alloc",
    "ttng.tmem_store", "ttng.tmem_load", "ttng.tmem_subslice", "ttng.tmem_copy", "ttg.async_copy_global_to_local",
    "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather", "ttng.async_tma_copy_local_to_global", "ttng.warp_group_dot",
    "ttng.tc_gen5_mma",
}  # fmt: skip
"""Memory on the chip knows what is enclosed in it: these make views of it, or carry that in and out."""
_STORES_ON_CHIP = {"ttg.local_alloc", "ttg.local_store", "ttng.tmem_alloc", "ttng.tmem_store", "ttng.warp_group_dot"}
"""Those that take tensors which may be enclosed."""
_READS_AT = {"tt.atomic_rmw": ("pointer", "value", "mask?"), "tt.atomic_cas": ("pointer", "expected", "value")}
_MOVES = {
    "tt.load": ("pointer", "mask?", "other?"),
    "tt.store": ("pointer", "value", "mask?"),
    "ttg.async_copy_global_to_local": ("pointer", "view", "mask?", "other?"),
}
_READS = {"tt.atomic_load", "tt.atomic_poll", "ttng.async_tma_reduce"}
"""What reads global memory otherwise than `tt.load`: at the addresses of an operand, with its operands by name, and elsewhere."""


class EnclosureWriter(RegionDepth):
    """Writes what an operation does to enclosures."""

    def __init__(self, t: Translator) -> None:
        self.t = t
        self.decided: set[str] = set()  # integers and truths of the function that may hang on a float

    def begin(self, function: Function) -> None:
        """Find which integers and truths of `function` may hang on a float, or lie in memory."""
        t = self.t
        entry = function is t.program.entry
        self.decided = set() if entry else {name for name, _ in function.blocks[0].arguments}
        size = -1
        while size != len(self.decided):
            size = len(self.decided)
            for name, op in t.defined.items():
                hangs = op.name == "tt.load" or any(_is_float(kind) or _is_on_chip(kind) for kind in op.inputs)
                if hangs or not self.decided.isdisjoint(op.operands):
                    self.decided.add(name)
            for given_by_name in (t.incoming, t.combined):
                self.decided.update(name for name, given in given_by_name.items() if not self.decided.isdisjoint(given))

    def _may_be(self, op: Operation) -> list[int]:
        """The places of the operands of `op` that may be enclosed."""
        found = []
        for place, (name, kind) in enumerate(zip(op.operands, op.inputs, strict=True)):
            if kind is not None and kind.kind in _VALUES:
                if (_is_float(kind) or name in self.decided) and not self._is_constant(name):
                    found.append(place)
        return found

    def _is_constant(self, name: str) -> bool:
        op = self.t.defined.get(name)
        while op is not None and len(op.operands) == 1 and op.name in (*_MONOTONE_OPERATIONS, "ttg.convert_layout"):
            op = self.t.defined.get(op.operands[0])
        return op is not None and op.name == "arith.constant"

    def check_branch(self, op: Operation, condition: str) -> None:
        """Before a branch: refuse one that hangs on an enclosed value."""
        if condition in self.decided:
            self._unless(op, [condition], "a branch that depends on a value that is enclosed")

    def _unless(self, op: Operation, names: list[str], what: str) -> None:
        t = self.t
        with t.when(t.calls(enclosures.inside, *map(t.value, names))):
            t.emit("{}", t.calls(enclosures.refuse, op, what, *map(t.value, names)))

    def write(self, op: Operation) -> None:
        """Write the code of `op`, and behind it what `op` does to enclosures."""
        t, replaced_count = self.t, len(self.t.replaced)
        if not self.depth:
            self._before(op)
        open_ = self.write_lowering(op, type(t).lower_plainly)
        if self.depth:
            return
        if len(t.replaced) > replaced_count:  # what stands there is the result of a later operation
            with t.when(t.calls(enclosures.inside, *map(t.value, op.operands))):
                t.emit("{}", t.calls(enclosures.refuse, op))
            return
        self._follow(op, open_)

    def _before(self, op: Operation) -> None:
        """Refuse what would reach memory where an enclosed value says, but for a load, which `_access` follows."""
        names = (_READS_AT | _MOVES).get(op.name)
        given = op.operands_by_name(*names) if names else {}
        for name, what in (("pointer", "an address"), ("mask", "a mask")):
            hangs = [each for each in given.get(name, ()) if each in self.decided]
            if hangs and (op.name, name) != ("tt.load", "pointer"):
                self._unless(op, hangs, f"{what} that depends on a value that is enclosed")

    def write_lowering(self, op: Operation, lower: LoweringFunction) -> bool:
        """Write the code of `op`. Whether it leaves a choice open: then the code is that of sums that take no product."""
        t = self.t
        fuses, current, comment, lines, replaced_names = t.fuses_sums, t.current, t.comment, len(t.lines), set(t.replaced)
        try:
            lower(t, op)
        except OpenChoice:
            if self.depth:
                raise
        else:
            return False
        del t.lines[lines:], t.numbers[lines:]
        t.fuses_sums, t.current, t.comment, t.replaced = False, current, comment, replaced_names
        try:
            lower(t, op)
        finally:
            t.fuses_sums = fuses
        return True

    def _follow(self, op: Operation, open_: bool) -> None:
        """Behind the code of `op`: carry enclosures on, or refuse them."""
        t, name, may_be = self.t, op.name, self._may_be(op)
        if name == "tt.atomic_rmw" and op.integer("atomic_rmw_op") == ADDS_FLOATS:
            self._sum_in_memory(op)
            return
        if name in _READS_AT:
            given = dict(zip(_READS_AT[name], t.operands(op, *_READS_AT[name]), strict=True))
            called = t.calls(enclosures.refuse_enclosed, op, given["pointer"], given.get("mask?"), t.operand(op, 0).itemsize)
            t.emit("{}", called)
        elif name in _READS:
            t.emit("{}", t.calls(enclosures.refuse_enclosed, op))
        if name in ("tt.load", "tt.store"):
            self._access(op)
            return
        if name in _STORES_ON_CHIP:
            may_be = [i for i in may_be if (kind := op.inputs[i]) is not None and kind.kind != "tensor"]
        names = [op.operands[i] for i in may_be]
        if name not in _ON_CHIP:
            names += [each for each, kind in zip(op.operands, op.inputs, strict=True) if _is_on_chip(kind)]
        if not names or name in _HANDS_ON:
            return
        t.emit("if {}:", True if open_ else t.calls(enclosures.inside, *map(t.value, dict.fromkeys(names))))
        with t.indent_block():
            if name == "tt.dot" and (how := self._accumulation_of(op)) is not None:
                t.emit("{}", t.calls(dot_words, op, *how, t.value(op.results[0]), *map(t.value, op.operands[:3])))
            else:
                self._choices(op, may_be, open_, names)

    def _accumulation_of(self, op: Operation) -> tuple[Accumulation, tuple[str, str]] | None:
        """How the product `op` sums; None where no bound of it is known."""
        from bitverdict.harness.emulator.frontend.lowerings.products import accumulation_of

        return accumulation_of(self.t, op)

    def _access(self, op: Operation) -> None:
        """Behind a load or a store."""
        t = self.t
        if op.name == "tt.store":
            address, value, chosen = t.operands(op, "pointer", "value", "mask?")
            t.emit("{}", t.calls(enclosures.note_store, op, address, value, chosen, t.operand(op, 1).dtype))
            return
        address, chosen, other = t.operands(op, "pointer", "mask?", "other?")
        result = t.value(op.results[0])
        t.emit("{} = {}", result, t.calls(enclosures.hold_load, op, result, address, chosen, t.result(op).dtype))
        if other is not None:
            self._unless(op, [op.operands[2]], "a value that is enclosed")

    def _sum_in_memory(self, op: Operation) -> None:
        """Behind an atomic that adds floats."""
        from bitverdict.harness.emulator.frontend.lowerings.atomics import float_sum

        t, kind, result = self.t, self.t.operand(op, 1), self.t.value(op.results[0])
        called = t.calls(enclose_sum, op, result, *t.operands(op, "pointer", "value", "mask?"), kind, float_sum(kind.format))
        t.emit("{} = {}", result, called)

    def _choices(self, op: Operation, may_be: list[int], open_: bool, names: list[str]) -> None:
        t = self.t
        lane_names = [name for name in (*op.operands, *op.results) if name in t.lane_words.held]
        lane_operands = {name for name in op.operands if name in lane_names}
        heads = self._heads(op, may_be) if may_be else None
        if heads is None or not all(kind is not None and kind.kind in _VALUES for kind in op.outputs):
            t.emit("{}", t.calls(enclosures.refuse, op, "a value that is enclosed", *map(t.value, dict.fromkeys(names))))
            return
        for name in sorted(lane_operands):  # words that do differ from lane to lane
            with t.when(t.code("{} is not None", t.lane_words.words(name))):
                t.emit("{}", t.calls(enclosures.refuse, op))
        kinds = [t.require_type(op, kind) for kind in op.outputs]
        enclosure_name, before, dtypes = t.name("enclosure"), t.indent, tuple(kind.dtype for kind in kinds)
        t.emit("{} = None", enclosure_name)
        other_ends = heads()
        t.emit("{} = {}", enclosure_name, t.apply(enclosures.join_results, enclosure_name, other_ends, dtypes))
        t.indent = before
        self._correct_ends(op, enclosure_name)
        results = tuple(t.value(name) for name in op.results)
        formats = tuple(kind.format for kind in kinds)
        called = t.calls(enclosures.hold, op, results, enclosure_name, dtypes, formats, open_)
        t.emit("{}, = {}" if len(results) == 1 else "{} = {}", t.values(op.results), called)
        for name in op.results if op.name in _FOLDS else ():  # the words of all lanes lie in the enclosure
            if name in lane_names:
                t.emit("{} = None", t.lane_words.words(name))

    def _correct_ends(self, op: Operation, enclosure_name: object) -> None:
        """Behind the loops: what the ends of the operands do not show."""
        t = self.t
        if op.name in SMOOTH and (words := SMOOTH[op.name] if t.backend.has_function_words else _NEAREST_WORDS):
            called = t.calls(enclosure_ends.wider, enclosure_name, words, t.value(op.operands[0]), t.result(op).dtype)
            t.emit("{} = {}", enclosure_name, called)
        elif op.name in ("arith.fptosi", "arith.fptoui"):
            source, bits, signed = t.operand(op, 0), t.result(op).bits, op.name == "arith.fptosi"
            wider_call = t.calls(
                enclosure_ends.widen_to_range, enclosure_name, t.value(op.operands[0]), source.dtype, source.format, bits, signed
            )
            t.emit("{} = {}", enclosure_name, wider_call)

    def _heads(self, op: Operation, may_be: list[int]) -> Callable[[], tuple[Any, ...]] | None:
        """What writes the heads of the loops over what the operands may be, and in them the results of one choice; None where
        nothing is known of `op`."""
        name, kinds = op.name, [self.t.require_type(op, op.inputs[i]) for i in may_be]
        if name in _COMPARISONS:
            predicate = op.integer("predicate")
            if predicate in _EQUALITIES[name]:
                return partial(self._equality, op)
            return partial(
                self._at_each_word if name == "arith.cmpi" and predicate >= _FIRST_UNSIGNED_PREDICATE else self._each_end,
                op,
                may_be,
            )
        if name in _FOLDS:
            if (largest := _extreme(op)) is not None and kinds[0].is_float and len(op.operands) == 2:
                return partial(self._extremes, op, may_be, largest)
            if _rises(op, kinds[0]) or self.t.operand(op, 0).shape[op.integer("axis")] == 1:
                return partial(self._at_both_ends, op, may_be)
            return partial(self._combine_elements, op, may_be)
        if name == "arith.select":
            return partial(self._select_results, op, may_be)
        if name in _MONOTONE_OPERATIONS:
            return partial(self._at_both_ends, op, may_be)
        if name in _SIZES or (name == "arith.mulf" and op.operands[0] == op.operands[1]):
            return partial(self._at_turning_points, op)
        if name in _QUOTIENTS:
            return partial(self._quotients, op, may_be)
        if name in SMOOTH and kinds[0].element == "f32":
            return partial(self._smooth, op)
        if name in _MONOTONE or (name in ("arith.extui", "arith.uitofp") and kinds[0].bits == 1):
            return partial(self._each_end, op, may_be)
        if name == "tt.elementwise_inline_asm":
            return partial(self._assembly, op, may_be) if op.integer("packed_element", 1) == 1 else None
        return partial(self._at_each_word, op, may_be) if name in _ENUMERATED_OPERATIONS else None

    # -- loops over choices, each with the code of `op` in it ---------------------------------------------------------
    def _recompute(self, op: Operation, fresh: dict[int, str]) -> tuple[Any, ...]:
        """The results of `op` on the operands `fresh` in the place of its own."""
        t = self.t
        results = [f"{result}~{t.name('other')}" for result in op.results]
        for result, kind in zip(results, op.outputs, strict=True):
            t.types[result] = kind
        t.lower_plainly(replace(op, operands=[fresh.get(i, name) for i, name in enumerate(op.operands)], results=results))
        return tuple(t.value(result) for result in results)

    def _fresh(self, op: Operation, places: list[int]) -> dict[int, str]:
        found = {i: f"{op.operands[i]}~{self.t.name('choice')}" for i in places}
        for i, name in found.items():
            self.t.types[name] = self.t.types.get(op.operands[i])
            if self.t.batches is not None and op.operands[i] in self.t.batches.varying:
                self.t.batches.varying.add(name)
        return found

    def _loop(self, targets: str, over: object, count: int = 1) -> None:
        self.t.emit("for {}, in {}:" if count == 1 else "for {} in {}:", targets, over)
        self.t.indent += "    "

    def _ends(self, op: Operation, place: int, fresh: str, wide: object) -> None:
        t = self.t
        over = t.calls(enclosure_ends.ends, t.value(op.operands[place]), t.operand(op, place).dtype, wide)
        t.emit("for {} in {}:", t.value(fresh), over)
        t.indent += "    "

    def _values_and_types(self, op: Operation, places: Iterable[int]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(self.t.value(op.operands[i]) for i in places), tuple(self.t.operand(op, i).dtype for i in places)

    def _unrounded_products(self, op: Operation, places: list[int]) -> dict[int, Any]:
        """By place, whether the operand may be a product that the sum `op` takes in unrounded, and where."""
        from bitverdict.harness.emulator.frontend.lowerings.sums import factors_of, may_be_product

        t = self.t
        sums = op.name in ("arith.addf", "arith.subf") or (op.name in _FOLDS and t.operand(op, 0).is_float)
        products_by_place: dict[int, Any] = {
            i: sums and t.fuses_sums and may_be_product(t, op.operands[i], includes_divisions=True) for i in places
        }
        for i in places:
            if products_by_place[i] and (pair := factors_of(t, op.operands[i])) is not None:
                rounded = t.name("rounded")
                called = t.calls(enclosure_ends.inexact, t.operand(op, i).format, t.value(op.operands[i]), *pair)
                t.emit("{} = {}", rounded, called)
                products_by_place[i] = rounded
            elif products_by_place[i] and (made := t.defined.get(op.operands[i])) is not None and made.name == "arith.select":
                sides = [may_be_product(t, name, includes_divisions=True) for name in made.operands[1:]]
                if sides[0] != sides[1]:
                    taken = t.name("taken")
                    t.emit("{} = {}", taken, t.calls(enclosure_ends.side_taken, t.value(made.operands[0]), sides[0]))
                    products_by_place[i] = taken
        return products_by_place

    def _each_end(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """Each operand at both of its ends."""
        t, wide, fresh = self.t, self._unrounded_products(op, places), self._fresh(op, places)
        if op.name in ("arith.mulf", "math.fma"):
            factors, kind = tuple(t.value(name) for name in op.operands[:2]), t.operand(op, 0)
            t.emit("{}", t.calls(enclosure_ends.check_product, op, factors, kind.dtype, kind.format))
        for i, name in fresh.items():
            self._ends(op, i, name, wide[i])
        if op.name in _WRAPS and t.result(op).bits > 1:
            operands = [t.value(fresh.get(i, name)) for i, name in enumerate(op.operands)]
            t.emit("{}", t.apply(enclosure_ends.check_no_wrap, op, t.result(op).bits, _WRAPS[op.name], *operands))
        return self._recompute(op, fresh)

    def _at_both_ends(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """All operands at their low ends, then all at their high ones."""
        t, wide, fresh = self.t, self._unrounded_products(op, places), self._fresh(op, places)
        over = t.calls(enclosure_ends.sides, *self._values_and_types(op, places), tuple(wide[i] for i in places))
        self._loop(t.values(fresh.values()), over, len(fresh))
        if op.name in _FOLDS and not t.operand(op, 0).is_float and t.operand(op, 0).bits > 1:
            t.emit("{}", t.apply(enclosure_ends.check_no_wrap, op, t.operand(op, 0).bits, enclosure_ends.total, t.value(fresh[0])))
        return self._recompute(op, fresh)

    def _select_results(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """Each truth that the condition may be, and the two values together at each of their ends."""
        t, fresh = self.t, self._fresh(op, places)
        if 0 in fresh:
            self._ends(op, 0, fresh[0], False)
        if values := [i for i in places if i]:
            over = t.calls(enclosure_ends.sides, *self._values_and_types(op, values), (False,) * len(values))
            self._loop(t.values(fresh[i] for i in values), over, len(values))
        return self._recompute(op, fresh)

    def _at_each_word(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """The operands at each of their words."""
        t, fresh = self.t, self._fresh(op, places)
        self._loop(
            t.values(fresh.values()),
            t.apply(enclosure_ends.every_word, t.code("m"), op, *self._values_and_types(op, places)),
            len(fresh),
        )
        return self._recompute(op, fresh)

    def _assembly(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """Inline assembly on each word of its operands, its sums fused in each way that is open."""
        from bitverdict.harness.emulator.frontend.lowerings.ptx_operations import assembly_choices

        t, fresh, run = self.t, self._fresh(op, places), self.t.name("run")
        self._loop(
            t.values(fresh.values()),
            t.apply(enclosure_ends.every_word, t.code("m"), op, *self._values_and_types(op, places)),
            len(fresh),
        )
        self._loop(run, tuple((choice,) for choice in assembly_choices(t, op)))
        others = [t.name("other") for _ in op.results]
        operands = [t.value(fresh.get(i, name)) for i, name in enumerate(op.operands)]
        t.emit("{} = {}({})", t.join_values(others), run, t.join_values(operands))
        return tuple(others)

    def _quotients(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        t, fresh = self.t, self._fresh(op, [0, 1])
        self._loop(
            t.values(fresh.values()), t.apply(enclosure_ends.quotients, t.code("m"), op, *self._values_and_types(op, [0, 1])), 2
        )
        return self._recompute(op, {i: fresh[i] for i in places})  # a constant stays one: the compiler divides by it otherwise

    def _smooth(self, op: Operation) -> tuple[Any, ...]:
        t, fresh = self.t, self._fresh(op, [0])
        over = t.apply(enclosure_ends.smooth, t.code("m"), op, t.value(op.operands[0]), t.operand(op, 0).dtype, op.name in _POLES)
        self._loop(t.value(fresh[0]), over)
        return self._recompute(op, fresh)

    def _at_turning_points(self, op: Operation) -> tuple[Any, ...]:
        t, fresh = self.t, self._fresh(op, [0])
        t.emit(
            "for {} in {}:",
            t.value(fresh[0]),
            t.calls(enclosure_ends.turning_points, t.value(op.operands[0]), t.operand(op, 0).dtype),
        )
        t.indent += "    "
        return self._recompute(op, fresh | ({1: fresh[0]} if len(op.operands) == 2 else {}))

    def _equality(self, op: Operation) -> tuple[Any, ...]:
        t, (values, dtypes) = self.t, self._values_and_types(op, [0, 1])
        other = t.name("other")
        t.emit("for {} in {}:", other, t.calls(enclosure_ends.other_outcomes, t.value(op.results[0]), values, dtypes[0]))
        t.indent += "    "
        return (other,)

    def _extremes(self, op: Operation, places: list[int], largest: bool) -> tuple[Any, ...]:
        """The largest or smallest element, and the number beside it: of each that a choice may make it."""
        t, other_names = self.t, (self.t.name("other"), self.t.name("number"))
        fmt = t.operand(op, 0).format
        with self._fold(op, places) as (values, dtypes, axis):
            over = t.apply(enclosure_ends.extreme, t.code("m"), op, values, dtypes, fmt, axis, largest)
        self._loop(t.join_values(other_names), over, 2)
        return other_names

    @contextmanager
    def _fold(self, op: Operation, places: list[int]) -> Iterator[tuple[tuple[Any, ...], tuple[Any, ...], int]]:
        """While entered: the operands of the fold `op`, their types, and the axis that is folded. In a batch one of programs stands
        in front."""
        names = [op.operands[i] for i in places]
        rows = nullcontext(0) if self.t.batches is None else self.t.batches.rows_of_fold(op, names)
        with rows as axes:
            yield *self._values_and_types(op, range(len(op.operands))), op.integer("axis") + axes

    def _combine_elements(self, op: Operation, places: list[int]) -> tuple[Any, ...]:
        """What a combination of several operations leaves of the elements: it follows enclosures itself, step by step."""
        from bitverdict.harness.emulator.frontend.lowerings.reductions import combination, order_of

        t, other_names = self.t, tuple(self.t.name("other") for _ in op.results)
        t.replaced -= {name for inner in _body(op) for name in inner.results}
        combine = combination(t, op, follows=True)
        with self._fold(op, places) as (values, dtypes, axis):
            how = axis, order_of(t, op), op.flag("reverse")
            over = t.apply(enclosure_ends.combined_ends, t.code("m"), combine, values, dtypes, *how)
        self._loop(t.join_values(other_names), over, len(other_names))
        return other_names


def _is_float(kind: Type | None) -> bool:
    return kind is not None and kind.kind in ("scalar", "tensor") and kind.is_float


def _is_on_chip(kind: Type | None) -> bool:
    return kind is not None and kind.kind == "memdesc"


def _rises(op: Operation, kind: Type) -> bool:
    """Whether the reduction or scan `op` is of one tensor, of elements of `kind`, by what never falls where an operand rises."""
    known = _RISING_COMBINATIONS | (_OF_TRUTHS if kind.bits == 1 else set())
    return len(op.operands) == 1 and all(inner.name in known or inner.name.endswith(".return") for inner in _body(op))


def _body(op: Operation) -> list[Operation]:
    return [inner for region in op.regions for block in region for inner in block.operations]


def _extreme(op: Operation) -> bool | None:
    """Whether the reduction `op` of a number and another beside it takes both of the larger number; None where it does something
    else. The region is computed for each order that the two of them may have, on the left and on the right."""
    blocks = [block for region in op.regions for block in region]
    if op.name != "tt.reduce" or len(op.operands) != 2 or len(blocks) != 1:
        return None
    arguments = [name for name, _ in blocks[0].arguments]
    argument_names = {
        (order, beside): _extreme_arguments(blocks[0].operations, arguments, order, beside)
        for order in (-1, 1)
        for beside in (-1, 0, 1)
    }
    left, right = arguments[:2], arguments[2:]
    for largest in (True, False):
        if all(names == (left if (order > 0) == largest else right) for (order, _), names in argument_names.items()):
            return largest
    return None


def _extreme_arguments(body: list[Operation], arguments: list[str], order: int, beside: int) -> list[str] | None:
    """Which of `arguments` the region `body` returns where the first is above (order 1) or below (-1) the third, and the second so
    to the fourth."""
    numbers = dict(zip(arguments, (order, beside, 0, 0), strict=True))
    names, truths = {name: name for name in arguments}, dict[str, bool]()
    for op in body:
        if op.name in _COMPARISONS and all(name in numbers for name in op.operands):
            signs = _SIGNS[op.name].get(op.integer("predicate"))
            left, right = (numbers[name] for name in op.operands)
            if signs is None or len({arguments.index(name) % 2 for name in op.operands}) > 1:
                return None
            truths[op.results[0]] = (left > right) - (left < right) in signs
        elif op.name in ("arith.andi", "arith.ori") and all(name in truths for name in op.operands):
            truths[op.results[0]] = (all if op.name == "arith.andi" else any)(truths[name] for name in op.operands)
        elif op.name == "arith.select" and op.operands[0] in truths and all(name in names for name in op.operands[1:]):
            names[op.results[0]] = names[op.operands[1] if truths[op.operands[0]] else op.operands[2]]
        elif op.name == "tt.reduce.return" and all(name in names for name in op.operands):
            return [names[name] for name in op.operands]
        else:
            return None
    return None


_SIGNS: dict[str, dict[int, set[int]]] = {
    "arith.cmpf": {1: {0}, 2: {1}, 3: {0, 1}, 4: {-1}, 5: {-1, 0}, 13: {-1, 1}},  # oeq ogt oge olt ole une
    "arith.cmpi": {0: {0}, 1: {-1, 1}, 2: {-1}, 3: {-1, 0}, 4: {1}, 5: {0, 1}},  # eq ne slt sle sgt sge
}
