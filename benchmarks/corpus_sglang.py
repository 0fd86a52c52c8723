"""SGLang: launchers of `sglang.kernels.ops`, each against the equation in torch.

`sglang` itself imports the whole server. So the package stands as a namespace, and its kernels are imported from it alone; native
extensions are not loaded. Operands of products and quantised rows are drawn so that the exact result is representable, and values
of attention are positive: so torch's own tolerances hold, whatever the order of a kernel's sums."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.corpus_entry import Compared, Entry, Given, Package, compared, on_cpu


def as_namespace() -> None:
    """Put a package without code at `sglang`, and none at `kernels`, which a checkout of this project has."""
    found = ModuleType("sglang")
    found.__path__ = [str(Path(each, "sglang")) for each in sys.path if Path(each, "sglang", "kernels").is_dir()]
    sys.modules["sglang"] = found
    sys.modules["kernels"] = None  # type: ignore[assignment]


NEEDS = ("cbor2==6.3.0", "cloudpickle==3.1.2", "einops==0.8.1", "huggingface_hub==2.4.0", "msgspec==0.20.0", "orjson==3.11.4")
NEEDS += ("pillow==13.0.0", "pybase64==1.4.2", "regex==2025.11.3", "safetensors==0.8.0", "tokenizers==0.23.3", "tqdm==4.70.1")
NEEDS += ("transformers==5.24.0",)
SGLANG = Package("sglang", "0.5.23", needs=NEEDS, prepare=as_namespace)
ENTRIES: list[Entry] = []
BF16, FP8, I32 = torch.bfloat16, torch.float8_e4m3fn, torch.int32


def launch_entry(
    package: Package,
    name: str,
    path: str,
    operands: Callable[[Given], Sequence[Any]],
    reference: Callable[..., Any],
    call: Callable[..., Any] = lambda function, *given: function(*given),
) -> Entry:
    """An entry for the function at `path` of its package: `call(function, *operands)` against the reference in float64."""

    def run(given: Given) -> Iterator[Compared]:
        module, function = path.rsplit(".", 1)
        drawn = operands(given)
        expected = reference(*on_cpu(drawn))
        yield from compared(call(getattr(importlib.import_module(module), function), *drawn), expected)

    return Entry(package, name, run)


def add(name: str, path: str, operands: Callable, reference: Callable, **more: Any) -> None:
    ENTRIES.append(launch_entry(SGLANG, name, f"sglang.kernels.ops.{path}", operands, reference, **more))


def whole(given: Given, *values: Any, dtype: torch.dtype = I32) -> Tensor:
    return given.place(torch.tensor(values, dtype=dtype))


def integers(given: Given, *shape: int, dtype: torch.dtype = BF16, top: int = 3) -> Tensor:
    """Small integers, whose products and sums are exact in each format."""
    return given.place(given.integers(-top, top + 1, *shape).cpu().float().to(dtype))


def quantised_rows(given: Given, dtype: torch.dtype, top: float, group: int, rows: int = 5, width: int = 256) -> Tensor:
    """Rows that are codes of `dtype` times 1/32, with the code `top` in each group."""
    codes = (given.normal(rows, width, scale=top / 4).cpu().clamp(-top, top)).to(dtype).float()
    codes[:, ::group] = top
    return given.place(codes / 32)


def codes_and_scales(group: int) -> Callable[..., Any]:
    return lambda x, *_: (x * 32, torch.full((x.shape[0], x.shape[1] // group), 1 / 32))


def as_numbers(function: Callable, *given: Any) -> Any:
    """What a quantising `function` gives, codes as numbers."""
    codes, scales = function(*given)[:2]
    return codes.float(), scales


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False) -> tuple[Tensor, Tensor]:
    """(n, h, d) for queries, (m, g, d) for keys; the last query sees all keys where `causal`. The result and its log-sum-exp."""
    k, v = (each.repeat_interleave(q.shape[1] // each.shape[1], 1) for each in (k, v))
    scores = torch.einsum("nhd,mhd->hnm", q, k) * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[1:]).triu(k.shape[0] - q.shape[0] + 1).bool(), -torch.inf)
    return torch.einsum("hnm,mhd->nhd", scores.softmax(-1), v), scores.logsumexp(-1).T


def by_sequence(q: Tensor, k: Tensor, v: Tensor, queries: Sequence[int], keys: Sequence[int], causal: bool = False) -> list[Tensor]:
    """Attention of sequences that lie one behind the other, by how many queries and keys each has: [result, log-sum-exp]."""
    parts = zip(q.split(list(queries)), k.split(list(keys)), v.split(list(keys)), strict=True)
    return [torch.cat(each) for each in zip(*(attention(*part, causal) for part in parts), strict=True)]


def merged(first: Tensor, lse: Tensor, second: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
    total = torch.logaddexp(lse, other)
    return first * (lse - total).exp()[..., None] + second * (other - total).exp()[..., None], total


def rms(x: Tensor, weight: Tensor | float = 1.0, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def awq_weights(packed: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
    """Four bits each, of eight columns in the order 0 2 4 6 1 3 5 7 (AWQ)."""
    nibbles = [torch.stack([(each >> 4 * at) & 15 for at in (0, 4, 1, 5, 2, 6, 3, 7)], -1).flatten(1) for each in (packed, zeros)]
    rows = packed.shape[0] // scales.shape[0]
    return (nibbles[0] - nibbles[1].repeat_interleave(rows, 0)) * scales.repeat_interleave(rows, 0)


def awq_operands(given: Given, rows: int = 128, columns: int = 64) -> tuple:
    packed, zeros = (given.integers(-(2**31), 2**31, count, columns // 8, dtype=I32) for count in (rows, rows // 64))
    return packed, given.place(2.0 ** given.integers(-3, 1, rows // 64, columns).cpu().half()), zeros


def block_scaled(a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor, *_: Any) -> Tensor:
    """Products of (m, k) and (n, k) with a scale for each 1x128 of `a` and each 128x128 of `b`."""
    wide = b_scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[: b.shape[0]]
    return (a * a_scales.repeat_interleave(128, 1)) @ (b * wide).T


def block_operands(given: Given, dtype: torch.dtype = FP8) -> tuple:
    a, b = integers(given, 33, 256, dtype=dtype), integers(given, 160, 256, dtype=dtype)
    return a, b, *(given.place(2.0 ** given.integers(-2, 2, *shape).cpu().float()) for shape in ((33, 2), (2, 2))), [128, 128]


def delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """Gated delta rule, step by step: (b, t, h, d), gates and beta (b, t, h)."""
    state, results = torch.zeros(*v[:, 0].shape, k.shape[-1], dtype=v.dtype), []
    for t in range(q.shape[1]):
        state = state * g[:, t].exp()[..., None, None]
        change = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhvk,bhk->bhv", state, k[:, t]))
        state = state + change[..., None] * k[:, t, :, None]
        results.append(torch.einsum("bhvk,bhk->bhv", state, q[:, t]) * q.shape[-1] ** -0.5)
    return torch.stack(results, 1)


def delta_operands(given: Given, steps: int = 9, heads: int = 2, width: int = 32) -> tuple:
    q, k = (given.place(functional.normalize(given.normal(2, steps, heads, width).cpu(), dim=-1)) for _ in range(2))
    gates = given.place(functional.logsigmoid(given.normal(2, steps, heads).cpu()))
    return q, k, given.normal(2, steps, heads, width), gates, given.uniform(0.0, 1.0, 2, steps, heads)


def state_update(state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, z: Tensor, bias: Tensor) -> Any:
    """One step of Mamba's selective scan, by heads: the result and the new state."""
    dt = functional.softplus(dt + bias)[..., None]
    b, c = (each.repeat_interleave(x.shape[1] // each.shape[1], 1)[:, :, None] for each in (b, c))
    state = state * (dt * a).exp() + dt * b * x[..., None]
    return ((state * c).sum(-1) + d * x) * functional.silu(z), state


def state_operands(given: Given) -> tuple:
    heads = [given.normal(2, 4, 16) for _ in range(3)]
    return (given.normal(2, 4, 16, 16), heads[0], heads[1], given.uniform(-2.0, -1.0, 4, 16, 16), given.normal(2, 2, 16),
            given.normal(2, 2, 16), given.normal(4, 16), heads[2], given.uniform(-4.0, -3.0, 4, 16))  # fmt: skip


def updated_state(function: Callable, state: Tensor, *given: Any) -> tuple[Tensor, Tensor]:
    *operands, d, z, bias = given
    out = torch.empty_like(operands[0])
    function(state, *operands, D=d, z=z, dt_bias=bias, dt_softplus=True, out=out)
    return out, state


def convolved(x: Tensor, state: Tensor, weight: Tensor, bias: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    window = torch.cat([state, x[..., None]], -1)
    return functional.silu((window * weight).sum(-1) + bias), window[..., 1:]


def decoded(function: Callable, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> Tensor:
    """`decode_attention_fwd` with the keys of each sequence behind those of the one before, in at most three splits."""
    out, ends = torch.empty_like(q), torch.tensor([0, *lengths]).cumsum(0).to(q.device, I32)
    logits, lse = (torch.empty(q.shape[0], q.shape[1], 3, *more, device=q.device) for more in ((v.shape[-1],), ()))
    splits = torch.full((q.shape[0],), 3, dtype=I32, device=q.device)
    at = torch.arange(sum(lengths), device=q.device)
    function(q, k, v, out, ends, at, logits, lse, splits, 3, q.shape[-1] ** -0.5, 1.0, 1.0)
    return out


def extended(function: Callable, q: Tensor, k: Tensor, v: Tensor, queries: Sequence[int], keys: Sequence[int]) -> Tensor:
    """`extend_attention_fwd`: the last keys of each sequence are those of its queries, those before them lie in the buffer."""
    out, starts = torch.empty_like(q), torch.tensor([0, *keys]).cumsum(0).tolist()
    old = [range(start, start + n - m) for start, n, m in zip(starts, keys, queries, strict=False)]
    new = [at for each, m in zip(old, queries, strict=True) for at in range(each.stop, each.stop + m)]
    ends, before = (torch.tensor([0, *each]).cumsum(0).to(q.device, I32) for each in (queries, map(len, old)))
    at = torch.tensor([i for each in old for i in each], device=q.device)
    function(q, k[new], v[new], out, k, v, ends, before, at, None, True, None, max(queries), 1.0, 1.0)
    return out


def prefilled(function: Callable, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int], *_: Any) -> Tensor:
    out, starts = torch.empty_like(q), torch.tensor([0, *lengths[:-1]]).cumsum(0).to(q.device, I32)
    function(q, k, v, out, starts, torch.tensor(lengths, device=q.device, dtype=I32), max(lengths))
    return out


def attention_operands(
    given: Given, queries: int, keys: int, heads: int = 4, kv_heads: int = 2, dtype: torch.dtype = BF16
) -> tuple:
    return (given.normal(queries, heads, 64, dtype=dtype), given.normal(keys, kv_heads, 64, dtype=dtype),
            given.uniform(0.5, 1.5, keys, kv_heads, 64, dtype=dtype))  # fmt: skip


def kv_indices(kernel: Any, table: Tensor, rows: Tensor, lengths: Tensor, ends: Tensor) -> Tensor:
    out = torch.empty(int(lengths.sum()), dtype=I32, device=table.device)
    kernel[(len(rows),)](table, rows, lengths, ends, None, out, table.stride(0))
    return out


def kept(p: Tensor, keep: Tensor) -> Tensor:
    p = p.masked_fill(~keep, 0.0)
    return p / p.sum(-1, keepdim=True)


def mass_to(p: Tensor) -> Tensor:
    """The mass of what is at most as probable."""
    return (p[:, None] * (p[:, None] <= p[:, :, None])).sum(-1)


def probabilities(given: Given) -> Tensor:
    return given.place(given.normal(4, 100).cpu().softmax(-1))


add("merge_state", "attention.merge_state.merge_state_triton",
    lambda g: (g.normal(5, 4, 48), g.normal(5, 4), g.normal(5, 4, 48), g.normal(5, 4)), merged)  # fmt: skip
for _name, _heads, _dtype in (("decode attention", 2, torch.float32), ("decode attention, grouped", 8, BF16)):
    add(_name, "attention.decode_attention.decode_attention_fwd",
        lambda g, n=_heads, d=_dtype: (*attention_operands(g, 3, 90, n, dtype=d), (7, 33, 50)),
        lambda q, k, v, keys: by_sequence(q, k, v, (1, 1, 1), keys)[0], call=decoded)  # fmt: skip
add("extend attention", "attention.extend_attention.extend_attention_fwd",
    lambda g: (*attention_operands(g, 14, 60), (9, 5), (20, 40)),
    lambda q, k, v, *of: by_sequence(q, k, v, *of, causal=True)[0], call=extended)  # fmt: skip
add("prefill attention", "attention.prefill_attention.context_attention_fwd", lambda g: (*attention_operands(g, 50, 50), (17, 33)),
    lambda q, k, v, of: by_sequence(q, k, v, of, of, causal=True)[0], call=prefilled)  # fmt: skip
add("kv indices", "attention.kv_indices.create_flashinfer_kv_indices_triton",
    lambda g: (g.integers(0, 999, 6, 600, dtype=I32), whole(g, 4, 1), whole(g, 7, 560), whole(g, 0, 7)),
    lambda table, rows, lengths, _: torch.cat([table[r, :n] for r, n in zip(rows, lengths, strict=True)]),
    call=kv_indices)  # fmt: skip
add("positions", "attention.position.compute_position_triton", lambda g: (whole(g, 3, 0, 8), whole(g, 5, 2, 6), 13),
    lambda old, new, _: (torch.cat([torch.arange(n) + o for o, n in zip(old, new, strict=True)]), new.cumsum(0) - new))  # fmt: skip
add("rotary embedding", "diffusion.rope.rotary_triton.apply_rotary_embedding",
    lambda g: (g.normal(2, 9, 4, 32), g.normal(9, 16), g.normal(9, 16)), lambda x, cos, sin: torch.view_as_real(
        torch.view_as_complex(x.unflatten(-1, (-1, 2))) * torch.complex(cos, sin)[:, None]).flatten(-2))  # fmt: skip
add("layer norm", "diffusion.norm.norm_triton.norm_infer", lambda g: (g.normal(13, 100), g.normal(100), g.normal(100), 1e-6),
    lambda x, w, b, eps: functional.layer_norm(x, (100,), w, b, eps))  # fmt: skip
add("fused_dual_residual_rmsnorm", "layernorm.fused_rmsnorm.fused_dual_residual_rmsnorm",
    lambda g: (g.normal(13, 100), g.normal(13, 100), g.normal(100), g.normal(100), 1e-6),
    lambda x, r, w, v, eps: (rms(r + rms(x, w), v), r + rms(x, w)))  # fmt: skip
add("softcap", "activation.softcap.softcap_inplace_logits", lambda g: (g.normal(13, 100, scale=30.0), 20.0),
    lambda x, cap: cap * (x / cap).tanh())  # fmt: skip
add("awq_dequantize", "quantization.awq_triton.awq_dequantize_triton", awq_operands, awq_weights)
for _name, _dtype, _top in (("per_token_group_quant_int8", torch.int8, 127.0), ("act_quant, fp8", FP8, 448.0)):
    add(_name, f"quantization.{'int8_kernel.' + _name if _top < 200 else 'act_quant_triton.act_quant'}",
        lambda g, d=_dtype, t=_top: (quantised_rows(g, d, t, 128), 128), codes_and_scales(128), call=as_numbers)  # fmt: skip
add("to_mxfp8", "quantization.mxfp8_quant.to_mxfp8", lambda g: (quantised_rows(g, FP8, 320.0, 32),),
    lambda x: (x * 32, torch.full((5, 8), 127 - 5)), call=as_numbers)  # fmt: skip
add("w8a8_block_int8_matmul", "gemm.int8_kernel.w8a8_block_int8_matmul", lambda g: block_operands(g, torch.int8), block_scaled)
add("top_k_renorm_probs", "sampling.renorm_triton.top_k_renorm_probs_triton", lambda g: (probabilities(g), 7),
    lambda p, k: kept(p, p >= p.topk(k).values[:, -1:]))  # fmt: skip
add("top_p_renorm_probs", "sampling.renorm_triton.top_p_renorm_probs_triton", lambda g: (probabilities(g), 0.8),
    lambda p, top: kept(p, mass_to(p) >= 1 - top))  # fmt: skip
add("temperature_softmax", "sampling.temperature_softmax.temperature_softmax",
    lambda g: (g.normal(3, 5000), g.uniform(0.5, 2.0, 3, 1)),
    lambda x, t: (x / t).softmax(-1))  # fmt: skip
add("gate_topk", "moe.gate_topk.gate_topk", lambda g: (g.normal(13, 60), 4), lambda x, k: x.topk(k))
add("moe_fused_mul_sum", "moe.moe_fused_mul_sum.moe_fused_mul_sum", lambda g: (g.normal(13, 4, 100), g.uniform(0.0, 1.0, 13, 4)),
    lambda x, w: (x * w[..., None]).sum(1))  # fmt: skip
add("fused_moe_router", "moe.router.fused_moe_router_cudacore", lambda g: (g.normal(13, 100), g.normal(16, 100), 2, 30.0),
    lambda x, w, k, cap: tuple((cap * (x @ w.T / cap).tanh()).softmax(-1).topk(k)))  # fmt: skip
add("selective_state_update", "mamba.triton_ops.mamba_ssm.selective_state_update", state_operands, state_update, call=updated_state)
add("causal_conv1d_update", "mamba.causal_conv1d_triton.causal_conv1d_update",
    lambda g: (g.normal(3, 48), g.normal(3, 48, 3), g.normal(48, 4), g.normal(48), "silu"), convolved,
    call=lambda update, x, state, *given: (update(x, state, *given), state))  # fmt: skip
add("fused_recurrent_gated_delta_rule", "attention.fla.fused_recurrent.fused_recurrent_gated_delta_rule", delta_operands,
    delta_rule, call=lambda function, *given: function(*given)[0])  # fmt: skip
add("row_argmax", "speculative.row_argmax.row_argmax", lambda g: (g.normal(3, 5000),), lambda x: x.argmax(-1))
