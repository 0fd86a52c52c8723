"""bf16 of fp32: 16 random bits are added to the word, and its low half is cut."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def stochastic_round_kernel(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(x_ptr + at, mask=at < n, other=0.0).to(tl.int32, bitcast=True)
    noise = tl.randint(seed, at).to(tl.int32, bitcast=True) & 0xFFFF
    word = (word + noise) & -65536
    tl.store(y_ptr + at, word.to(tl.float32, bitcast=True), mask=at < n)


def stochastic_round(x, seed):
    y = torch.empty(x.shape, dtype=torch.bfloat16, device=x.device)
    stochastic_round_kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), seed, BLOCK=128)
    return y


def reference(xp, x, seed):
    noise = xp.astype(xp.philox(seed, xp.arange(x.shape[0]))[0] & 65535, xp.int32)
    return xp.from_bits((xp.bits(x, "int32") + noise) & -65536, "fp32")


@bv.judged(reference=reference)
def test_stochastic_round(draw):
    return stochastic_round(draw.tensor("fp32", draw.size(1, 500, around=128)), draw.size(1, 99, name="seed"))
