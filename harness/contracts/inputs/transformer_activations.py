"""Values as users quantize them: what enters and what weighs the feed-forward product of a small transformer layer.

The layer is made here, by torch, from a seed: nothing is downloaded. Its input has a few channels far larger than the others, as
trained models have, which is what block scales are for.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

TOKENS_AT_ONCE = 64
_OUTLIER_EVERY = 61  # channels


@lru_cache(maxsize=8)
def activations(tokens: int, width: int, data_seed: int) -> np.ndarray:
    """(tokens, width) float32: what reaches the feed-forward part after self-attention, residual and layer norm."""
    import torch

    layer = _layer(width, data_seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(data_seed + 1)
        stream = torch.randn(tokens, width)  # (tokens, width)
        stream[:, ::_OUTLIER_EVERY] *= 20.0
        parts = []
        for start in range(0, tokens, TOKENS_AT_ONCE):  # a sequence each
            part = stream[None, start : start + TOKENS_AT_ONCE]  # (1, tokens, width)
            attended, _ = layer.self_attn(layer.norm1(part), layer.norm1(part), layer.norm1(part), need_weights=False)
            parts.append(layer.norm2(part + attended)[0])
    return torch.cat(parts).numpy() if parts else np.zeros((0, width), np.float32)


@lru_cache(maxsize=8)
def weights(outputs: int, width: int, data_seed: int) -> np.ndarray:
    """(outputs, width) float32: rows of the layer's first feed-forward matrix, as many as asked for."""
    hidden = _layer(width, data_seed).linear1.weight.detach().numpy()  # (hidden, width)
    return np.ascontiguousarray(np.resize(hidden, (outputs, width)))


@lru_cache(maxsize=8)
def _layer(width: int, data_seed: int) -> Any:
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data_seed)
        return torch.nn.TransformerEncoderLayer(width, nhead=1, dim_feedforward=256, norm_first=True, batch_first=True).eval()
