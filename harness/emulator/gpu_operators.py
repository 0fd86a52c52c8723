"""Torch's operators on fp16 and bf16 tensors of the emulated GPU, computed as a GPU computes them: in fp32, rounded once.

A test's reference is torch on "cuda", and torch's operators for the CPU compute it here. Some of those round where no GPU does:
`native_layer_norm` keeps the mean and the reciprocal deviation of bf16 rows in bf16. So one rule holds for all operators of ATen:
what is fp16 or bf16 is widened to fp32, which is exact; the operator computes in fp32; and each result is rounded once to the type
that a GPU gives it, which ATen's own functions for the device "meta" say.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from bitverdict.harness.emulator.cuda_tensors import Watches, tensors_in
from bitverdict.harness.emulator.device_probe import LaunchRun
from bitverdict.harness.emulator.gpu_only_operators import PRODUCTS
from bitverdict.harness.emulator.memory.byte_arrays import UNSIGNED_TYPES, zeros
from bitverdict.harness.emulator.memory.unwritten_words import WRITTEN_MARK, AllocatedWords, UnwrittenWords
from bitverdict.harness.model.torch_internals import OpOverload, StorageWeakRef, name_of, schema_of

NARROW_TYPES = (torch.float16, torch.bfloat16)
_COPIES = frozenset(  # what moves words, or writes those that are given or that their type has: the same on any device
    "clone copy _to_copy cat stack fill zero zeros_like ones_like full_like empty_like empty_strided new_empty new_empty_strided "
    "new_zeros new_ones new_full resize set index index_select gather repeat flip roll masked_select lift_fresh_copy "
    "masked_fill nan_to_num nextafter".split()
)


class WideOperators(Watches):
    """`computed`: calls that took or gave fp16 or bf16, and were computed in fp32. `left`: those that were not, by operator and
    why."""

    def __init__(self) -> None:
        self.computed = 0
        self.left: Counter[str] = Counter()

    def run(
        self, function: OpOverload, args: tuple, kwargs: dict, written: list[torch.Tensor], call: Callable[[], object]
    ) -> object:
        """`call()`, or what `function` gives for the same operands in fp32, rounded once."""
        if not any(tensor.dtype in NARROW_TYPES for tensor in tensors_in((args, kwargs))) or not _computes(function):
            return call()
        if function in PRODUCTS:
            self.computed += 1
            return call()
        if torch.Tag.nondeterministic_seeded in function.tags:
            self.left[f"{name_of(function)}: draws random numbers"] += 1
            return call()
        try:
            wide = _WideCall(function, args, kwargs)
            result = wide.result()
        except Exception as error:  # torch's own function says what is wrong with its operands, in its words
            result = call()
            self.left[f"{name_of(function)}: {' '.join(str(error).split())[:80]}"] += 1
            return result
        self.computed += 1
        return result


class PoisonedMemory(UnwrittenWords, Watches):
    """What is allocated and not filled holds bytes of 0xFF: NaN in each float format, -1 in an integer. `reads`: what kernels took
    of it before a kernel, an operator of torch or the host wrote there."""

    def __init__(self) -> None:
        super().__init__(tuple)
        self._alive: dict[int, StorageWeakRef] = {}  # by where it begins

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        if function.removeprefix("new_").startswith("empty") and tensor.numel():
            storage = tensor.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            whole.fill_(1 if tensor.dtype == torch.bool else 0xFF)
            if tensor.dtype != torch.bool:
                self._alive[storage.data_ptr()] = StorageWeakRef(storage)
                held = AllocatedWords("", np.zeros(0, np.uint8), 0xFF, zeros(storage.nbytes(), np.uint8))
                self.storages[storage.data_ptr()] = held

    def on_placement(self, tensor: torch.Tensor) -> None:
        base = tensor.untyped_storage().data_ptr()
        if base in self._alive and self._alive[base].expired():
            del self._alive[base], self.storages[base]

    def run(
        self, function: OpOverload, args: tuple, kwargs: dict, written: list[torch.Tensor], call: Callable[[], object]
    ) -> object:
        result = call()
        for tensor in written:
            held, size = self.storages.get(tensor.untyped_storage().data_ptr()), tensor.element_size()
            if held is not None and size in UNSIGNED_TYPES and tensor.numel():
                marks = held.marks(size)[tensor.storage_offset() :]
                strides = tuple(size * stride for stride in tensor.stride())
                np.lib.stride_tricks.as_strided(marks, tuple(tensor.shape), strides)[...] = np.iinfo(marks.dtype).max
        return result

    def begin(self, run: LaunchRun) -> None:
        for region in run.regions:
            if (held := self.storages.get(region.base)) is not None:
                held.written_marks[region.raw != held.fill] = WRITTEN_MARK

    def take(self) -> list[str]:
        """A sentence for each line that has taken such words since the last call."""
        taken, self.reads = self.reads, {}
        return [
            f"{read.location}: takes uninitialised words of {read.parameter}, the first at byte {read.byte} of its storage"
            for read in taken.values()
        ]


def _computes(function: OpOverload) -> bool:
    """Whether `function` makes or writes tensors by arithmetic."""
    schema = schema_of(function)
    if name_of(function).rstrip("_") in _COPIES:
        return False
    return any("Tensor" in str(result.type) for result in schema.returns) or any(
        argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments
    )


class _WideCall:
    """One call of an operator, with its operands in fp32."""

    def __init__(self, function: OpOverload, args: tuple, kwargs: dict) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs
        self.wide_tensors: dict[int, torch.Tensor] = {}  # by the identity of the operand

    def result(self) -> Any:
        """What the operator gives; what it writes has been written."""
        dtypes = iter(_result_types(self.function, self.args, self.kwargs))
        wide_result = self.function(*map(self._widen, self.args), **{name: self._widen(v) for name, v in self.kwargs.items()})
        originals = {
            id(self.wide_tensors[id(tensor)]): tensor for tensor in self._written_tensors() if id(tensor) in self.wide_tensors
        }
        for wide_tensor, tensor in ((self.wide_tensors[id(tensor)], tensor) for tensor in originals.values()):
            tensor.resize_(wide_tensor.shape).copy_(wide_tensor) if tensor.shape != wide_tensor.shape else tensor.copy_(wide_tensor)
        return self._round(wide_result, dtypes, originals)

    def _widen(self, value: object) -> Any:
        """`value` with what is narrow in fp32: tensors, in lists and tuples too, and a type that is asked for."""
        if isinstance(value, torch.Tensor):
            if value.dtype not in NARROW_TYPES:
                return value
            if id(value) not in self.wide_tensors:
                self.wide_tensors[id(value)] = value.to(torch.float32)
            return self.wide_tensors[id(value)]
        if isinstance(value, list | tuple):
            return type(value)(map(self._widen, value))
        return torch.float32 if value in NARROW_TYPES else value

    def _written_tensors(self) -> Iterator[torch.Tensor]:
        for place, argument in enumerate(schema_of(self.function).arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                yield from tensors_in(self.args[place] if place < len(self.args) else self.kwargs.get(argument.name))

    def _round(self, value: object, dtypes: Iterator[torch.dtype], originals: dict[int, torch.Tensor]) -> Any:
        """`value` with each result in the next of `dtypes`, and what the operator wrote in the place of its wide copy."""
        if isinstance(value, torch.Tensor):
            dtype = next(dtypes, value.dtype)
            return originals[id(value)] if id(value) in originals else value.to(dtype)
        if isinstance(value, list | tuple):
            return type(value)(self._round(item, dtypes, originals) for item in value)
        return value


_types: dict[tuple, list[torch.dtype]] = {}


def _result_types(function: OpOverload, args: tuple, kwargs: dict) -> list[torch.dtype]:
    """The types of what a GPU gives for the call, in order; what is None has none."""
    key = (function, *_kinds((args, tuple(sorted(kwargs.items())))))
    if key not in _types:
        made = function(*map(_as_meta, args), **{name: _as_meta(value) for name, value in kwargs.items()})
        _types[key] = [tensor.dtype for tensor in tensors_in(list(made) if isinstance(made, tuple) else made)]
    return _types[key]


def _kinds(value: object) -> Iterator[Any]:
    """What of the operands decides the types of the results."""
    if isinstance(value, torch.Tensor):
        yield value.dtype, value.dim() == 0
    elif isinstance(value, list | tuple):
        yield len(value)
        for item in value:
            yield from _kinds(item)
    else:
        yield value if isinstance(value, torch.dtype | bool) else type(value)


def _as_meta(value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, list | tuple):
        return type(value)(map(_as_meta, value))
    return torch.device("meta") if isinstance(value, torch.device) else value


__all__ = ["NARROW_TYPES", "PoisonedMemory", "WideOperators"]
