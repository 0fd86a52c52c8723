"""A launcher called twice, the second time on other operands: what it keeps between calls shows.

A case with `calls=2` is judged by `CalledAgain`, which stands for the kernel's contract and expects the results of both calls. The
operands of the second call are drawn by the next data seed and lie elsewhere. Three kinds of state show, each by the name *state
kept between calls*:

- a result that the second call overwrites: a cached buffer;
- a second result that is wrong, though the same operands are right in a first call: a stale pointer, a workspace not cleared;
- a fault of the second call alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.judge.guarded_buffers import words
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.model.targets import Target

SECOND = " of the second call"


def second(case: Case) -> Case:
    """The case of the second call alone."""
    return replace(case, calls=1, data_seed=case.data_seed + 1)


class CalledAgain(Contract):
    """What `inner` expects for a case and, beside it, for `second` of it."""

    def __init__(self, inner: Contract) -> None:
        self.inner = inner
        self.either_row, self.must_launch = inner.either_row, inner.must_launch
        self.pointers_in_memory, self.any_launcher, self.remedy = inner.pointers_in_memory, inner.any_launcher, inner.remedy
        self.returned = 0  # calls that came back
        self.overwritten: list[str] = []  # outputs of the first call that the second call changed
        self.same: list[str] = []  # outputs of the second call that have the first one's words

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        return self.inner.expected_outcome(case, target)

    def recorded(self, case: Case) -> dict:
        return self.inner.recorded(case)

    def declared(self, case: Case) -> frozenset[str] | None:
        return self.inner.declared(case)

    def written(self, case: Case) -> frozenset[str]:
        found = self.inner.written(case)
        return found | {name + SECOND for name in found}

    def operands(self, case: Case) -> list[Operand]:
        later = (replace(each, name=each.name + SECOND) for each in self.inner.operands(second(case)))
        return [*self.inner.operands(case), *later]

    def result_bytes(self, case: Case) -> int:
        return 2 * self.inner.result_bytes(case)

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        first, later = _parted(tensors)
        before = dict(self.inner.launch(case, first, launcher))
        self.returned, kept = 1, {name: _copied(output) for name, output in before.items() if hasattr(output, "clone")}
        after = dict(self.inner.launch(second(case), later, launcher))
        self.returned = 2
        self.overwritten = [name for name, output in kept.items() if not np.array_equal(words(output), words(before[name]))]
        self.same = [
            name
            for name, output in kept.items()
            if hasattr(after.get(name), "clone") and np.array_equal(words(output), words(after[name]))
        ]
        return before | kept | {name + SECOND: output for name, output in after.items()}

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        first, later = _parted(operands)
        expected_outcome = self.inner.expected(second(case), target, later, recorded)
        return [
            *self.inner.expected(case, target, first, recorded),
            *(replace(each, name=each.name + SECOND) for each in expected_outcome),
        ]

    def told(self, verdict: Verdict, alone: Callable[[], Verdict]) -> Verdict:
        """`verdict` of both calls with the name of what it shows. `alone` judges the second call in a launcher that is new."""
        if self.overwritten and not (verdict.failed and SECOND not in verdict.message):
            name = self.overwritten[0]
            said = f"{name}: the second call overwrites the result of the first; return a buffer of its own from each call"
            return replace(verdict, decision=Decision.FAIL, outcome=Outcome.STATE_KEPT, message=said, words=0)
        of_the_second = SECOND in verdict.message if self.returned == 2 else self.returned == 1
        if not verdict.failed or not of_the_second or alone().failed:
            return verdict
        like = "; it has the words of the first call's" if self.same else ""
        said = f"{verdict.outcome} in the second call alone: {verdict.message}{like}; the same operands are right in a first call"
        return replace(verdict, outcome=Outcome.STATE_KEPT, message=said)


def _copied(output: torch.Tensor) -> torch.Tensor:
    """A copy of what a call returned. Of a tensor of the emulated GPU by what `clone` comes to, and not through torch's dispatch:
    that has torch import half a second of modules, before the first verdict (`bitverdict.harness.workers.server`)."""
    import torch

    if type(output) is torch.Tensor or output.requires_grad:
        return output.clone()
    from bitverdict.harness.emulator.cuda_tensors import CudaTensor

    if type(output) is not CudaTensor:
        return output.clone()
    return CudaTensor.__torch_dispatch__(torch.ops.aten.clone.default, (CudaTensor,), (output,))


def _parted(named: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What belongs to the first call, and to the second, each by the name that the contract knows."""
    later = {name.removesuffix(SECOND): value for name, value in named.items() if name.endswith(SECOND)}
    return {name: value for name, value in named.items() if not name.endswith(SECOND)}, later
