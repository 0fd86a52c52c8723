"""Liger-Kernel: layers and losses with their gradients, each by its public function against the equation in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.corpus_entry import TORCHS, Entry, Given, Package, Tolerance, by_type, with_gradients

LIGER = Package("liger_kernel", "0.8.5", tolerance=f"{TORCHS}; attention with tf32 products: 5e-3, as its own tests")
ENTRIES: list[Entry] = []


def add(
    name: str,
    operands: Callable[[Given], Sequence[Any]],
    reference: Callable[..., Any],
    function: str = "",
    module: str = "liger_kernel.transformers.functional",
    tolerance: Tolerance = by_type,
) -> None:
    """Entries for `liger_<name>`, or `function` of `module`."""

    def launcher(*given: Any) -> Any:
        import importlib

        return getattr(importlib.import_module(module), function or f"liger_{name}")(*given)

    ENTRIES.extend(with_gradients(LIGER, name, operands, launcher, reference, tolerance))


def rms(x: Tensor, weight: Tensor, eps: float, *_: Any) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def sparsemax(x: Tensor) -> Tensor:
    """Martins and Astudillo, 2016, equation 2."""
    ordered = x.sort(-1, descending=True).values
    sums = ordered.cumsum(-1) - 1
    counts = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    size = (counts * ordered > sums).sum(-1, keepdim=True)
    return (x - sums.gather(-1, size - 1) / size).clamp(min=0)


def half_turned(x: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return torch.cat([-high, low], -1)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos[:, None], sin[:, None]
    return q * cos + half_turned(q) * sin, k * cos + half_turned(k) * sin


def angles(given: Given, rows: int, width: int) -> tuple[Tensor, Tensor]:
    at = torch.outer(torch.arange(rows, dtype=torch.float32), 10000.0 ** (-torch.arange(0, width, 2) / width))
    at = torch.cat([at, at], -1)[None]
    return given.place(at.cos()), given.place(at.sin())


def rope_operands(given: Given) -> tuple:
    return given.normal(2, 4, 19, 32), given.normal(2, 2, 19, 32), *(each.requires_grad_(False) for each in angles(given, 19, 32))


def attn_res(values: Tensor, query: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    """(n, b, t, d): the blocks weighted by the softmax, over n, of query . rms_norm(block)."""
    scores = (rms(values, weight, eps) * query).sum(-1)
    return (scores.softmax(0)[..., None] * values).sum(0)


def poly_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-6) -> Tensor:
    def norm(u: Tensor) -> Tensor:
        return u * torch.rsqrt(u.square().mean(-1, keepdim=True) + eps)

    return weight[0] * norm(x**3) + weight[1] * norm(x**2) + weight[2] * norm(x) + bias


def jsd(x: Tensor, y: Tensor) -> Tensor:
    """Generalized Jensen-Shannon divergence at beta 1/2 of distributions given by their logarithms."""
    middle = ((x.exp() + y.exp()) / 2).log()
    return (y.exp() * (y - middle) + x.exp() * (x - middle)).sum() / 2 / x.shape[0]


def logs(given: Given, rows: int, width: int) -> Tensor:
    return given.place(given.normal(rows, width).cpu().log_softmax(-1))


def probabilities(given: Given, rows: int, width: int) -> Tensor:
    return given.place(given.normal(rows, width).cpu().softmax(-1))


WIDTH = 100
add("softmax", lambda g: (g.normal(13, WIDTH),), lambda x: x.softmax(-1))
add("sparsemax", lambda g: (g.normal(13, WIDTH),), sparsemax)
add("swiglu", lambda g: (g.normal(13, WIDTH), g.normal(13, WIDTH)), lambda a, b: functional.silu(a) * b)
add("geglu", lambda g: (g.normal(13, WIDTH), g.normal(13, WIDTH)), lambda a, b: functional.gelu(a, approximate="tanh") * b)
add("relu_squared", lambda g: (g.normal(13, WIDTH),), lambda x: functional.relu(x).square())
add("rms_norm", lambda g: (g.normal(13, WIDTH), g.normal(WIDTH), 1e-6), rms)
add("layer_norm", lambda g: (g.normal(13, WIDTH), g.normal(WIDTH), g.normal(WIDTH), 1e-6),
    lambda x, w, b, eps: functional.layer_norm(x, (WIDTH,), w, b, eps))  # fmt: skip
add("group_norm", lambda g: (g.normal(3, 12, 40), g.normal(12), g.normal(12), 12, 4, 1e-6),
    lambda x, w, b, _, groups, eps: functional.group_norm(x, groups, w, b, eps))  # fmt: skip
add("fused_add_rms_norm", lambda g: (g.normal(13, WIDTH), g.normal(13, WIDTH), g.normal(WIDTH), 1e-6),
    lambda x, r, w, eps: (rms(x + r, w, eps), x + r))  # fmt: skip
add("modulated_rms_norm", lambda g: (g.normal(2, 13, WIDTH), g.normal(WIDTH), g.normal(2, WIDTH), g.normal(2, WIDTH), 1e-6),
    lambda x, w, scale, shift, eps: (1 + scale[:, None]) * rms(x, w, eps) + shift[:, None])  # fmt: skip
add("poly_norm", lambda g: (g.normal(13, WIDTH), g.normal(3), g.normal(1)[0], 1e-6), poly_norm)  # the bias is a scalar
add("dyt", lambda g: (g.normal(13, 128), g.uniform(0.4, 0.6, 1), g.normal(128), g.normal(128)),
    lambda x, alpha, gamma, beta: (alpha * x).tanh() * gamma + beta)  # fmt: skip
add("rope", rope_operands, rope)
add("attn_res", lambda g: (g.normal(4, 2, 7, 64), g.normal(64, scale=0.1), g.uniform(0.5, 1.5, 64)), attn_res)
add("kl_div", lambda g: (logs(g, 13, WIDTH), probabilities(g, 13, WIDTH)), lambda x, y: functional.kl_div(x, y))
add("jsd", lambda g: (logs(g, 13, WIDTH), logs(g, 13, WIDTH)), jsd)
add("tvd", lambda g: (probabilities(g, 13, WIDTH), probabilities(g, 13, WIDTH)), lambda p, q: ((p - q).abs() / 2).mean())
add("cross_entropy", lambda g: (g.normal(13, WIDTH), g.integers(0, WIDTH, 13)), functional.cross_entropy)
add("fused_linear_cross_entropy", lambda g: (g.normal(13, 48), g.normal(WIDTH, 48, scale=0.2), g.integers(0, WIDTH, 13)),
    lambda x, w, at: functional.cross_entropy(x @ w.T, at))  # fmt: skip
add("fused_linear_jsd", lambda g: tuple(g.normal(*shape, scale=0.3) for shape in ((13, 32), (WIDTH, 32), (13, 48), (WIDTH, 48))),
    lambda x, w, y, v: jsd((x @ w.T).log_softmax(-1), (y @ v.T).log_softmax(-1)))  # fmt: skip
add("mhc_pre", lambda g: (g.normal(11, 4, 64), g.normal(11, 4)), lambda x, h: (x * h[..., None]).sum(-2))
add("mhc_post_res", lambda g: (g.normal(11, 4, 64), g.normal(11, 64), g.normal(11, 4), g.normal(11, 4, 4)),
    lambda x, f, post, res: torch.einsum("nij,njc->nic", res, x) + post[..., None] * f[:, None])  # fmt: skip
add("embedding", lambda g: (g.normal(53, 64), g.integers(0, 53, 19)), lambda w, at: functional.embedding(at, w),
    function="embedding", module="benchmarks.corpus_liger")  # fmt: skip
add("multi_token_attention", lambda g: (g.normal(2, 4, 16, 16), g.normal(4, 4, 3, 3, scale=0.2), None, 1, 1),
    lambda s, w, *_: multi_token(s, w))  # fmt: skip
add("fused_neighborhood_attention", lambda g: (g.normal(1, 2, 32, 32), g.normal(1, 2, 32, 32), g.normal(1, 2, 32, 32), 7, 1),
    lambda q, k, v, *_: neighborhood(q, k, v, 7), tolerance=lambda _: (5e-3, 5e-3))  # fmt: skip


def embedding(weight: Tensor, at: Tensor) -> Tensor:
    from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction

    return LigerEmbeddingFunction.apply(weight, at)


def multi_token(scores: Tensor, weight: Tensor) -> Tensor:
    """Softmax of the causal scores, a 3x3 convolution over them, and what lies above the diagonal zeroed again."""
    above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
    weighted = functional.conv2d(scores.masked_fill(above, -1e9).softmax(-1).masked_fill(above, 0.0), weight, padding=1)
    return weighted.masked_fill(above, 0.0)


def neighborhood(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """Attention of each row to the `size` rows around it that there are."""
    rows = torch.arange(q.shape[-2])
    near = (rows[:, None] - rows).abs() <= size // 2
    scores = (q @ k.mT) * q.shape[-1] ** -0.5
    return scores.masked_fill(~near, -torch.inf).softmax(-1) @ v
