"""The mathematics of kernels on rows and of attention against the array API standard. It is traced: what a user's launcher of them
is held to, whatever its order, its instructions and its formulas. And it is changed, to explain a wrong result.

Each takes the namespace `xp` first, then operands. Shapes are (rows, columns) unless said. What an implementation may round on its
way, though the mathematics does not, goes through `xp.kept_in`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bitverdict.harness.contracts.described.outputs import expected_output
from bitverdict.harness.contracts.oracle.shared_mathematics import decode_operand
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.contract import ExpectedOutput
from bitverdict.harness.model.mathematics import Mathematics
from bitverdict.reference.philox import uniform
from bitverdict.reference.tracing import trace

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace

SCALE_BLOCK = 128  # elements of K, and rows of B, that share a scale of `scaled_blocks`


@dataclass(frozen=True)
class Formula:
    """`function(xp, *operands, **keywords)` of the operands of these names gives outputs of these names and formats."""

    function: Callable[..., Any]
    operands: tuple[str, ...]
    formats: Mapping[str, str]
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def expected(self, operands: Mapping[str, Operand], arch: str) -> list[ExpectedOutput]:
        """What any launcher on `arch` must give."""
        return trace_outputs(self.function, (operands[name] for name in self.operands), self.formats, arch, **self.keywords)

    def mathematics(self, operands: Mapping[str, Operand]) -> Mathematics:
        """What an explanation of a wrong result changes."""
        values = {name: decode_operand(operands[name]) for name in self.operands}
        return Mathematics(function=self.function, operands=values, outputs=tuple(self.formats), keyword_values=self.keywords)


def trace_outputs(
    function: Callable, operands: Iterable[Operand], formats: Mapping[str, str], arch: str, **named: object
) -> list[ExpectedOutput]:
    """What any launcher on `arch` must give for `function` of `operands`; `formats`: those of its outputs, by their names."""
    found = trace(function, [(each.format, np.ascontiguousarray(each.codes)) for each in operands], named, arch=arch)
    return [
        expected_output(name, format_name, each, before=None, run_record={}, exact=False)
        for (name, format_name), each in zip(formats.items(), found, strict=True)
    ]


def softmax(xp: ArrayNamespace, x: Array) -> Array:
    """exp(x) over its sum along a row."""
    powers = xp.exp(x - xp.max(x, axis=1, keepdims=True))  # (rows, columns)
    return powers / xp.sum(powers, axis=1, keepdims=True)


def rms_norm(xp: ArrayNamespace, x: Array, w: Array, *, eps: float) -> tuple[Array, Array]:
    """y (rows, columns) and r (rows,) for the weights w (columns,)."""
    r = 1 / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + eps)  # (rows, 1)
    return x * r * w, r[:, 0]


def rms_norm_with_gradients(xp: ArrayNamespace, x: Array, w: Array, dy: Array, *, eps: float) -> tuple[Array, ...]:
    """y and r as `rms_norm` has them, then dx (rows, columns) and dw (columns,)."""
    y, r = rms_norm(xp, x, w, eps=eps)
    inverse, scaled = r[:, None], dy * w  # (rows, 1), (rows, columns)
    dx = inverse * (scaled - x * (inverse * inverse * xp.mean(scaled * x, axis=1, keepdims=True)))  # (rows, columns)
    return y, r, dx, xp.sum(dy * x * inverse, axis=0)


def swiglu(xp: ArrayNamespace, a: Array, b: Array) -> Array:
    """a / (1 + exp(-a)) b."""
    return a / (1 + xp.exp(-a)) * b


def rope(xp: ArrayNamespace, x: Array, cos: Array, sin: Array) -> Array:
    """x (positions, heads, D) turned by cos and sin (positions, D / 2)."""
    half = x.shape[2] // 2
    left, right = x[:, :, :half], x[:, :, half:]  # (positions, heads, D / 2) each
    c, s = cos[:, None, :], sin[:, None, :]  # (positions, 1, D / 2) each
    return xp.concat([left * c - right * s, right * c + left * s], axis=2)


def dropout(xp: ArrayNamespace, x: Array, *, key: int, p: float) -> Array:
    """x / (1 - p) where the uniform number of the element's index is at least p, else 0."""
    number = uniform(key, np.arange(x.shape[0] * x.shape[1], dtype=np.uint64)).reshape(x.shape)  # (rows, columns)
    return xp.where(xp.asarray(number >= np.float32(p)), x / (1 - p), 0.0)


def cross_entropy(xp: ArrayNamespace, x: Array, targets: Array, *, smoothing: float, ignore_index: int) -> tuple[Array, Array]:
    """loss and lse (rows,) of logits x, for targets (rows,) of integers; 0 is the loss of a row whose target is `ignore_index`."""
    columns = x.shape[1]
    largest = xp.max(x, axis=1, keepdims=True)  # (rows, 1)
    lse = xp.squeeze(xp.log(xp.sum(xp.exp(x - largest), axis=1, keepdims=True)) + largest, axis=1)  # (rows,)
    is_counted = targets != ignore_index  # (rows,)
    at = xp.where(is_counted, targets, 0)  # (rows,)
    given = xp.squeeze(xp.take_along_axis(x, xp.expand_dims(at, axis=1), axis=1), axis=1)  # (rows,)
    loss = lse - given  # (rows,)
    if smoothing:
        loss = (1 - smoothing) * loss + smoothing * (lse - xp.sum(x, axis=1) / columns)  # (rows,)
    return xp.where(is_counted, loss, 0.0), lse


def cross_entropy_with_gradient(
    xp: ArrayNamespace, x: Array, targets: Array, g: Array, *, smoothing: float, ignore_index: int
) -> tuple[Array, Array, Array]:
    """loss and lse as `cross_entropy` has them, then dx (rows, columns) for the gradients g (rows,) of the losses."""
    loss, lse = cross_entropy(xp, x, targets, smoothing=smoothing, ignore_index=ignore_index)
    columns, given = x.shape[1], xp.expand_dims(targets, axis=1)  # (rows, 1)
    at = xp.asarray(np.arange(columns)[None, :]) == given  # (rows, columns)
    weights = smoothing / columns + xp.where(at, 1 - smoothing, 0.0)  # (rows, columns)
    dx = (xp.exp(x - xp.expand_dims(lse, axis=1)) - weights) * xp.expand_dims(g, axis=1)  # (rows, columns)
    return loss, lse, xp.where(given != ignore_index, dx, 0.0)


def attention(
    xp: ArrayNamespace, q: Array, k: Array, v: Array, *, scale: float | None, causal: bool, dtype: str
) -> tuple[Array, Array]:
    """o (batch, heads, m, D) and lse (batch, heads, m), to base 2, of q (batch, heads, m, D), k and v (batch, kv_heads, n, D).

    Causal: row i meets rows j <= i + n - m. A row that meets none has zeros and -inf. Powers may be kept in `dtype`."""
    heads, (m, d), n = q.shape[1], q.shape[2:], k.shape[2]
    k, v = (xp.repeat(each, heads // each.shape[1], axis=1) for each in (k, v))  # (batch, heads, n, D) each
    factor = (1 / xp.sqrt(xp.asarray(float(d))) if scale is None else scale) * float(np.log2(np.e))
    scores = xp.matmul(q, xp.matrix_transpose(k)) * factor  # (batch, heads, m, n)
    met = np.arange(n) <= (np.arange(m) + n - m)[:, None] if causal else np.ones((m, n), bool)  # (m, n)
    has_keys = xp.asarray(met.any(axis=1))  # (m,)
    scores = xp.where(xp.asarray(met), scores, -np.inf)  # (batch, heads, m, n)
    largest = xp.where(xp.expand_dims(has_keys, axis=1), xp.max(scores, axis=3, keepdims=True), 0.0)  # (batch, heads, m, 1)
    powers = xp.exp2(scores - largest)  # (batch, heads, m, n)
    total = xp.sum(powers, axis=3, keepdims=True)  # (batch, heads, m, 1)
    share = xp.where(xp.expand_dims(has_keys, axis=1), 1 / xp.where(total == 0, 1.0, total), 0.0)  # (batch, heads, m, 1)
    o = xp.matmul(xp.kept_in(powers, dtype), v) * share  # (batch, heads, m, D)
    lse = xp.squeeze(xp.log2(xp.where(total == 0, 1.0, total)) + largest, axis=3)  # (batch, heads, m)
    return o, xp.where(has_keys, lse, -np.inf)


def attention_with_gradients(
    xp: ArrayNamespace, q: Array, k: Array, v: Array, do: Array, *, scale: float | None, causal: bool, dtype: str
) -> tuple[Array, ...]:
    """o and lse as `attention` has them, then dq (batch, heads, m, D), dk and dv (batch, kv_heads, n, D). do is as o.

    Powers are taken of scores less lse, and delta of o as it is stored. They and their slopes may be kept in `dtype`."""
    o, lse = attention(xp, q, k, v, scale=scale, causal=causal, dtype=dtype)
    (batch, heads, m, d), (kv_heads, n) = q.shape, k.shape[1:3]
    keys, values = (xp.repeat(each, heads // kv_heads, axis=1) for each in (k, v))  # (batch, heads, n, D) each
    size = 1 / xp.sqrt(xp.asarray(float(d))) if scale is None else scale
    met = np.arange(n) <= (np.arange(m) + n - m)[:, None] if causal else np.ones((m, n), bool)  # (m, n)
    some = xp.asarray(met.any(axis=1))  # (m,)
    base = xp.expand_dims(xp.where(some, lse, 0.0), axis=3)  # (batch, heads, m, 1)
    scores = xp.matmul(q, xp.matrix_transpose(keys)) * (size * float(np.log2(np.e)))  # (batch, heads, m, n)
    powers = xp.where(xp.asarray(met), xp.exp2(xp.where(xp.asarray(met), scores - base, 0.0)), 0.0)  # (batch, heads, m, n)
    delta = xp.sum(xp.round_to(o, dtype) * do, axis=3, keepdims=True)  # (batch, heads, m, 1)
    slopes = xp.kept_in(powers * (xp.matmul(do, xp.matrix_transpose(values)) - delta), dtype)  # (batch, heads, m, n)
    dq = xp.matmul(slopes, keys) * size  # (batch, heads, m, D)

    def of_group(x: Array) -> Array:
        """(batch, kv_heads, rows of the group's heads, columns)."""
        return xp.reshape(x, (batch, kv_heads, heads // kv_heads * m, x.shape[3]))

    dk = xp.matmul(xp.matrix_transpose(of_group(slopes)), of_group(q)) * size  # (batch, kv_heads, n, D)
    dv = xp.matmul(xp.matrix_transpose(of_group(xp.kept_in(powers, dtype))), of_group(do))  # (batch, kv_heads, n, D)
    return o, lse, dq, dk, dv


def scaled_blocks(xp: ArrayNamespace, a: Array, b: Array, a_scale: Array, b_scale: Array) -> Array:
    """(M, N): the sum over blocks of K of products of a (M, K) and b (N, K), each times the scales of its block: a_scale (M,
    blocks), b_scale (blocks of N, blocks)."""
    of_columns = xp.repeat(b_scale, SCALE_BLOCK, axis=0)[: b.shape[0], :]  # (N, blocks)
    total: Any = 0.0
    for block in range(a_scale.shape[1]):
        taken = slice(block * SCALE_BLOCK, (block + 1) * SCALE_BLOCK)
        inner = xp.matmul(a[:, taken], xp.matrix_transpose(b[:, taken]))  # (M, N)
        total = total + inner * a_scale[:, block : block + 1] * xp.matrix_transpose(of_columns[:, block : block + 1])  # (M, N)
    return total
