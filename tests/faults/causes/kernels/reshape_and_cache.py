"""cache[slot[t] // 8, slot[t] % 8] = k[t] / scale[head] as fp16, for tokens with a slot; the rest of the cache stays."""

import triton
import triton.language as tl

import bitverdict as bv


@triton.jit
def reshape_and_cache_kernel(k_ptr, cache_ptr, slot_ptr, scale_ptr, heads, d, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slot_ptr + token)
    if slot < 0:
        return
    depth = tl.arange(0, BLOCK)
    scale = tl.load(scale_ptr + head)
    k = tl.load(k_ptr + (token * heads + head) * d + depth, mask=depth < d, other=0.0).to(tl.float32)
    page, place = slot // PAGE, slot % PAGE
    at = ((page * PAGE + place) * heads + head) * d + depth
    tl.store(cache_ptr + at, (k / scale).to(tl.float16), mask=depth < d)


def reshape_and_cache(k, cache, slot, scale):
    tokens, heads, d = k.shape
    reshape_and_cache_kernel[(tokens, heads)](k, cache, slot, scale, heads, d, PAGE=8, BLOCK=triton.next_power_of_2(d))
    return cache


def reference(xp, k, cache, slot, scale):
    rows = cache.shape[0] * 8
    hit = slot[None, :] == xp.arange(rows)[:, None]
    token = xp.argmax(xp.astype(hit, xp.int32), axis=1)
    new = xp.take(k, token, axis=0) / scale[:, None]
    written = xp.any(hit, axis=1)[:, None, None]
    return xp.reshape(xp.where(written, new, xp.unchanged), cache.shape)


@bv.judged(reference=reference)
def test_reshape_and_cache(draw):
    pages, heads, d = draw.size(2, 5), draw.size(1, 4), draw.size(1, 40)
    tokens = draw.size(1, 16)
    k, cache = draw.tensor("fp32", (tokens, heads, d)), draw.tensor("fp16", (pages, 8, heads, d))
    slot = draw.indices(tokens, 8 * pages, distinct=True)
    return reshape_and_cache(k, cache, slot, draw.tensor("fp32", (heads,), values=(0.25, 4.0)))
