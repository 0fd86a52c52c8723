"""ReLU of a matrix."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


batch_size = 16
dim = 200


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
