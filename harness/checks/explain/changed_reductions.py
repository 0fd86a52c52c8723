"""The hypotheses that a reduction, a scan or a product runs along another part of its axis, or is divided by another number."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bitverdict.harness.checks.explain.evaluation import Change, Operation, operation_text

TILES = (16, 32, 64, 128, 256, 512, 1024)
BLOCKS = (8, *TILES)
OVERWRITTEN = (2, 4, 8, 16, 32)  # elements of which each takes the place of the one before
REDUCTION_NAMES = ("sum", "mean", "max", "min", "amax", "amin", "prod", "var", "std", "any", "all", "add.reduce")


def changes_of_mean(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    name, text = operation.name, operation.texts[0]
    if name == "mean":
        yield (
            "divisor",
            f"equals the reference with the sum in the place of mean({text})",
            lambda function, args, kwargs: np.sum(*args, **kwargs),
        )
    count = np.asarray(operation.arguments[0]).size // max(np.asarray(operation.result).size, 1)
    for other, why in _divisors(count):
        said = f"equals the reference with {name}({text}) divided by {other}, not {count}{why}"
        yield "divisor", said, _scale_by(count / other if name != "std" else (count / other) ** 0.5)


def _divisors(count: int) -> Iterator[tuple[int, str]]:
    if count > 1:
        yield count - 1, ""
    yield count + 1, ""
    whole_tiles = (-(-count // tile) * tile for tile in TILES)
    for width in dict.fromkeys((1 << (count - 1).bit_length(), *TILES, *whole_tiles)):
        if abs(width - count) > 1:
            yield width, " (whole tiles)" if width & (width - 1) else " (the tile's width)"


def changes_of_reduction(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    """Without its last or its first element, or with zeros up to the next power of two, along the reduced axis."""
    axis = reduced_axis(operation)
    data = np.asarray(operation.arguments[0])
    if axis is None or data.ndim == 0 or data.shape[axis] < 1:
        return
    name, text, length = operation.name, operation.texts[0], data.shape[axis]
    for part, phrase in parts_of(length):
        if name not in ("var", "std"):
            yield (
                "element left out",
                f"equals the reference with {name}({text}) {phrase}",
                _reduce_slice(axis, part, name == "mean"),
            )
    if name in ("sum", "mean", "add.reduce"):
        for width in widths_of(length):
            phrase = f"equals the reference with ones that fill {text} from {length} up to {width} in {name}: masked elements count"
            yield "fill", phrase, _add_ones(width - length, length if name == "mean" else 1)
    if name in ("max", "amax", "min", "amin"):
        yield "fill", f"equals the reference with a zero among {name}({text}): masked elements count", _with_zero(axis)
    if name in ("max", "amax") and length > 1:
        yield (
            "axis",
            f"equals the reference with one {name}({text}) for the whole operand",
            lambda function, args, kwargs: np.broadcast_to(function(args[0]), np.shape(function(*args, **kwargs))),
        )


def changes_of_product(operation: Operation) -> Iterator[tuple[str, str, Change]]:
    """A product of a part of K."""
    left, right = (np.asarray(each) for each in operation.arguments)
    if left.ndim < 2 or right.ndim < 2:
        return
    for part, said in parts_of(left.shape[-1]):
        yield "element left out", f"equals the reference with {operation_text(operation)} {said}", _product_of(part)


def _product_of(part: slice) -> Change:
    return lambda function, args, kwargs: function(args[0][..., part], args[1][..., part, :], **kwargs)


def widths_of(length: int) -> Iterator[int]:
    """What a row of `length` elements may be filled up to: the next power of two, whole tiles."""
    yield from dict.fromkeys(
        width for width in (1 << (length - 1).bit_length(), *(-(-length // size) * size for size in TILES)) if width > length
    )


def reduced_axis(operation: Operation) -> int | None:
    """The axis along which a reduction runs, where it is one."""
    axis = operation.keywords.get("axis", operation.arguments[1] if len(operation.arguments) > 1 else None)
    if axis is None:
        return 0 if np.ndim(operation.arguments[0]) == 1 else None
    return axis if isinstance(axis, int) else None


def parts_of(length: int) -> Iterator[tuple[slice, str]]:
    """Parts of a reduced axis that a loop may take for all of it, each once."""
    parts = {(0, 0): "of no element"}
    if length > 1:
        parts |= {(0, length - 1): "without its last element", (1, length): "without its first element"}
        parts.setdefault((length - 1, length), "of its last element alone")
    for size in (size for size in BLOCKS if size < length):
        last = length - (length % size or size)
        parts.setdefault((0, last), f"without its tail from {last} on")
        parts.setdefault((last, length), f"of its last block alone, from {last} on")
        parts.setdefault((0, size), f"of its first block alone, up to {size}")
    for (start, end), said in parts.items():
        yield slice(start, end), said
    for every in (each for each in OVERWRITTEN if each < length):
        yield slice(every - 1, None, every), f"of the last of every {every} elements alone"


def _reduce_slice(axis: int, part: slice, mean: bool) -> Change:
    def change(function: Callable, args: tuple, kwargs: dict) -> Any:
        index: list[Any] = [slice(None)] * np.ndim(args[0])
        index[axis] = part
        taken = args[0][tuple(index)]
        if mean:
            return np.sum(taken, *args[1:], **kwargs) / np.shape(args[0])[axis]
        return function(taken, *args[1:], **kwargs)

    return change


def _with_zero(axis: int) -> Change:
    def change(function: Callable, args: tuple, kwargs: dict) -> Any:
        shape = list(np.shape(args[0]))
        shape[axis] = 1
        return function(np.concatenate([args[0], np.zeros(shape)], axis=axis), *args[1:], **kwargs)

    return change


def _add_ones(count: int, divisor: int) -> Change:
    return lambda function, args, kwargs: function(*args, **kwargs) + count / divisor


def _scale_by(factor: float) -> Change:
    return lambda function, args, kwargs: function(*args, **kwargs) * factor


def exclude_own_element(function: Callable, args: tuple, kwargs: dict) -> Any:
    return function(*args, **kwargs) - np.asarray(args[0])


def last_of_equals(function: Callable, args: tuple, kwargs: dict) -> Any:
    axis = kwargs.get("axis", args[1] if len(args) > 1 else None)
    if axis is None:
        return np.size(args[0]) - 1 - function(np.ravel(args[0])[::-1])
    rest = {name: value for name, value in kwargs.items() if name != "axis"}
    return np.shape(args[0])[axis] - 1 - function(np.flip(args[0], axis), axis=axis, **rest)
