import bitverdict as bv
from swiglu import swiglu


@bv.judged(reference=lambda xp, x: x[:, : x.shape[1] // 2] / (1 + xp.exp(-x[:, : x.shape[1] // 2])) * x[:, x.shape[1] // 2 :])
def test_swiglu(draw):
    m, n, dtype = draw.size(1, 9), draw.size(1, 300, around=64), draw.choice(("fp32", "fp16", "bf16"))
    return swiglu(draw.tensor(dtype, (m, 2 * n)))
