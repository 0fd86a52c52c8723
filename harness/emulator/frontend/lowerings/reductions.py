"""Reductions and scans. What is exact is combined in any order; all else in the order that the layout implies
(`bitverdict.reference.reduction_order`), with the products that LLVM takes into the first sums."""

# One file because the code of a combination hangs on the order, and the order on what its sums take in.

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bitverdict.harness.emulator.execution.cta import Cta
from bitverdict.harness.emulator.execution.program_batches import DIFFERING_LANES, NeedsSerialRun
from bitverdict.harness.emulator.execution.threads import bases, slots
from bitverdict.harness.emulator.frontend.combination_numbers import CombinationNumbers, from_memory
from bitverdict.harness.emulator.frontend.contraction import NotAssembled
from bitverdict.harness.emulator.frontend.lane_words import SPREAD
from bitverdict.harness.emulator.frontend.lowerings.regions import lift_scalars, seen_inside
from bitverdict.harness.emulator.frontend.lowerings.sums import (
    ProductSum,
    RegionElements,
    element_factors,
    may_be_product,
    sums_in_doubt,
    taken_products,
)
from bitverdict.harness.emulator.frontend.region_sums import FROM_MEMORY, IN_THREAD, WORDS, RegionSums, Side
from bitverdict.harness.emulator.frontend.shared_stores import SharedStores
from bitverdict.harness.emulator.frontend.thread_copies import Place, spread
from bitverdict.harness.emulator.frontend.thread_copies import reduce_copies as reduced_copies
from bitverdict.harness.emulator.frontend.translator import Code, NotModelled, Translator, lowers
from bitverdict.harness.emulator.mlir_reader import Block, Operation
from bitverdict.harness.emulator.numerics.scalar_ops import canonical
from bitverdict.harness.model.triton_release import TREE_SUMS_SINCE, combines_copies, sums_by_tree
from bitverdict.reference.reduction_order import (
    ROWS,
    Elements,
    Layout,
    Parts,
    ReductionOrder,
    ScanOrder,
    agree,
    copies,
    reduce_parts,
    reduction_order,
    scan_order,
    scan_parts,
    uses_register_pairs,
)
from bitverdict.reference.thread_words import ALL_COPIES, FIRST_COPY, Reduction

if TYPE_CHECKING:
    from bitverdict.harness.emulator.numerics.real_values import TileValue

_EXACT = re.compile(r"arith\.(addi|muli|minsi|maxsi|minui|maxui|andi|ori|xori|maximumf|minimumf|maxnumf|minnumf)$")
_PACKED_OPERATIONS = ("arith.addf", "arith.mulf")
_OF_WORDS = {IN_THREAD: "", WORDS: "across", FROM_MEMORY: "loaded"}  # the attribute of the first that is there, for the others
Combine = Callable[..., tuple[np.ndarray, ...]]


@lowers("tt.reduce", "tt.scan")
def fold(t: Translator, op: Operation) -> None:
    if op.attributes.get("reduction_ordering", "").strip('"') not in ("", "unordered"):
        raise NotModelled(op, "in a given order: no release with a record has this attribute")
    operands, axis = tuple(t.value(each) for each in op.operands), op.integer("axis") + t.leading
    if t.operand(op, 0).shape[op.integer("axis")] == 1:  # nothing is combined
        found = t.code("{}", operands) if op.name == "tt.scan" else t.apply(_single_element_results, operands, axis, _single(t, op))
        _assign(t, op, found)
        if op.name == "tt.reduce":
            t.lane_words.carry_past_reduction(op)
        return
    name, elements, operands = _read_region(t, op, operands) or (combination(t, op), None, operands)
    if op.name == "tt.scan":
        _lower_scan(t, op, name, operands, elements)
    else:
        _reduction(t, op, name, operands, elements)
    if t.scratch(op):
        t.meet()  # values go from warp to warp behind a barrier
    else:
        t.meet(warps=True)


def _lower_scan(t: Translator, op: Operation, name: object, operands: tuple[object, ...], elements: Code | None) -> None:
    axis, order, alone = op.integer("axis") + t.leading, scan_order_of(t, op), only(op)
    products: Any = elements
    if elements and t.leading:
        operands = t.apply(np.broadcast_arrays, *operands)
    if alone is not None and alone.name == "arith.addf" and (found := taken_products(t, op, op, alone)):
        products, operands = found
        if t.leading:  # some of the factors may be the same for all programs
            operands = t.apply(np.broadcast_arrays, *operands)
    _assign(t, op, t.apply(_scan, name, operands, axis, order, op.flag("reverse"), products))


def _assign(t: Translator, op: Operation, found: TileValue, *more: str) -> None:
    """The results of `op`, and the values `more`, are the tuple `found`."""
    names = [*op.results, *more]
    t.emit("{}, = {}" if len(names) == 1 else "{} = {}", t.values(names), found)


def _single(t: Translator, op: Operation) -> bool:
    return t.require_type(op, op.outputs[0]).kind == "scalar" and not t.leading


def differing_reductions(t: Translator, blocks: list[Block]) -> list[Operation]:
    """The reductions of `blocks` that may leave other words in other lanes: by a combination that is not the same both ways, or of
    products of which a thread holds one."""
    reductions, waiting = [], list(blocks)
    while waiting:
        for op in waiting.pop().operations:
            waiting += [block for region in op.regions for block in region]
            if op.name == "tt.reduce" and op.inputs[0] is not None and op.inputs[0].shape[op.integer("axis")] > 1:
                alone = only(op)
                if alone is not None and (
                    _EXACT.match(alone.name) or (alone.name in _PACKED_OPERATIONS and not _fuses_over_lanes(t, op))
                ):
                    continue
                reductions.append(op)
    return reductions


def _fuses_over_lanes(t: Translator, op: Operation) -> bool:
    axis = op.integer("axis")
    try:
        held = any(basis[axis] for basis in layout_of(t, op).registers)
    except ValueError:
        return False  # it is refused
    return t.fuses_sums and not held and not _ends_in_one_lane(t, op) and may_be_product(t, op.operands[0], includes_divisions=True)


def _ends_in_one_lane(t: Translator, op: Operation) -> bool:
    """Whether the last lane of a wave of AMD's has the result of `op`, which `v_readlane` hands to all: each step combines what is
    moved up to that lane with its own word."""
    axis = op.integer("axis")
    return (
        not t.backend.assembles_ptx
        and only(op) is not None
        and sum(bool(basis[axis]) for basis in layout_of(t, op).lanes) == ROWS + 2
    )


@dataclass(frozen=True)
class _SwappedElements:
    """`elements` whose two sides are exchanged where both are elements."""

    elements: Elements
    words: ClassVar[int] = 1

    def add_first(self, *sides: np.ndarray) -> Parts:
        return self.elements.add_first(*sides[len(sides) // 2 :], *sides[: len(sides) // 2])

    def behind(self, before: Parts, element: Parts, flag: int = 3) -> Parts:
        return self.elements.behind(before, element, flag)


def _reduction(t: Translator, op: Operation, name: object, operands: tuple[object, ...], elements: Code | None) -> None:
    """The code of a reduction, on the operands or, where their words differ from lane to lane, on the copies of all threads."""
    if t.lane_words.held.isdisjoint(op.operands):
        _on_values(t, op, name, operands, elements)
        return
    t.emit("if {}:", t.lane_words.copies_differ(op))
    with t.indent_block(), t.lane_words.write_on_copies():
        again = t.lane_words.spread(op)
        layout, order, products, given = _order(t, again, op, tuple(t.value(each) for each in again.operands))
        plan, target = _plan(t, op, layout, order)
        found = t.calls(reduced_copies, op, name, products, given, plan, target, t.lane_words.stores)
        t.emit("{} = {}", (*map(t.value, op.results), *map(t.lane_words.words, op.results)), found)
    t.emit("else:")
    with t.indent_block():
        _on_values(t, op, name, operands, elements)


def _order(
    t: Translator, op: Operation, source: Operation, operands: tuple[object, ...]
) -> tuple[Layout, ReductionOrder, Elements | None, tuple[Any, ...]]:
    """How the reduction `source` combines: its layout, its order, and where products are taken into sums, these sums and the
    factors instead of `operands`, which are those of `op`."""
    axis, only_op, kind, layout = source.integer("axis"), only(source), t.operand(source, 0), layout_of(t, source)
    pairs = (
        only_op is not None
        and only_op.name in _PACKED_OPERATIONS
        and uses_register_pairs(layout, axis, str(kind.format), sm=t.backend.reduction_number(t.arch))
    )
    chain = not sums_by_tree()
    if chain and not _lie_side_by_side(lanes := [bool(basis[axis]) for basis in layout.lanes]):
        bits = ", ".join(str(bit) for bit, moves in enumerate(lanes) if moves)
        raise NotModelled(op, f"over bits {bits} of the lane: before Triton {TREE_SUMS_SINCE} the compiler combines other lanes")
    order = reduction_order(layout, axis, pairs=pairs, single=only_op is not None, chain=chain)
    if only_op is not None and only_op.name == "arith.addf" and (order.thread or order.lanes):
        if found := taken_products(t, op, source, only_op, order):
            return layout, order, found[0], found[1]
    return layout, order, None, operands


def _lie_side_by_side(moves: Sequence[bool]) -> bool:
    """Whether the lane bits that move along the axis follow one another. Until 3.7 the compiler shuffles by the step of the lowest
    one and its multiples, whatever the layout (`warpReduce`): sums over other lanes, a fault of the compiler."""
    bits = [bit for bit, moved in enumerate(moves) if moved]
    return bits == list(range(bits[0], bits[-1] + 1)) if bits else True


def _plan(t: Translator, op: Operation, layout: Layout, order: ReductionOrder) -> tuple[Reduction, Place]:
    target = t.lane_words.place(t.require_type(op, op.outputs[0]))
    result = _layout_of(target.shape, target.layout) if target.layout else None
    return Reduction(layout, t.operand(op, 0).shape, op.integer("axis"), order, result, _copies(t, op, layout)), target


def _copies(t: Translator, op: Operation, layout: Layout) -> str:
    """`Reduction.copies`: how `TargetInfo::warpReduce` takes redux.sync. Copies differ behind a sum that takes in products."""
    only_op, axis, element = only(op), op.integer("axis"), t.operand(op, 0).element
    if only_op is None or not _EXACT.match(only_op.name) or not t.backend.assembles_ptx or not combines_copies():
        return ""
    is_extreme, sm = only_op.name.startswith(("arith.max", "arith.min")), t.backend.reduction_number(t.arch)
    if only_op.name == "arith.muli" or (sm // 10 != 10 if element == "f32" else element not in ("i1", "i8", "i16", "i32")):
        return ""
    groups = sum(any(basis) and not basis[axis] for basis in layout.lanes)
    fewest_lanes = (8 if groups else 2) if is_extreme and sm >= 100 else 16 if groups else 4
    if groups > 1 or 1 << sum(bool(basis[axis]) for basis in layout.lanes) < fewest_lanes:
        return ""
    return FIRST_COPY if only_op.name in ("arith.addi", "arith.xori") else ALL_COPIES


def _on_values(t: Translator, op: Operation, name: object, operands: tuple[object, ...], region_elements: Code | None) -> None:
    axis, only_operation, single = op.integer("axis") + t.leading, only(op), _single(t, op)
    words = [t.lane_words.words(result) or t.name("same") for result in op.results]
    if only_operation is not None and _EXACT.match(only_operation.name):
        _assign(t, op, t.apply(_reduce_exactly, name, operands, axis, single))
    else:
        layout, order, products, operands = _order(t, op, op, operands)
        elements: Any = products or region_elements
        alone = _ends_in_one_lane(t, op)
        if elements and alone and not order.thread:
            elements = _SwappedElements(elements)
        if elements and t.leading:  # some of the factors may be the same for all programs
            operands = t.apply(np.broadcast_arrays, *operands)
        plain = order.thread or alone or not elements
        if only_operation is not None and only_operation.name in _PACKED_OPERATIONS and plain:
            _assign(t, op, t.apply(_reduce, name, operands, axis, order, elements, single))
        elif t.batches is not None:
            parts = t.apply(_reduce_alike, name, elements, operands, axis, order, single)
            _assign(t, op, t.code("{}[:{}]", parts, len(op.results)))
        else:
            plan, target = _plan(t, op, layout, order)
            source = t.lane_words.place(t.operand(op, 0))
            found = t.calls(_reduce_lanes, op, name, elements, operands, plan, source, target, t.lane_words.stores)
            t.emit("{} = {}", (*map(t.value, op.results), *words), found)
            return
    for result in op.results:
        if result in t.lane_words.held:
            t.emit("{} = None", t.lane_words.words(result))


def only(op: Operation) -> Operation | None:
    """The one operation that the region of `op` combines its two arguments by, in either order; None where it does more."""
    (block,) = op.regions[0]
    body = block.operations
    if len(body) == 2 and len(op.operands) == 1 and sorted(body[0].operands) == sorted(argument for argument, _ in block.arguments):
        return body[0] if body[1].operands == body[0].results else None
    return None


def layout_of(t: Translator, op: Operation) -> Layout:
    kind = t.operand(op, 0)
    return _layout_of(kind.shape, t.program.expand(kind.layout))


@cache
def _layout_of(shape: tuple[int, ...], layout: str) -> Layout:
    return Layout.from_bases(*bases(shape, layout))


def order_of(t: Translator, op: Operation) -> ReductionOrder | ScanOrder:
    """In which order the reduction or scan `op`, whose region is no sum, combines."""
    return scan_order_of(t, op) if op.name == "tt.scan" else _order(t, op, op, ())[1]


def _read_region(t: Translator, op: Operation, operands: tuple[object, ...]) -> tuple[Any, Any, tuple[object, ...]] | None:
    """Of a combination of several operations, of whose sums the compiled program says what they take in: its function for words,
    the code of its elements (None where they are words), and the arrays that these are. None where nothing is said."""
    *body, _ = op.regions[0][0].operations
    if len(body) < 2 or not t.fuses_sums or not t.backend.assembles_ptx or not t.lane_words.held.isdisjoint(op.operands):
        return None
    sums = [inner for inner in body if inner.name in ("arith.addf", "arith.subf")]
    lines = {inner.line for inner in sums if any(may_be_product(t, name, includes_divisions=True) for name in inner.operands)}
    order = scan_order_of(t, op) if op.name == "tt.scan" else _order(t, op, op, ())[1]
    if isinstance(order, ScanOrder):
        pairs = ("element element", "result element", "other element") if order.contiguous > 1 else ("", "other element", "")
        lines = lines if order.contiguous * order.lanes > 1 else set()
    else:  # in a shuffle each lane combines its own element with the other's
        pairs = ("element element", "result element", "") if order.thread else ("element other", "", "")
    try:
        region_sums = t.contraction.region(op.last_line) if lines else {}  # type: ignore[union-attr]
    except NotAssembled:
        return None  # as it says where such a sum is written
    is_open = any(isinstance(sides.get(line), str) for sides in region_sums.values() for line in lines)
    if is_open or not lines or region_sums.keys() - {*_OF_WORDS, *pairs}:
        return None
    factors, functions = element_factors(t, op), list[Any]()
    pairs_of_parts = [
        (pair, {place: (*given, pair.startswith("element"), pair.endswith("element")) for place in factors})
        for pair, given in zip(pairs, ((True, True), (False, True), (False, True)), strict=True)
    ]
    if any(isinstance(side, list) for sides in region_sums.values() for side in sides.values()):
        return _combine_by_place(t, op, operands, region_sums, pairs_of_parts, factors)
    kinds = [kind for kind in _OF_WORDS if kind in region_sums]
    kinds = kinds[:1] if all(region_sums[kind] == region_sums[kinds[0]] for kind in kinds) else kinds
    of_words = [combination(t, op, sides=region_sums[kind]) for kind in kinds]
    for kind, function in zip(kinds[1:], of_words[1:], strict=True):
        t.emit(f"{{}}.{_OF_WORDS[kind]} = {{}}", of_words[0], function)
    if region_sums.keys() <= _OF_WORDS.keys():  # elements are combined as words are
        return of_words[0], None, operands
    for pair, parts in pairs_of_parts:
        functions.append(combination(t, op, sides=region_sums[pair], factors=parts) if pair in region_sums else None)
    name = of_words[0] if of_words else functions[0]
    functions[2] = functions[2] or functions[1]  # where nothing stands before the elements of a thread
    arrays = *operands, *(each for both in factors.values() for each in both)
    return name, t.apply(RegionElements, len(op.operands), *functions), arrays


def _combine_by_place(
    t: Translator,
    op: Operation,
    operands: tuple[object, ...],
    region_sums: RegionSums,
    pairs: list[tuple[str, dict[int, tuple[bool, bool, bool, bool]]]],
    factors: dict[int, tuple[Any, Any]],
) -> tuple[Any, Any, tuple[object, ...]] | None:
    """As `_read_region`, of a reduction whose sums take in other things in other places: a number goes along with each element and
    word that says what it is. None where the compiled program combines other things than the layout says."""
    numbers = CombinationNumbers.of_places(region_sums)
    place = t.lane_words.place(t.operand(op, 0))
    registers = np.zeros(prod(place.shape), np.int64)
    thread_slots = slots(place.shape, place.layout)
    registers[thread_slots] = np.arange(thread_slots.shape[1])
    registers = registers.reshape(place.shape)
    try:
        copies((registers,), op.integer("axis"), _order(t, op, op, ())[1], numbers.combine)
    except KeyError:
        return None
    of_words = {kind: sides for kind, sides in region_sums.items() if kind in _OF_WORDS}
    elements: Any = None
    if of_words.keys() != region_sums.keys():
        functions = [
            combination(t, op, sides=region_sums[pair], factors=parts, numbers=numbers) if pair in region_sums else None
            for pair, parts in pairs
        ]
        elements = t.apply(RegionElements, len(op.operands), functions[0], functions[1], functions[2] or functions[1])
    joined: dict[int, Side] = {}
    for line in next(iter(region_sums.values())):
        joined[line] = [place for sides in of_words.values() if isinstance(places := sides[line], list) for place in places]
    name = combination(t, op, sides=joined, numbers=numbers)
    t.emit("{}.loaded = {}", name, t.apply(partial, from_memory, name, len(op.operands)))
    return name, elements, (*operands, t.constant(registers, "places"), *(each for both in factors.values() for each in both))


def combination(
    t: Translator,
    op: Operation,
    follows: bool = False,
    sides: Mapping[int, Side] | None = None,
    factors: Mapping[int, tuple[bool, bool, bool, bool]] = MappingProxyType({}),
    numbers: CombinationNumbers | None = None,
) -> Any:
    """The name of a function of the generated code that combines whole arrays as the region combines two elements; one that
    `follows` holds enclosures of what it gives. `sides`: what its sums take in, by line. `factors`: of an operand, by place, whose
    elements are products, for each side whether their factors are given too, and whether it is such an element. `numbers`: each
    side has behind its words the number of what it is, and so have the results."""
    (region,) = op.regions
    (block,) = region
    *body, terminator = block.operations
    if sides is None and len(body) > 1 and sums_in_doubt(t, body):
        t.doubted_sums.update(inner.line for inner in body)
    name, arguments, half = t.name("combine"), [argument for argument, _ in block.arguments], len(op.operands)
    t.region_sides, t.region_factors = dict(sides or {}), {}
    for side in (1, 0):  # from behind: the factors stand behind the words of their side
        for place in sorted(factors, reverse=True):
            argument, flags = arguments[side * half + place], factors[place]
            pair = f"{argument}~left", f"{argument}~right"
            arguments[(side + 1) * half : (side + 1) * half] = pair if flags[side] else ()
            t.region_factors |= {argument: pair} if flags[2 + side] else {}
        arguments[(side + 1) * half : (side + 1) * half] = [f"{side}~number"] * (numbers is not None)
    t.emit("def {}({}):", name, t.values(arguments))
    with t.indent_block(), seen_inside(t, region, follows):
        if numbers:
            t.region_number = t.name("number")
            t.emit("{} = {}", t.region_number, t.apply(numbers.results_of, t.value("0~number"), t.value("1~number")))
        for inner in body:
            t.operation(lift_scalars(inner), [], {})
        t.emit("return {}", (*(t.value(each) for each in terminator.operands), *([t.region_number] if numbers else [])))
    t.region_sides, t.region_factors = {}, {}
    if len(body) == 1 and (whole_array := _of_whole_arrays(body[0])) is not None:
        t.emit("{}.whole = {}", name, whole_array)
    return name


def _of_whole_arrays(op: Operation) -> Callable | None:
    """For `op` that combines two elements: what NumPy has for a whole array, with the same words. (array, axis) -> the reduction of
    an operation whose order does not show, None where these elements want the tree; of a sum the step before NaNs are made one."""
    kind = op.outputs[0]
    if kind is None or len(set(op.operands)) != 2:
        return None
    if op.name in _INTEGERS and kind.element in ("i8", "i16", "i32", "i64"):
        return partial(_fold_axis, _INTEGERS[op.name])
    if op.name in _FLOATS and kind.element == "f32":
        return partial(_extreme, _FLOATS[op.name])
    return _add_arrays if op.name == "arith.addf" and kind.element == "f32" else None


_INTEGERS = {
    "arith.addi": np.add, "arith.muli": np.multiply, "arith.andi": np.bitwise_and, "arith.ori": np.bitwise_or,
    "arith.xori": np.bitwise_xor, "arith.maxsi": np.maximum, "arith.minsi": np.minimum,
}  # fmt: skip
_FLOATS = {
    "arith.maxnumf": np.fmax, "arith.minnumf": np.fmin, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip


def _fold_axis(operation: np.ufunc, array: np.ndarray, axis: int) -> np.ndarray:
    return operation.reduce(array, axis, array.dtype, keepdims=True)


def _extreme(operation: np.ufunc, array: np.ndarray, axis: int) -> np.ndarray | None:
    found = operation.reduce(array, axis, keepdims=True)
    return None if (found == 0).any() else canonical(found)  # NumPy leaves the sign of zero open


def _add_arrays(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray]:
    return (a + b,)


def _results_of(found: tuple, single: bool) -> tuple:
    return tuple(f.item() if f.dtype.kind in "ib" else np.asarray(f) for f in found) if single else found


def _single_element_results(arrays: tuple[np.ndarray, ...], axis: int, single: bool) -> tuple:
    return _results_of(tuple(np.take(array, 0, axis) for array in arrays), single)


def _reduce_exactly(combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, single: bool) -> tuple:
    whole = getattr(combine, "whole", None)
    if whole is not None and (found := whole(arrays[0], axis)) is not None:
        return _results_of((found.take(0, axis),), single)
    parts = tuple(np.moveaxis(a, axis, 0) for a in arrays)
    while (n := parts[0].shape[0]) > 1:
        half = (n + 1) // 2
        low, high = tuple(p[: n // 2] for p in parts), tuple(p[half:] for p in parts)
        joined = combine(*low, *high)
        parts = tuple(np.concatenate([j, p[n // 2 : half]]) for j, p in zip(joined, parts, strict=True)) if n % 2 else joined
    return _results_of(tuple(p[0] for p in parts), single)


def _reduce(
    combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, order: ReductionOrder, elements: Elements | None, single: bool
) -> tuple:
    if getattr(combine, "whole", None) is _add_arrays:  # a NaN stays one, whatever its word, until all is summed
        return _results_of(tuple(map(canonical, reduce_parts(arrays, axis, order, _add_arrays, elements))), single)
    return _results_of(reduce_parts(arrays, axis, order, combine, elements), single)


def _reduce_lanes(
    m: Cta,
    op: Operation,
    combine: Combine,
    elements: Elements | None,
    arrays: tuple[np.ndarray, ...],
    plan: Reduction,
    source: Place,
    target: Place,
    stores: SharedStores,
) -> tuple:
    """A reduction whose two sides may not be exchanged: its results, then the copies of each, None where they are the same."""
    found = copies(arrays, plan.axis, plan.order, combine, elements)
    if found is not None and agree(found, plan.axis):
        parts = _results_of(tuple(np.take(part, 0, plan.axis) for part in found[: len(op.results)]), not target.layout)
        return *parts, *(None for _ in parts)
    words = tuple(spread(array, None, source, array.dtype) for array in arrays)
    return reduced_copies(m, op, combine, elements, words, plan, target, stores)


def _reduce_alike(
    combine: Combine, elements: Elements | None, arrays: tuple[np.ndarray, ...], axis: int, order: ReductionOrder, single: bool
) -> tuple:
    """The same of several programs at once, where all copies are the same; else they run one by one."""
    found = copies(arrays, axis, order, combine, elements)
    if found is None or not agree(found, axis):
        raise NeedsSerialRun(DIFFERING_LANES)
    return _results_of(tuple(np.take(part, 0, axis) for part in found), single)


@lowers(SPREAD)
def lower_spread(t: Translator, op: Operation) -> None:
    """The copies of a value in all threads (`lane_words`)."""
    (name,), kind = op.operands, t.operand(op, 0)
    t.assign(op, t.apply(spread, t.value(name), t.lane_words.words(name), t.lane_words.place(kind), kind.dtype))


def scan_order_of(t: Translator, op: Operation) -> ScanOrder:
    kind = t.operand(op, 0)
    if "#ttg.blocked" not in t.program.expand(kind.layout).split("<")[0]:
        raise NotModelled(op, f"over {t.program.expand(kind.layout)[:60]}: the compiler scans blocked layouts only")
    return scan_order(layout_of(t, op), kind.shape, op.integer("axis"))


def _scan(
    combine: Combine, arrays: tuple[np.ndarray, ...], axis: int, order: ScanOrder, reverse: bool, taking: ProductSum | None
) -> tuple:
    return scan_parts(arrays, axis, order, combine, reverse=reverse, elements=taking)
