"""What the text of a tile program says about order before it runs: what it may write, which operations lie in a loop, whether a
program of the launch may wait for another.

Pointers are followed from the arguments by union: a value that is made of a pointer, or that a branch, a call or a partition is
given for it, belongs to the same memory. What comes from nowhere that is known (a pointer that lies in memory) may be any.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from bitverdict.harness.emulator.mlir_reader import Block, Function, Operation, Program, nested_operations

ANY_MEMORY = "any memory"
UPDATES = ("tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_store")
POLLS = ("tt.atomic_load", "tt.atomic_poll")
ATOMICS = (*UPDATES, *POLLS)
ASSEMBLY = ("tt.elementwise_inline_asm", "ttg.inline_asm")
READERS = (
    "tt.load",
    "tt.atomic_load",
    "tt.atomic_poll",
    "ttg.async_copy_global_to_local",
    "ttng.async_tma_copy_global_to_local",
    "ttng.async_tma_gather",
    "ttng.tensormap_fenceproxy_acquire",
)
_POINTS = ("!tt.ptr<", "!tt.tensordesc<", "!ttng.tensordesc_im2col<")
_ELEMENTWISE = (
    "arith.", "math.", "tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.clampf", "tt.precise_", "tt.int_to_ptr", "tt.ptr_to_int",
    "tt.mulhiui", "tt.extern_elementwise", "tti.experimental_fpsan_",
)  # fmt: skip


def points(text: str) -> bool:
    """Whether a value of the type `text` leads to global memory."""
    return any(mark in text for mark in _POINTS)


def elementwise(op: Operation) -> bool:
    """Whether each thread makes the elements of the results of `op` that it holds from its own elements of the operands."""
    return op.name.startswith(_ELEMENTWISE)


class ProgramFacts:
    """Facts of one program. `written` are the numbers of the entry's arguments whose memory it may write, and `writes_any` says
    that it may write what no argument leads to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.operations = list(program.operations())
        self._joined: dict[str, str] = {}
        self._join_all()
        self._users: dict[str, list[tuple[Operation, int]]] | None = None
        self._seen: dict[str, bool] = {}
        entry = [value for value, _ in program.entry.blocks[0].arguments]
        sinks = {self._root(value) for op in self.operations for value in self._writes(op)}
        self.writes_any = self._root(ANY_MEMORY) in sinks
        self.written = frozenset(i for i, value in enumerate(entry) if self._root(value) in sinks)
        self._sinks = sinks
        self.looping = {id(op) for function in program.functions.values() for op in _looping_operations(function.blocks)}
        if any(op.name == "tt.call" for op in self.operations):  # a callee is as much in a loop as its caller
            self.looping |= {id(op) for f in program.functions.values() if not f.public for op in nested_operations(f.blocks)}

    def __getstate__(self) -> dict[str, Any]:
        """What goes to disk: no id of an object, and nothing that is worked out from the program when it is asked for."""
        later = {name for name, member in vars(type(self)).items() if isinstance(member, cached_property)}
        plain = {name: value for name, value in self.__dict__.items() if name not in later}
        return plain | {"looping": [op for op in self.operations if id(op) in self.looping], "_users": None, "_seen": {}}

    def __setstate__(self, kept: dict[str, Any]) -> None:
        self.__dict__.update(kept)
        self.looping = {id(op) for op in kept["looping"]}

    # -- memory -------------------------------------------------------------------------------------------------------
    def _root(self, value: str) -> str:
        found = value
        while (above := self._joined.get(found, found)) != found:
            found = above
        self._joined[value] = found
        return found

    def _join(self, one: str, other: str) -> None:
        self._joined[self._root(one)] = self._root(other)

    def _join_all(self) -> None:
        for function in self.program.functions.values():
            self._join_blocks(function.blocks)
            for op in nested_operations(function.blocks):
                pointer_operands = [v for v, text in zip(op.operands, op.operand_types, strict=True) if points(text)]
                made = [v for v, text in zip(op.results, op.result_types, strict=True) if points(text)]
                if op.name in ("tt.load", "tt.int_to_ptr"):
                    pointer_operands = [ANY_MEMORY]
                for result in made:
                    for operand in pointer_operands:
                        self._join(result, operand)
                if op.name == "ttng.tensormap_create":
                    self._join(pointer_operands[0], pointer_operands[1])  # the descriptor leads where its base does
                elif op.name == "tt.call":
                    self._join_call(op)
                elif op.name == "ttg.warp_specialize.partitions":
                    for region in op.regions:
                        for (value, _), operand in zip(region[0].arguments, op.operands, strict=True):
                            self._join(value, operand)
                for region in op.regions:
                    self._join_blocks(region)

    def _join_blocks(self, blocks: list[Block]) -> None:
        labels = {block.label: block for block in blocks}
        for block in blocks:
            for op in block.operations:
                for label, given in zip(op.successors, op.branch_operands(), strict=True):
                    for (value, text), operand in zip(labels[label].arguments, given, strict=True):
                        if points(text):
                            self._join(value, operand)

    def _join_call(self, op: Operation) -> None:
        callee = self._callee(op)
        if callee is None:
            return
        for (value, _), operand in zip(callee.blocks[0].arguments, op.operands, strict=True):
            self._join(value, operand)
        for end in (op for block in callee.blocks for op in block.operations if op.name == "tt.return"):
            for result, operand in zip(op.results, end.operands, strict=True):
                self._join(result, operand)

    def _callee(self, op: Operation) -> Function | None:
        """The function that `op` calls."""
        return self.program.functions.get(op.attributes["callee"].lstrip("@").strip('"'))

    def allocates_scratch(self, function: Function) -> bool:
        """Whether `function`, or what it calls, has scratch memory of its own in global memory."""
        names, functions = {function.name}, [function]
        for each in functions:
            for op in nested_operations(each.blocks):
                if op.name == "ttg.global_scratch_alloc":
                    return True
                if op.name == "tt.call" and (callee := self._callee(op)) is not None and callee.name not in names:
                    names.add(callee.name)
                    functions.append(callee)
        return False

    @staticmethod
    def _writes(op: Operation) -> Iterator[str]:
        """The values through which `op` writes memory. What is neither known to read nor makes another pointer is taken to."""
        if op.name in READERS or op.successors or op.name in ("tt.call", "tt.return", "tt.func", "ttg.warp_specialize.partitions"):
            return
        if any(points(text) for text in op.result_types) or op.name == "ttng.tensormap_create":
            return
        for value, text in zip(op.operands, op.operand_types, strict=True):
            if points(text):
                yield value

    def reads_written(self, op: Operation) -> bool:
        """Whether the load `op` may read what a program of this launch writes."""
        return self._root(op.operands[0]) in self._sinks

    def arguments_behind(self, op: Operation) -> list[int]:
        """The numbers of the entry's arguments that the pointer of `op` may have been made of."""
        roots = {self._root(value) for value, text in zip(op.operands, op.operand_types, strict=True) if points(text)}
        entry = self.program.entry.blocks[0].arguments
        return [number for number, (value, _) in enumerate(entry) if self._root(value) in roots]

    @cached_property
    def following_operations(self) -> frozenset[int]:
        """Operations (by id) that may go where an address leads that lay in memory."""
        anywhere = self._root(ANY_MEMORY)
        return frozenset(
            id(op)
            for op in self.operations
            for value, text in zip(op.operands, op.operand_types, strict=True)
            if points(text) and self._root(value) == anywhere
        )

    # -- waiting ------------------------------------------------------------------------------------------------------
    @cached_property
    def synchronises(self) -> bool:
        """Whether one program may order another: by an atomic, a volatile load, or instructions the author wrote."""
        return any(op.name in ATOMICS or op.name in ASSEMBLY or op.flag("isVolatile") for op in self.operations)

    @cached_property
    def fences_proxy(self) -> bool:
        """Whether the author fences the async proxy for global memory, which no operation of Triton's does."""
        return any(op.name in ASSEMBLY and "fence.proxy.async" in op.attributes["asm_string"] for op in self.operations)

    @cached_property
    def polling_operations(self) -> frozenset[int]:
        """Operations (by id) that a loop may repeat until another program has written: such a loop waits."""
        return frozenset(
            id(op)
            for op in self.operations
            if op.name == "tt.atomic_poll"
            or (id(op) in self.looping and (op.name in ATOMICS or (op.name == "tt.load" and self._may_poll(op))))
        )

    def _may_poll(self, op: Operation) -> bool:
        return op.flag("isVolatile") or self.reads_written(op)

    @cached_property
    def chooses(self) -> bool:
        """Whether a program uses what an atomic found: then the order of programs inside one another decides what it does."""
        return any(op.name in ATOMICS and self._uses(result) for op in self.operations for result in op.results)

    @cached_property
    def agents(self) -> int:
        """The most agents that one program of the launch has."""
        return 1 + max((len(op.regions) for op in self.operations if op.name == "ttg.warp_specialize.partitions"), default=0)

    @cached_property
    def returns_to(self) -> bool:
        """Whether a program may touch again what it wrote: then it matters which of its threads did."""
        sites: dict[str, int] = {}
        for op in self.operations:
            if op.name in READERS or any(True for _ in self._writes(op)):
                for value, text in zip(op.operands, op.operand_types, strict=True):
                    if points(text):
                        root = self._root(value)
                        sites[root] = sites.get(root, 0) + (2 if id(op) in self.looping else 1)
        return any(count > 1 for root, count in sites.items() if root in self._sinks)

    # -- values -------------------------------------------------------------------------------------------------------
    def _uses(self, value: str) -> list[tuple[Operation, int]]:
        if self._users is None:
            self._users = {}
            for op in self.operations:
                for place, operand in enumerate(op.operands):
                    self._users.setdefault(operand, []).append((op, place))
        return self._users.get(value, [])

    def leaves_its_thread(self, op: Operation) -> bool:
        """Whether what the load `op` found may reach another element's thread, a branch, or all threads. If not, each thread uses
        it for what it stores itself, and copies of it in other threads are never looked at."""
        return any(self._leaves(result) for result in op.results)

    def _leaves(self, value: str) -> bool:
        if value not in self._seen:
            self._seen[value] = False  # a loop that brings a value back to itself adds nothing
            self._seen[value] = any(self._leaves_by(op, place) for op, place in self._uses(value))
        return self._seen[value]

    def _leaves_by(self, op: Operation, place: int) -> bool:
        value = op.operands[place]
        if op.name in ("tt.store", "ttg.async_copy_global_to_local") or op.name in ATOMICS:
            return False  # the element's own thread does it
        if op.successors:
            if op.name == "cf.cond_br" and place == 0:
                return True
            handed = [
                (self.arguments_of(op, label), given) for label, given in zip(op.successors, op.branch_operands(), strict=True)
            ]
            return any(self._leaves(a) for arguments, given in handed for a, v in zip(arguments, given, strict=True) if v == value)
        if op.name == "tt.load" or elementwise(op):
            return any(self._leaves(result) for result in op.results)
        if op.name == "tt.call" and (callee := self._callee(op)) is not None:
            return self._leaves(callee.blocks[0].arguments[place][0])
        if op.name == "tt.return":
            return any(self._leaves(call.results[place]) for call in self._calls_behind[id(op)])
        return True

    def arguments_of(self, op: Operation, label: str) -> list[str]:
        """The arguments of the block `label` to which the branch `op` goes."""
        return self._targets[id(op)][label]

    @cached_property
    def _calls_behind(self) -> dict[int, list[Operation]]:
        """By the id of a return: the calls that it may go back to."""
        calls: dict[str, list[Operation]] = {name: [] for name in self.program.functions}
        for op in self.operations:
            if op.name == "tt.call" and (callee := self._callee(op)) is not None:
                calls[callee.name].append(op)
        return {
            id(op): calls[function.name]
            for function in self.program.functions.values()
            for op in nested_operations(function.blocks)
            if op.name == "tt.return"
        }

    @cached_property
    def _targets(self) -> dict[int, dict[str, list[str]]]:
        """By the id of a branch: the arguments of the blocks that it may go to, by label."""
        made: dict[int, dict[str, list[str]]] = {}
        for function in self.program.functions.values():
            for blocks in _block_lists(function.blocks):
                arguments = {block.label: [value for value, _ in block.arguments] for block in blocks}
                made |= {id(op): arguments for block in blocks for op in block.operations if op.successors}
        return made


def _block_lists(blocks: list[Block]) -> Iterator[list[Block]]:
    yield blocks
    for block in blocks:
        for op in block.operations:
            for region in op.regions:
                yield from _block_lists(region)


def _looping_operations(blocks: list[Block]) -> Iterator[Operation]:
    """The operations of `blocks`, regions included, that may run more than once."""
    follows = {block.label: {label for op in block.operations for label in op.successors} for block in blocks}
    for block in blocks:
        reached_labels, left = set[str](), list(follows[block.label])
        while left:
            label = left.pop()
            if label not in reached_labels:
                reached_labels.add(label)
                left += follows[label]
        if block.label in reached_labels:
            yield from nested_operations([block])
        else:
            for op in block.operations:
                for region in op.regions:
                    yield from _looping_operations(region)
