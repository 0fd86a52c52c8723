import bitverdict as bv
from quantize_mxfp4 import quantize_mxfp4


def quantized(xp, x):
    x = xp.reshape(xp.round_to(x, "fp32"), (x.shape[0], -1, 32))
    exponent = xp.maximum((xp.bits(xp.max(xp.abs(x), axis=2), "int32") >> 23) - 2, 0)
    codes = xp.bits(xp.round_to(x * xp.from_bits((254 - exponent) << 23, "fp32")[:, :, None], "e2m1", saturate=True), "uint8")
    return xp.reshape(codes[:, :, ::2] | codes[:, :, 1::2] << 4, (x.shape[0], -1)), exponent


@bv.judged(reference=quantized, strides="contiguous")
def test_quantize_mxfp4(draw):
    return quantize_mxfp4(draw.tensor(draw.choice(("fp32", "fp16", "bf16")), (draw.size(1, 20), 32 * draw.size(1, 5))))
