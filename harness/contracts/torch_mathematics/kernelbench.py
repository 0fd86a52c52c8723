"""The contract of a KernelBench candidate: what `ModelNew` of one file must do is what `Model` of the problem's file does.

A problem's contract is found by its path (`address_of`). A case is the numbers of the problem (`problem_file`) and a seed. Both
models are constructed from it alike, as KernelBench does. `ModelNew` is given the parameters of `Model` where it has some of the
same names and shapes. Those that `Model` begins with at one value, as a normalisation its weight of ones, are drawn for both: else
a kernel that left them out would be right. A `ModelNew` with tensors of its own, which it may have made of such parameters, has
them as they were constructed (`KernelBenchContract.recorded`). The outputs are held to the mathematics of `Model.forward`: its ATen
operators, in float64 and with the bound of an fp32 implementation.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch

from bitverdict.harness.contracts.described.outputs import expected_output
from bitverdict.harness.contracts.oracle.shared_mathematics import decode_operand
from bitverdict.harness.contracts.torch_mathematics.graph import reference_of
from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule
from bitverdict.harness.contracts.torch_mathematics.problem_file import WEIGHT, Problem, ProblemFile, seed_torch, state_of
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.case_fields import check_record
from bitverdict.harness.model.contract import Contract, ExpectedOutcome, ExpectedOutput, UndecidedCase
from bitverdict.harness.model.launcher_limits import nearest
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.harness.model.torch_internals import COUNT_ATTRIBUTE_TENSORS, count_attribute_tensors
from bitverdict.harness.model.usage import UsageError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from bitverdict.harness.model.targets import Target

FORMATS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16", torch.int64: "int64", torch.int32: "int32",
           torch.bool: "bool", torch.int16: "int16", torch.int8: "int8", torch.uint8: "uint8"}  # fmt: skip
OWN_TENSORS = "own tensors"  # in a launch's record: `ModelNew` has some, so it was not given the parameters that are drawn
MOST_ELEMENTS = 1 << 16  # of one input or result on an emulated GPU
SMALL_NUMBER = 8  # numbers up to here are windows, strides, groups: they are left as they are, or made smaller
SIZES = (64, 33, 128, 17, 1, 70)  # that the required cases give to the larger numbers


class KernelBenchContract(Contract):
    must_launch = True

    def __init__(self, path: str) -> None:
        self.file = ProblemFile.read(path)
        self.stem, self.address = path, address_of(path)
        fields: Any = [(name, int, value) for name, value in self.file.numbers]
        self.sizes: Callable[..., Any] = dataclasses.make_dataclass("Sizes", fields, frozen=True)  # the problem of a case
        self._candidate: Any = None  # of the first call of a case
        self._takes_drawn = True  # whether it was given the parameters that are drawn

    # which cases
    def cases(self, target: Target) -> SearchStrategy[Case]:
        from hypothesis import strategies as st

        from bitverdict.harness.contracts.inputs import strategies

        @st.composite
        def drawn(draw: Callable) -> Case:
            from hypothesis import assume

            numbers = {name: draw(self._draw_value(value)) for name, value in self.file.numbers}
            assume(self.allows(numbers, target))
            return self._case(numbers, draw(strategies.data_seeds()), draw(strategies.schedules(target.emulated)))

        return drawn()

    @staticmethod
    def _draw_value(value: int) -> Any:
        from hypothesis import strategies as st

        if value <= SMALL_NUMBER:
            return st.just(value)
        return st.sampled_from([size for size in SIZES if size <= value] or [value]) | st.integers(1, min(value, 96))

    def required(self, target: Target) -> list[Case]:
        own = dict(self.file.numbers)
        large = [name for name, value in own.items() if value > SMALL_NUMBER]
        asked = [own, *({name: min(size, value) if name in large else value for name, value in own.items()} for size in SIZES)]
        asked += [own | {other: 64 if own[other] >= 64 else own[other] for other in large} | {name: 33} for name in large]
        cases = [self._case(numbers, place) for place, numbers in enumerate(asked) if self.allows(numbers, target)]
        return list({case.problem: case for case in cases}.values())

    def _case(self, numbers: Mapping[str, int], data_seed: int, schedule: str = "eager") -> Case:
        return Case(contract=self.address, problem=self.sizes(**numbers), data_seed=data_seed, schedule=schedule)

    def allows(self, numbers: Mapping[str, int], target: Target) -> bool:
        """Whether the problem's own `Model` takes inputs of these sizes, and whether `target` can be asked so much."""
        most = MOST_ELEMENTS if target.emulated else 1 << 28
        return self._largest(tuple(sorted(numbers.items()))) <= most

    @lru_cache(maxsize=1024)  # noqa: B019  (a contract lives as long as its process)
    def _largest(self, numbers: tuple[tuple[str, int], ...]) -> float:
        """Elements of the largest input or result at `numbers`; infinite where `Model` refuses them."""
        problem = self.file.with_numbers(dict(numbers))
        try:
            with torch.device("meta"):  # shapes only: the file's own sizes may be large
                inputs = problem.inputs(0)
            if (largest := max((each.numel() for each in inputs if isinstance(each, torch.Tensor)), default=0)) > 1 << 28:
                return math.inf
            with torch.device("meta"):
                outputs = _output_list(problem.model(0)(*inputs))
            sizes = [each.numel() for each in outputs]
        except Exception:  # whatever a problem says against sizes that are not its own
            return math.inf
        return max(largest, *sizes, 1)

    def for_launcher(self, case: Case, launcher: str) -> Case | None:
        """`case` as `ModelNew` is asked it; None where its attribute `requires` does not take the numbers."""
        if nearest(launcher, vars(case.problem)) is None:
            return None
        return replace(case, launcher=launcher)

    def expected_outcome(self, case: Case, target: Target) -> ExpectedOutcome:
        if self.allows(vars(case.problem), target):
            return ExpectedOutcome()
        return ExpectedOutcome(result=False, outcome="refused", layer="launcher", reason="Model does not take these sizes")

    # one case
    def problem_of(self, case: Case) -> Problem:
        return self.file.with_numbers(vars(case.problem))

    def operands(self, case: Case) -> list[Operand]:
        problem = self.problem_of(case)
        inputs = {f"input {place}": each for place, each in enumerate(problem.inputs(case.data_seed))}
        state = state_of(problem.model(case.data_seed))
        return [
            Operand(name=name, format=_format(name, tensor), codes=_codes(tensor))
            for name, tensor in {**inputs, **state, **problem.drawn_state(case.data_seed)}.items()
            if isinstance(tensor, torch.Tensor)
        ]

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, torch.Tensor]:
        assert launcher is not None, "a problem has no kernel of its own"
        problem = self.problem_of(case)
        if not self.is_later_call or any(name.startswith(WEIGHT) for name in tensors):  # it may pack weights in its first call
            given = problem.init_inputs(case.data_seed)
            with seed_torch(case.data_seed + 1):
                self._candidate = launcher(*given)
            self._takes_drawn = not problem.drawn_state(case.data_seed) or not _holds_tensors_of_its_own(self._candidate, tensors)
        candidate = self._candidate
        inputs = [tensors.get(f"input {place}", each) for place, each in enumerate(problem.inputs(case.data_seed))]
        device = next((each.device for each in tensors.values()), torch.device("cuda"))
        candidate = candidate.to(device).eval()
        drawn = frozenset() if self._takes_drawn else problem.drawn_state(case.data_seed).keys()
        with torch.no_grad():
            for name, held in state_of(candidate).items():
                if name in tensors and name not in drawn and held.shape == tensors[name].shape:
                    held.copy_(tensors[name])
            outputs = _output_list(candidate(*inputs))
        return dict(zip(_output_names(len(outputs)), outputs, strict=True))

    def recorded(self, case: Case) -> dict[str, Any]:
        return {} if self._takes_drawn else {OWN_TENSORS: True}

    def declared(self, case: Case) -> frozenset[str] | None:
        return frozenset()

    def _reference(self, case: Case, operands: Mapping[str, Operand]) -> tuple[Callable, list[torch.Tensor]]:
        """`Model.forward` as a reference of `operands`, and the outputs that torch gives. NoRule where an operator has none."""
        problem, names = self.problem_of(case), list(operands)
        model, inputs = problem.model(case.data_seed), problem.inputs(case.data_seed)
        tensors = {**{f"input {place}": tensor for place, tensor in enumerate(inputs)}, **state_of(model)}

        def forward(*given: torch.Tensor) -> Any:
            by_name = dict(zip(names, given, strict=True))
            called = [by_name.get(f"input {place}", each) for place, each in enumerate(inputs)]
            state = {name.removeprefix(WEIGHT): each for name, each in by_name.items() if name.startswith(WEIGHT)}
            return torch.func.functional_call(copy.copy(model), state, tuple(called))

        with torch.no_grad():
            eager_outputs = _output_list(forward(*(tensors[name] for name in names)))
        return reference_of(forward, [tensors[name] for name in names]), eager_outputs

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        from bitverdict.reference.tracing import Untraceable, trace

        try:
            reference, eager_outputs = self._reference(case, operands)
            drawn = self.problem_of(case).drawn_state(case.data_seed)
            if drawn and recorded.get(OWN_TENSORS):
                state = state_of(self.problem_of(case).model(case.data_seed))
                operands = {**operands, **{name: replace(operands[name], codes=_codes(state[name])) for name in drawn}}
            found = trace(reference, [(tensor.format, tensor.codes) for tensor in operands.values()], arch=target.arch)
        except (NoRule, Untraceable) as missing:
            raise UndecidedCase(f"the problem's Model cannot be traced: {missing}") from None
        return [
            expected_output(output, _format(output, tensor), traced, before=None, run_record=recorded, exact=False)
            for output, tensor, traced in zip(_output_names(len(eager_outputs)), eager_outputs, found, strict=True)
        ]

    def mathematics(self, case: Case, operands: Mapping[str, Operand]) -> Mathematics:
        reference, eager_outputs = self._reference(case, operands)
        return Mathematics(
            function=reference,
            operands={name: decode_operand(each) for name, each in operands.items()},
            outputs=tuple(_output_names(len(eager_outputs))),
            formats={name: each.format for name, each in operands.items()},
        )

    def case_from_json(self, record: Mapping) -> Case:
        known, given = dict(self.file.numbers), record.get("problem") or {}
        if unknown := [name for name in given if name not in known]:
            raise UsageError(f"case.problem has {unknown[0]!r}; {self.file.path} has {', '.join(known) or 'no whole number'}")
        check_record(problem := self.sizes(**given), "problem")
        rest = {name: record[name] for name in ("data_seed", "schedule", "launcher")}
        return Case(contract=record.get("contract", self.address), problem=problem, regime=record.get("regime", "normal"), **rest)

    def coverage(self, case: Case, target: Target) -> dict[str, str | int]:
        return {"target": target.name, "schedule": case.schedule_kind, **vars(case.problem)}


def _holds_tensors_of_its_own(candidate: torch.nn.Module, tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether `candidate`, which may lie in another process, has tensors beside those of the same names and shapes in `tensors`."""
    if any(name not in tensors or tensors[name].shape != each.shape for name, each in state_of(candidate).items()):
        return True
    count_there = getattr(candidate, COUNT_ATTRIBUTE_TENSORS, None)
    return bool(count_there() if count_there is not None else count_attribute_tensors(candidate))


def _output_names(count: int) -> list[str]:
    return ["out"] if count == 1 else [f"out {place}" for place in range(count)]


def _output_list(outputs: object) -> list[torch.Tensor]:
    return list(outputs) if isinstance(outputs, tuple | list) else [outputs]


def _format(name: str, tensor: torch.Tensor) -> str:
    if tensor.dtype not in FORMATS:
        raise UsageError(f"{name} has the dtype {tensor.dtype}: must be of {', '.join(map(str, FORMATS))}")
    return FORMATS[tensor.dtype]


def _codes(tensor: torch.Tensor) -> Any:
    """The words of `tensor` in the storage type of its format."""
    flat = tensor.detach().contiguous()
    if flat.dtype in (torch.float16, torch.bfloat16):
        return flat.view(torch.int16).numpy().view("uint16")
    return flat.numpy().view("uint32") if flat.dtype == torch.float32 else flat.numpy()


@lru_cache(maxsize=16)
def contract_of(path: str) -> KernelBenchContract:
    """The contract of the problem in the file at `path`; UsageError where it holds none."""
    return KernelBenchContract(path)


def address_of(path: str) -> str:
    """The address of the contract of the problem at `path`: a dot in an address leads to an attribute, so it is written %2E."""
    return f"{__name__}:{path.replace('%', '%25').replace('.', '%2E')}"


def __getattr__(name: str) -> KernelBenchContract:
    if not name.endswith("%2Epy"):
        raise AttributeError(f"{__name__} has no {name}")
    return contract_of(name.replace("%2E", ".").replace("%25", "%"))
