"""h[t] = exp(-dt[t] a) h[t - 1] + dt[t] b[t] x[t]; y[t] = sum over the state of c[t] h[t], plus skip x[t]; in chunks of steps."""

import torch
import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def selective_scan_kernel(
    x_ptr, dt_ptr, a_ptr, b_ptr, c_ptr, skip_ptr, y_ptr, length, channels, states, CHUNK: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    channel = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < states
    a = tl.load(a_ptr + channel * states + at, mask=mask, other=0.0)
    skip = tl.load(skip_ptr + channel)
    state = tl.zeros((BLOCK,), tl.float32)
    for chunk in range(0, length, CHUNK):
        h = state
        for step in range(chunk, tl.minimum(chunk + CHUNK, length)):
            x = tl.load(x_ptr + step * channels + channel)
            dt = tl.load(dt_ptr + step * channels + channel)
            b = tl.load(b_ptr + step * states + at, mask=mask, other=0.0)
            c = tl.load(c_ptr + step * states + at, mask=mask, other=0.0)
            h = tl.exp(-dt * a) * h + dt * b * x
            y = tl.sum(c * h, axis=0) + skip * x
            tl.store(y_ptr + step * channels + channel, y)
        state = h


def selective_scan(x, dt, a, b, c, skip):
    length, channels = x.shape
    states = a.shape[1]
    y = torch.empty_like(x)
    selective_scan_kernel[(channels,)](
        x, dt, a, b, c, skip, y, length, channels, states, CHUNK=4, BLOCK=triton.next_power_of_2(states)
    )
    return y


def reference(xp, x, dt, a, b, c, skip):
    h, rows = xp.zeros(a.shape), []
    for t in range(x.shape[0]):
        h = xp.exp(-dt[t, :, None] * a) * h + dt[t, :, None] * b[t] * x[t, :, None]
        rows.append(xp.sum(c[t] * h, axis=1) + skip * x[t])
    return xp.stack(rows)


@bv.judged(reference=reference)
def test_selective_scan(draw):
    length, channels, states = draw.size(1, 12, around=8), draw.size(1, 5), draw.size(1, 7)
    x, dt = draw.tensor("fp32", (length, channels)), draw.tensor("fp32", (length, channels), values=(0.1, 1.0))
    a = draw.tensor("fp32", (channels, states), values=(0.2, 2.0))
    b, c = (draw.tensor("fp32", (length, states)) for _ in range(2))
    return selective_scan(x, dt, a, b, c, draw.tensor("fp32", (channels,)))
