"""Which of torch's operators the executor runs for a candidate, by name in torch's schema.

Operators of `aten` only. Those that read files, take addresses, trust their arguments, or are torch's own insides are refused: an
index out of bounds that nobody checks would write memory that is not the candidate's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import torch

from bitverdict.harness.emulator.remote.errors import WireError

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
        "_scaled_dot_product_flash_attention_for_cpu", "_safe_softmax", "_fft_r2c", "_fft_c2r", "_fft_c2c", "_chunk_cat",
    }
)  # fmt: skip
"""Operators whose names begin with an underscore and that torch's own public functions come to."""
REFUSED = frozenset({"from_file", "set_", "set", "data", "record_stream", "fbgemm_pack_gemm_matrix_fp16", "to_mkldnn"})
_REFUSED_STARTS = (
    "quantize", "fake_quantize", "dequantize", "mkldnn", "cudnn", "miopen", "fbgemm", "q_", "sparse", "to_sparse", "to_padded",
)  # fmt: skip


@lru_cache(maxsize=4096)
def operator(name: str) -> Any:
    """The operator that `name` ("aten.add.Tensor") leads to. WireError for one that is not run for a candidate."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise WireError(f"operator {name!r:.100}: must be one of aten, as aten.add.Tensor")
    base, overload = found.groups()
    foreach = base.startswith("_foreach_")
    if not foreach and (base in REFUSED or base.startswith(_REFUSED_STARTS) or (base.startswith("_") and base not in INSIDE)):
        raise WireError(f"operator {name}: is not run for a launcher")
    packet = getattr(torch.ops.aten, base, None)
    if packet is None or overload not in packet.overloads():
        raise WireError(f"operator {name}: torch {torch.__version__} has none")
    made = getattr(packet, overload)
    if any(argument.name == "unsafe" for argument in made._schema.arguments):
        raise WireError(f"operator {name}: is not run for a launcher")
    return made


__all__ = ["operator"]
