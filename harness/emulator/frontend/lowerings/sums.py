"""Sums of floats, and which product each takes in: `a * b + c` may become one fused multiply-add.

Where no product can reach a sum it is an addition, and rounds once. Where one can, the compiled program says what became of it
(`contraction`). What differs from place to place in it is refused: a loop that was unrolled contracts its first step otherwise
than the rest. A division is a product too, once ptxas has written it out: `a * rcp(b)`.
"""

# One file because whether a sum takes a product in hangs on what both sides are, and each rule asks the others.

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

import numpy as np

from bitverdict.harness.emulator.execution.threads import slots
from bitverdict.harness.emulator.frontend.combination_numbers import CombinationNumbers
from bitverdict.harness.emulator.frontend.contraction import AmdContraction, Fate, NotAssembled
from bitverdict.harness.emulator.frontend.lane_words import SPREAD
from bitverdict.harness.emulator.frontend.lowerings.functions import carried_by_constants, factors, factors_by_constant, folds
from bitverdict.harness.emulator.frontend.thread_copies import held_elements as thread_elements
from bitverdict.harness.emulator.frontend.translator import NotModelled, OpenChoice, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Operation
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.scalar_ops import binary, fma, narrow_fma, negative
from bitverdict.reference.reduction_order import Parts, ReductionOrder
from bitverdict.reference.scalar_arithmetic.fp64 import fma as fma64

_POSITIVE_ZERO = re.compile(r"(?<![-\d.])0\.0+(e[+-]?0+)?(?![\d.])")  # 0.000000e+00, of a tensor too
_OPEN_PRODUCT = re.compile(r"\bmul\.(ftz\.)?(f16|bf16|f32|f64)")  # of inline assembly: ptxas may contract it with a sum
_SHAPES = ("tt.broadcast", "tt.splat", "tt.expand_dims", "tt.reshape", "tt.trans", SPREAD)
_THROUGH = (
    *_SHAPES, "ttg.convert_layout", "arith.negf", "arith.select", "arith.extf", "arith.truncf", "tt.fp_to_fp", "arith.bitcast",
    "tt.bitcast", "tt.join", "tt.split", "tt.cat", "tt.gather", "tt.unsplat", "math.absf",
)  # fmt: skip
_NO_PRODUCT = (
    "arith.constant", "arith.addf", "arith.subf", "arith.divf", "arith.sitofp", "arith.uitofp", "arith.maximumf",
    "arith.minimumf", "arith.maxnumf", "arith.minnumf", "math.fma", "math.floor", "math.ceil", "tt.load", "tt.descriptor_load",
    "tt.dot", "tt.clampf", "tt.precise_divf", "tt.precise_sqrt", "tt.atomic_rmw", "tt.atomic_cas", "tt.call",
    "ttg.local_load", "ttng.tmem_load", "ttng.warp_group_dot", "ttng.warp_group_dot_wait", "ub.poison",
    "tti.experimental_fpsan_unembed",
)  # fmt: skip
_ONE_INSTRUCTION = ("tt.load", "arith.sitofp", "arith.uitofp", "arith.addf", "arith.subf", "arith.mulf")
"""Operations whose result, of an element, is what every float instruction under their line computes."""
PACKED_PRODUCT = 2  # PackedArithKind
_FUNCTIONS = ("math.exp", "math.exp2", "math.sqrt", "math.rsqrt", "arith.remf", "tt.approx_divf")
_NUMPY = {"arith.addf": np.add, "arith.subf": np.subtract}


@dataclass(frozen=True)
class _Product:
    """A multiplication that a sum takes straight, seen through `moves` (the last first), its sign changed when `negative`.

    `factors`: the values that are multiplied; of a product of widened values that is narrowed again, which LLVM computes in the
    narrow format, those before they were widened. `lines`: where the compiler may say that it comes from. `split` makes
    the two factors of a division of its dividend and its divisor.
    """

    factors: tuple[str, str]
    lines: frozenset[int]
    moves: tuple[Operation, ...]
    negative: bool
    split: Callable | None = None


@lowers("arith.addf", "arith.subf")
def total(t: Translator, op: Operation) -> None:
    if op.line in t.region_sides:
        _region_sum(t, op)
        return
    if (
        _kept_operand(t, op) is not None
        or not t.fuses_sums
        or not any(may_be_product(t, name, includes_divisions=True) for name in op.operands)
    ):
        t.call(op, binary(_NUMPY[op.name], t.result(op).format))
        return
    cut = None
    try:
        if op.line in t.doubted_sums:
            raise _unclear(op, "packs some sums with other operations")
        if (
            (cut := _narrowing_operation(t, op)) is not None
            and (fate := t.contraction.fates.get(cut.line)) is not None
            and fate.fused_sums
        ):
            inner = [t.defined[name].operands[0] for name in op.operands]
            _sum(t, op, cut.results[0], inner, t.result(cut), _whole_fate(t, op, fate))
            t.replaced.add(cut.results[0])
        elif cut is not None and fate is not None and not t.contraction.joined_by_ptxas(fate):
            t.call(op, binary(_NUMPY[op.name], t.result(op).format))  # in the narrow format, with the same words
        elif not t.contraction.hidden or not _sum_by_register(t, op):
            _sum(t, op, op.results[0], op.operands, t.result(op), _whole_fate(t, op, t.contraction.fate(op.line)))
    except OpenChoice as choice:
        if cut is None:
            if op.line not in t.doubted_sums and _sum_by_register(t, op):
                return
            raise
        raise NotModelled(op, choice.why) from choice  # in which format the sum rounds is open too
    except NotAssembled as error:
        raise NotModelled(op, f"a sum that takes a product, in a program that the compiler does not take: {error}") from error


def _whole_fate(t: Translator, op: Operation, fate: Fate | None) -> Fate:
    """`fate`, of the sum `op`. Where fewer elements are summed under its line than a thread has, LLVM may have moved others out of
    a loop, which leaves them without a line."""
    count, kind = fate.plain_sums + fate.fused_sums if fate else 0, t.result(op)
    has_all_threads = op.results[0].endswith("~lanes")
    if fate is None or not 0 < count < (kind.shape if has_all_threads else thread_elements(t.lane_words.place(kind)).shape)[1]:
        return fate or Fate()
    if t.contraction.hidden:
        raise _unclear(op, "puts some of it under the lines of other operations")
    return _joint([fate, t.contraction.fates.get(-1)]) or fate


def _sum(t: Translator, op: Operation, result: str, operands: list[str], kind: Type, fate: Fate) -> None:
    """The sum or difference of `operands` in the format of `kind`, which the compiled program makes of `op`."""
    products = [_product(t, name) for name in operands]
    _write_sum(t, op, result, operands, kind, products, _fused_operand(t, op, kind, products, operands, fate))


def _region_sum(t: Translator, op: Operation) -> None:
    """A sum of a combination of several operations, of which `t.region_sides` knows what it takes in."""
    side, products = t.region_sides[op.line], [_product(t, name) for name in op.operands]
    chosen = CombinationNumbers.sides(side) if isinstance(side, list) else {None if isinstance(side, str) else side: None}
    for each in chosen:
        if each is not None and ((product := products[each]) is None or product.split):
            raise _unclear(op, "fuses a product into it that reaches it through a branch, a loop or a select")
    _write_choices(
        t, op, products, {each: t.apply(np.isin, t.region_number, t.constant(numbers)) for each, numbers in chosen.items()}
    )


def _write_choices(t: Translator, op: Operation, products: list[_Product | None], places: dict[int | None, Any]) -> None:
    """The sum `op` of all elements, which takes in the product on one side at some `places` and on another at others."""
    previous_name = ""
    for side, here in places.items():
        name = op.results[0] if len(places) == 1 else f"{op.results[0]}~{side}"
        _write_sum(t, op, name, op.operands, t.result(op), products, side)
        if previous_name:
            t.emit("{} = {}", t.value(name), t.apply(np.where, here, t.value(name), t.value(previous_name)))
        previous_name = name
    if len(places) > 1:
        t.emit("{} = {}", t.value(op.results[0]), t.value(previous_name))


def _sum_by_register(t: Translator, op: Operation) -> bool:
    """Write the sum `op` where the compiled program says of each register what it takes in; whether it does."""
    if isinstance(t.contraction, AmdContraction):
        return False
    sides = t.contraction.registers.get(op.line)
    kind, products = t.result(op), [_product(t, name) for name in op.operands]
    usable = [
        product is not None and not product.split and may_be_product(t, name)
        for name, product in zip(op.operands, products, strict=True)
    ]
    if not sides or any(side is not None and not usable[side] for side in sides):
        return False
    if len(set(sides)) == 1:
        _write_choices(t, op, products, dict.fromkeys(sides))
        return True
    place = t.lane_words.place(kind)
    if not place.layout or op.results[0].endswith("~lanes"):  # of all threads' copies the shape is none of the layout
        return False
    thread_places = thread_elements(place)  # (threads, registers)
    if thread_places.shape[1] != len(sides):
        return False
    numbers = np.array([-1 if side is None else side for side in sides])
    flat = np.zeros(prod(place.shape), np.int64)
    flat[thread_places] = numbers
    if (flat[thread_places] != numbers).any():
        return False
    chosen = {
        side: t.constant(flat.reshape(place.shape) == (-1 if side is None else side), "taken") for side in dict.fromkeys(sides)
    }
    _write_choices(t, op, products, chosen)
    return True


def _write_sum(
    t: Translator,
    op: Operation,
    result: str,
    operands: list[str],
    kind: Type,
    products: list[_Product | None],
    fused_side: int | None,
) -> None:
    """The sum or difference `op` of `operands`, of which it takes in the product on `fused_side`, or none."""
    if fused_side is None:
        run: Callable = binary(_NUMPY[op.name], kind.format)
        t.emit("{} = {}", t.value(result), t.apply(run, *(t.value(each) for each in operands)))
        return
    product = products[fused_side]
    assert product is not None
    left, right = (_moved_factor(t, product, name) for name in product.factors)
    if product.split is not None:
        parts = t.name("factors")
        t.emit("{} = {}", parts, t.apply(product.split, left, right))
        left, right = t.code("{}[0]", parts), t.code("{}[1]", parts)
    addend = t.value(operands[1 - fused_side])
    minus = negative(kind.format)
    if product.negative ^ (op.name == "arith.subf" and fused_side == 1):
        left = t.apply(minus, left)
    if op.name == "arith.subf" and fused_side == 0:
        addend = t.apply(minus, addend)
    run = fma64 if kind.format is None else fma if kind.format == "fp32" else narrow_fma(kind.format)
    t.emit("{} = {}", t.value(result), t.apply(run, left, right, addend))


@dataclass(frozen=True)
class ProductSum:
    """The sums of a reduction or scan of products that take some of them in unrounded. An element is its word, the two factors
    whose product it is, and whether the sum that it first goes into takes it in; of a scan also whether the sum does that puts
    what stands before it in front of it. Further on there are only words."""

    add: Callable
    multiply_add: Callable
    words: ClassVar[int] = 1

    def add_first(self, *sides: np.ndarray) -> tuple[np.ndarray]:
        """The sum of two elements; the left one is taken in where both might be."""
        half = len(sides) // 2
        left, right = sides[:half], sides[half:]
        (found,) = self.behind(left[:1], right)
        if left[3].any():
            found = np.where(left[3], self.multiply_add(left[1], left[2], right[0]), found)
        return (found,)

    def behind(self, before: Parts, element: Parts, flag: int = 3) -> tuple[np.ndarray]:
        """The sum of the words `before` and of elements, by their first sum (flag 3) or their later one (4)."""
        taken, (word,) = element[flag], before
        found = self.add(word, element[0])
        return (np.where(taken, self.multiply_add(element[1], element[2], word), found) if taken.any() else found,)


@dataclass(frozen=True)
class RegionElements:
    """The elements of a combination of several operations, whose sums take products in unrounded. An element is its words and the
    factors of those that are products. The functions take the sides' elements, or words: of two elements, of words and an element
    within a thread, of words and an element further on (None where there is none)."""

    words: int
    combine_elements: Callable
    combine_next: Callable
    combine_later: Callable

    def add_first(self, *sides: np.ndarray) -> Parts:
        return self.combine_elements(*sides)

    def behind(self, before: Parts, element: Parts, flag: int = 3) -> Parts:
        return (self.combine_next if flag == 3 else self.combine_later)(*before, *element)


def taken_products(
    t: Translator, op: Operation, source: Operation, inner: Operation, order: ReductionOrder | None = None
) -> tuple[ProductSum, tuple[Any, ...]] | None:
    """Where the compiled reduction or scan `source`, whose region is the sum `inner`, takes products into its sums: how, and the
    arrays that its elements are (of the operand of `op`, which has the copies of all threads where it is not `source`). None
    where it only adds. `order`: of a reduction."""
    if not t.fuses_sums or not may_be_product(t, op.operands[0], includes_divisions=True):
        return None
    if not t.backend.assembles_ptx:
        return _products_taken_by_llvm(t, op, source, inner, order)
    kind, place = t.require_type(source, source.inputs[0]), t.lane_words.place(t.operand(source, 0))
    try:
        fold_fate = t.contraction.fold(source.last_line)  # type: ignore[union-attr]
    except NotAssembled as error:
        raise NotModelled(op, f"a sum that takes a product, in a program that the compiler does not take: {error}") from error
    if fold_fate.open:
        raise _unclear(op, fold_fate.open)
    if not fold_fate.fuses:
        return None
    product = _product(t, op.operands[0])
    thread_slots = slots(place.shape, place.layout)  # (threads, registers)
    if product is None or product.split or len(fold_fate.first_sums) != thread_slots.shape[1]:
        raise _unclear(op, "fuses a product into it that reaches it through a branch, a loop or a select")
    flags = []
    for each in (fold_fate.first_sums, fold_fate.later_sums)[: 2 if source.name == "tt.scan" else 1]:
        flat = np.zeros(prod(place.shape), bool)
        flat[thread_slots[:, np.array(each)]] = True
        if (flat[thread_slots] != np.array(each)).any():
            raise _unclear(op, "fuses it in one copy of an element and not in another")
        flags.append(flat.reshape(place.shape) if op is source else flat[thread_elements(place)])
    return _product_sum(t, op, kind, product, flags)


def _product_sum(
    t: Translator, op: Operation, kind: Type, product: _Product, flags: list[np.ndarray]
) -> tuple[ProductSum, tuple[Any, ...]]:
    multiply_add = fma64 if kind.format is None else fma if kind.format == "fp32" else narrow_fma(kind.format)
    taking = ProductSum(binary(np.add, kind.format), multiply_add)
    return taking, (t.value(op.operands[0]), *_signed_factors(t, product, kind), *(t.constant(each, "taken") for each in flags))


def _signed_factors(t: Translator, product: _Product, kind: Type) -> tuple[Any, Any]:
    """The variables of the factors of `product`, its sign in the first."""
    left, right = (_moved_factor(t, product, name) for name in product.factors)
    return t.apply(negative(kind.format), left) if product.negative else left, right


def element_factors(t: Translator, op: Operation) -> dict[int, tuple[Any, Any]]:
    """The factors of the operands of `op`, by place, that are products."""
    products = {place: product for place, name in enumerate(op.operands) if (product := _product(t, name)) and not product.split}
    return {place: _signed_factors(t, product, t.operand(op, place)) for place, product in products.items()}


def _products_taken_by_llvm(
    t: Translator, op: Operation, source: Operation, inner: Operation, order: ReductionOrder | None
) -> tuple[ProductSum, tuple[Any, ...]] | None:
    """As `taken_products`, by the lines of the machine code: one fate for all registers. Of two products the left one is taken
    in, but of -p + q, which LLVM makes q - p, the right one: what an instruction takes away is the left one."""
    kind, place = t.require_type(op, op.inputs[0]), t.lane_words.place(t.operand(source, 0))
    axis, bits = source.integer("axis"), order.thread if order else ()
    try:
        fate = _joint([t.contraction.fates.get(line) for line in (inner.line, op.last_line)]) or t.contraction.fate(inner.line)
    except NotAssembled as error:
        raise NotModelled(op, f"a sum that takes a product, in a program that the compiler does not take: {error}") from error
    if not fate.fused_sums:
        return None
    if fate.formats != {kind.element}:
        raise NotModelled(op, f"a sum that takes a product, where the compiler computes it in {', '.join(sorted(fate.formats))}")
    product = _product(t, op.operands[0])
    is_chain = bool(order and order.chain and bits)
    adds_products = {True, False} if is_chain and len(bits) > 1 else {bool(bits)}  # of a chain the later sums add none
    own = {-1, inner.line, op.last_line} | (product.lines | {move.line for move in product.moves} if product else set())
    if (
        source.name == "tt.scan"
        or product is None
        or product.split
        or fate.added_products
        or len(fate.signs) > 1
        or {bool(lines) for lines in fate.addends} != adds_products
        or any(not lines <= own for lines in fate.addends)
    ):
        raise _unclear(op, "fuses only some products into the first sums, or one that reaches them through a branch or a select")
    index = np.arange(place.shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(place.shape))])
    is_taken = np.array(True)
    if is_chain:  # all but one of the first two
        registers = np.zeros_like(index)
        for number, bit in enumerate(reversed(bits)):
            registers |= (index >> bit & 1) << number
        is_taken = registers != (True not in fate.signs)
    elif bits:
        is_taken = index >> bits[0] & 1 == (True in fate.signs)
    flags = np.array(np.broadcast_to(is_taken, place.shape))
    return _product_sum(t, op, kind, product, [flags if op is source else flags.reshape(-1)[thread_elements(place)]])


def sums_in_doubt(t: Translator, body: list[Operation]) -> bool:
    """Whether a sum of the region `body` may take a product, and the compiled program has sums under no sum's line that may be
    instances of it: of one sum that is always fused, or never, such instances are like the others."""
    totals = [op for op in body if op.name in _NUMPY]
    if not t.fuses_sums or not any(may_be_product(t, name, includes_divisions=True) for op in totals for name in op.operands):
        return False
    try:
        fates = t.contraction.fates
    except NotAssembled:
        return True
    every = _joint([fates.get(-1), *(fates.get(op.line) for op in totals)])
    return -1 in fates and not (len(totals) == 1 and every is not None and bool(every.fused_sums) != bool(every.plain_sums))


def _joint(fates: list[Fate | None]) -> Fate | None:
    """One fate of sums whose instructions stand under several lines."""
    known_fates = [fate for fate in fates if fate is not None]
    if not known_fates:
        return None
    total = Fate(sum(fate.plain_sums for fate in known_fates), sum(fate.fused_sums for fate in known_fates))
    for name in (name for name, value in vars(total).items() if isinstance(value, set)):
        setattr(total, name, set().union(*(getattr(fate, name) for fate in known_fates)))
    return total


def _narrowing_operation(t: Translator, op: Operation) -> Operation | None:
    """The operation that narrows the sum `op` to the format that both its operands were widened from: LLVM then adds in that."""
    users = t.users.get(op.results[0], [])
    if len(users) != 1 or users[0].name != "arith.truncf":
        return None
    sources = [t.defined.get(name) for name in op.operands]
    wide = all(source is not None and source.name == "arith.extf" for source in sources)
    return users[0] if wide and {s.operand_types[0] for s in sources if s is not None} == {users[0].result_types[0]} else None


def _fused_operand(
    t: Translator, op: Operation, kind: Type, products: list[_Product | None], operands: list[str], fate: Fate
) -> int | None:
    """The operand whose product the compiled program fuses into the sum; None where it adds."""
    if not fate.fused_sums and not fate.plain_sums:
        raise OpenChoice(op, "a sum of which the compiled program keeps nothing that could be read")
    if fate.fused_sums and fate.plain_sums and not _differs_from_additions(t, op, products, fate):
        raise _unclear(op, "fuses it in one place and not in another")
    if fate.formats != {kind.element}:
        raise NotModelled(op, f"a sum that takes a product, where the compiler computes it in {', '.join(sorted(fate.formats))}")
    if not fate.fused_sums:
        return _divided_operand(t, op, products, fate) if t.contraction.joined_by_ptxas(fate) else None
    product_flags = [may_be_product(t, name) for name in operands]
    products = [p if p is not None and not p.split and here else None for p, here in zip(products, product_flags, strict=True)]
    first, second = products
    if first is not None and first == second:  # p + p
        return 0
    candidates = [(i, product) for i, product in enumerate(products) if product is not None]
    if sum(product_flags) == 1 and candidates:
        return candidates[0][0]
    # The instructions say themselves what they multiply. LLVM's vectoriser may give the lines of what they add to one another.
    factors = [(side, _factor_lines(t, product)) for side, product in candidates]
    fused_sides = [side for side, lines in factors if lines is not None and fate.factor_lines == {lines}]
    if len(fused_sides) == 1:
        return fused_sides[0]
    squares = [side for side, product in candidates if product.factors[0] == product.factors[1]]
    if len(candidates) == 2 and len(squares) == 1 and fate.squares in ({1}, {2}):
        return squares[0] if fate.squares == {1} else 1 - squares[0]
    if t.contraction.hidden and len(candidates) == 2 and not fused_sides:
        raise _unclear(op, "packs it with others, under whose lines its products stand")
    for side, product in candidates:  # the other one is what is added, in every instruction of the sum
        other = products[1 - side]
        own = product.lines | {-1}
        if other is None and all(not added & own for added in fate.addends):
            return side
        if other is not None and not other.lines & own and all(added & other.lines and not added & own for added in fate.addends):
            return side
    if fused_sides:
        return fused_sides[0]
    raise _unclear(op, "fuses a product into it that reaches it through a branch, a loop or a select")


def _differs_from_additions(t: Translator, op: Operation, products: list[_Product | None], fate: Fate) -> bool:
    """Whether the sum `op`, which has no line in the compiled program, is none of those there that only add: they add no product,
    and `op` adds one that is no constant."""
    straight = [product for product in products if product and not product.split and len(product.lines) == 1]
    return (
        op.line not in t.contraction.fates
        and not fate.added_products | fate.product_places
        and any(carried_by_constants(t, name) is None for product in straight for name in product.factors)
    )


def _factor_lines(t: Translator, product: _Product) -> tuple[int, int] | None:
    """The lines of the two factors of `product`, the smaller first; None where an instruction of such a line may compute something
    else."""
    lines = []
    for name in product.factors:
        op = t.defined.get(name)
        while op is not None and op.name in _SHAPES:
            op = t.defined.get(op.operands[0])
        if op is None or op.name not in _ONE_INSTRUCTION:
            return None
        lines.append(op.line)
    return min(lines), max(lines)


def _divided_operand(t: Translator, op: Operation, products: list[_Product | None], fate: Fate) -> int:
    """The operand that is a division, into whose last product ptxas takes the sum."""
    divided = [i for i, product in enumerate(products) if product is not None and product.split]
    if fate.open or t.contraction.left_by_ptxas(fate):
        raise _unclear(op, "leaves it to ptxas, which fuses it in some steps of the loop that it unrolls")
    if not divided or (len(divided) == 2 and any(len(t.users[name]) > 1 for name in op.operands)):
        raise _unclear(op, "leaves it to ptxas, which takes a division into it through a branch or a select, or one of two")
    return divided[0]


def _unclear(op: Operation, what: str) -> OpenChoice:
    return OpenChoice(op, f"a sum that takes a product, where the compiler {what}; compile with enable_fp_fusion=False")


def _moved_factor(t: Translator, product: _Product, name: str) -> Any:
    """The local variable that holds factor `name` of `product`, moved as the product is on its way to the sum."""
    for move in reversed(product.moves):
        if move.name in _SHAPES:
            fresh = f"{name}~{t.name('moved')}"
            again = replace(move, operands=[name], results=[fresh])
            t.lower(again)
            t.lane_words.carry_past_move(again)
            name = fresh
        elif move.name == "ttg.convert_layout":
            t.lane_words.require_equal_copies(move, name)
    return t.value(name)


def _product(t: Translator, name: str) -> _Product | None:
    """The multiplication whose result `name` is, seen through moves and changes of sign."""
    if name in t.region_factors:
        return _Product(t.region_factors[name], frozenset(), (), False)
    moves: list[Operation] = []
    negative_ = False
    op = t.defined.get(name)
    while op is not None and not _is_stored(op):
        if (kept := _kept_operand(t, op)) is None and op.name not in (*_SHAPES, "ttg.convert_layout", "arith.negf"):
            break
        negative_ ^= op.name == "arith.negf"
        moves.append(op)
        op = t.defined.get(kept or op.operands[0])
    if op is None or op.name not in ("arith.mulf", "arith.truncf", "arith.divf"):
        return None
    if op.name == "arith.divf":
        if op.result_types[0].removesuffix(">").split(",")[0].rpartition("x")[2] != "f32":
            return None
        split = factors_by_constant if folds(t, op, op.operands[1]) else factors
        return _Product((op.operands[0], op.operands[1]), frozenset({op.line}), tuple(moves), negative_, split)
    inner = t.defined.get(op.operands[0]) if op.name == "arith.truncf" else op
    if inner is None or inner.name != "arith.mulf":
        return None
    left, right = inner.operands
    if inner is not op:
        sources = [t.defined.get(each) for each in inner.operands]
        if any(s is None or s.name != "arith.extf" or s.operand_types[0] != op.result_types[0] for s in sources):
            return None
        left, right = (s.operands[0] for s in sources if s is not None)
    return _Product((left, right), frozenset({op.line, inner.line}), tuple(moves), negative_)


def factors_of(t: Translator, name: str) -> tuple[Any, Any] | None:
    """The variables that hold the two factors of the product that `name` is, moved as it is; None where it may be another thing."""
    try:
        product = _product(t, name)
    except NotModelled:  # of a quotient
        return None
    if product is None or product.split:
        return None
    left, right = (_moved_factor(t, product, each) for each in product.factors)
    return left, right


def may_be_product(t: Translator, name: str, includes_divisions: bool = False) -> bool:
    """Whether what `name` holds may be a product where the compiler sees it: through whatever it sees through. `divided`: or a
    division of fp32, which ptxas makes one."""
    seen, worklist = set[str](), [name]
    while worklist:
        value_name = worklist.pop()
        if value_name in seen:
            continue
        seen.add(value_name)
        op = t.defined.get(value_name)
        if op is None:
            worklist += t.incoming.get(value_name) or t.combined.get(value_name, [])
        elif _is_stored(op):
            continue
        elif (kept := _kept_operand(t, op)) is not None:
            worklist.append(kept)
        elif op.name in _THROUGH:
            worklist += op.operands[1:] if op.name == "arith.select" else op.operands
        elif op.name == "tt.scan" and _folds_without_product(op):  # the first element along the axis is what it was
            worklist += op.operands
        elif op.name == "ttng.packed_arith":
            if op.integer("op_kind") == PACKED_PRODUCT:
                return True
        elif op.name == "tt.elementwise_inline_asm":
            if _OPEN_PRODUCT.search(op.string("asm_string")):
                return True
        elif op.name == "arith.divf" and includes_divisions and t.backend.assembles_ptx:
            return True
        elif op.name not in _NO_PRODUCT and not _folds_without_product(op) and not _is_function(op):
            return True
    return False


def _is_stored(op: Operation) -> bool:
    """Whether `op` takes its operand through shared memory: no compiler sees what it was."""
    return op.name == "ttg.convert_layout" and "allocation.offset" in op.attributes


def _kept_operand(t: Translator, op: Operation) -> str | None:
    """The operand that the sum `op` is, where the compiler removes it: of +0 and a square, which is never -0. None where it is one.

    LLVM's InstSimplify folds it (`simplifyFAddInst`: X + 0 is X where X cannot be -0), and the compiled program must say so."""
    if op.name != "arith.addf" or not t.fuses_sums:
        return None
    for which, name in enumerate(op.operands):
        other = t.defined.get(op.operands[1 - which])
        if other is None or other.name != "arith.constant" or not _POSITIVE_ZERO.search(other.attributes.get("value", "")):
            continue
        made = t.defined.get(name)
        if made is not None and made.name == "arith.mulf" and made.operands[0] == made.operands[1]:
            try:
                return name if t.contraction.removes(op.line) else None
            except NotAssembled:
                return None
    return None


def _is_function(op: Operation) -> bool:
    """Whether `op` ends in an instruction of the special-function unit: of fp32, whose exponential LLVM sees as a product first."""
    return op.name in _FUNCTIONS and "f64" not in op.result_types[0]


def _folds_without_product(op: Operation) -> bool:
    """A reduction or scan that multiplies nothing gives no product, unless it combines nothing."""
    if op.name not in ("tt.reduce", "tt.scan") or op.inputs[0] is None or op.inputs[0].shape[op.integer("axis")] == 1:
        return False
    return all(inner.name != "arith.mulf" for region in op.regions for block in region for inner in block.operations)
