"""The contract of a described kernel with a backward pass: a `torch.autograd.Function`, judged forward and backward.

The body's outputs are differentiated by torch, which calls the function's own `backward`. Upstream gradients are drawn in the
regime of the case. What must come is the gradient of the reference. torch differentiates it, in array-api-compat's namespace. Each
ATen operator of the backward pass is traced (`contracts.torch_mathematics`): its real values are those of the exact gradient. The
words are held to the bound of an implementation that holds intermediate results in the dtypes in which torch would.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described.contract import DescribedContract, Description
from bitverdict.harness.contracts.described.dtypes import format_of_result, torch_dtype
from bitverdict.harness.contracts.described.outputs import expected_output
from bitverdict.harness.contracts.described.returned_outputs import ReturnedOutputs
from bitverdict.harness.contracts.inputs import regimes
from bitverdict.harness.model.case import Case, Operand
from bitverdict.harness.model.contract import ExpectedOutput, UndecidedCase
from bitverdict.harness.model.usage import BodyError
from bitverdict.reference.formats import FORMATS

if TYPE_CHECKING:
    import torch

    from bitverdict.harness.model.targets import Target

DIFFERENTIABLE = ("fp32", "fp16", "bf16")
GRADIENT = "gradient of "


class GradientContract(DescribedContract):
    """A described kernel whose outputs are differentiated by every operand of a type in `DIFFERENTIABLE`."""

    def launch(self, case: Case, tensors: Mapping[str, torch.Tensor], launcher: Callable | None) -> Mapping[str, Any]:
        import torch

        by_name = {item.name: item for item in self.operands(case)}
        wanted_names = [name for name in tensors if by_name[name].format in DIFFERENTIABLE]
        inputs = {name: item.detach().requires_grad_() if name in wanted_names else item for name, item in tensors.items()}
        outputs = dict(super().launch(case, inputs, launcher))
        differentiable_outputs = {name: item for name, item in outputs.items() if getattr(item, "requires_grad", False)}
        if not differentiable_outputs:
            raise BodyError(
                "gradient=True: no output of the body has a gradient: it must return what a torch.autograd.Function gave for the "
                "drawn tensors"
            )
        upstream = [
            _tensor_like(item, _upstream(case, name, tuple(item.shape), item.dtype))
            for name, item in differentiable_outputs.items()
        ]
        gradients = torch.autograd.grad(
            list(differentiable_outputs.values()), [inputs[name] for name in wanted_names], upstream, allow_unused=True
        )
        found = {name: item.detach() if isinstance(item, torch.Tensor) else item for name, item in outputs.items()}
        for name, item in zip(wanted_names, gradients, strict=True):
            found[GRADIENT + name] = torch.zeros_like(tensors[name]) if item is None else item  # torch's word for zeros
        self._returned = ReturnedOutputs(found, self._returned.written_operands)
        return found

    def expected(self, case: Case, target: Target, operands: Mapping[str, Operand], recorded: Mapping) -> list[ExpectedOutput]:
        came = [(str(name), str(kind)) for name, kind in recorded["outputs"]]
        forward = [each for each in came if not each[0].startswith(GRADIENT)]
        expected = super().expected(case, target, operands, {**recorded, "outputs": [list(each) for each in forward]})
        backward = {name.removeprefix(GRADIENT): kind for name, kind in came if name.startswith(GRADIENT)}
        return [*expected, *self._backward(case, target, operands, expected, backward, recorded)]

    def _backward(
        self,
        case: Case,
        target: Target,
        operands: Mapping[str, Operand],
        forward: list[ExpectedOutput],
        backward: Mapping[str, str],
        run_record: Mapping,
    ) -> list[ExpectedOutput]:
        from bitverdict.harness.contracts.torch_mathematics.graph import gradients_of, reference_of
        from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule
        from bitverdict.reference.tracing import Untraceable, trace

        differentiable_outputs = [item for item in forward if item.format in DIFFERENTIABLE]
        reference_operands = _Operands.from_arguments(*self.arguments(case, operands))
        upstream = [
            (item.format, _upstream(case, item.name, item.shape, torch_dtype(item.format))) for item in differentiable_outputs
        ]  # one for each output
        reference_arguments = [*reference_operands.pairs, *upstream]
        function = reference_operands.function(
            self.description.reference, [place for place, item in enumerate(forward) if item in differentiable_outputs]
        )
        try:
            gradient = gradients_of(function, len(reference_operands.pairs), range(len(reference_operands.pairs)))
            reference = reference_of(gradient, [_tensor(kind, codes) for kind, codes in reference_arguments])
            traced = trace(reference, reference_arguments, arch=target.arch, accumulation=self.description.accumulation)
        except (NoRule, Untraceable) as missing:
            raise UndecidedCase(f"the gradient of the reference cannot be traced: {missing}") from None
        names = {id(item.codes): name for name, item in operands.items()}
        by_name = {names[id(codes)]: item for (_, codes), item in zip(reference_operands.pairs, traced, strict=True)}
        return [
            expected_output(GRADIENT + name, kind, by_name[name], before=None, run_record=run_record, exact=False)
            for name, kind in backward.items()
        ]


def contract_of(description: Description, where: Callable[[], tuple[str, tuple[str, ...]]]) -> DescribedContract:
    """The contract of `description`: with the backward pass where it asks for it."""
    return (GradientContract if description.gradient else DescribedContract)(description, where)


@dataclass(frozen=True)
class _Operands:
    """The arguments of a reference: `pairs` (format, codes) by which it is differentiated, and where they stand among all."""

    positional: list[Any]
    keywords: dict[str, Any]
    pairs: list[tuple[str, np.ndarray]]

    @classmethod
    def from_arguments(cls, given: list[object], named: dict[str, object]) -> _Operands:
        everything = [*given, *named.values()]
        return cls(given, named, [each for each in everything if isinstance(each, tuple) and each[0] in DIFFERENTIABLE])

    def function(self, reference: Callable, outputs: list[int]) -> Callable:
        """`reference` as a function of tensors for `pairs`, giving its outputs at the places `outputs`."""
        from bitverdict.harness.contracts.torch_mathematics.namespace import TorchNamespace

        def call_reference(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            left = iter(tensors)

            def value(each: object) -> Any:
                if not isinstance(each, tuple):
                    return each
                return next(left) if each[0] in DIFFERENTIABLE else _tensor(*each)

            made = reference(
                TorchNamespace(), *map(value, self.positional), **{name: value(each) for name, each in self.keywords.items()}
            )
            listed = made if isinstance(made, tuple | list) else (made,)
            return tuple(listed[place] for place in outputs)

        return call_reference


def _upstream(case: Case, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> np.ndarray:
    """Codes of the upstream gradient of the output `name`, in the format of its `dtype`, as the case's regime and seed have it."""
    return regimes.draw(format_of_result(dtype), shape, case.regime, regimes.generator(case.data_seed, GRADIENT + name))


def _tensor(format_name: str, codes: np.ndarray) -> torch.Tensor:
    """The operand on the CPU."""
    import torch

    whole = np.ascontiguousarray(codes)
    if format_name in FORMATS:
        return torch.from_numpy(whole.view(f"i{whole.dtype.itemsize}").copy()).view(torch_dtype(format_name))
    return torch.from_numpy(whole.copy())


def _tensor_like(like: torch.Tensor, codes: np.ndarray) -> torch.Tensor:
    """`codes` as a tensor of the dtype of `like`, where it lies."""
    return _tensor(format_of_result(like.dtype), codes).reshape(like.shape).to(like.device)
