"""Softmax over the experts, the k largest of it (equal ones by number), normalised to a sum of 1, times a factor."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def moe_gating_kernel(
    logits_ptr, weights_ptr, experts_ptr, experts, factor, TOP: tl.constexpr, SLOTS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    token = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    logits = tl.load(logits_ptr + token * experts + cols, mask=cols < experts, other=-float("inf")).to(tl.float32)
    powers = tl.exp(logits - tl.max(logits, axis=0))
    shares = powers / tl.sum(powers, axis=0)
    rest = tl.where(cols < experts, shares, -1.0)
    slots = tl.arange(0, SLOTS)
    weights = tl.zeros((SLOTS,), tl.float32)
    chosen = tl.zeros((SLOTS,), tl.int32)
    for place in range(TOP):
        largest = tl.max(rest, axis=0)
        expert = tl.min(tl.where(rest == largest, cols, BLOCK), axis=0)
        weights = tl.where(slots == place, largest, weights)
        chosen = tl.where(slots == place, expert, chosen)
        rest = tl.where(cols == expert, -1.0, rest)
    weights = weights / tl.sum(weights, axis=0) * factor
    tl.store(experts_ptr + token * TOP + slots, chosen, mask=slots < TOP)
    tl.store(weights_ptr + token * TOP + slots, weights, mask=slots < TOP)


def moe_gating(logits, top):
    tokens, experts = logits.shape
    weights = torch.empty((tokens, top), dtype=torch.float32, device=logits.device)
    chosen = torch.empty((tokens, top), dtype=torch.int32, device=logits.device)
    slots, block = triton.next_power_of_2(top), triton.next_power_of_2(experts)
    moe_gating_kernel[(tokens,)](logits, weights, chosen, experts, 2.5, TOP=top, SLOTS=slots, BLOCK=block)
    return weights, chosen


def reference(xp, logits, top):
    powers = xp.exp(logits - xp.max(logits, axis=1, keepdims=True))
    shares = powers / xp.sum(powers, axis=1, keepdims=True)
    order = xp.argsort(logits, axis=1, descending=True, stable=True)[:, :top]
    largest = xp.take_along_axis(shares, order, axis=1)
    return largest / xp.sum(largest, axis=1, keepdims=True) * 2.5, order


@bv.judged(reference=reference)
def test_moe_gating(draw):
    experts, dtype = draw.size(2, 70), draw.choice(("fp32", "bf16"))
    return moe_gating(draw.tensor(dtype, (draw.size(1, 9), experts)), draw.size(1, min(experts, 6), name="top"))
