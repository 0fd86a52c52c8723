"""What references may say beyond the standard: random bits."""

from __future__ import annotations

import numpy as np

from bitverdict.reference.philox import philox as philox_words
from bitverdict.reference.philox import uniform
from bitverdict.reference.tracing.arrays import Operand, TracedArray, array
from bitverdict.reference.tracing.dtypes import BY_FORMAT, Untraceable
from bitverdict.reference.tracing.state import Trace, operation


@operation("philox")
def philox(trace: Trace, seed: TracedArray | int, offsets: Operand) -> tuple[TracedArray, TracedArray, TracedArray, TracedArray]:
    """The four words (uint32) of Philox 4x32-10 that `tl.randint4x(seed, offsets)` has."""
    offset_array = array(trace, offsets)
    if offset_array.is_float or offset_array.hangs is not None:
        raise Untraceable("philox", "of offsets that are no exact integers")
    index = (
        offset_array.value.astype(np.int64).view(np.uint64) if offset_array.ndim else np.asarray(int(offset_array.value), np.uint64)
    )
    zero = np.zeros_like(index)
    words = philox_words((index & np.uint64(0xFFFFFFFF), index >> np.uint64(32), zero, zero), _seed(seed))
    one, two, three, four = (
        TracedArray(trace, BY_FORMAT["uint32"], np.asarray(word), words_differ=offset_array.words_differ) for word in words
    )
    return one, two, three, four


@operation("random_uniform")
def random_uniform(trace: Trace, seed: TracedArray | int, offsets: Operand) -> TracedArray:
    """tl.rand(seed, offsets): exact fp32 numbers of [0, 1)."""
    given = array(trace, offsets)
    if given.is_float or given.hangs is not None or given.words_differ is not None:
        raise Untraceable("random_uniform", "of offsets that are no exact integers")
    found = uniform(_seed(seed), given.value.astype(np.int64).astype(np.uint64))
    return TracedArray(trace, BY_FORMAT["fp32"], np.asarray(found, np.float64))


def _seed(seed: TracedArray | int) -> int:
    if isinstance(seed, TracedArray):
        if seed.size != 1 or seed.is_float:
            raise Untraceable("philox", "with a seed that is no single integer")
        return int(seed.value.reshape(-1)[0]) & 0xFFFFFFFFFFFFFFFF
    return int(seed) & 0xFFFFFFFFFFFFFFFF
