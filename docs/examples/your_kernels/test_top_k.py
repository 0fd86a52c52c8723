import bitverdict as bv
from top_k import top_k


def largest(xp, x, k):
    order = xp.argsort(x, axis=1, descending=True, stable=True)[:, :k]
    return xp.take_along_axis(x, order, axis=1), order


@bv.judged(reference=largest)
def test_top_k(draw):
    n, dtype = draw.size(1, 300, around=64), draw.choice(("fp32", "fp16", "bf16"))
    return top_k(draw.tensor(dtype, (draw.size(1, 9), n)), draw.size(1, min(n, 9), name="k"))
