"""From what a launch was given to the arguments of its tile program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from triton.runtime.jit import TensorWrapper

from bitverdict.harness.emulator.cuda_tensors import inside, is_pinned
from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault, raise_for_the_launcher
from bitverdict.harness.emulator.memory.global_memory import GlobalMemory
from bitverdict.harness.emulator.memory.tensor_maps import ALIGNMENT, Descriptor, HostDescriptor, PixelBox
from bitverdict.harness.emulator.mlir_types import Type
from bitverdict.harness.emulator.numerics.scalar_ops import narrow


def program_arguments(kind: Any, name: str, value: Any) -> list[tuple[str, Any]]:
    """(name, value) of each argument that the program is passed for the parameter `name`: none for a constant, those of a tuple
    one by one. `kind` is the parameter's in the kernel's signature, where None, a function and a stride of 1 are constants too."""
    if isinstance(kind, tuple):
        return [
            part
            for i, (each, item) in enumerate(zip(kind, value, strict=True))
            for part in program_arguments(each, f"{name}[{i}]", item)
        ]
    return [] if kind == "constexpr" else [(name, value)]


def flatten(
    memory: GlobalMemory, names: Sequence[str], values: Sequence[Any], types: Sequence[Type], floats: dict[int, float] | None = None
) -> list[Any]:
    """One Python value for each argument of the program, tensors made reachable in `memory`. Values whose kind the program does not
    expect, or too few, are refused as "not modelled". `floats` takes the floats by place, as they were given."""
    kinds = iter(types)
    flat: list[Any] = []
    for name, value in zip(names, values, strict=True):
        if floats is not None and len(flat) < len(types) and types[len(flat)].kind == "scalar" and types[len(flat)].is_float:
            floats[len(flat)] = float(value)
        flat += _argument(memory, name, value, kinds)
    if next(kinds, None) is not None:
        raise EmulatedFault("not modelled", f"the tile program takes {len(types)} arguments, the launch gave {len(flat)}")
    return flat


def _argument(memory: GlobalMemory, name: str, value: Any, kinds: Iterator[Type]) -> list[Any]:
    kind = next(kinds, None)
    if kind is None:
        raise EmulatedFault("not modelled", f"argument {name}: the tile program takes fewer arguments")
    if hasattr(value, "block_shape") and hasattr(value, "base"):
        return _descriptor(memory, name, value, kind, kinds)
    if kind.kind == "pointer":
        if isinstance(value, torch.Tensor | TensorWrapper):
            return [memory.add(name, bytes_of(name, value))]
        memory.addresses.append((name, int(value.data_ptr() if hasattr(value, "data_ptr") else value)))
        return [memory.addresses[-1][1]]
    if kind.kind == "scalar":
        if kind.is_float:
            return [np.asarray(narrow(np.array(float(value)), kind.format))]
        return [int(value)]
    raise EmulatedFault("not modelled", f"argument {name} of type {kind.text}")


def refuse_cpu_tensors(values: Sequence[Any]) -> None:
    """ValueError, in Triton's own words, for a tensor of the CPU where a launch on a GPU needs one of its own."""
    for place, value in enumerate(values):
        while isinstance(value, TensorWrapper) or hasattr(value, "block_shape"):
            value = value.base
        if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.numel() and not is_pinned(value):
            said = f"Pointer argument (at {place}) cannot be accessed from Triton (cpu tensor?)"
            raise_for_the_launcher(ValueError(said))


def bytes_of(name: str, value: object) -> torch.Tensor:
    """The CPU tensor that holds the bytes of `value`: a tensor, or one that `triton.reinterpret` gave another type."""
    while isinstance(value, TensorWrapper):
        value = value.base
    tensor = inside(value)
    if tensor.device.type != "cpu":
        raise BadArgument(
            f"argument {name} is on {tensor.device}: the emulated GPU reads tensors of device='cuda' that were made under it, and "
            "CPU tensors; move it with .cpu()"
        )
    return tensor


def host_descriptor(memory: GlobalMemory, name: str, value: HostDescriptor) -> Descriptor:
    """The tensor map of a host tensor descriptor of Triton or Gluon. RuntimeError where the driver makes none."""
    base = memory.add(name, bytes_of(name, value.base))
    nan, to_tf32 = getattr(value, "padding", "zero") == "nan", bool(getattr(value, "round_f32_to_tf32", False))
    if (width := int(value.block_shape[-1]) * value.base.element_size()) < ALIGNMENT:
        raise RuntimeError(
            f"Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument: {name}'s box is {width} bytes "
            f"wide, must be at least {ALIGNMENT}"  # the driver's own words on an H200, then why
        )
    if nan and value.base.element_size() == 1:
        raise RuntimeError(
            f"Triton Error [CUDA]: Failed to create tensor map descriptor: invalid argument: {name} asks for NaN outside, "
            "and has elements of 1 byte, of which the driver knows no NaN"  # the driver's own words on an H100, then why
        )
    pixels = None
    if getattr(value, "mode", "tiled") == "im2col":
        box: Any = value
        steps = box.element_strides or [1] * len(value.shape)
        pixels = PixelBox(tuple(box.pixel_box_lower_corner), tuple(box.pixel_box_upper_corner), tuple(steps[1:-1]))
    shape, strides = (tuple(int(n) for n in numbers) for numbers in (value.shape, value.strides))
    return Descriptor(base, shape, strides, value.base.element_size(), nan, to_tf32, pixels)


def _descriptor(memory: GlobalMemory, name: str, value: HostDescriptor, kind: Type, kinds: Iterator[Type]) -> list[Any]:
    """A host tensor descriptor: itself, its shape and strides; or, where the target has no TMA, the pointer it is rewritten to."""
    if kind.kind == "desc":
        made = host_descriptor(memory, name, value)
        flat: list[Any] = [made, *made.shape, *made.strides]
    else:
        shape, strides = [int(n) for n in value.shape], [int(n) for n in value.strides]
        nan, to_tf32 = getattr(value, "padding", "zero") == "nan", bool(getattr(value, "round_f32_to_tf32", False))
        rounds = [int(to_tf32)] if hasattr(value, "round_f32_to_tf32") else []  # a release without that has no such argument
        base = memory.add(name, bytes_of(name, value.base))
        flat = [base, *shape, *strides, int(nan), *rounds, *shape, *strides]
    for _ in flat[1:]:
        next(kinds, None)
    return flat
