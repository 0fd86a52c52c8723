"""C = A^T B^T."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, A, B):
        return torch.matmul(A.T, B.T)


M = 40
K = 72
N = 56


def get_inputs():
    return [torch.randn(K, M), torch.randn(N, K)]


def get_init_inputs():
    return []
