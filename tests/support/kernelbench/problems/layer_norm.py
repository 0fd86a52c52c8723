"""Layer norm over the last axis, with weights."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        return self.norm(x)


batch_size = 8
length = 6
features = 72


def get_inputs():
    return [torch.randn(batch_size, length, features)]


def get_init_inputs():
    return [features]
