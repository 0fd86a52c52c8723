import bitverdict as bv
from attention import attention


def reference(xp, q, k, v, causal):
    seen = (xp.arange(k.shape[1]) <= xp.arange(q.shape[1])[:, None]) | (not causal)
    p = xp.exp((s := xp.where(seen, q @ k.mT * q.shape[2] ** -0.5, -xp.inf)) - xp.max(s, axis=2, keepdims=True))
    return xp.kept_in(p, q.dtype) @ v / xp.sum(p, axis=2, keepdims=True)


@bv.judged(reference=reference, strides="contiguous")
def test_attention(draw):
    h, m, n, d, dtype = draw.size(1, 2), draw.size(1, 70), draw.size(1, 70), draw.size(1, 33), draw.choice(("fp16", "bf16"))
    return attention(*(draw.tensor(dtype, (h, rows, d)) for rows in (m, n, n)), causal=draw.flag(name="causal"))
