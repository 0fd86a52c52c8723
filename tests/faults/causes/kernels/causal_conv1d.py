"""y[b, c, t] = silu(bias[c] + sum over k of w[c, k] x[b, c, t - (K - 1) + k]), with zeros before the first position."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def causal_conv1d_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, channels, length, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    channel = tl.program_id(1)
    first = (tl.program_id(2) * channels + channel) * length
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for tap in range(TAPS):
        source = at - (TAPS - 1) + tap
        x = tl.load(x_ptr + first + source, mask=(source >= 0) & (source < length), other=0.0)
        acc += x * tl.load(w_ptr + channel * TAPS + tap)
    acc = acc + tl.load(bias_ptr + channel)
    tl.store(y_ptr + first + at, acc * tl.sigmoid(acc), mask=at < length)


def causal_conv1d(x, w, bias):
    batch, channels, length = x.shape
    y = torch.empty_like(x)
    causal_conv1d_kernel[(triton.cdiv(length, 64), channels, batch)](x, w, bias, y, channels, length, TAPS=w.shape[1], BLOCK=64)
    return y


def reference(xp, x, w, bias):
    taps, length = w.shape[1], x.shape[2]
    before = xp.concat([xp.zeros((*x.shape[:2], taps - 1)), x], axis=2)
    windows = xp.stack([before[:, :, k : k + length] for k in range(taps)], axis=3)
    z = xp.sum(windows * w[:, None, :], axis=3) + bias[:, None]
    return z / (1 + xp.exp(-z))


@bv.judged(reference=reference)
def test_causal_conv1d(draw):
    batch, channels, length, taps = draw.size(1, 2), draw.size(1, 5), draw.size(1, 100, around=64), draw.size(2, 4)
    x, w = draw.tensor("fp32", (batch, channels, length)), draw.tensor("fp32", (channels, taps))
    return causal_conv1d(x, w, draw.tensor("fp32", (channels,)))
