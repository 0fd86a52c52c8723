import bitverdict as bv
from rope import rope


def turned(xp, x, cos, sin):
    (left, right), cos, sin = xp.unstack(xp.reshape(x, (*x.shape[:2], 2, -1)), axis=2), cos[:, None, :], sin[:, None, :]
    return xp.concat([left * cos - right * sin, right * cos + left * sin], axis=2)


@bv.judged(reference=turned, strides="contiguous")
def test_rope(draw):
    positions, heads, half, dtype = draw.size(1, 9), draw.size(1, 9), draw.size(1, 70), draw.choice(("fp32", "fp16", "bf16"))
    x = draw.tensor(dtype, (positions, heads, 2 * half))
    return rope(x, draw.tensor("fp32", (positions, half)), draw.tensor("fp32", (positions, half)))
