"""vLLM: launchers of its Triton kernels, each against the equation in torch (those that `corpus_sglang` holds to as well).

`vllm` and the modules of these kernels load as they are, on its CUDA platform that asks no NVML; native extensions are not loaded.
Modules that import the engine (fused MoE, penalties, Mamba's scan) are left out: they need its server's packages."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.corpus_entry import Entry, Given, Package
from benchmarks.corpus_sglang import (
    FP8,
    I32,
    NEEDS,
    attention_operands,
    awq_operands,
    awq_weights,
    by_sequence,
    delta_operands,
    delta_rule,
    integers,
    launch_entry,
    mass_to,
    merged,
    prefilled,
    quantised_rows,
    rms,
    whole,
)


def prepare_platform() -> None:
    """The platform is CUDA's where no NVML is, its extensions empty: asked whether they have a kernel for a chip, they say no.
    There is no module `kernels`, which a checkout of this project has."""
    sys.modules["vllm._C"] = sys.modules["kernels"] = None  # type: ignore[assignment]
    for name in ("vllm._C_stable_libtorch", "vllm.vllm_flash_attn._vllm_fa2_C"):
        sys.modules[name] = ModuleType(name)
    for question in ("scaled_mm_supports_fp8", "scaled_mm_supports_block_fp8", "scaled_mm_supports_fp4", "group_gemm_supported"):
        EXTENSION.define(f"cutlass_{question}(int capability) -> bool")
        EXTENSION.impl(f"cutlass_{question}", lambda _: False, "CompositeImplicitAutograd")
    platforms = importlib.import_module("vllm.platforms")
    platforms._current_platform = importlib.import_module("vllm.platforms.cuda").NonNvmlCudaPlatform()
    importlib.import_module("vllm.lora.ops.triton_ops")


EXTENSION = torch.library.Library("_C", "FRAGMENT")
VLLM = Package("vllm", "0.33.0", needs=NEEDS, prepare=prepare_platform)
ENTRIES: list[Entry] = []
OPS, LAYERS, FLA = "v1.attention.ops", "model_executor.layers", "third_party.flash_linear_attention.ops"


def add(name: str, path: str, operands: Callable, reference: Callable, **more: Any) -> None:
    ENTRIES.append(launch_entry(VLLM, name, f"vllm.{path}", operands, reference, **more))


def filled(function: Callable, *given: Any) -> Any:
    """The first operand, which `function` writes."""
    function(*given)
    return given[0]


def decoded(function: Callable, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    out, lse, starts = (
        torch.empty_like(q),
        torch.empty(q.shape[:2], device=q.device),
        [sum(lengths[:i]) for i in range(len(lengths))],
    )
    table = torch.tensor([[start + at for at in range(max(lengths))] for start in starts], device=q.device, dtype=I32)
    logits = torch.empty(*q.shape[:2], 4, v.shape[-1] + 1, device=q.device)
    ends = torch.tensor(lengths, device=q.device, dtype=I32)
    function(q, k[:, None], v[:, None], out, lse, table, ends, logits, 4, q.shape[-1] ** -0.5)
    return out, lse


def paged(function: Callable, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """`unified_attention` of 1 and 9 queries with 33 and 20 keys, in pages of 16."""
    out = torch.empty_like(q)
    table, ends, keys = (torch.tensor(each, device=q.device, dtype=I32) for each in ([[0, 1, 2], [3, 4, 0]], [0, 1, 10], [33, 20]))
    k, v = (each.unflatten(0, (-1, 16)) for each in (k, v))
    function(q, k, v, out, ends, 9, keys, 33, q.shape[-1] ** -0.5, True, (-1, -1), table, 0, None, None, None)
    return out


def sampled(x: Tensor, k: Tensor, p: Tensor) -> Tensor:
    x = x.masked_fill(x < x.sort(-1, descending=True).values.gather(1, k[:, None] - 1), -torch.inf)
    return x.masked_fill(mass_to(x.softmax(-1)) < 1 - p[:, None], -torch.inf)


def merge(function: Callable, *given: Tensor) -> tuple[Tensor, Tensor]:
    out, lse = torch.empty_like(given[0]), torch.empty_like(given[1])
    function(out, *given, lse)
    return out, lse


def lora_map(given: Given) -> list[Tensor]:
    """Of 13 tokens: which of two adapters each takes, and the tokens of each in turn; flag and count on the CPU."""
    taken = given.integers(0, 2, 13, dtype=I32)
    counts = torch.bincount(taken.cpu(), minlength=2).to(I32)
    rows, lengths, starts = taken.argsort(stable=True).to(I32), [0, *counts.tolist()], [0, 0, *counts.cumsum(0).tolist()]
    return [
        taken,
        rows,
        whole(given, *lengths),
        whole(given, *starts),
        whole(given, -1, 0, 1),
        torch.tensor([False]),
        torch.tensor([3]),
    ]


def shrink(function: Callable, x: Tensor, weight: Tensor, *at: Any) -> Tensor:
    return filled(lambda out: function(x, [weight], out, *at, 0.5), torch.zeros(1, len(x), weight.shape[1], device=x.device))[0]


def expand(function: Callable, x: Tensor, weight: Tensor, *at: Any) -> Tensor:
    return filled(
        lambda out: function(x[None], [weight], out, *at), torch.zeros(len(x), weight.shape[1], device=x.device, dtype=x.dtype)
    )


def scaled(a: Tensor, b: Tensor, left: Tensor, right: Tensor, *_: Any) -> Tensor:
    return (a.double() @ b.double()) * left * right.T


def scaled_operands(given: Given, dtype: torch.dtype) -> tuple:
    scales = (given.place(2.0 ** given.integers(-2, 2, rows, 1).cpu().float()) for rows in (33, 72))
    return integers(given, 33, 128, dtype=dtype), integers(given, 72, 128, dtype=dtype).T, *scales, torch.bfloat16


add("merge_attn_states", f"{OPS}.triton_merge_attn_states.merge_attn_states", call=merge, operands=lambda g: (g.normal(5, 4, 48),
    g.normal(4, 5), g.normal(5, 4, 48), g.normal(4, 5)),
    reference=lambda a, s, b, t: (merged(a, s.T, b, t.T)[0], torch.logaddexp(s, t)))  # fmt: skip
for _name, _heads, _type in (("decode attention", 2, torch.float32), ("decode attention, grouped", 8, torch.bfloat16)):
    add(_name, f"{OPS}.triton_decode_attention.decode_attention_fwd",
        lambda g, n=_heads, d=_type: (*attention_operands(g, 3, 90, n, dtype=d), (7, 33, 50)),
        lambda q, k, v, keys: by_sequence(q, k, v, (1, 1, 1), keys), call=decoded)  # fmt: skip
add("prefill attention", f"{OPS}.triton_prefill_attention.context_attention_fwd",
    lambda g: (*attention_operands(g, 50, 50), (17, 33)),
    lambda q, k, v, of: by_sequence(q, k, v, of, of, causal=True)[0], call=prefilled)  # fmt: skip
add("unified_attention", f"{OPS}.triton_unified_attention.unified_attention", lambda g: attention_operands(g, 10, 80),
    lambda q, k, v: by_sequence(q, *(torch.cat([x[:33], x[48:68]]) for x in (k, v)), (1, 9), (33, 20), causal=True)[0],
    call=paged)  # fmt: skip
add("pack_seq", f"{OPS}.common.pack_seq_triton", lambda g: (g.normal(20, 4, 30), whole(g, 3, 12, 5)),
    lambda x, of: torch.nn.utils.rnn.pad_sequence(x.split(of.tolist()), True, -torch.inf))  # fmt: skip
add("top_k_top_p", "v1.sample.ops.topk_topp_triton.apply_top_k_top_p_triton",
    lambda g: (g.normal(4, 300), whole(g, 7, 40, 300, 100), g.uniform(0.5, 0.9, 4)), sampled)  # fmt: skip
add("apply_min_p", "v1.worker.gpu.sample.min_p.apply_min_p",
    lambda g: (g.normal(3, 1500), whole(g, 2, 0, 1), g.uniform(0.1, 0.3, 3)),
    lambda x, at, p: x.masked_fill(x < x.amax(-1, True) + p[at.long(), None].log(), -torch.inf), call=filled)  # fmt: skip
add("gumbel_sample, greedy", "v1.worker.gpu.sample.gumbel.gumbel_sample", lambda g: (g.normal(3, 1500), whole(g, 2, 0, 1),
    g.place(torch.zeros(3)), whole(g, 1, 2, 3, dtype=torch.int64), whole(g, 5, 6, 7, dtype=torch.int64), True, False),
    lambda x, *_: x.argmax(-1))  # fmt: skip
for _name, _operands, _reference in (
    ("log_softmax", lambda g: (g.normal(13, 1500),), lambda x: x.log_softmax(-1)),
    ("mean_dim", lambda g: (g.normal(5, 70, 6), 1), lambda x, dim: x.mean(dim)),
    ("rms_norm_batch_invariant", lambda g: (g.normal(13, 100), g.normal(100)), rms),
):
    add(_name, f"model_executor.determinism.batch_invariant.{_name}", _operands, _reference)
add("awq_gemm", f"{LAYERS}.quantization.awq_triton.awq_gemm_triton",
    lambda g: (integers(g, 9, 128, dtype=torch.half), *awq_operands(g), 1),
    lambda x, *of: x @ awq_weights(*of[:3]), call=lambda f, x, w, s, z, k: f(x, w, s, z, k))  # fmt: skip
for _name, _dtype in (("scaled_mm, int8", torch.int8), ("scaled_mm, fp8", FP8)):
    add(_name, f"{LAYERS}.quantization.compressed_tensors.triton_scaled_mm.triton_scaled_mm",
        lambda g, d=_dtype: scaled_operands(g, d), scaled)  # fmt: skip
add("per_token_quant_int8", f"{LAYERS}.quantization.utils.int8_utils.per_token_quant_int8",
    lambda g: (quantised_rows(g, torch.int8, 127.0, 256),), lambda x: (x * 32, torch.full((5, 1), 1 / 32)))  # fmt: skip
add("fused_q_kv_rmsnorm", "models.common.ops.fused_qk_rmsnorm.fused_q_kv_rmsnorm", lambda g: (g.normal(13, 100), g.normal(13, 64),
    g.normal(100), g.normal(64), 1e-6), lambda q, k, w, v, eps: (rms(q, w), rms(k, v)))  # fmt: skip
add("rms_norm_gated", f"{LAYERS}.mamba.ops.layernorm_gated.rms_norm_gated", lambda g: (g.normal(13, 100), g.normal(100), None,
    g.normal(13, 100)), lambda x, w, _, z: rms(x, w) * functional.silu(z))  # fmt: skip
add("lora_shrink", "lora.ops.triton_ops.lora_shrink_op._lora_shrink",
    lambda g: (integers(g, 13, 96), integers(g, 2, 16, 96), *lora_map(g)),
    lambda x, w, at, *_: torch.einsum("nk,nrk->nr", x, w[at.long()]) / 2, call=shrink)  # fmt: skip
add("lora_expand", "lora.ops.triton_ops.lora_expand_op._lora_expand",
    lambda g: (integers(g, 13, 16), integers(g, 2, 96, 16), *lora_map(g)),
    lambda x, w, at, *_: torch.einsum("nk,nrk->nr", x, w[at.long()]), call=expand)  # fmt: skip
add("l2norm", f"{FLA}.l2norm.l2norm_fwd", lambda g: (g.normal(13, 100),), lambda x: functional.normalize(x, dim=-1))
add("fused_recurrent_gated_delta_rule", f"{FLA}.fused_recurrent.fused_recurrent_gated_delta_rule", delta_operands, delta_rule,
    call=lambda f, *given: f(
        *given, initial_state=torch.zeros(2, 2, 32, 32, device=given[0].device), inplace_final_state=False)[0])  # fmt: skip
add("solve_tril", f"{FLA}.solve_tril.solve_tril",
    lambda g: (g.place(torch.stack([g.normal(64, 64, scale=0.1).cpu().tril(-1) for _ in
    range(3)], 1)[None]),), lambda a: (torch.eye(64) + a.movedim(2, 1)).inverse().movedim(1, 2))  # fmt: skip
