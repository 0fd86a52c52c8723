import bitverdict as bv
from histogram import histogram


def counts(xp, x, bins, first, width):
    return xp.sum(xp.astype((x - first) // width == xp.arange(bins)[:, None], xp.int32), axis=1)


@bv.judged(reference=counts)
def test_histogram(draw):
    bins, first, width = draw.size(1, 70, name="bins"), draw.choice(range(-9, 10), name="first"), draw.size(1, 5, name="width")
    return histogram(draw.integers(draw.size(1, 600), -20, 300), bins, first, width)
