"""A contract whose launches are a mutant's, and whose expectations are the right kernel's, each worked out once in a process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput, PromisedInstruction

if TYPE_CHECKING:
    from bitverdict.harness.model.targets import Target

MOST_BYTES = 1 << 30  # of operands and expected results that a process keeps


class ResultCache:
    """What does not depend on a mutant, by case: operands and expected results. Those that were not used for longest go first."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most, self.size = most, 0
        self._held: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()

    def get_or_make(self, key: Hashable, make: Callable[[], object]) -> Any:
        if key in self._held:
            self._held.move_to_end(key)
            return self._held[key][1]
        value = make()
        taken = _bytes(value)
        self._held[key] = taken, value
        self.size += taken
        while self.size > self.most and len(self._held) > 1:
            self.size -= self._held.popitem(last=False)[1][0]
        return value


def _bytes(value: object) -> int:
    """Of the arrays in `value`, which is a list of records."""
    records = value if isinstance(value, list) else [value]
    return sum(each.nbytes for record in records for each in vars(record).values() if isinstance(each, np.ndarray))


class LaunchedContract(Contract):
    """`right` with the launches of `other`, made inside `around()`.

    What is expected comes from `right` alone, so that a mutant changes nothing that it is held to. `kept` may be shared by the
    mutants of one kernel.
    """

    def __init__(
        self,
        original: Contract,
        other: Contract,
        kept: ResultCache,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.right, self.other, self.kept, self.entered = original, other, kept, around
        self.stem, self.address, self.requires = original.stem, original.address, original.requires
        self.either_row, self.pointers_in_memory = original.either_row, original.pointers_in_memory
        self.any_launcher, self.must_launch, self.remedy = (original.any_launcher, original.must_launch, original.remedy)

    # what is expected

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        return self.right.expected_outcome(case, target)

    def operands(self, case: Case) -> list[Operand]:
        return self.kept.get_or_make((case.key, "operands"), lambda: self.right.operands(case))

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        decides = repr([(name, value) for name, value in sorted(recorded.items()) if name not in OF_WORDS])
        key = (case.key, target.name, _without_programs(decides, recorded))
        return self.kept.get_or_make(key, lambda: self.right.expected(case, target, operands, recorded))

    def declared(self, case: Case) -> frozenset[str] | None:
        return self.right.declared(case)

    def promised_instructions(self, case: Case) -> tuple[PromisedInstruction, ...]:
        return self.right.promised_instructions(case)

    def result_bytes(self, case: Case) -> int:
        return self.right.result_bytes(case)

    def sizes(self, case: Case) -> dict[str, int]:
        return self.right.sizes(case)

    def resized(self, case: Case, name: str, value: int) -> Case | None:
        return self.right.resized(case, name, value)

    # what is launched

    def launch(self, case: Case, tensors: Mapping[str, object], launcher: Callable | None) -> Mapping[str, Any]:
        self.other.is_later_call = self.is_later_call
        with self.entered():
            outputs = self.other.launch(case, tensors, launcher)
        if self.right is not self.other:
            self.right.take(self.other.left())
        return outputs

    def written(self, case: Case) -> frozenset[str]:
        return self.other.written(case)

    def recorded(self, case: Case) -> dict:
        return self.other.recorded(case)

    def between_calls(self) -> dict:
        return self.other.between_calls()


OF_WORDS = ("digests", "provenance")
"""What a launch records of its results: nothing is expected by it."""


def _without_programs(told: str, recorded: Mapping) -> str:
    """`told` without the digests of the tile programs that were launched: each mutant has its own."""
    for launch in recorded.get("launches", ()):
        told = told.replace(repr(launch.get("program", "")), "")
    return told
