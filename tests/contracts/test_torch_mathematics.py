"""Contract under test: a torch function is what its ATen operators say, in float64, and its gradient is what torch's is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from bitverdict.harness.contracts.torch_mathematics import operators
from bitverdict.harness.contracts.torch_mathematics.graph import check_writes, gradients_of, reference_of
from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule
from bitverdict.reference.tracing import trace

CLASSES = torch.tensor([1, 0, 3])
X, Y = (3, 4), (4, 5)
FORWARD: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "activations": (
        lambda x: torch.cat([f(x) for f in (F.relu, F.silu, F.softplus, F.elu, F.hardswish, F.hardtanh, F.leaky_relu, F.mish)]),
        (X,),
    ),
    "gelu": (lambda x: F.gelu(x) + F.gelu(x, approximate="tanh"), (X,)),
    "softmax": (lambda x: F.softmax(x, -1) - F.log_softmax(x, 0), (X,)),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), (X, (4,), (4,))),
    "group norm": (lambda x: F.group_norm(x, 2), ((3, 4, 5),)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), ((3, 4, 5),)),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), ((2, 3, 5, 4), (2, 3, 5, 4))),
    "products": (lambda a, b: torch.tril(F.linear(a, b.T, b[0]))[:, 1:], (X, Y)),
    "batched products": (lambda a, b: torch.einsum("bij,bjk->bik", a, b).reshape(2, -1), ((2, 3, 4), (2, 4, 5))),
    "sums": (lambda x: torch.cumsum(x.flip(1), 1) * x.mean(1, keepdim=True) + x.var(0) - x.std(1, keepdim=True), (X,)),
    "norms": (lambda x: x / x.norm(dim=1, keepdim=True) + x / x.norm() + F.normalize(x, p=1), (X,)),
    "losses": (
        lambda a, b: (
            F.mse_loss(a, b)
            + F.smooth_l1_loss(a, b)
            + torch.mean(torch.clamp(1 - a * b, min=0))
            + F.cross_entropy(a, CLASSES)
            + F.kl_div(torch.log_softmax(a, 1), torch.softmax(b, 1), reduction="batchmean")
        ),
        (X, (3, 4)),
    ),
    "extremes": (lambda x: torch.max(x, dim=1)[0] + x.amin(1) + torch.topk(x, 2)[0].sum(1) - torch.logsumexp(x, 1), (X,)),
    "sorted": (lambda x: torch.sort(x, 1, descending=True)[0], (X,)),
    "masked": (lambda x: torch.where(x > 0, x, 0.0).cumsum(1) + x.masked_fill(x < 0, 2.0), (X,)),
    "moved": (lambda x: F.pad(x.repeat(2, 1), (1, -1, 2, 0), value=3.0).roll(1, 0).unsqueeze(0).expand(2, -1, -1), (X,)),
    "powers": (lambda x: x**2 + x**-1 + (x * x + 1) ** 0.5 + (x * x) ** 1.5, (X,)),
    "in place": (lambda x: x.clone().add_(1).mul_(x), (X,)),
}
"""What it is -> (function, shapes of its operands): with a gradient."""
FORWARD_ALONE: dict[str, tuple[Callable, tuple[tuple[int, ...], ...]]] = {
    "cosine": (lambda a, b: torch.mean(1 - F.cosine_similarity(a, b, dim=1)), (X, (3, 4))),
    "grouped convolution": (lambda x, w, b: F.conv2d(x, w, b, stride=2, padding=1, groups=2), ((2, 4, 7, 6), (6, 2, 3, 3), (6,))),
    "transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1, dilation=2),
        ((2, 4, 5, 6), (4, 3, 3, 3)),
    ),
    "dilated convolution": (lambda x, w: F.conv1d(x, w, dilation=2), ((2, 4, 9), (5, 4, 3))),
    "pools": (lambda x: F.max_pool2d(x, 3, stride=2, padding=1)[..., :3] + F.avg_pool2d(x, 2, padding=0), ((2, 4, 6, 6),)),
    "whole pool": (lambda x: F.adaptive_avg_pool2d(x, (1, 1)), ((2, 4, 6, 6),)),
    "places": (lambda x: torch.argmax(x, 1) + x.argmin(1), (X,)),
    "written rows": (lambda x: torch.cat([x[:1], torch.zeros_like(x[1:2]), x[2:]]), (X,)),
}


def _tensors(shapes: Sequence[tuple[int, ...]], seed: int) -> list[torch.Tensor]:
    source = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float32, generator=source).double() for shape in shapes]


def _traced(function: Callable, tensors: Sequence[torch.Tensor]) -> list[tuple[np.ndarray, np.ndarray]]:
    """(value, error) of each output; the operands are numbers of fp32."""
    operands = [("fp32", each.float().numpy().view(np.uint32)) for each in tensors]
    found = trace(reference_of(function, tensors), operands)
    return [(np.asarray(each.value, float), np.asarray(getattr(each, "error", 0.0), float)) for each in found]


def _all(cases: dict[str, tuple[Callable, tuple]]) -> tuple[Callable, list[torch.Tensor], list[slice]]:
    """One function of all of `cases`: tracing costs by the call."""
    shapes = [shapes for _, shapes in cases.values()]
    ends = np.cumsum([0, *map(len, shapes)]).tolist()
    slices = [slice(start, end) for start, end in pairwise(ends)]

    def function(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(each(*given[place]) for (each, _), place in zip(cases.values(), slices, strict=True))

    return function, _tensors([shape for each in shapes for shape in each], seed=1), slices


def _agree(found: Sequence[tuple[np.ndarray, np.ndarray]], right: Sequence[torch.Tensor], names: Sequence[str]) -> list[str]:
    """The names of those that differ by more than both errors and what torch's own float64 may lose."""
    wrong = []
    for (value, error), due, name in zip(found, right, names, strict=True):
        due_values = due.double().numpy()
        if value.shape != due_values.shape or not (np.abs(value - due_values) <= error + 1e-12 * (1 + np.abs(due_values))).all():
            wrong.append(name)
    return wrong


def test_torch_functions_have_the_values_that_torch_has() -> None:
    cases = FORWARD | FORWARD_ALONE
    function, tensors, _ = _all(cases)
    assert _agree(_traced(function, tensors), function(*tensors), list(cases)) == []


def test_gradients_are_those_of_torch() -> None:
    function, tensors, slices = _all(FORWARD)
    outputs = function(*tensors)
    upstream = _tensors([tuple(each.shape) for each in outputs], seed=2)
    gradient = gradients_of(function, len(tensors), range(len(tensors)))
    found, right = _traced(gradient, [*tensors, *upstream]), gradient(*tensors, *upstream)
    names = [name for name, place in zip(FORWARD, slices, strict=True) for _ in range(place.start, place.stop)]
    assert _agree(found, right, names) == []


@pytest.mark.parametrize("name", ["aten._softmax", "aten.mean", "aten.native_layer_norm"])
def test_a_wrong_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = operators.RULES[name]

    def wrong(xp: Any, *args: Any, **named: Any) -> Any:
        made = rule(xp, *args, **named)
        return (made[0] * 1.000001, *made[1:]) if isinstance(made, tuple) else made * 1.000001

    monkeypatch.setitem(operators.RULES, name, wrong)
    cases = {each: FORWARD[each] for each in ("softmax", "sums", "layer norm")}
    function, tensors, _ = _all(cases)
    assert _agree(_traced(function, tensors), function(*tensors), list(cases)) != []


def test_an_operator_without_a_rule_is_refused_by_name() -> None:
    with pytest.raises(NoRule, match=r"aten\.linalg_|aten\._linalg_"):
        reference_of(torch.linalg.svdvals, _tensors([X], seed=1))


@pytest.mark.parametrize("again", [True, False])
def test_a_write_that_is_seen_later_is_refused_by_name(again: bool) -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    written = graph.call_function(torch.ops.aten.clamp_min_.default, (x, 0.5))
    graph.output(graph.call_function(torch.ops.aten.add.Tensor, (written, x if again else written)))
    with pytest.raises(NoRule, match="read again") if again else nullcontext():
        check_writes(graph)


def test_one_tensor_given_twice_is_two_operands() -> None:
    [x] = _tensors([X], seed=1)
    reference = reference_of(lambda a, b: a - b, [x, x])
    assert np.abs(np.asarray(reference(_Plain(), x.numpy(), 2 * x.numpy()))).max() > 0


class _Plain:
    """NumPy, where a namespace is asked for."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)
