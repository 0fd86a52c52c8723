"""What a body draws from: sizes, choices, tensors. Each draw is recorded, so that the same case can be judged anywhere again."""

from __future__ import annotations

import numbers
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bitverdict.harness.contracts.base.single_config import far_pad
from bitverdict.harness.contracts.described.before_launch import Placeholder
from bitverdict.harness.contracts.described.decisions import Source
from bitverdict.harness.contracts.described.dtypes import INTEGERS, format_of, kind_of, storage_of, torch_dtype
from bitverdict.harness.contracts.described.number_lists import Indices, Lengths
from bitverdict.harness.contracts.described.operands import INDEX_SPREADS, MASKS, PARTS, check_values, limits_of
from bitverdict.harness.contracts.described.options import Between, OneOfValues, Options, Real
from bitverdict.harness.contracts.described.record import CONTIGUOUS, FAR_LAYOUT, OPERANDS, PADDED_LAYOUT, Entry
from bitverdict.harness.contracts.described.variable_names import variable_name
from bitverdict.harness.model.usage import BodyError, UsageError, did_you_mean

if TYPE_CHECKING:
    import torch

Choice = TypeVar("Choice", bound=int | float | str | bool | None)
LAYOUTS = (CONTIGUOUS, PADDED_LAYOUT, "ragged", "transposed", "offset")
"""How a tensor with ``strides="any"`` may lie. padded: 16 elements follow each row. ragged: 3 do. transposed: the last two axes
exchanged. offset: contiguous, one element behind its aligned place."""
FAR_LINES = range(4, 1025)
"""Lines of a far axis. The stride of fewer leaves 32 bits by itself, and each takes three pages of memory."""
PLAIN_STRIDES = (None, CONTIGUOUS)
STRIDES = (*PLAIN_STRIDES, "rows", "any", FAR_LAYOUT)
STRIDES_TOLD = f"None, {', '.join(map(repr, STRIDES[1:-1]))} or {STRIDES[-1]!r}"
MOST_ELEMENTS = 1 << 24
"""Of one tensor: an emulated launch over more takes minutes."""


class DiscardedDraw(BaseException):
    """What was drawn is no case: `assume` did not hold."""


class Draw:
    """Draws of one case, in order. A body gets it, and may depend on nothing else.

    A body runs twice: up to its first use of a tensor in the process that draws, and whole in the worker that launches. Tensors
    that the first one gets know their `shape`, `dtype` and `ndim` only.
    """

    def __init__(self, source: Source, tensor_of: Callable[[Entry, int], object] | None = None, strides: str | None = None) -> None:
        """`tensor_of` gives the tensor of a draw by its place; None: placeholders. `strides`: of tensors that say none."""
        self._source, self._tensor_of, self._strides = source, tensor_of, strides
        self._entries: list[Entry] = []
        self._tensors: list[tuple[int, Any]] = []

    def size(self, low: int, high: int, *, around: int | None = None, multiple_of: int = 1, name: str = "") -> int:
        """A size from `low` to `high`, both included, a multiple of `multiple_of`.

        Required cases have the smallest, the largest, and those below, at and above `around`, the tile of the kernel. Others are
        drawn at powers of two, multiples of 16 and primes, and anywhere between.
        """
        if not all(isinstance(each, int) for each in (low, high, multiple_of, around or 0)):
            raise TypeError(f"draw.size({low!r}, {high!r}): must be integers; divide by //")  # `of_a_draw` adds the line
        options = Between(low, high, around, multiple_of)
        if not (0 <= low <= high and multiple_of >= 1 and options.fits(options.simplest)):
            rule = "low must be at least 0 and at most high, with a multiple of multiple_of between them"
            raise UsageError(f"draw.size({low}, {high}, multiple_of={multiple_of}): {rule}")
        return self._decide("size", name, options, (low, high, around, multiple_of))

    def choice(self, values: Iterable[Choice], *, name: str = "") -> Choice:
        """One of `values` (numbers, texts, truths or None), the plainest first: a failing case is reduced towards it."""
        listed = () if isinstance(values, str) else tuple(values)
        if not listed or not all(isinstance(value, int | float | str | bool | None) for value in listed):
            raise UsageError(f"draw.choice({values!r:.100}): must be given numbers, texts, truths or None, a tuple of at least one")
        return self._decide("choice", name, OneOfValues(listed), listed)

    def flag(self, *, name: str = "") -> bool:
        """False or True."""
        return self._decide("flag", name, OneOfValues((False, True)), ())

    def scalar(self, low: float, high: float, *, name: str = "") -> float:
        """A number from `low` to `high` that fp32 holds; 0, 1 and the ends come often."""
        if not all(isinstance(each, numbers.Real) for each in (low, high)):
            raise UsageError(f"draw.scalar({low!r}, {high!r}): must be numbers")
        least, most = _inside(low, np.inf), _inside(high, -np.inf)
        if not least <= most:
            raise UsageError(f"draw.scalar({low}, {high}): low must be at most high, with a number between them that fp32 holds")
        return self._decide("scalar", name, Real(least, most), (float(low), float(high)))

    def assume(self, holds: bool) -> None:
        """Drop this case unless `holds`. Better draw only what the kernel takes: a dropped case still costs its draws."""
        if not holds:
            raise DiscardedDraw

    def tensor(
        self,
        dtype: torch.dtype | str,
        shape: int | Sequence[int],
        *,
        values: str | tuple[float, float] | None = None,
        strides: object = None,
        offset: int = 0,
        name: str = "",
    ) -> Any:
        """A tensor of `shape` on the target, fed by the regime of the case.

        `dtype`: a format ("fp16", "bf16", "e4m3", ...) or a torch dtype. `values`: a regime of its own, or (low, high) for numbers
        anywhere between. `strides`: None for contiguous, but for a few required cases with padded rows and with lines so far apart
        that offsets pass 2^31 elements (what `judged(strides=)` says stands in its place); "contiguous" for no others, "any" for
        one of `LAYOUTS`, "rows" for one whose rows are contiguous, "far" for one of these or far lines; a tensor that
        was drawn before, of the same shape, for strides that are always equal. `offset`: elements before the first.
        """
        format_name, sizes = format_of(dtype), _shape(shape)
        if not isinstance(offset, numbers.Integral):
            raise UsageError(f"draw.tensor(offset={offset!r}): must be an integer, the elements before the first")
        offset, checked_values, strides = int(offset), check_values(values), self._strides if strides is None else strides
        if not isinstance(strides, str | None):
            return self._tensor_with_strides_of(strides, (checked_values, offset), format_name, sizes, offset, name)
        if strides not in STRIDES:
            raise UsageError(f"draw.tensor(strides={strides!r}): must be {STRIDES_TOLD}, or a tensor that was drawn before")
        layouts = tuple(layout for layout in LAYOUTS if _lies(layout, sizes)) if strides not in PLAIN_STRIDES else (CONTIGUOUS,)
        if strides in ("rows", FAR_LAYOUT):
            layouts = tuple(layout for layout in layouts if (_strides(layout, sizes) or (1,))[-1] == 1)
        if strides is None and len(sizes) > 1:
            layouts = (*layouts, PADDED_LAYOUT)
        if strides in (None, FAR_LAYOUT) and _elements(sizes) and _far_axis(sizes) is not None:
            layouts = (*layouts, FAR_LAYOUT)
        options = OneOfValues(layouts, rare=len(layouts) - 1 if strides is None else 0)
        return self._place_tensor("tensor", name, options, (checked_values, strides, offset), format_name, sizes, offset)

    def _tensor_with_strides_of(
        self, tensor: torch.Tensor, request: tuple, format_name: str, shape: tuple[int, ...], offset: int, name: str
    ) -> Any:
        """A tensor with the strides of one that was drawn before."""
        place = next((place for place, each in self._tensors if each is tensor), None)
        if place is None or self._entries[place].shape != shape:
            raise UsageError(
                f"draw.tensor(strides={type(tensor).__name__}): must be {STRIDES_TOLD}, or a tensor that draw gave before, of the "
                "same shape"
            )
        other = self._entries[place]
        options = OneOfValues((other.value,))
        return self._place_tensor("tensor", name, options, (*request, place), format_name, shape, offset, strides=other.strides)

    def integers(
        self,
        shape: int | Sequence[int],
        low: int | None = None,
        high: int | None = None,
        *,
        dtype: torch.dtype | str = "int32",
        name: str = "",
    ) -> Any:
        """A tensor of integers from `low` to `high`, both included; without them a range of the type's own."""
        format_name = format_of(dtype)
        if kind_of(format_name) != "integer":
            raise UsageError(f"draw.integers(dtype={dtype!r}): must be one of {', '.join(INTEGERS)}")
        ends = limits_of(format_name, low, high)
        return self._place_tensor("integers", name, OneOfValues((CONTIGUOUS,)), ends, format_name, _shape(shape))

    def indices(
        self,
        shape: int | Sequence[int],
        below: int,
        *,
        distinct: bool = False,
        out_of_bounds: bool = False,
        dtype: torch.dtype | str = "int32",
        name: str = "",
    ) -> Any:
        """Indices from 0 to `below` - 1, as a gather, a scatter or a table of blocks takes them.

        Without `distinct` some are named again: what the kernel adds up by them is added up in the reference too. `out_of_bounds`:
        some lie below 0 or past the end.
        """
        sizes, format_name = _shape(shape), format_of(dtype)
        count = _elements(sizes)
        if below < 1 or (distinct and count > below):
            rule = "below must be at least 1, and with distinct at least the number of indices"
            raise UsageError(f"draw.indices({sizes}, {below}, distinct={distinct}): {rule}")
        if kind_of(format_name) != "integer":
            raise UsageError(f"draw.indices(dtype={dtype!r}): must be one of {', '.join(INTEGERS)}")
        most = int(np.iinfo(INTEGERS[format_name]).max)
        options = Indices(INDEX_SPREADS[distinct, out_of_bounds], 0, count, below, distinct, out_of_bounds, most)
        return self._place_tensor("indices", name, options, (below, distinct, out_of_bounds), format_name, sizes)

    def lengths(self, count: int, low: int, high: int, *, total: int | None = None, name: str = "") -> tuple[int, ...]:
        """`count` lengths from `low` to `high`, together at most `total`, as the sequences of a ragged batch have them: integers,
        known while the body draws. `draw.offsets(lengths)` and `draw.numbers(lengths)` give them to the kernel.

        Required cases have all the least, all alike, one long among the least, and mixtures of powers of two and their neighbours.
        """
        most = high * count if total is None else total
        if not (count >= 1 and 0 <= low <= high and low * count <= most):
            rule = "count must be at least 1, low from 0 to high, and total at least count times low"
            raise UsageError(f"draw.lengths({count}, {low}, {high}, total={total}): {rule}")
        return self._decide("lengths", name, Lengths(count, low, high, most), (count, low, high, total))

    def numbers(self, values: Sequence[object], *, dtype: torch.dtype | str = "int32", name: str = "") -> Any:
        """A tensor of integers that the body computed from its draws, such as lengths or a table of blocks."""
        format_name = format_of(dtype)
        array = np.asarray(values)
        if kind_of(format_name) != "integer" or not array.size or array.dtype.kind not in "iu":
            raise UsageError(f"draw.numbers({values!r:.100}, dtype={dtype!r}): must be integers, at least one, of an integer type")
        limits_of(format_name, int(array.min()), int(array.max()))
        return self._place_tensor(
            "numbers", name, OneOfValues((CONTIGUOUS,)), (_nested_tuples(array.tolist()),), format_name, array.shape
        )

    def offsets(
        self, parts: int | Sequence[int], total: int | None = None, *, dtype: torch.dtype | str = "int32", name: str = ""
    ) -> Any:
        """A tensor of `parts` + 1 offsets from 0 to `total`, none below the one before it, as `cu_seqlens` and bags take them. Part
        i goes from offset i to the next one, and may be empty. `parts` may be the lengths of the parts themselves."""
        format_name = format_of(dtype)
        if not isinstance(parts, int) and total is None:
            return self.numbers([0, *accumulate(parts)], dtype=dtype, name=name)
        if not (isinstance(parts, int) and total is not None and parts >= 1 and total >= 0) or kind_of(format_name) != "integer":
            rule = "parts must be at least 1, total at least 0, of an integer type; or parts are lengths, without a total"
            raise UsageError(f"draw.offsets({parts}, {total}, dtype={dtype!r}): {rule}")
        return self._place_tensor("offsets", name, OneOfValues(PARTS), (parts, total), format_name, (parts + 1,))

    def mask(self, shape: int | Sequence[int], *, name: str = "") -> Any:
        """A tensor of booleans, of which half are true, or all, none or few."""
        return self._place_tensor("mask", name, OneOfValues(MASKS), (), "bool", _shape(shape))

    def scales(self, shape: int | Sequence[int], format: str = "e8m0", *, name: str = "") -> Any:
        """A tensor of block scales: codes of `format` ("e8m0", "ue4m3"), as bytes, within 2^8 of one."""
        if format not in ("e8m0", "ue4m3"):
            raise UsageError(f"draw.scales(format={format!r}): must be 'e8m0' or 'ue4m3'")
        return self._place_tensor("scales", name, OneOfValues((CONTIGUOUS,)), (), format, _shape(shape))

    def output(self, dtype: torch.dtype | str, shape: int | Sequence[int], *, name: str = "") -> Any:
        """A tensor without values, for a launcher that takes its output as an argument. Return it from the body."""
        return self._place_tensor("output", name, OneOfValues((CONTIGUOUS,)), (), format_of(dtype), _shape(shape))

    # --- what every draw does

    def _decide(self, kind: str, name: str, options: Options, asked: tuple) -> Any:
        called = name or variable_name(sys._getframe(2))
        called = "" if any(called in (each.name, each.called) for each in self._entries) else called
        value = self._source.decide(len(self._entries), kind, name or called, options)
        self._note(Entry(kind=kind, value=value, name=name, asked=asked, called=called))
        return value

    def _place_tensor(
        self,
        kind: str,
        name: str,
        options: OneOfValues,
        request: tuple,
        format_name: str,
        shape: tuple[int, ...],
        offset: int = 0,
        *,
        strides: tuple[int, ...] | None = None,
    ) -> Any:
        value = self._source.decide(len(self._entries), kind, name, options)
        if _elements(shape) > MOST_ELEMENTS:
            raise UsageError(f"draw.{kind}: a shape of {shape} has more than {MOST_ELEMENTS:,} elements; draw smaller sizes")
        strides = strides if strides is not None else _strides(str(value), shape, storage_of(format_name).itemsize)
        moved = offset + (value == "offset")
        entry = Entry(
            kind=kind, value=value, name=name, asked=request, dtype=format_name, shape=shape, strides=strides, offset=moved
        )
        place = self._note(entry)
        made = Placeholder(shape, torch_dtype(format_name)) if self._tensor_of is None else self._tensor_of(entry, place)
        self._tensors.append((place, made))
        return made

    def _note(self, entry: Entry) -> int:
        """Record a draw; its place."""
        place = len(self._entries)
        if entry.name and any(each.name == entry.name for each in self._entries):
            raise UsageError(f"draw.{entry.kind}(name={entry.name!r}): two draws have this name; give each its own")
        self._entries.append(entry)
        if self._tensor_of is not None:
            self._check_against_record(entry, place)
        return place

    def _check_against_record(self, entry: Entry, place: int) -> None:
        """BodyError where the body draws otherwise than it did for this case."""
        recorded_entries = getattr(self._source, "entries", ())
        if place >= len(recorded_entries):
            raise BodyError(
                f"the body draws {entry.describe()} ({entry.kind}) after its first use of a tensor: "
                f"draw everything before the launch"
            )
        if recorded_entries[place] != entry:
            raise BodyError(
                f"draw {place} of the body is {entry.describe()} ({entry.kind}) now and was {recorded_entries[place].describe()} "
                f"({recorded_entries[place].kind}) when the case was drawn: a body may depend on its draws alone"
            )

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was drawn so far."""
        return tuple(self._entries)

    def __getattr__(self, name: str) -> Any:
        known = [each for each in vars(type(self)) if not each.startswith("_") and each != "entries"]
        raise AttributeError(f"draw has no {name}{did_you_mean(name, known)}; it has {', '.join(known)}")


def of_a_draw(error: Exception) -> str | None:
    """Where `error` says that a body calls a draw wrongly, the sentence that tells so, with the body's line; else None."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = bool(frames) and frames[-1].filename == __file__
    called = isinstance(error, TypeError) and str(error).startswith(f"{Draw.__name__}.")  # Python names the method
    if not called and not (inside and isinstance(error, (TypeError, ValueError, AttributeError))):
        return None
    line = next((f"{frame.filename}:{frame.lineno}: " for frame in reversed(frames) if frame.filename != __file__), "")
    return f"{line}{str(error).replace(f'{Draw.__name__}.', 'draw.', 1)}; what a body may draw: docs/your_kernel.md"


def operands_of(entries: Iterable[Entry]) -> list[tuple[int, Entry]]:
    """The draws that are operands, each with its place."""
    return [(place, entry) for place, entry in enumerate(entries) if entry.kind in OPERANDS]


def _nested_tuples(values: object) -> Any:
    """Lists within lists as tuples."""
    return tuple(map(_nested_tuples, values)) if isinstance(values, list) else values


def _shape(given: int | Sequence[int]) -> tuple[int, ...]:
    sizes = (given,) if isinstance(given, int) else tuple(given)
    if not all(isinstance(size, int) and size >= 0 for size in sizes):
        raise UsageError(f"a shape of {given!r:.100}: must be integers of at least 0")
    return tuple(int(size) for size in sizes)


def _inside(end: float, towards: float) -> float:
    """The number of fp32 that is nearest to `end` on the side `towards`."""
    found = np.float32(end)
    outside = found < end if towards > 0 else found > end
    return float(np.nextafter(found, np.float32(towards)) if outside else found)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _lies(layout: str, shape: tuple[int, ...]) -> bool:
    return len(shape) > 1 or layout in (CONTIGUOUS, "offset") or (layout == "ragged" and len(shape) == 1)


def _far_axis(shape: tuple[int, ...]) -> int | None:
    """The axis whose lines a far tensor of this shape has apart; None where it has too few, or too many in all."""
    few = _elements(shape[:-1]) <= FAR_LINES[-1]
    return next((axis for axis, size in enumerate(shape[:-1]) if few and size in FAR_LINES), None)


def _strides(layout: str, shape: tuple[int, ...], itemsize: int = 1) -> tuple[int, ...] | None:
    """Element strides of a layout; None for contiguous rows. A tensor of one axis lies "ragged" with every fourth element."""
    if layout == FAR_LAYOUT:
        axis = _far_axis(shape)
        assert axis is not None
        first_past = max(-(-shape[axis] // 2), FAR_LINES[0] - 1)  # 2^31: half of the lines, so that one of them begins a block
        line = far_pad(first_past + 1, 0, itemsize)
        return (*_contiguous((*shape[: axis + 1], line))[:-1], *_contiguous(shape[axis + 1 :]))
    if layout not in ("padded", "ragged", "transposed"):
        return None
    if layout == "transposed":
        exchanged = (*shape[:-2], shape[-1], shape[-2])
        *outer, row, column = _contiguous(exchanged)
        return (*outer, column, row)
    gap = 16 if layout == "padded" else 3
    if len(shape) == 1:
        return (1 + gap,)
    return (*_contiguous((*shape[:-1], shape[-1] + gap))[:-1], 1)


def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
