"""Whether two PTX programs that were compiled from one tile program compute their floats alike: each sum takes in the same product.

LLVM's passes that move or pack instructions lose the lines of the tile program. Compiled without such a pass, a program may come
out with the same sums and all their lines. Then what is read from the one holds for the other. Their addresses, masks and branches
may differ: a compiler that is right keeps what these do. What it may choose is which product a sum takes in unrounded. So this
alone is shown, of expressions of floats (*values*; instructions are put into SSA form):

- Leaves are what memory, shuffles and tensor cores give, by their place in the order of what has an effect (the compiler keeps it),
  and what is made of that without arithmetic on floats, by the leaves that it depends on. A select and values that branches bring
  are a choice between the same values. Values of loops are the same until something tells them apart (the coarsest bisimulation).
- What has an effect stands in the same order in both, and takes the same values. Each operation on floats is part of one of these.
- No two values of either program are the same but for which products they take in.

An effect takes what the tile program says there, so both programs have the same expression of it, but for products that are taken
in. Go down from it in both at once. Where one has a sum, the other has the same, which takes in a product or not. Its parts are the
same, in this order or the other. Parts that are exchanged are the same but for products; then they are the same by the third rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from bitverdict.harness.emulator.frontend.ptx_ssa import LEAVES, Ssa, Value, ssa

T = TypeVar("T")
Part = Value | tuple[str, object]  # a value that is computed, or a leaf
_SIGN_KINDS = ("neg", "xor")
_CHOICE_KINDS = ("selp", "and", "or", "not")  # what these make of bits is the compiler's
_COMMUTE = ("add", "mul", "fma", "mad", "min", "max", "setp")  # the first two operands; of setp the predicate tells which way
_NUMBER_LEAF: Part = ("leaf", frozenset())  # what depends on nothing: a number
_MOST_ROUNDS = 400


def same_lines(one: str, other: str) -> dict[tuple[str, int], set[int]] | None:
    """Of each sum and product of floats in `other`, by the register that it writes and its line there: the lines under which `one`
    computes the same. Both are PTX texts of one tile program. None where they are not shown to compute their floats alike."""
    try:
        programs = [ssa(one), ssa(other)]
    except ValueError:
        return None
    floats = [_Floats(program, exact=False) for program in programs]
    classes, exact_classes = _classes(floats), _classes([_Floats(program, exact=True) for program in programs])
    if classes is None or exact_classes is None or not all(each.all_reach() for each in floats):
        return None
    effects = [[numbers[i] for i in each.order] for numbers, each in zip(classes, floats, strict=True)]
    if effects[0] != effects[1]:
        return None
    forms: dict[int, int] = {}
    lines: dict[tuple[str, int], set[int]] = {}
    lines_by_class = defaultdict[int, set[int]](set)
    for program, numbers, exact_numbers in zip(programs, classes, exact_classes, strict=True):
        for i, step in enumerate(program.steps):
            if not step.arithmetic:
                continue
            if forms.setdefault(exact_numbers[i], numbers[i]) != numbers[i]:
                return None
            if program is programs[0]:
                lines_by_class[numbers[i]].add(step.line)
            else:
                lines.setdefault((step.writes[0], step.line), set()).update(lines_by_class[numbers[i]])
    return lines


@dataclass
class _Node:
    """What a value is by itself, and what it is made of, in groups without order. `chooses`: of one of these, however often."""

    label: tuple
    groups: list[list[Part]]
    chooses: bool = False


class _Floats:
    """What a program computes of sums and products of floats, and its effects: `nodes` by instruction and phi, without leaves.
    `order` has the place of each effect. `exact`: a fused multiply-add is a product and a sum, and signs do not count, which a
    product may hand to a factor."""

    def __init__(self, program: Ssa, exact: bool) -> None:
        self.steps, self.exact = program.steps, exact
        self.values = [step.read_values for step in self.steps] + program.phis
        effects = (i for i, step in enumerate(self.steps) if not step.pure and step.kind not in LEAVES)
        self.order = {i: place for place, i in enumerate(effects)}
        self.arithmetic = {i for i, step in enumerate(self.steps) if step.arithmetic}
        users = defaultdict[int, list[int]](list)
        for i, values in enumerate(self.values):
            for maker, _ in values:
                users[maker].append(i)
        self.computed = _closure(self.arithmetic, users.__getitem__)
        self.nodes = {i: self._node(i) for i in sorted(self.computed | {*self.order})}
        for i in self.arithmetic if exact else ():
            if self.steps[i].arithmetic == "fma":
                node, product = self.nodes[i], len(self.values) + i
                self.nodes[product] = _Node(("mul", self.steps[i].opcode[-3:]), node.groups[:1])
                node.groups = [[(product, 0), *node.groups[1]]]

    def all_reach(self) -> bool:
        """Whether each operation on floats is part of what an effect takes."""
        made_of = lambda i: [part[0] for group in self.nodes[i].groups for part in group if not isinstance(part[0], str)]
        return self.arithmetic <= _closure({*self.order}, made_of)

    def _node(self, i: int) -> _Node:
        if self._is_choice(i):
            return _Node(("choice",), [list(self._choices(i))], chooses=True)
        step, parts = self.steps[i], [self._part(each) for each in self.steps[i].parts()]
        if i in self.order:
            computed = [part for part in map(self._part, step.read_values) if not isinstance(part[0], str)]
            numbers = (part for part in parts if step.arithmetic and part[0] == "number")
            return _Node((step.opcode, self.order[i], *numbers), [[part] for part in computed])
        groups = [parts[:2], *([part] for part in parts[2:])] if step.kind in _COMMUTE else [[part] for part in parts]
        if self.exact and step.arithmetic in ("add", "sub", "mul", "fma"):
            label = "mul" if step.arithmetic == "mul" else "add", step.opcode[-3:]
            return _Node(label, groups if step.arithmetic == "fma" else [parts])
        return _Node(("setp",) if step.kind == "setp" else (step.opcode,), groups)

    def _is_choice(self, i: int) -> bool:
        return i >= len(self.steps) or (self.steps[i].kind in _CHOICE_KINDS and self.steps[i].pure)

    def _choices(self, i: int) -> Iterator[Part]:
        """What a select, a phi or bits may be, and the comparisons of floats that choose; no numbers: there are many ways to write
        those."""
        is_open = lambda value: value[0] in self.computed and self._is_choice(value[0])
        reached = _closure({(i, 0)}, lambda value: self.values[value[0]] if is_open(value) else ())
        for value in reached:
            is_truth = value[0] not in self.computed and any(name.startswith("%p") for name in self._writes(value[0]))
            if not is_open(value) and not is_truth and (part := self._part(value)) != _NUMBER_LEAF and part[0] != "number":
                yield part

    def _writes(self, maker: int) -> tuple[str, ...]:
        return self.steps[maker].writes if 0 <= maker < len(self.steps) else ()

    def _part(self, value: Value | str) -> Part:
        """A value that is computed, or an effect's, or the leaf that it is."""
        if isinstance(value, str):
            number = int(value[2:], 16) if value[:2].lower() == "0f" else -1
            return "number", (number & 0x7FFFFFFF if self.exact else value if number < 0 else number)
        maker = value[0]
        if self.exact and self._writes(maker) and self.steps[maker].pure and self.steps[maker].kind in _SIGN_KINDS:
            return self._part(self.steps[maker].read_values[0])
        if maker in self.order or maker in self.computed:
            return value
        if not self.values[maker] and self._writes(maker) and self.steps[maker].kind == "mov":
            return self._part(self.steps[maker].operands[0])
        return "leaf", frozenset(self._leaves(value))

    def _leaves(self, start: Value) -> Iterator[object]:
        """Which effects and parameters the value `start` depends on; which half, where it is one."""
        made_of = lambda value: () if value[0] in self.order or value[0] < 0 else self.values[value[0]]
        for maker, result in _closure({start}, made_of):
            if maker in self.order:
                yield self.order[maker], result
            elif (writes := self._writes(maker)) and self.steps[maker].opcode.startswith("ld.param"):
                yield self.steps[maker].operands
            elif len(writes) == 2:
                yield "half", result


def _closure(found: set[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """`found`, and all that follows from it."""
    reached, worklist = set(found), list(found)
    while worklist:
        new = set(following(worklist.pop())) - reached
        reached |= new
        worklist += new
    return reached


def _classes(programs: list[_Floats]) -> list[dict[int, int]] | None:
    """The class of each node: equal numbers where they are the same. None where it does not settle."""
    counter, labels = count(), dict[tuple, int]()
    classes = [{i: labels.setdefault(node.label, next(counter)) for i, node in program.nodes.items()} for program in programs]
    class_count = len(labels)
    for _ in range(_MOST_ROUNDS):
        numbers: dict[tuple, int] = {}
        classes = [
            {i: numbers.setdefault(_key(node, i, current), next(counter)) for i, node in program.nodes.items()}
            for program, current in zip(programs, classes, strict=True)
        ]
        if len(numbers) == class_count:
            return classes
        class_count = len(numbers)
    return None


def _key(node: _Node, i: int, classes: dict[int, int]) -> tuple:
    told = ([part if isinstance(part[0], str) else (classes[part[0]], part[1]) for part in group] for group in node.groups)
    return classes[i], *(frozenset(each) if node.chooses else tuple(sorted(each, key=repr)) for each in told)


__all__ = ["same_lines"]
