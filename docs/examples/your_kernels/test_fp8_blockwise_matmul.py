import bitverdict as bv
from fp8_blockwise_matmul import fp8_blockwise_matmul


def product(xp, a, b, s, t):
    t = xp.repeat(t, 128, axis=0)[: b.shape[0]]
    return sum((a[:, i : i + 128] @ b[:, i : i + 128].T) * s[:, i // 128, None] * t[:, i // 128] for i in range(0, a.shape[1], 128))


@bv.judged(reference=product, strides="contiguous")
def test_fp8_blockwise_matmul(draw):
    m, n, k = draw.size(1, 70), draw.size(1, 150, around=128), draw.size(1, 300, around=128)
    a, b, blocks = draw.tensor("e4m3", (m, k)), draw.tensor("e4m3", (n, k)), -(-k // 128)
    return fp8_blockwise_matmul(a, b, draw.tensor("fp32", (m, blocks)), draw.tensor("fp32", (-(-n // 128), blocks)))
