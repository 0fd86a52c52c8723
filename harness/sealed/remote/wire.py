"""Values in frames: what torch's operators, Triton's launches and launchers are given, as JSON and raw buffers, both ways.

None, truths, whole numbers, floats and texts are JSON's own; a list is a list. Anything else is an object of one key that says what
it is: {"tuple": [...]}, {"dtype": "float16"}, {"tensor": 7}. A tensor of the emulated GPU is a number (`tensor` of `Encoder`), one
of the CPU its bytes. Decoding makes nothing but what is listed here: no name leads to a class or a function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.runtime.jit import TensorWrapper
from triton.tools.tensor_descriptor import TensorDescriptor

from bitverdict.harness.emulator.cuda_tensors import CUDA, CudaTensor
from bitverdict.harness.sealed.remote.errors import WireError

DEEPEST = 16  # lists within lists
LARGEST = 1 << 128  # magnitude of a whole number
LONGEST = 1 << 20  # characters of a text
MOST_AXES = 64
DTYPES = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.dtype)}
LAYOUTS = {"strided": torch.strided}
FORMATS = {str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, torch.memory_format)}
_DESCRIPTOR_FIELDS = ("base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32", "mode", "element_strides",
              "pixel_box_lower_corner", "pixel_box_upper_corner")  # fmt: skip
"""What the emulated GPU reads of a host tensor descriptor (`frontend.arguments`)."""


class UnencodableValueError(TypeError):
    """A value that cannot be handed to the other process."""


class Encoder:
    """Makes JSON of values, and keeps the `buffers` that belong to it. `tensor` gives the JSON of a tensor of the emulated GPU,
    `other` that of what is not listed."""

    def __init__(self, tensor: Callable[[CudaTensor], object], other: Callable[[object], object] | None = None) -> None:
        self.tensor, self.other = tensor, other
        self.buffers: list[Any] = []

    def __call__(self, value: Any) -> Any:
        """NotSent for a value of another kind."""
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is str or kind is float:
            return value
        if kind is list:
            return [self(each) for each in value]
        if kind is CudaTensor:
            return self.tensor(value)
        if isinstance(value, tuple):
            return {"tuple": [self(each) for each in value]}
        for known, said in _ENCODINGS:
            if isinstance(value, known):
                return said(self, value)
        if self.other is not None:
            return self.other(value)
        raise UnencodableValueError(f"a {kind.__module__}.{kind.__qualname__} cannot be handed to the other process")

    def host(self, tensor: torch.Tensor) -> Any:
        """A tensor of the CPU: its elements in their order."""
        if isinstance(tensor, CudaTensor):  # of a class of the launcher's own
            return self.tensor(tensor)
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            raise UnencodableValueError(f"a tensor of {tensor.device} and {tensor.layout} cannot be handed to the other process")
        flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
        flat = flat.as_strided((flat.numel(),), (1,))  # of one element, whatever its strides say
        self.buffers.append(flat.view(torch.uint8).numpy() if flat.numel() else b"")
        said = {"host": len(self.buffers) - 1, "dtype": _name(tensor.dtype), "size": list(tensor.shape)}
        return said | ({"grad": True} if tensor.requires_grad else {})

    def strided_host(self, tensor: torch.Tensor) -> Any:
        """As `host`, with its strides where they are dense: the copy lies as `tensor` does."""
        if tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            return self.host(tensor)
        try:
            strides = dense(list(tensor.shape), list(tensor.stride()))
        except WireError:
            return self.host(tensor)
        flat = tensor.detach().as_strided((tensor.numel(),), (1,), tensor.storage_offset())
        return self.host(flat) | {"size": list(tensor.shape), "stride": strides}

    def describe_descriptor(self, value: object) -> Any:
        found = {name: self(getattr(value, name)) for name in _DESCRIPTOR_FIELDS if hasattr(value, name)}
        return {"descriptor": found}


def _name(value: object) -> str:
    return str(value).removeprefix("torch.")


def _fields(value: Any) -> Any:
    return [value.start, value.stop, value.step]


_ENCODINGS: tuple[tuple[Any, Callable[[Encoder, Any], Any]], ...] = (
    (bool, lambda own, value: bool(value)),
    (int, lambda own, value: int(value)),
    (float, lambda own, value: float(value)),
    (str, lambda own, value: str(value)),
    (list, lambda own, value: [own(each) for each in value]),
    (dict, lambda own, value: {"dict": [[own(key), own(each)] for key, each in value.items()]}),
    (torch.Tensor, Encoder.strided_host),
    (torch.dtype, lambda own, value: {"dtype": _name(value)}),
    (torch.device, lambda own, value: {"device": str(value)}),
    (torch.layout, lambda own, value: {"layout": _name(value)}),
    (torch.memory_format, lambda own, value: {"format": _name(value)}),
    (slice, lambda own, value: {"slice": [own(each) for each in _fields(value)]}),
    (complex, lambda own, value: {"complex": [value.real, value.imag]}),
    (TensorWrapper, lambda own, value: {"reinterpret": own(value.base), "as": str(value.dtype)}),
    ((TensorDescriptor, GluonDescriptor), Encoder.describe_descriptor),
    (np.bool_, lambda own, value: bool(value)),
    (np.integer, lambda own, value: int(value)),
    (np.floating, lambda own, value: float(value)),
)


class Decoder:
    """Makes values of JSON and the `buffers` of its frame. WireError for anything that `Encoder` does not make."""

    def __init__(
        self,
        buffers: Sequence[bytearray],
        tensor: Callable[[dict[str, object]], object],
        other: Callable[[dict[str, object]], object] | None = None,
    ) -> None:
        self.buffers, self.tensor, self.other = buffers, tensor, other

    def __call__(self, value: Any, depth: int = 0) -> Any:
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            if abs(value) >= LARGEST:
                raise WireError(f"a whole number of {value.bit_length()} bits")
            return value
        if kind is str:
            return text(value)
        if depth >= DEEPEST:
            raise WireError(f"lists more than {DEEPEST} deep")
        if kind is list:
            return [self(each, depth + 1) for each in value]
        return self._decode_object(value, depth + 1)

    def _decode_object(self, record: dict[str, object], depth: int) -> Any:
        if "tensor" in record:
            return self.tensor(record)
        if "host" in record:
            return self._host(record)
        for name, made in _DECODINGS.items():
            if name in record:
                return made(self, record[name], record, depth)
        if self.other is not None:
            return self.other(record)
        raise WireError(f"a value of an unknown kind: {sorted(record)!s:.100}")

    def _host(self, record: Mapping[str, object]) -> torch.Tensor:
        dtype, size = look_up(DTYPES, record.get("dtype"), "dtype"), sizes(record.get("size"))
        held = self.buffer(record["host"])
        if len(held) != math.prod(size) * dtype.itemsize:
            raise WireError(f"a tensor of {size} {dtype} in {len(held)} bytes")
        made = torch.frombuffer(held, dtype=dtype).reshape(size) if held else torch.empty(size, dtype=dtype)
        strides = record.get("stride")
        if strides is not None:
            made = made.as_strided(size, dense(size, sizes(strides)))
        return made.requires_grad_() if record.get("grad") is True and differentiable(dtype) else made

    def buffer(self, place: object) -> bytearray:
        if type(place) is not int or not 0 <= place < len(self.buffers):
            raise WireError(f"no buffer {place!r:.20}")
        return self.buffers[place]

    def pairs(self, said: object, depth: int) -> dict:
        listed = listing(said)
        if any(type(pair) is not list or len(pair) != 2 for pair in listed):
            raise WireError("a dictionary of no pairs")
        try:
            return {self(key, depth): self(value, depth) for key, value in listed}
        except TypeError as error:
            raise WireError("a key that has no hash") from error

    def descriptor(self, said: object, depth: int) -> SimpleNamespace:
        """What stands for a host tensor descriptor: the same attributes."""
        if type(said) is not dict or not {"base", "shape", "strides", "block_shape"} <= set(said) <= set(_DESCRIPTOR_FIELDS):
            raise WireError("a descriptor with other fields")
        fields = {name: self(each, depth) for name, each in said.items()}
        if not isinstance(fields["base"], torch.Tensor | TensorWrapper):
            raise WireError("a descriptor of no tensor")
        for name in ("shape", "strides", "block_shape"):
            sizes(fields[name])
        if not len(fields["shape"]) == len(fields["strides"]) == len(fields["block_shape"]) > 0:
            raise WireError("a descriptor whose axes differ")
        return SimpleNamespace(**fields)


def _reinterpret(own: Decoder, base: object, said: Mapping[str, object], depth: int) -> TensorWrapper:
    found = own(base, depth)
    if not isinstance(found, torch.Tensor | TensorWrapper):
        raise WireError("a reinterpreted value that is no tensor")
    return TensorWrapper(found, text(said.get("as")))


def _complex(own: Decoder, said: object, whole: Mapping[str, object], depth: int) -> complex:
    if type(said) is not list or len(said) != 2 or any(type(part) is not float for part in said):
        raise WireError("a complex number of no two floats")
    return complex(*said)


def _slice(own: Decoder, said: object, whole: Mapping[str, object], depth: int) -> slice:
    if len(listing(said)) != 3:
        raise WireError("a slice of no three parts")
    return slice(*own(said, depth))


def _device(own: Decoder, said: object, whole: Mapping[str, object], depth: int) -> torch.device:
    return look_up({"cpu": torch.device("cpu"), "cuda": CUDA, "cuda:0": CUDA, "meta": torch.device("meta")}, said, "device")


_DECODINGS: dict[str, Callable[[Decoder, Any, dict[str, Any], int], Any]] = {
    "tuple": lambda own, said, whole, depth: tuple(own(each, depth) for each in listing(said)),
    "dict": lambda own, said, whole, depth: own.pairs(said, depth),
    "dtype": lambda own, said, whole, depth: look_up(DTYPES, said, "dtype"),
    "device": _device,
    "layout": lambda own, said, whole, depth: look_up(LAYOUTS, said, "layout"),
    "format": lambda own, said, whole, depth: look_up(FORMATS, said, "memory format"),
    "slice": _slice,
    "complex": _complex,
    "reinterpret": _reinterpret,
    "descriptor": lambda own, said, whole, depth: own.descriptor(said, depth),
}


def differentiable(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def look_up(known: Mapping[str, object], said: object, what: str) -> Any:
    if type(said) is not str or said not in known:
        raise WireError(f"{what} {said!r:.40}: there is none")
    return known[said]


def text(said: object, most: int = LONGEST) -> str:
    if type(said) is not str or len(said) > most:
        raise WireError(f"no text of at most {most} characters: {said!r:.40}")
    return said


def whole_number(said: object, low: int = 0, high: int = 1 << 62) -> int:
    if type(said) is not int or not low <= said <= high:
        raise WireError(f"no whole number of {low} to {high}: {said!r:.40}")
    return said


def listing(said: object, most: int = 1 << 22) -> list:
    if type(said) is not list or len(said) > most:
        raise WireError(f"no list of at most {most}: {said!r:.40}")
    return said


def sizes(said: object) -> list[int]:
    """Sizes or strides of at most `MOST_AXES` axes."""
    return [whole_number(each) for each in listing(list(said) if type(said) is tuple else said, MOST_AXES)]


def dense(size: list[int], stride: list[int]) -> list[int]:
    """`stride`, if elements of `size` lie without gaps and overlaps by it."""
    if len(stride) != len(size):
        raise WireError("sizes and strides of other axes")
    step = 1
    for apart, count in sorted((apart, count) for apart, count in zip(stride, size, strict=True) if count > 1):
        if apart != step:
            raise WireError(f"strides {stride} of {size} are not dense")
        step *= count
    return stride


__all__ = ["Decoder", "Encoder", "UnencodableValueError"]
