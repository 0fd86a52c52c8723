import bitverdict as bv
from rms_norm import rms_norm


@bv.judged(reference=lambda xp, x, w: x / xp.sqrt(xp.mean(x * x, axis=1, keepdims=True) + 1e-6) * w)
def test_rms_norm(draw):
    m, n, dtype = draw.size(1, 9), draw.size(1, 300, around=64), draw.choice(("fp32", "fp16", "bf16"))
    return rms_norm(draw.tensor(dtype, (m, n)), draw.tensor(dtype, (n,)))
