"""The mean hinge loss of predictions and signs."""

import torch
from torch import nn


class Model(nn.Module):
    def forward(self, predictions, targets):
        return torch.mean(torch.clamp(1 - predictions * targets, min=0))


batch_size = 200


def get_inputs():
    return [torch.randn(batch_size, 1), torch.randint(0, 2, (batch_size, 1)).float() * 2 - 1]


def get_init_inputs():
    return []
