"""`bitverdict.strategies`: what a test of one's own draws by Hypothesis: sizes and shapes, offsets, row numbers, tensors by regime.

Each is a strategy as any other: it can be mapped, filtered and combined, and it shrinks to the plainest value that still fails.
docs/strategies.md has examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from bitverdict.harness.contracts.base.row_indices import table_ends
from bitverdict.harness.contracts.described.dtypes import format_of, torch_dtype
from bitverdict.harness.contracts.inputs import regimes as known
from bitverdict.harness.contracts.inputs.strategies import data_seeds
from bitverdict.harness.model.usage import UsageError, did_you_mean

if TYPE_CHECKING:
    import torch

Range = int | tuple[int, int]
__all__ = ["offsets", "row_indices", "shapes", "sizes", "tensors"]


def sizes(low: int, high: int, *, around: int = 16, multiple_of: int = 1) -> SearchStrategy[int]:
    """Sizes from `low` to `high`, both included, multiples of `multiple_of`: half of them any, half at the ends and one below, at
    and one above the multiples of `around`, the tile of the kernel. It shrinks to the smallest that fails, or the smallest edge."""
    least, largest = -(-low // multiple_of), high // multiple_of
    if not (0 <= low <= high and multiple_of >= 1 and around >= 1 and least <= largest):
        rule = "low must be at least 0 and at most high, with a multiple of multiple_of between them, and around at least 1"
        raise UsageError(f"sizes({low}, {high}, around={around}, multiple_of={multiple_of}): {rule}")
    near = {count * around + step for count in (1, 2, 3, high // around) for step in (-1, 0, 1)} | {low, low + 1, high - 1, high}
    at_edges = sorted(size for size in near if low <= size <= high and size % multiple_of == 0)
    anywhere = st.integers(least, largest).map(lambda count: count * multiple_of)
    return anywhere | st.sampled_from(at_edges) if at_edges else anywhere


def shapes(*high: int, low: int = 1, around: int | Sequence[int] = 16, multiple_of: int = 1) -> SearchStrategy[tuple[int, ...]]:
    """Shapes of as many dimensions as `high` has numbers, each a size from `low` (`sizes`). `around`: one tile for all of
    them, or one for each."""
    tiles = [around] * len(high) if isinstance(around, int) else list(around)
    if not high or len(tiles) != len(high):
        raise UsageError(f"shapes{high}, around={around!r}: needs the largest of each dimension, and one tile or one for each")
    each = (sizes(low, most, around=tile, multiple_of=multiple_of) for most, tile in zip(high, tiles, strict=True))
    return st.tuples(*each)


def offsets(
    length: int, *, block: int = 1, unit: int = 1, out_of_bounds: bool = False, negative: bool | None = None
) -> SearchStrategy[int]:
    """Where a block of `block` elements begins along a dimension of `length`: multiples of `unit`, 0 the simplest.

    With `out_of_bounds` the block may also lie across the end or past it, and before the beginning unless `negative` is
    False: a TMA scatter faults there, where a gather reads zeros."""
    negative = out_of_bounds if negative is None else negative
    if not 1 <= block <= length or unit < 1 or (negative and not out_of_bounds):
        rule = "block must be from 1 to length, unit at least 1, and negative only with out_of_bounds"
        raise UsageError(f"offsets({length}, block={block}, unit={unit}, negative={negative}): {rule}")
    first = -(-(block + unit) // unit) if negative else 0
    last = (length + block if out_of_bounds else length - block) // unit
    ends = {0, (length - block) // unit, (length - block) // unit + 1, length // unit, -1, -(block // unit), last, -first}
    at_edges = sorted((count for count in ends if -first <= count <= last), key=lambda count: (count < 0, abs(count)))
    return (st.integers(-first, last) | st.sampled_from(at_edges)).map(lambda count: count * unit)


def row_indices(
    rows: int, *, count: Range = (1, 16), out_of_bounds: bool = False, negative: bool | None = None, distinct: bool = False
) -> SearchStrategy[np.ndarray]:
    """int32 row numbers of a table of `rows`: `count` of them, or from one count to another.

    With `out_of_bounds` some lists also name rows past the end and, unless `negative` is False, before the beginning: next to the
    table, and at the ends of int32. Without `distinct` rows are named again. It shrinks to zeros with the one number that fails."""
    least, max_count = (count, count) if isinstance(count, int) else count
    negative = out_of_bounds if negative is None else negative
    room = rows if distinct and not out_of_bounds else 1 << 31
    if rows < 1 or not 0 <= least <= max_count <= room or (negative and not out_of_bounds):
        rule = "rows must be at least 1, counts ascend, no more than rows where they are distinct; negative only with out_of_bounds"
        raise UsageError(f"row_indices({rows}, count={count}, distinct={distinct}, negative={negative}): {rule}")
    inside, list_limit = st.integers(0, rows - 1), min(max_count, rows) if distinct else max_count
    lists = st.lists(inside, min_size=min(least, list_limit), max_size=list_limit)
    if distinct:
        lists = st.integers(min(least, list_limit), list_limit).flatmap(lambda length: _permutations(rows, length))
    if out_of_bounds:
        ends = [int(end) for end in table_ends(rows, negative=negative) if not 0 <= end < rows]
        beyond = st.integers(-rows if negative else rows, 2 * rows + max_count) if distinct else st.sampled_from(ends)
        mixed = st.lists(inside | beyond, min_size=least, max_size=max_count, unique=distinct)
        lists = lists | mixed if list_limit >= least else mixed
    return lists.map(lambda numbers: np.array(numbers, np.int32))


def _permutations(rows: int, length: int) -> SearchStrategy[list[int]]:
    return st.permutations(range(rows)).map(lambda numbers: list(numbers[:length]))


def tensors(
    dtype: object, shape: Sequence[int] | SearchStrategy[tuple[int, ...]], *, regimes: Iterable[str] = known.REGIMES
) -> SearchStrategy[torch.Tensor]:
    """Contiguous tensors on the CPU: `dtype` by the project's name or torch's, `shape` given or drawn, values of one of `regimes`:

    normal deviates; integers from -2 to 2; any mantissa over a wide range; normal with NaN, Inf and zeros planted; subnormals; the
    largest numbers. Formats that torch has no arithmetic for are bytes, a code each. It shrinks to the first regime and a small
    shape."""
    name, regime_names = format_of(dtype), tuple(regimes)
    if name not in known.FORMATS and name not in known.INTEGERS:
        raise UsageError(f"dtype {dtype!r}: must be one of {', '.join([*known.FORMATS, *known.INTEGERS])}")
    for regime in regime_names:
        if regime not in known.KNOWN_REGIMES:
            raise UsageError(
                f"regime {regime!r}: unknown{did_you_mean(regime, known.KNOWN_REGIMES)}; use some of "
                f"{', '.join(known.KNOWN_REGIMES)}"
            )
    if not regime_names:
        raise UsageError(f"regimes=(): must name at least one of {', '.join(known.REGIMES)}")
    drawn = shape if isinstance(shape, SearchStrategy) else st.just(tuple(shape))
    return st.builds(
        lambda size, regime, seed: _tensor(name, size, regime, seed), drawn, st.sampled_from(regime_names), data_seeds()
    )


def _tensor(name: str, shape: tuple[int, ...], regime: str, seed: int) -> torch.Tensor:
    import torch

    codes = known.draw(name, shape, regime, known.generator(seed, "tensor"))
    return torch.from_numpy(np.ascontiguousarray(codes).view(f"i{codes.itemsize}")).view(torch_dtype(name))
