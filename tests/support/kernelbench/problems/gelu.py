"""GELU by the error function."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return F.gelu(x)


batch_size = 16
dim = 200


def get_inputs():
    return [torch.randn(batch_size, dim)]


def get_init_inputs():
    return []
