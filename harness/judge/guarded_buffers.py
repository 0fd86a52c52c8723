"""Operands to tensors and back, with guard bands and poison around everything a kernel can reach.

Every input lies inside a larger buffer; every buffer a launcher allocates while `guarded_allocations` is entered does too. What
lies around a view, and what an output holds before it is written, is poison: a byte pattern drawn from the case's `data_seed`, so
that two cases never share one blind spot (0xFF is a NaN in every float format and -1 in an integer; 0x7B is large and
finite; 0xA5 is tiny and negative). Inputs are surrounded by another pattern than outputs.

After the launch `Guard.out_of_bounds` says what a launch did outside what it owns: bytes beside a view, or an input that changed
(`bitverdict.harness.judge.bounds_check`). On a GPU all inputs of a case lie in one arena, filled there and reached by one copy of
the operands' own bytes; the guard bands never cross the bus."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.memory.global_memory import GUARD_BYTES as HOST_GUARD_BYTES
from bitverdict.harness.judge.bounds_check import UNSIGNED_TYPES, Arena, Buffer, OutOfBounds, first_out_of_bounds
from bitverdict.harness.judge.far_views import Islands, is_far, map_zeros
from bitverdict.harness.model.case import Operand
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import TorchFunctionMode, is_without_bytes

TORCH_DTYPES = {
    "fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2, "int8": torch.int8, "int32": torch.int32, "int16": torch.int16, "int64": torch.int64,
    "uint8": torch.uint8, "e8m0": torch.uint8, "ue4m3": torch.uint8, "e2m1": torch.uint8, "e2m3": torch.uint8,
    "e3m2": torch.uint8, "bool": torch.bool,
}  # fmt: skip
"""Format name -> the dtype a launcher is handed. Formats torch has no arithmetic for travel as bytes."""

GUARD_BYTES = {"cpu": HOST_GUARD_BYTES, "cuda": 1 << 20}  # each side
POISONS = (0xFF, 0x7B, 0xA5)
COPIED_BYTES = 1 << 30  # an arena up to this size is copied on its device and compared there; a larger one is read back whole


@dataclass(frozen=True)
class Poison:
    """The two byte patterns of a case: what outputs hold before they are written, and what surrounds inputs."""

    output: int
    around_inputs: int

    @classmethod
    def of_seed(cls, data_seed: int) -> Poison:
        place = data_seed % len(POISONS)
        return cls(POISONS[place], POISONS[(place + 1) % len(POISONS)])


@dataclass(frozen=True)
class _Place:
    """Where one operand lies: element strides, bytes of one element, and of its buffer between the bands."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int  # bytes from the leading band to the first element
    length: int  # bytes from the first element to the end of the last
    span: int  # bytes between the bands

    @classmethod
    def of_view(cls, shape: Sequence[int], strides: Sequence[int], offset: int, dtype: torch.dtype) -> _Place:
        reach = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0
        length, before = reach * dtype.itemsize, offset * dtype.itemsize
        return cls(dtype, tuple(shape), tuple(strides), before, length, -(-(before + length) // 512) * 512)

    @property
    def is_far_view(self) -> bool:
        """Whether it is filled and compared around its elements only."""
        return is_far(self.span, math.prod(self.shape) * self.dtype.itemsize)

    def view(self, storage: torch.Tensor, band: int) -> torch.Tensor:
        """The operand's tensor in `storage`, (band + span + band,) of uint8."""
        start = storage.storage_offset() + band + self.offset
        return storage.view(self.dtype).as_strided(self.shape, self.strides, start // self.dtype.itemsize)  # (*shape,)


@dataclass
class Guard:
    """Everything handed out for one case. Not thread-safe: one case, one guard.

    `on_device`: whether inputs share an arena and comparisons are made where the tensors are. None: on a GPU yes, on a CPU no.
    `zero_allocation`: the name of an allocation that holds zeros in the place of poison. `on_allocation` is told the bytes of each
    allocation of a launcher before it is made, and may raise.
    """

    poison: Poison
    buffers: list[Buffer] = field(default_factory=list)
    on_device: bool | None = None
    zero_allocation: str = ""
    on_allocation: Callable[[int], None] = lambda size: None

    def upload(self, operand: Operand, device: torch.device) -> torch.Tensor:
        """The operand as a tensor on `device`, strided and offset as it says, inside guard bands."""
        return self.upload_all([operand], device)[operand.name]

    def upload_all(self, operands: Iterable[Operand], device: torch.device) -> dict[str, torch.Tensor]:
        """Each operand by its name, as `upload` gives it."""
        requested_operands = list(operands)
        tensors = {
            operand.name: self._lend_far(operand, device) for operand in requested_operands if _place_operand(operand).is_far_view
        }
        near = [operand for operand in requested_operands if operand.name not in tensors]
        if self._compares_on_device(device):
            tensors |= self._upload_there(near, device)
        else:
            tensors |= {operand.name: self._upload_here(operand) for operand in near}
        if device.type == "cuda":
            torch.cuda.synchronize(device)  # or the launch would be charged for what is still under way
        return {operand.name: tensors[operand.name] for operand in requested_operands}

    def surround(self, like: torch.Tensor, name: str, *, keep_values: bool, device: torch.device | None = None) -> torch.Tensor:
        """A tensor of the same shape, strides and dtype as `like`, on `device` (None: its own), poisoned and inside guard bands."""
        device = like.device if device is None else device
        band = GUARD_BYTES[device.type]
        place, poison = (
            _Place.of_view(like.shape, like.stride(), 0, like.dtype),
            0 if name == self.zero_allocation else self.poison.output,
        )
        self.on_allocation(2 * band + place.span)
        if place.is_far_view:
            storage, view, islands = self._far_storage(place, device, poison)
            if keep_values:
                view.copy_(like)
            self.buffers.append(Buffer(name, storage, view, band, place.length, poison, islands=islands))
            return view
        storage = torch.full((2 * band + place.span,), poison, dtype=torch.uint8, device=device)  # (bytes,)
        view = place.view(storage, band)
        if keep_values:
            view.copy_(like)
        self.buffers.append(Buffer(name, storage, view, band, place.length, poison, unwritten=not keep_values))
        return view

    @property
    def allocated_buffers(self) -> list[Buffer]:
        """What was handed out full of poison, far views left out."""
        return [buffer for buffer in self.buffers if buffer.unwritten]

    def out_of_bounds(self, written: Collection[str] = ()) -> OutOfBounds | None:
        """The first stray write or changed input, or None; inputs in `written` may change. Waits for the device."""
        for buffer in self.buffers:
            buffer.is_output = buffer.name in written
        near = [(buffer, buffer.islands is None and self._compares_on_device(buffer.storage.device)) for buffer in self.buffers]
        return first_out_of_bounds(near)

    def _compares_on_device(self, device: torch.device) -> bool:
        return device.type != "cpu" if self.on_device is None else self.on_device

    def _far_storage(self, place: _Place, device: torch.device, poison: int) -> tuple[torch.Tensor, torch.Tensor, Islands]:
        """(storage, view, its islands, full of poison) of a far view."""
        band = GUARD_BYTES[device.type]
        size = 2 * band + place.span
        storage = map_zeros(size) if device.type == "cpu" else torch.empty(size, dtype=torch.uint8, device=device)  # (bytes,)
        strides = [stride * place.dtype.itemsize for stride in place.strides]
        islands = Islands.around(size, band, band + place.offset, place.shape, strides, place.dtype.itemsize)
        islands.fill(storage, poison)
        return storage, place.view(storage, band), islands

    def _lend_far(self, operand: Operand, device: torch.device) -> torch.Tensor:
        place, poison = _place_operand(operand), self.poison.around_inputs
        storage, view, islands = self._far_storage(place, device, poison)
        itemsize = place.dtype.itemsize
        codes = torch.from_numpy(np.ascontiguousarray(operand.codes).view(f"i{itemsize}").reshape(place.shape))  # (*shape,)
        view.view(codes.dtype).copy_(codes)
        start = GUARD_BYTES[device.type] + place.offset
        before = islands.gather(storage)  # (bytes of the islands,)
        self.buffers.append(Buffer(operand.name, storage, view, start, place.length, poison, before, islands=islands))
        return view

    def _upload_here(self, operand: Operand) -> torch.Tensor:
        place, band, poison = _place_operand(operand), GUARD_BYTES["cpu"], self.poison.around_inputs
        storage = torch.full((2 * band + place.span,), poison, dtype=torch.uint8)  # (bytes,)
        _write(operand, place, storage.numpy()[band:])
        view, before = place.view(storage, band), storage.numpy().copy()
        self.buffers.append(Buffer(operand.name, storage, view, band + place.offset, place.length, poison, before))
        return view

    def _upload_there(self, operands: list[Operand], device: torch.device) -> dict[str, torch.Tensor]:
        places, band, poison = (
            [_place_operand(operand) for operand in operands],
            GUARD_BYTES[device.type],
            self.poison.around_inputs,
        )
        host = np.full(sum(place.span for place in places), poison, np.uint8)  # (bytes,) without the bands
        ends = np.cumsum([0, *(place.span for place in places)]).tolist()
        for operand, place, end in zip(operands, places, ends[:-1], strict=True):
            _write(operand, place, host[end:])
        upload = torch.from_numpy(host).to(device)  # (bytes,)
        arena_bytes = torch.full((len(host) + 2 * band * len(places),), poison, dtype=torch.uint8, device=device)  # (bytes,)
        arena, tensors = Arena(arena_bytes), {}
        for number, (operand, place, end) in enumerate(zip(operands, places, ends[:-1], strict=True)):
            begin = end + 2 * band * number
            storage = arena_bytes[begin : begin + 2 * band + place.span]  # (bytes,)
            storage[band : band + place.span].copy_(upload[end : end + place.span])
            view = tensors[operand.name] = place.view(storage, band)
            arguments = (operand.name, storage, view, band + place.offset, place.length, poison)
            self.buffers.append(Buffer(*arguments, upload_bytes=host[end : end + place.span], band=band, arena=arena))
        if arena_bytes.numel() <= COPIED_BYTES:
            arena.before = arena_bytes.clone()
        return tensors


def far_bytes(operands: Iterable[Operand]) -> int:
    """Bytes that the far ones of `operands` span: what a GPU must have room for."""
    span_bytes = 0
    for operand in operands:
        shape, itemsize = operand.codes.shape, operand.codes.dtype.itemsize
        strides = operand.strides if operand.strides is not None else contiguous(shape)
        reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) * itemsize
        span_bytes += reach if operand.codes.size and is_far(reach, operand.codes.nbytes) else 0
    return span_bytes


def near_bytes(operands: Iterable[Operand]) -> int:
    """Bytes that those of `operands` span which are not far, without their guard bands."""
    return sum(0 if (place := _place_operand(operand)).is_far_view else place.span for operand in operands)


def _place_operand(operand: Operand) -> _Place:
    dtype, codes = torch_dtype(operand.format), operand.codes
    if codes.dtype.itemsize != dtype.itemsize:
        raise ValueError(
            f"operand {operand.name!r}: codes of {codes.dtype}, but {operand.format} takes {8 * dtype.itemsize} bits "
            "a code; build them in the format's storage type"
        )
    strides = tuple(operand.strides) if operand.strides is not None else contiguous(codes.shape)
    return _Place.of_view(codes.shape, strides, operand.offset, dtype)


def _write(operand: Operand, place: _Place, span: np.ndarray) -> None:
    """Put the operand's codes into its span, bytes from the end of the leading band on."""
    if operand.codes.size:
        unsigned = UNSIGNED_TYPES[place.dtype.itemsize]
        codes = np.ascontiguousarray(operand.codes).view(unsigned).reshape(place.shape)
        host = span[place.offset : place.offset + place.length].view(unsigned)
        np.lib.stride_tricks.as_strided(host, place.shape, [s * place.dtype.itemsize for s in place.strides])[...] = codes


def torch_dtype(format_name: str) -> torch.dtype:
    """The torch dtype that carries `format_name`; ValueError with the known names."""
    if format_name not in TORCH_DTYPES:
        raise ValueError(f"format {format_name!r}: no tensor carries it; known: {', '.join(TORCH_DTYPES)}")
    return TORCH_DTYPES[format_name]


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major element strides of `shape`, with torch's rule that an empty axis counts as one."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(1, size)
    return tuple(reversed(strides))


def words(tensor: torch.Tensor) -> np.ndarray:
    """The bits of a tensor as an unsigned array of the same shape."""
    if type(tensor) is not torch.Tensor:  # an operation on one of the emulated GPU has torch import half a second of modules
        from bitverdict.harness.emulator.cuda_tensors import inside

        tensor = inside(tensor)
    unsigned = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.dtype.itemsize]
    flat = tensor.detach().contiguous().cpu()
    result: np.ndarray = flat.view(unsigned).numpy().view(UNSIGNED_TYPES[tensor.dtype.itemsize]).reshape(tuple(tensor.shape))
    return result


def poison_word(poison: int, itemsize: int) -> int:
    """The word an output element holds before it is written."""
    return int.from_bytes(bytes([poison]) * itemsize, "little")


@contextmanager
def guarded_allocations(guard: Guard) -> Iterator[Guard]:
    """While entered, what a launcher allocates from Python is poisoned and guarded, on any device.

    torch.empty and its kin come back full of poison; torch.zeros, ones and full keep their values and gain the guard bands.
    """
    with _Interception(guard):
        yield guard


class _Interception(TorchFunctionMode):  # type: ignore[misc]  # mypy does not follow torch
    POISON_FUNCTIONS = {
        torch.empty,
        torch.empty_like,
        torch.empty_strided,
        torch.empty_permuted,
        torch.Tensor.new_empty,
        torch.Tensor.new_empty_strided,
    }
    VALUE_FUNCTIONS = {
        torch.zeros,
        torch.zeros_like,
        torch.ones,
        torch.ones_like,
        torch.full,
        torch.full_like,
        torch.Tensor.new_zeros,
        torch.Tensor.new_ones,
        torch.Tensor.new_full,
    }

    def __init__(self, guard: Guard) -> None:
        super().__init__()
        self.guard = guard

    def __torch_function__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = for_the_launcher(func, *args, **kwargs)
        if func not in self.POISON_FUNCTIONS and func not in self.VALUE_FUNCTIONS:
            return result
        plain = isinstance(result, torch.Tensor) and result.layout == torch.strided and result.device.type in GUARD_BYTES
        if not plain or kwargs.get("out") is not None or kwargs.get("pin_memory") or _asked_by_triton():
            return result
        if result.shape == (0,):  # torch resizes it where it is given as `out=`, and would grow it into its guard bands
            return result
        if is_without_bytes():  # what it makes has no bytes
            return result
        name = f"tensor {len(self.guard.buffers)} ({func.__name__})"
        device = result.device
        if (
            func in self.POISON_FUNCTIONS and _Place.of_view(result.shape, result.stride(), 0, result.dtype).is_far_view
        ):  # or as much would be held twice
            result = torch.empty_strided(result.shape, result.stride(), dtype=result.dtype, device="meta")
        return self.guard.surround(result, name, keep_values=func in self.VALUE_FUNCTIONS, device=device)


def _asked_by_triton() -> bool:
    """Whether the compiler's runtime allocates (its benchmark's cache of 256 MB, for one): no output of a launcher."""
    frame = sys._getframe(2)
    while frame is not None and f"{frame.f_globals.get('__name__')}.".startswith(("torch.", "bitverdict.harness.emulator.")):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and str(frame.f_globals.get("__name__", "")).split(".")[0] == "triton"
