"""A linear layer, scaled and added to what it gives."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, in_features, out_features, scale):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)
        self.scale = scale

    def forward(self, x):
        y = self.linear(x)
        return y * self.scale + y.clone().detach()


batch_size = 16
in_features = 40
out_features = 24
scale = 0.5


def get_inputs():
    return [torch.randn(batch_size, in_features)]


def get_init_inputs():
    return [in_features, out_features, scale]
