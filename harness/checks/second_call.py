"""A launcher called again: what it keeps between calls shows, and so does what it does not compute.

A case with more than one call is judged by `SecondCallContract`, which stands for the kernel's contract and expects the results of
all calls. `Case.calls` says which there are:

- 2: on its operands, then on others elsewhere. The others are drawn by the next data seed.
- 3: on its operands, then on the others in the same storage, which the judge overwrites, then on these same others elsewhere.

What shows, by name:

- *memory returned before*: a result in memory that an earlier call returned (`returned_memory`);
- *words changed after the return*: the result of a call is another once the later calls are over;
- *result does not change with the operands*: a later result is wrong, and has the words of the first one;
- *state kept between calls*: a later result is wrong, or a later call faults, though the same operands are right in a first call;
  or the same contents give other words elsewhere, where the order of the sums is fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.judge.guarded_buffers import words
from bitverdict.harness.judge.judgement import CaseCheck, Judgement
from bitverdict.harness.judge.remote_launcher import launcher_of_case
from bitverdict.harness.judge.returned_memory import lies_in, returned_before
from bitverdict.harness.model.case import SECOND, THIRD, Case, Operand
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Decision, Outcome, Verdict

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.emulator.memory.provenance import Provenance


class SecondCall(CaseCheck):
    """A case of more than one call is judged by all of them; a later call that fails is judged alone too."""

    def judge_all_calls(self, judgement: Judgement, judge_once: Callable[[Judgement], Verdict]) -> Verdict | None:
        if judgement.case.calls == 1:
            return None
        calls = SecondCallContract(judgement.contract)

        def judge_later_call() -> Verdict:
            launcher = launcher_of_case(judgement.case, judgement.target, fresh_import=True)
            return judge_once(replace(judgement, case=case_of_later_call(judgement.case), launcher=launcher, notes={}))

        return calls.name_state_fault(judge_once(replace(judgement, contract=calls)), judge_later_call)


def case_of_later_call(case: Case) -> Case:
    """A case of one call, on the operands of the second call of `case`."""
    return replace(case, calls=1, data_seed=case.data_seed + 1)


@dataclass
class Between:
    """What was seen from call to call, as it goes through JSON. The lists name outputs, with the call that they are of."""

    calls: int = 0
    """That there are."""
    returned: int = 0
    """That came back."""
    memory: list[str] = field(default_factory=list)
    """Returned in memory that was returned before."""
    changed: list[str] = field(default_factory=list)
    """With other words after the last call than when they came back."""
    same: list[str] = field(default_factory=list)
    """Of a later call, with the words of the first one's."""
    differ: list[str] = field(default_factory=list)
    """Of the third call, with other words than the second one's on the same contents."""
    steered: str = ""
    """How the launches of the second call differ from those of the first, which had other contents alone: where the host has read
    what may tell of a result, and what differs could hold all of it."""
    drew: bool = False
    """Whether torch drew random numbers: equal contents may come to other words."""


class SecondCallContract(Contract):
    """What `inner` expects for a case and for that of its later call (`case_of_later_call`)."""

    def __init__(self, inner: Contract) -> None:
        self.inner = inner
        self.either_row, self.must_launch = inner.either_row, inner.must_launch
        self.pointers_in_memory, self.any_launcher, self.remedy = inner.pointers_in_memory, inner.any_launcher, inner.remedy
        self.between = Between()
        self.steps: list[list[tuple]] = []  # of each call that returned, what the host chose of its launches

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        return self.inner.expected_outcome(case, target)

    def recorded(self, case: Case) -> dict:
        return self.inner.recorded(case)

    def between_calls(self) -> dict:
        return asdict(self.between)

    def declared(self, case: Case) -> frozenset[str] | None:
        return self.inner.declared(case)

    def written(self, case: Case) -> frozenset[str]:
        found = self.inner.written(case)
        return found | {name + _last_suffix(case) for name in found}

    def operands(self, case: Case) -> list[Operand]:
        later = (replace(each, name=each.name + _last_suffix(case)) for each in self.inner.operands(case_of_later_call(case)))
        return [*self.inner.operands(case), *later]

    def result_bytes(self, case: Case) -> int:
        return case.calls * self.inner.result_bytes(case)

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        import torch

        first_tensors, later_tensors = _split_by_call(tensors, _last_suffix(case))
        inside = case.calls == 3 and _can_overwrite(first_tensors, later_tensors)
        self.steps = []
        self.between, drawn = Between(calls=3 if inside else 2), torch.get_rng_state()
        calls = [self._call_launcher(case, first_tensors, launcher, "")]
        if inside:
            calls.append(self._in_the_same_storage(case, first_tensors, later_tensors, launcher))
        calls.append(self._call_launcher(case_of_later_call(case), later_tensors, launcher, _last_suffix(case)))
        with _untold():
            self._compare(calls, list(first_tensors.values()), inside)
            self.between.drew = not torch.equal(drawn, torch.get_rng_state())
        return {name: output for before, copies in calls for name, output in (before | copies).items()}

    def _compare(self, calls: list[_Call], given: list[torch.Tensor], inside: bool) -> None:
        """Put into `between` which words of the `calls` changed after their return, and which are equal to another call's.
        What lies in a tensor that was `given` may change."""
        (_, kept), *later = calls
        for before, copies in calls[:-1]:
            own = [name for name in copies if not lies_in(before[name], given)]
            self.between.changed += [name for name in own if not _equal_words(before[name], copies[name])]
        self.between.same = [name for _, copies in later for name in _equal_outputs(copies, kept)]
        if inside and (steers := _followed_provenance()) is not None and steers.steers:
            self.between.steered = _steering_difference(self.steps[0], self.steps[1], calls[1][1].values())
        if inside:
            equal = _equal_outputs(calls[2][1], calls[1][1])
            self.between.differ = [name for name in calls[2][1] if name not in equal]

    def _call_launcher(self, case: Case, tensors: Mapping[str, object], launcher: Callable | None, suffix: str) -> _Call:
        self.inner.is_later_call = self.between.returned > 0
        if (origins := _followed_provenance()) is not None:
            origins.steps = []
        try:
            outputs = {name + suffix: output for name, output in self.inner.launch(case, tensors, launcher).items()}
        finally:
            self.inner.is_later_call = False
        self.between.returned += 1
        self.steps.append([] if origins is None else origins.steps)
        with _untold():
            self.between.memory += returned_before(outputs, tensors.values())
            return outputs, {name: _copy_output(output) for name, output in outputs.items() if hasattr(output, "clone")}

    def _in_the_same_storage(
        self, case: Case, first_tensors: Mapping[str, object], later_tensors: Mapping[str, object], launcher: Callable | None
    ) -> _Call:
        """The call on the contents of `other` in the storage of `first`, which then has its own again. An operand that a launcher
        changed is left as it is: that it changed is seen after the last call."""
        with _untold():
            own = {name: _copy_output(_flat(tensor)) for name, tensor in first_tensors.items()}
            for name, tensor in first_tensors.items():
                _overwrite(tensor, _flat(later_tensors[name]))
        call = self._call_launcher(case_of_later_call(case), first_tensors, launcher, SECOND)
        with _untold():
            for name, tensor in first_tensors.items():
                if _equal_words(_flat(tensor), _flat(later_tensors[name])):
                    _overwrite(tensor, own[name])
        return call

    def to_launch(self, case: Case) -> Case:
        return self.inner.to_launch(case)

    def left(self) -> dict:
        return self.inner.left()

    def take(self, left: Mapping) -> None:
        self.inner.take(left)

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        first, other = _split_by_call(operands, _last_suffix(case))
        found = self.inner.expected(case_of_later_call(case), target, other, recorded)
        suffixes = (SECOND, THIRD) if case.calls == 3 and _can_overwrite(first, other) else (_last_suffix(case),)
        later = [replace(each, name=each.name + suffix) for suffix in suffixes for each in found]
        return [*self.inner.expected(case, target, first, recorded), *later]

    def mathematics_of(self, case: Case, operands: Mapping[str, Operand], output: str) -> Mathematics | None:
        """The mathematics of the call that `output` is of."""
        first, other = _split_by_call(operands, _last_suffix(case))
        if (suffix := output.removeprefix(_without_call(output))) == "":
            return self.inner.mathematics(case, first)
        if (found := self.inner.mathematics(case_of_later_call(case), other)) is None:
            return None
        axes = {name + suffix: found.axes[name] for name in found.outputs if name in found.axes}
        return replace(found, outputs=tuple(name + suffix for name in found.outputs), axes={**found.axes, **axes})

    def name_state_fault(self, verdict: Verdict, judge_later_call: Callable[[], Verdict]) -> Verdict:
        """`verdict` of all calls with the name of what it shows. `alone` judges a later call in a launcher that is new."""
        told = dict(verdict.recorded.get("calls", {}))
        ordered, between = told.pop("ordered", False), Between(**told)
        verdict = replace(verdict, recorded={name: value for name, value in verdict.recorded.items() if name != "calls"})
        if verdict.decision is Decision.PASS and between.differ and ordered and not between.drew:
            message = f"{between.differ[0]}: other words than those of the second call, on the same contents in other storage"
            return replace(verdict, decision=Decision.FAIL, outcome=Outcome.STATE_KEPT, message=message, words=0)
        if verdict.decision is Decision.PASS and between.steered:
            return replace(verdict, decision=Decision.INCONCLUSIVE, outcome=Outcome.COMPUTED_ON_HOST, message=between.steered)
        later = any(suffix in verdict.message for suffix in (SECOND, THIRD)) or 0 < between.returned < between.calls
        if not verdict.failed or not later or verdict.outcome in (Outcome.MEMORY_RETURNED, Outcome.WORDS_CHANGED):
            return verdict
        if (output := verdict.details.get("output")) in between.same:
            message = f"{output}: has the words of the first call's, on other operands: {verdict.outcome}: {verdict.message}"
            return replace(verdict, outcome=Outcome.UNCHANGED, message=message)
        if judge_later_call().failed:
            return verdict
        message = f"{verdict.outcome} in a later call alone: {verdict.message}; the same operands are right in a first call"
        return replace(verdict, outcome=Outcome.STATE_KEPT, message=message)


def _followed_provenance() -> Provenance | None:
    """The origins that the emulated GPU of this launch follows, where it does."""
    from bitverdict.harness.emulator.cuda_runtime import followed_origins

    return followed_origins()


def _steering_difference(first: list[tuple], second: list[tuple], outputs: Iterable[Any]) -> str:
    """What the launches of a call say, beside those of a call on other contents in the same storage; empty where what differs has
    fewer bits than the `outputs`."""
    pairs = itertools.zip_longest(first, second, fillvalue=())
    differ = sum(one != other for a, b in pairs for one, other in itertools.zip_longest(_flat_of(a), _flat_of(b)))
    words = [output for output in outputs if hasattr(output, "element_size")]
    bits = sum(8 * output.element_size() * output.numel() for output in words)
    if not differ or 64 * differ < bits:
        return ""
    return (
        f"the host has read the GPU's memory, and chose {differ:,} kernels, grids, places and integers of {len(second):,} launches "
        f"otherwise for other contents: these may be the {bits // 8:,} bytes of the result"
    )


def _flat_of(step: object) -> list[Any]:
    return [each for part in step for each in _flat_of(part)] if isinstance(step, tuple) else [step]


_Call = tuple[dict[str, Any], dict[str, Any]]
"""What one call returned by name, and copies of it that were made at once."""


def _last_suffix(case: Case) -> str:
    """What names of the last call end in, those of its operands too."""
    return THIRD if case.calls == 3 else SECOND


def _can_overwrite(first_tensors: Mapping[str, object], other_tensors: Mapping[str, object]) -> bool:
    """Whether operands, or tensors, can be written over by the others."""

    def place(each: Any) -> tuple:
        if isinstance(each, Operand):
            return each.codes.shape, each.format, each.strides, each.offset
        return tuple(each.shape), each.dtype, each.stride(), 0

    return all(place(each) == place(other_tensors[name]) for name, each in first_tensors.items())


def _untold() -> AbstractContextManager[Any]:
    """While entered, torch's function modes are told of nothing: what is done between the calls is no launcher's."""
    from bitverdict.harness.model.torch_internals import FunctionModesOff

    return FunctionModesOff()


def _equal_outputs(outputs: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
    """The names of `outputs` that have the words of those of the same name in `others`, which are of another call."""
    by_name = {_without_call(name): output for name, output in others.items()}
    return [
        name
        for name, output in outputs.items()
        if (like := by_name.get(_without_call(name))) is not None and _equal_words(output, like)
    ]


def _without_call(name: str) -> str:
    return name.removesuffix(SECOND).removesuffix(THIRD)


def _equal_words(one: torch.Tensor, other: torch.Tensor) -> bool:
    return np.array_equal(words(one), words(other))


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All that lies between the first element of a tensor and its last, (elements,): its gaps too."""
    import torch

    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return _run(torch.ops.aten.as_strided.default, tensor, (reach if tensor.numel() else 0,), (1,))


def _overwrite(tensor: torch.Tensor, contents: torch.Tensor) -> None:
    """Put `contents`, (elements,) as `_flat` gives them, into the place of `tensor`, which is an operand with these words then."""
    import torch

    from bitverdict.harness.emulator.cuda_runtime import entered_device
    from bitverdict.harness.emulator.cuda_tensors import CudaTensor, inside

    with torch.no_grad():
        _run(torch.ops.aten.copy_.default, _flat(tensor), contents)
    if type(tensor) is CudaTensor:
        entered_device().place(inside(tensor))


def _copy_output(output: torch.Tensor) -> torch.Tensor:
    """A copy of what a call returned, or is given."""
    import torch

    return output.clone() if output.requires_grad else _run(torch.ops.aten.clone.default, output)


def _run(operation: Any, tensor: torch.Tensor, *arguments: Any) -> torch.Tensor:
    """An operation, of a tensor of the emulated GPU by what it comes to, and not through torch's dispatch: that has torch import
    half a second of modules, before the first verdict (`bitverdict.harness.workers.server`)."""
    from bitverdict.harness.emulator.cuda_tensors import CudaTensor

    if type(tensor) is not CudaTensor:
        return operation(tensor.detach(), *arguments)
    return CudaTensor.__torch_dispatch__(operation, (CudaTensor,), (tensor, *arguments))


def _split_by_call(named: Mapping[str, object], suffix: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What belongs to the first call, and to the last, each by the name that the contract knows."""
    later = {name.removesuffix(suffix): value for name, value in named.items() if name.endswith(suffix)}
    return {name: value for name, value in named.items() if not name.endswith(suffix)}, later
