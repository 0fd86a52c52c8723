"""y = silu((x - mean) / sqrt(var + eps) * w[c] + b[c]), with mean and var over the channels of a group and all positions."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def group_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, positions, size, eps, PER_GROUP: tl.constexpr, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    first = (tl.program_id(1) * tl.num_programs(0) + group) * size
    mean = 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mean += tl.sum(tl.load(x_ptr + first + at, mask=at < size, other=0.0).to(tl.float32), axis=0)
    mean = mean / size
    var = 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + at, mask=at < size, other=0.0).to(tl.float32)
        centred = tl.where(at < size, x - mean, 0.0)
        var += tl.sum(centred * centred, axis=0)
    var = var / size
    rstd = tl.rsqrt(var + eps)
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        channel = group * PER_GROUP + at // positions
        x = tl.load(x_ptr + first + at, mask=at < size, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + channel, mask=at < size, other=0.0)
        b = tl.load(b_ptr + channel, mask=at < size, other=0.0)
        z = (x - mean) * rstd * w + b
        tl.store(y_ptr + first + at, z * tl.sigmoid(z), mask=at < size)


def group_norm(x, w, b, groups):
    batch, channels, positions = x.shape
    y = torch.empty_like(x)
    per_group = channels // groups
    group_norm_kernel[(groups, batch)](x, w, b, y, positions, per_group * positions, 1e-3, PER_GROUP=per_group, BLOCK=128)
    return y


def reference(xp, x, w, b, groups):
    g = xp.reshape(x, (x.shape[0], groups, -1))
    centred = g - xp.mean(g, axis=2, keepdims=True)
    normed = xp.reshape(centred / xp.sqrt(xp.mean(centred * centred, axis=2, keepdims=True) + 1e-3), x.shape)
    z = normed * w[:, None] + b[:, None]
    return z / (1 + xp.exp(-z))


@bv.judged(reference=reference)
def test_group_norm(draw):
    groups, per_group, positions = draw.size(1, 4, name="groups"), draw.size(1, 5), draw.size(1, 70, around=32)
    dtype, channels = draw.choice(("fp32", "fp16")), groups * per_group
    x = draw.tensor(dtype, (draw.size(1, 3), channels, positions))
    return group_norm(x, draw.tensor("fp32", (channels,)), draw.tensor("fp32", (channels,)), groups)
