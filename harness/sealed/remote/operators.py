"""Which of torch's operators the executor runs for a candidate, by name in torch's schema.

Operators of `aten` only. Those that read files, take addresses, trust their arguments, or are torch's own insides are refused by
name: an index out of bounds that nobody checks would write memory that is not the candidate's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import torch

from bitverdict.harness.emulator.faults import EmulatedFault
from bitverdict.harness.model.torch_internals import OpOverloadPacket, schema_of
from bitverdict.harness.sealed.remote.operator_arguments import known_backward

_NAME = re.compile(r"aten\.([A-Za-z0-9_]{1,80})\.([A-Za-z0-9_]{1,80})")
INSIDE = frozenset(
    {
        "_to_copy", "_local_scalar_dense", "_unsafe_view", "_reshape_alias", "_reshape_copy", "_softmax", "_softmax_backward_data",
        "_log_softmax", "_log_softmax_backward_data", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training",
        "_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d", "_adaptive_avg_pool3d_backward",
        "_cdist_forward", "_euclidean_dist", "_fused_dropout", "_conj", "_neg_view", "_conj_physical", "_is_all_true",
        "_is_any_true", "_unique", "_unique2", "_weight_norm_interface", "_trilinear", "_stack", "_scaled_mm", "_int_mm",
        "_addmm_activation", "_prelu_kernel", "_prelu_kernel_backward", "_linalg_det", "_linalg_svd", "_linalg_eigh",
        "_linalg_slogdet", "_linalg_solve_ex", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
        "_scaled_dot_product_flash_attention_for_cpu", "_safe_softmax", "_fft_r2c", "_fft_c2r", "_fft_c2c",
    }
)  # fmt: skip
"""Operators whose names begin with an underscore and that torch's own public functions come to."""
REFUSED_OPERATORS = frozenset(
    {
        "from_file", "set_", "set", "data", "record_stream", "fbgemm_pack_gemm_matrix_fp16", "to_mkldnn", "ctc_loss",
        "batch_norm_update_stats", "batch_norm_backward_reduce", "batch_norm_elemt", "batch_norm_backward_elemt",
        "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_stats",
    }
)  # fmt: skip
_REFUSED_STARTS = (
    "quantize", "fake_quantize", "dequantize", "mkldnn", "cudnn", "miopen", "fbgemm", "q_", "sparse", "to_sparse", "to_padded",
)  # fmt: skip


_DUNDER = re.compile(r"__i?[a-z]+__")  # of Python's operators: __and__, __ilshift__
ALLOWED_OPERATORS = frozenset({"aten.set_.source_Tensor"})


@lru_cache(maxsize=4096)
def operator(name: str) -> Any:
    """The operator that `name` ("aten.add.Tensor") leads to. EmulatedFault, by name, for one that is not run for a candidate."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise _refusal(name[:200])
    base, overload = found.groups()
    inside = base.startswith("_") and base not in INSIDE and not base.startswith("_foreach_") and not _DUNDER.fullmatch(base)
    if name not in ALLOWED_OPERATORS and (inside or base in REFUSED_OPERATORS or base.startswith(_REFUSED_STARTS)):
        raise _refusal(name)
    if "_backward" in base and not known_backward(base):  # it trusts what a forward operator would have saved
        raise _refusal(name)
    packet = getattr(torch.ops.aten, base, None)
    if not isinstance(packet, OpOverloadPacket) or overload not in packet.overloads():
        raise _refusal(name)
    made = getattr(packet, overload)
    if "Tensor" not in str(schema := schema_of(made)):  # of numbers alone: Python does it itself
        raise _refusal(name)
    if overload.startswith("prim_") or any(argument.name == "unsafe" for argument in schema.arguments):
        raise _refusal(name)  # TorchScript's own forms take a dtype for a number without a look at it
    return made


def _refusal(name: str) -> EmulatedFault:
    return EmulatedFault("error", f"torch operator {name!r}: is not run for a launcher in a process of its own")


__all__ = ["operator"]
