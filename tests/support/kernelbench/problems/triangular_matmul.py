"""The lower triangle of A B, both lower triangular."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.tril(torch.matmul(A, B))


N = 48


def get_inputs():
    return [torch.tril(torch.randn(N, N)), torch.tril(torch.randn(N, N))]


def get_init_inputs():
    return []
