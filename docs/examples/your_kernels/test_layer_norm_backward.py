import bitverdict as bv
from layer_norm_backward import layer_norm_backward


def gradients(xp, dy, x, w):
    x_hat = (x - xp.mean(x, axis=1, keepdims=True)) * (rstd := 1 / xp.sqrt(xp.var(x, axis=1, keepdims=True) + 1e-5))
    along_x, along_1 = xp.mean(x_hat * dy * w, axis=1, keepdims=True), xp.mean(dy * w, axis=1, keepdims=True)
    return (dy * w - x_hat * along_x - along_1) * rstd, xp.sum(dy * x_hat, axis=0), xp.sum(dy, axis=0)


@bv.judged(reference=gradients, strides="contiguous")
def test_layer_norm_backward(draw):
    m, n, dtype = draw.size(1, 20), draw.size(1, 300, around=64), draw.choice(("fp32", "fp16", "bf16"))
    return layer_norm_backward(draw.tensor(dtype, (m, n)), draw.tensor(dtype, (m, n)), draw.tensor(dtype, (n,)))
