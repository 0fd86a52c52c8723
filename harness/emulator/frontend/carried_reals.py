"""The code that carries real values (`numerics.real_values`) behind each operation of a program that is translated with them.

Beside the variable of each float stands one of its `Real`; beside those integers, truth values and pointers that may hang on a
rounding one of their `Taint`. An operation has a rule in `RULES`, which writes that variable from those of the operands, behind the
code of the words. Without a rule the result is unknown, by the name of the operation. Control flow, masks and addresses follow the
words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bitverdict.harness.emulator.execution import real_launch
from bitverdict.harness.emulator.execution.program_batches import Batch
from bitverdict.harness.emulator.frontend.generated_code import RegionDepth, register_in
from bitverdict.harness.emulator.mlir_reader import Block, Operation, nested_operations
from bitverdict.harness.emulator.mlir_types import Type

if TYPE_CHECKING:
    from bitverdict.harness.emulator.frontend.translator import Translator

Rule = Callable[["CarriedReals", Operation], None]
RULES: dict[str, Rule] = {}
GIVES: dict[str, Rule] = {}  # the same, before the code of the words
_CARRYING_KINDS = ("scalar", "tensor", "pointer")  # kinds of values that carry something
_READS = (
    "tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_poll",
    "ttg.local_load", "ttg.local_gather", "ttg.local_atomic_scatter_rmw", "ttng.tmem_load", "ttng.warp_group_dot", "tt.call",
    "ttg.warp_specialize", "tt.elementwise_inline_asm", "tt.map_elementwise", "tt.extern_elementwise",
)  # fmt: skip
"""Operations that may give an integer that hangs on a rounding, whatever their operands are."""
_ELEMENTWISE = ("arith.", "math.", "tt.addptr", "tt.ptr_to_int", "tt.int_to_ptr", "tt.mulhiui")


def carries(*names: str) -> Callable[[Rule], Rule]:
    """Register what the operations `names` do to real values."""
    return register_in(RULES, *names)


def gives(*names: str) -> Callable[[Rule], Rule]:
    """Register what the operations `names` give to memory before they write there."""
    return register_in(GIVES, *names)


class CarriedReals(RegionDepth):
    """What the translator asks about the real values of the function that it writes."""

    def __init__(self, t: Translator, declared: frozenset[str]) -> None:
        self.t, self.declared = t, declared
        self.carried: set[str] = set()  # values that have a variable of this kind

    # -- which values carry something ---------------------------------------------------------------------------------
    def begin(self, blocks: list[Block]) -> None:
        """A function of `blocks` is to be written: all its operations are known to the translator."""
        t = self.t
        self.carried = {
            name for name, kind in t.types.items() if kind is not None and kind.kind in _CARRYING_KINDS and kind.is_float
        }
        if not self.is_entry(blocks):
            self.carried |= {name for name, _ in blocks[0].arguments if self.holds(name)}
        incoming_names = {name: list(names) for name, names in t.incoming.items()}
        for op in t.defined.values():
            if op.name in _READS:
                self.carried |= {name for name in op.results if self.holds(name)}
        for op in nested_operations(blocks):
            if op.name == "ttg.warp_specialize.partitions":
                for region in op.regions:
                    for (argument, _), name in zip(region[0].arguments, op.operands, strict=True):
                        incoming_names.setdefault(argument, []).append(name)
            elif op.name in ("tt.reduce", "tt.scan"):
                (block,), count = op.regions[0], len(op.operands)
                for number, (argument, _) in enumerate(block.arguments):
                    incoming_names[argument] = [op.operands[number % count], block.operations[-1].operands[number % count]]
        before = -1
        while before != len(self.carried):
            before = len(self.carried)
            for name, op in t.defined.items():
                if name not in self.carried and self.holds(name) and not self.carried.isdisjoint(op.operands):
                    self.carried.add(name)
            for name, names in incoming_names.items():
                if name not in self.carried and self.holds(name) and not self.carried.isdisjoint(names):
                    self.carried.add(name)

    def is_entry(self, blocks: list[Block]) -> bool:
        return blocks is self.t.program.entry.blocks

    def holds(self, name: str) -> bool:
        """Whether the value `name` is of a kind that may carry something."""
        return self.t.kind_of(name) in _CARRYING_KINDS

    def kind(self, name: str) -> Type:
        found = self.t.types[name]
        assert found is not None
        return found

    # -- variables ----------------------------------------------------------------------------------------------------
    def real_of(self, name: str | None) -> Any:
        """The variable of the `Real` of the float `name`, of the `Taint` of another value; None for one that carries nothing."""
        return self.t.value(f"{name}~real") if name in self.carried else None

    def reals_of(self, op: Operation) -> tuple[Any, ...]:
        """`real_of` each operand of `op`."""
        return tuple(map(self.real_of, op.operands))

    def hold(self, op: Operation, found: object) -> None:
        """`found` is what the results of `op` carry, a tuple where there are several."""
        targets = [self.real_of(name) for name in op.results]
        if any(each is not None for each in targets):
            names = [each if each is not None else self.t.name("nothing") for each in targets]
            self.t.emit("{} = {}", self.t.join_values(names), found)

    def taints(self, names: Iterable[str | None]) -> Any:
        """The expression of where any of the integers, truth values and pointers `names` hangs on a rounding."""
        found = [self.real_of(name) for name in names if name in self.carried]
        return None if not found else found[0] if len(found) == 1 else self.t.apply(real_launch.union_of_taints, *found)

    # -- what the translator calls ------------------------------------------------------------------------------------
    @contextmanager
    def enter_region(self) -> Iterator[None]:
        """While entered, the values of a region have variables of their own, for what they carry too."""
        before, self.depth = self.depth, 0
        try:
            yield
        finally:
            self.depth = before

    def parameters(self, blocks: list[Block]) -> list[Any]:
        """Variables that a function of `blocks` takes besides its values."""
        if self.is_entry(blocks):
            return []
        return [self.real_of(name) for name, _ in blocks[0].arguments if name in self.carried]

    def enter(self, blocks: list[Block]) -> None:
        """The code at the beginning of a function of `blocks`."""
        if not self.is_entry(blocks):
            return
        for number, (name, _) in enumerate(blocks[0].arguments):
            if name in self.carried:
                self.t.emit("{} = {}", self.real_of(name), self.t.calls(real_launch.argument, number))

    def parameter_reals(self, names: Iterable[str], *, called: bool) -> list[Any]:
        """What a function takes for the parameters beside `names`. `called`: another function, which knows of none of them whether
        it carries something."""
        return [self.real_of(name) for name in names if (self.holds(name) if called else name in self.carried)]

    def return_reals(self, names: Iterable[str]) -> list[Any]:
        """What a function or region gives back beside the values `names`."""
        return [self.real_of(name) for name in names if self.holds(name)]

    def result_variables(self, names: Iterable[str]) -> list[Any]:
        """The variables for what a function or a region returns, of the results `names`."""
        return [self.real_of(name) if name in self.carried else self.t.name("nothing") for name in names if self.holds(name)]

    def hand_over(self, arguments: Iterable[str], given: Iterable[str]) -> None:
        """What a branch does besides handing over values."""
        pairs = []
        for argument, name in zip(arguments, given, strict=True):
            if argument in self.carried:
                found, batches = self.real_of(name), self.t.batches
                if batches is not None and argument in batches.varying and name not in batches.varying:
                    found = self.t.calls(real_launch.spread, found, self.kind(argument).shape)
                pairs.append((self.real_of(argument), found))
        if pairs:
            self.t.emit("{} = {}", tuple(a for a, _ in pairs), tuple(g for _, g in pairs))

    def check_branch(self, op: Operation, condition: str) -> None:
        """The code that looks at what a branch depends on."""
        if condition in self.carried and not self.depth:
            if self.t.batches is not None:
                self.t.emit("{}", self.t.calls(Batch.surely, self.real_of(condition)))
            else:
                self.t.emit("{}", self.t.calls(real_launch.note_branch, op, self.real_of(condition)))

    def precede(self, op: Operation) -> None:
        """The code that gives real values to what `op` writes, before its own."""
        if not self.depth and op.name in GIVES:
            GIVES[op.name](self, op)

    def follow(self, op: Operation) -> None:
        """The code that carries real values past `op`, behind its own."""
        if self.depth:
            return
        if op.name in RULES:
            RULES[op.name](self, op)
        elif any(name in self.carried for name in op.results):
            floats = [
                kind for kind in (*op.inputs, *op.outputs) if kind is not None and kind.kind in _CARRYING_KINDS and kind.is_float
            ]
            if not floats and op.name.startswith(_ELEMENTWISE):  # what is made of integers that hang on a rounding hangs on it
                self.hold(op, self.taints(op.operands))
            elif not floats and op.name not in _READS:
                self.hold(op, self._taint_result(op))
            else:
                self.lose_results(op)

    def _taint_result(self, op: Operation) -> Any:
        """What the integers carry that `op` makes of integers, by no rule: all of them hang where any operand does."""
        made = self.t.name("hangs")
        self.t.emit("{} = {}", made, self.t.apply(real_launch.anywhere, *(each for each in self.reals_of(op) if each is not None)))
        taints = [
            self.t.code("{} and {}", made, self.t.calls(real_launch.lose_result, op, op.name, self.t.value(name), (), None, False))
            if name in self.carried
            else None
            for name in op.results
        ]
        return taints[0] if len(taints) == 1 else tuple(taints)

    def lose_results(self, op: Operation, reason: str = "") -> None:
        """Nothing is known of the results of `op`, which has no rule, or none for `reason`."""
        reals = []
        for name in op.results:
            kind = self.kind(name) if self.holds(name) else None
            if kind is not None and name in self.carried:
                told = kind.shape, kind.format, kind.is_float
                reals.append(self.t.calls(real_launch.lose_result, op, reason or op.name, self.t.value(name), *told))
            else:
                reals.append(None)
        self.hold(op, reals[0] if len(reals) == 1 else tuple(reals))


__all__ = ["GIVES", "RULES", "CarriedReals", "carries", "gives"]
