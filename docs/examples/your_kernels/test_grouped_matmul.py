import bitverdict as bv
from grouped_matmul import grouped_matmul


@bv.judged(reference=lambda xp, x, w, expert: xp.matmul(x[:, None, :], xp.take(w, expert, axis=0))[:, 0, :], strides="contiguous")
def test_grouped_matmul(draw):
    rows, experts, n, k = draw.size(1, 70), draw.size(1, 5), draw.size(1, 70), draw.size(1, 70)
    x, w = draw.tensor(dtype := draw.choice(("fp16", "bf16")), (rows, k)), draw.tensor(dtype, (experts, k, n))
    return grouped_matmul(x, w, draw.indices(rows, experts))
