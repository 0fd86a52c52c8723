"""C[i] = A[i] B[i]."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.bmm(A, B)


batch_size = 4
m = 24
k = 40
n = 32


def get_inputs():
    return [torch.randn(batch_size, m, k), torch.randn(batch_size, k, n)]


def get_init_inputs():
    return []
