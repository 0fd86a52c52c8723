"""How many elements of x fall into each of `bins` bins of `width` from `first` on; what falls into none is not counted."""

import torch
import triton
import triton.language as tl


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, first, width, bins, BLOCK: tl.constexpr, BINS: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    inside = (offsets < n) & (x >= first) & (x < first + bins * width)
    counts = tl.histogram(tl.where(inside, (x - first) // width, 0), BINS, mask=inside)
    bin = tl.arange(0, BINS)
    tl.atomic_add(counts_ptr + bin, counts, mask=bin < bins)


def histogram(x, bins, first, width):
    """`x` (n,) of int32; returns (bins,) of int32."""
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    grid = (triton.cdiv(x.numel(), 256),)
    histogram_kernel[grid](x, counts, x.numel(), first, width, bins, BLOCK=256, BINS=triton.next_power_of_2(bins))
    return counts
