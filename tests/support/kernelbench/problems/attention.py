"""Scaled dot products of queries and keys weigh values."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, Q, K, V):
        return F.scaled_dot_product_attention(Q, K, V)


batch_size = 2
heads = 2
length = 24
dimension = 16


def get_inputs():
    return [
        torch.randn(batch_size, heads, length, dimension),
        torch.randn(batch_size, heads, length, dimension),
        torch.randn(batch_size, heads, length, dimension),
    ]


def get_init_inputs():
    return []
