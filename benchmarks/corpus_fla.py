"""Flash Linear Attention: chunked, parallel and recurrent forms, each against the recurrence that it computes, in float64."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.corpus_entry import Entry, Given, Package, Tolerance, with_gradients

RATIO = 0.005
MEASURE = f"""its own measure (fla.utils.assert_close): an RMS error below {RATIO} of the reference's;
delta rules 0.008, gates and beta 0.02, as in its tests"""
FLA = Package("fla-core", "0.6.0", needs=("einops==0.8.1",), tolerance=MEASURE.replace("\n", " "))
ENTRIES: list[Entry] = []
B, T, H, D = 1, 80, 2, 32


def add(
    name: str,
    operands: Callable[[Given], Sequence[Any]],
    reference: Callable[..., Any],
    module: str = "",
    call: Callable[..., Any] = lambda function, *given: function(*given),
    tolerance: Tolerance = lambda _: (0.0, 0.0, RATIO),
    backward: bool = True,
) -> None:
    """Entries for the function `name` of `fla.ops`, or of `module`, called as `call` says; its first result is compared. Without
    `backward` where the package has no gradients."""

    def launcher(*given: Any) -> Any:
        found = call(getattr(importlib.import_module(module or "fla.ops"), name), *given)
        return found[0] if isinstance(found, tuple) else found

    ENTRIES.extend(with_gradients(FLA, name, operands, launcher, reference, tolerance)[: 1 + backward])


def recurrence(
    q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None = None, beta: Tensor | None = None, scale: float = 0.0
) -> Tensor:
    """(b, t, h, d): state = exp(gate) state + k (x) u, o = scale q state. u is v, or with beta the delta rule's
    beta (v - k state). `gate` is (b, t, h), or (b, t, h, d) for each row of the state."""
    state = torch.zeros(*q.shape[::2], q.shape[-1], v.shape[-1], dtype=q.dtype)  # (b, h, d, d)
    rows = []
    for at in range(q.shape[1]):
        if gate is not None:
            decay = gate[:, at].exp()  # (b, h) or (b, h, d)
            state = state * (decay[..., None] if decay.dim() == 3 else decay[..., None, None])
        u = v[:, at]
        if beta is not None:
            u = beta[:, at][..., None] * (u - (k[:, at][..., None] * state).sum(-2))
        state = state + k[:, at][..., None] * u[..., None, :]
        rows.append((q[:, at][..., None] * state).sum(-2))
    return torch.stack(rows, 1) * (scale or q.shape[-1] ** -0.5)


def retention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    decay = (1 - 2.0 ** (-5 - torch.arange(q.shape[2], dtype=q.dtype))).log()
    return recurrence(q, k, v, decay.expand(q.shape[:3]))


def attention(q: Tensor, k: Tensor, v: Tensor, gate: Tensor | None = None) -> Tensor:
    """(b, t, h, d): causal; with `gate` (b, t, h) the scores of row i take the sum of gates between j and i."""
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    if gate is not None:
        sums = gate.cumsum(1).transpose(1, 2)  # (b, h, t)
        scores = scores + sums[..., :, None] - sums[..., None, :]
    above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    return torch.einsum("bhij,bjhd->bihd", scores.masked_fill(above, -torch.inf).softmax(-1), v)


def hgrn(x: Tensor, gate: Tensor) -> Tensor:
    """(b, t, d): h = exp(gate) h + x."""
    state, rows = torch.zeros_like(x[:, 0]), []
    for at in range(x.shape[1]):
        state = gate[:, at].exp() * state + x[:, at]
        rows.append(state)
    return torch.stack(rows, 1)


def qkv(given: Given) -> tuple[Tensor, ...]:
    return tuple(given.normal(B, T, H, D) for _ in range(3))


def unit_keys(given: Given) -> tuple[Tensor, ...]:
    q, k, v = qkv(given)
    return q, functional.normalize(k, dim=-1), v


def gates(given: Given, *shape: int) -> Tensor:
    return given.place(functional.logsigmoid(given.normal(*shape).cpu()))


def betas(given: Given) -> Tensor:
    return given.uniform(0.1, 0.9, B, T, H)


def of_delta_rules(result: Tensor) -> tuple[float, float, float]:
    """The ratios of the package's own tests; gates and beta are (b, t, h)."""
    return 0.0, 0.0, 0.02 if result.dim() == 3 else 0.008


def without_norm(function: Callable, *given: Any) -> Any:
    return function(*given, normalize=False)


def with_gate(function: Callable, q: Tensor, k: Tensor, v: Tensor, gate: Tensor) -> Any:
    return function(q, k, v, g=gate)


def delta(function: Callable, q: Tensor, k: Tensor, v: Tensor, gate: Tensor, beta: Tensor) -> Any:
    return function(q, k, v, g=gate, beta=beta)


for _name in ("chunk_gla", "fused_recurrent_gla"):
    add(_name, lambda g: (*qkv(g), gates(g, B, T, H, D)), recurrence)
for _name in ("chunk_simple_gla", "fused_recurrent_simple_gla", "parallel_simple_gla"):
    add(_name, lambda g: (*qkv(g), gates(g, B, T, H)), recurrence, call=with_gate)
for _name in ("chunk_retention", "fused_recurrent_retention", "parallel_retention"):
    add(_name, qkv, retention)
for _name in ("chunk_linear_attn", "fused_recurrent_linear_attn", "fused_chunk_linear_attn"):
    add(_name, qkv, recurrence, call=without_norm)
add("chunk_delta_rule", lambda g: tuple(each.bfloat16() for each in (*unit_keys(g), betas(g))),  # it takes no fp32
    lambda q, k, v, beta: recurrence(q, k, v, None, beta), tolerance=of_delta_rules)  # fmt: skip
for _name in ("fused_recurrent_delta_rule",):
    add(_name, lambda g: (*unit_keys(g), betas(g)), lambda q, k, v, beta: recurrence(q, k, v, None, beta), tolerance=of_delta_rules)
for _name in ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"):
    add(
        _name,
        lambda g: (*unit_keys(g), gates(g, B, T, H), betas(g)),
        recurrence,
        call=delta,
        tolerance=of_delta_rules,
        backward=_name.startswith("chunk"),
    )
for _name in ("chunk_kda", "fused_recurrent_kda"):
    add(
        _name,
        lambda g: (*unit_keys(g), gates(g, B, T, H, D), betas(g)),
        recurrence,
        call=delta,
        tolerance=of_delta_rules,
        backward=_name.startswith("chunk"),
    )
for _name in ("chunk_hgrn", "fused_recurrent_hgrn"):
    add(_name, lambda g: (g.normal(B, T, 64), gates(g, B, T, 64)), hgrn, "fla.ops.hgrn")
add("parallel_attn", qkv, attention)
add("parallel_forgetting_attn", lambda g: (*qkv(g), gates(g, B, T, H)), attention)
add("mean_pooling", lambda g: (g.normal(B, 64, H, D), 32), lambda x, size: x.unflatten(1, (-1, size)).mean(2), "fla.ops.utils")
add(
    "l2norm",
    lambda g: (g.normal(B, T, H, D),),
    lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6),
    "fla.modules.l2norm",
)
add("rms_norm", lambda g: (g.normal(T, D), g.normal(D), None),
    lambda x, w, _: functional.rms_norm(x, x.shape[-1:], w, 1e-5), "fla.modules.layernorm")  # fmt: skip
add("layer_norm", lambda g: (g.normal(T, D), g.normal(D), g.normal(D)),
    lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b, 1e-5), "fla.modules.layernorm")  # fmt: skip
add("swiglu", lambda g: (g.normal(T, D), g.normal(T, D)), lambda a, b: functional.silu(a) * b, "fla.modules.activations")
add("sqrelu", lambda g: (g.normal(T, D),), lambda x: functional.relu(x).square(), "fla.modules.activations")
add("token_shift", lambda g: (g.normal(B, T, D),), lambda x: functional.pad(x, (0, 0, 1, -1)) - x, "fla.modules.token_shift")
