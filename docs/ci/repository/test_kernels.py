import bitverdict as bv
from kernels import scale


@bv.judged(reference=lambda xp, x, w: x * w)
def test_scale(draw):
    m, n = draw.size(1, 3), draw.size(1, 150, around=64)
    return scale(draw.tensor("fp16", (m, n)), draw.tensor("fp16", n))
