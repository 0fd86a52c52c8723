"""A torch function as a reference `(xp, *operands) -> outputs`: its graph of ATen operators, each by its rule in `operators`.

torch traces the function once, on examples of the shapes that are asked. It takes composite operators apart as its compiler does
(`torch._decomp.core_aten_decompositions`). Each operator that is left is computed by `xp`, with bounds where `xp` is the namespace
of `bitverdict.reference.tracing`. Gradients come by torch's own reverse mode: the backward pass is part of the graph.

Where torch would hold a result in fp16 or bf16, an implementation may: the rule's result goes through `xp.kept_in`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from bitverdict.harness.contracts.torch_mathematics.operators import RULES
from bitverdict.harness.contracts.torch_mathematics.operators.rules import NoRule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import ArrayNamespace

_ROUNDED_FORMATS = {torch.float16: "fp16", torch.bfloat16: "bf16"}


def reference_of(function: Callable, examples: Sequence[torch.Tensor]) -> Callable:
    """`function(*tensors) -> tensor or tuple of tensors` as a reference `(xp, *operands)`, for operands of the shapes and dtypes of
    `examples`. NoRule, with the operator, where one has no rule."""
    graph = _trace_graph(function, examples).graph
    check_writes(graph)
    missing = sorted({_name(node.target) for node in graph.nodes if node.op == "call_function" and not _has_rule(node.target)})
    if missing:
        raise NoRule(f"no rule for the operator {', '.join(missing)}; write the reference against the array API instead")

    def reference(xp: ArrayNamespace, *operands: object) -> Any:
        given, node_values = iter(operands), {}
        for node in graph.nodes:
            if node.op == "placeholder":
                node_values[node] = next(given)
            elif node.op == "get_attr":
                node_values[node] = xp.asarray(_constant(graph, node.target))
            elif node.op == "call_function":
                node_values[node] = _call_node(xp, node, node_values)
            elif node.op == "output":
                return _fill_values(node.args[0], node_values)
        raise AssertionError("a graph ends in its output")

    return reference


def gradients_of(function: Callable, operands: int, wanted_places: Sequence[int]) -> Callable:
    """The function `(*operands, *upstream gradients) -> gradients` of `function`, of the operands whose places are in
    `wanted_places`. `operands`: how many it takes; the upstream gradients are one for each output, in its shape."""

    def gradients(*given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inputs, upstream = given[:operands], given[operands:]

        def outputs_of_wanted(*moving: torch.Tensor) -> tuple[torch.Tensor, ...]:
            taken = list(inputs)
            for place, each in zip(wanted_places, moving, strict=True):
                taken[place] = each
            outputs = function(*taken)
            return tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)

        _, backward = torch.func.vjp(outputs_of_wanted, *(inputs[place] for place in wanted_places))
        return backward(tuple(upstream))

    return gradients


def _trace_graph(function: Callable, examples: Sequence[torch.Tensor]) -> Any:
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from bitverdict.harness.model.torch_internals import core_aten_decompositions

    def call_function(*tensors: torch.Tensor) -> Any:  # a function of torch's own has no signature that could be traced
        return function(*tensors)

    pure = torch.func.functionalize(call_function, remove="mutations_and_views")
    with sdpa_kernel(SDPBackend.MATH):  # fused attention would be one operator
        module = make_fx(pure, decomposition_table=core_aten_decompositions())(*(each.clone() for each in examples))
    module.graph.eliminate_dead_code()
    return module


def check_writes(graph: Any) -> None:
    """NoRule where an operator writes to a tensor that is read again as it was before. Where only its result is read, it is one
    that gives a new tensor."""
    order = {node: place for place, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        written = node.args[0] if node.op == "call_function" and _name(node.target).endswith("_") else None
        if isinstance(written, torch.fx.Node) and any(order[user] > order[node] for user in written.users):
            raise NoRule(f"no rule for {_name(node.target)} on a tensor that is read again; write the reference without it")


def _has_rule(target: object) -> bool:
    return target is operator.getitem or _rule_of(target) is not None


def _name(target: object) -> str:
    """Name of an operator without its overload: "aten.sum"."""
    packet = getattr(target, "overloadpacket", None)
    return str(packet) if packet is not None else getattr(target, "__name__", str(target))


def _rule_of(target: object) -> Callable | None:
    """The rule of an operator; of one that writes to its first argument (`aten.add_`) that of its pure twin."""
    name = _name(target)
    return RULES.get(name) or RULES.get(name.rstrip("_"))


def _constant(graph: Any, name: str) -> Any:
    return getattr(graph.owning_module, name).detach().cpu().numpy()


def _call_node(xp: ArrayNamespace, node: Any, known: dict) -> Any:
    args, named = _fill_values(node.args, known), _fill_values(node.kwargs, known)
    if node.target is operator.getitem:
        return args[0][args[1]]
    rule = _rule_of(node.target)
    assert rule is not None, node.target  # `reference_of` looked
    made = rule(xp, *args, **named)
    kept = _ROUNDED_FORMATS.get(getattr(node.meta.get("val"), "dtype", None))
    return made if kept is None else xp.kept_in(made, kept)


def _fill_values(template: object, node_values: dict) -> Any:
    """`template` with the values of the nodes in it."""
    if isinstance(template, tuple | list):
        return type(template)(_fill_values(each, node_values) for each in template)
    if isinstance(template, dict):
        return {name: _fill_values(each, node_values) for name, each in template.items()}
    return node_values[template] if isinstance(template, torch.fx.Node) else template
