"""Operators that make a tensor: filled, counted, or not written yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bitverdict.harness.contracts.torch_mathematics.operators.arithmetic import dtype_in
from bitverdict.harness.contracts.torch_mathematics.operators.rules import rule

if TYPE_CHECKING:
    from bitverdict.reference.array_api import Array, ArrayNamespace


@rule("full")
def _full(xp: ArrayNamespace, shape: Sequence[int], value: Array, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    return xp.full(tuple(shape), value, dtype=dtype_in(xp, dtype) if dtype is not None or isinstance(value, float) else None)


@rule("full_like")
def _full_like(xp: ArrayNamespace, x: Array, value: Array, **_: object) -> Array:
    return xp.full(tuple(x.shape), value, dtype=x.dtype)


@rule("zeros_like", "new_zeros")
def _zeros_like(xp: ArrayNamespace, x: Array, shape: Sequence[int] | None = None, **_: object) -> Array:
    return xp.zeros(tuple(x.shape if shape is None else shape), dtype=x.dtype)


@rule("ones_like")
def _ones_like(xp: ArrayNamespace, x: Array, **_: object) -> Array:
    return xp.ones(tuple(x.shape), dtype=x.dtype)


@rule("zeros")
def _zeros(xp: ArrayNamespace, shape: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Array:
    return xp.zeros(tuple(shape), dtype=dtype_in(xp, dtype))


@rule("ones")
def _create_ones(xp: ArrayNamespace, shape: Sequence[int], *, dtype: torch.dtype | None = None, **_: object) -> Array:
    return xp.ones(tuple(shape), dtype=dtype_in(xp, dtype))


@dataclass(frozen=True)
class Unwritten:
    """A tensor that was allocated and not filled: it has a shape and no values. A rule that asks for some ends in an error."""

    shape: tuple[int, ...]
    dtype: Any


@rule("empty", "empty_permuted", "empty_strided")
def _empty(xp: ArrayNamespace, shape: Sequence[int], *_: object, dtype: torch.dtype | None = None, **__: object) -> Unwritten:
    return Unwritten(tuple(shape), dtype_in(xp, dtype))


@rule("empty_like")
def _empty_like(xp: ArrayNamespace, x: Array, *, dtype: torch.dtype | None = None, **_: object) -> Unwritten:
    return Unwritten(tuple(x.shape), x.dtype if dtype is None else dtype_in(xp, dtype))


@rule("copy")
def _copy(xp: ArrayNamespace, x: Array, new: Array, non_blocking: bool = False) -> Array:
    return xp.broadcast_to(new, tuple(x.shape))


@rule("scalar_tensor")
def _scalar_tensor(xp: ArrayNamespace, value: Array, *, dtype: torch.dtype | None = None, **_: object) -> Array:
    return xp.asarray(value, dtype=dtype_in(xp, dtype) if dtype is not None else None)


@rule("arange")
def _arange(
    xp: ArrayNamespace, start: float, stop: float | None = None, step: float = 1, *, dtype: torch.dtype | None = None, **_: object
) -> Array:
    start, stop = (0, start) if stop is None else (start, stop)
    return xp.arange(start, stop, step, dtype=dtype_in(xp, dtype) if dtype is not None else None)
