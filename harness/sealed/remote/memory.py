"""Device memory as the candidate's process sees it: handles of tensors that lie in the executor, and the way to ask it.

A `CudaTensor` wraps a `Distant` here, which knows sizes, strides and addresses and holds no bytes. Each operation is one question
to the executor, by the operator's name in torch's schema.

Three kinds of questions wait for no answer, because each wait costs both processes a wake-up. Views: what comes is known here, and
they are asked for beside the next question, with the number that they get. Allocations, after the first of a kind: all but their
address is known, and that is asked for where somebody wants it. Launches: what they raise is raised out of the next question that
waits, as on a real GPU.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any

import torch

from bitverdict.harness.emulator.cuda_tensors import CPU, CUDA, CudaTensor, tensors_in
from bitverdict.harness.emulator.faults import EmulatedFault, raise_for_the_launcher
from bitverdict.harness.emulator.memory.provenance import launcher_line
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import DispatchOff, FunctionModesOff, mark
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.wire import DTYPES, Decoder, Encoder, UnencodableValueError

MOST_PROGRAMS = 1 << 12  # tile programs that the executor keeps; the next is the first of others
CONSTRUCTORS = (
    "empty", "empty_like", "empty_strided", "empty_permuted", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like",
    "arange", "linspace", "logspace", "eye", "tril_indices", "triu_indices",
    "Tensor.new_empty", "Tensor.new_empty_strided", "Tensor.new_zeros", "Tensor.new_ones", "Tensor.new_full",
)  # fmt: skip
"""Functions that allocate, by name below torch, which the executor calls itself: there they are guarded and hold poison."""

EXCEPTION_TYPES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (RuntimeError, ValueError, TypeError, IndexError, KeyError, NotImplementedError, MemoryError, OverflowError,
                 ZeroDivisionError, AttributeError, ArithmeticError, torch.OutOfMemoryError, torch.AcceleratorError)
}  # fmt: skip
"""What the executor hands on of what torch raises there; anything else is a RuntimeError."""


PLAIN_CONSTRUCTORS = {"empty", "empty_like", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "Tensor.new_empty",
         "Tensor.new_zeros", "Tensor.new_ones", "Tensor.new_full"}  # fmt: skip
"""Of `CONSTRUCTORS`, those whose sizes and strides are plain."""
ALLOCATION_ALIGNMENT = 64  # bytes: where the executor's allocations begin
LARGEST_KNOWN = 64 << 20  # bytes of an allocation that cannot fail for want of memory alone
_LATE_FIELDS = ("operator", "function")
VIEWS = {"view", "_unsafe_view", "_reshape_alias", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze", "select", "slice",
         "detach", "alias", "diagonal", "unfold"}  # fmt: skip
"""Operators that give a view of their first argument, by numbers alone."""


def function_called(name: str) -> Any:
    """The function of torch that `name` of `CONSTRUCTORS` stands for."""
    own, _, last = name.rpartition(".")
    return getattr(torch.Tensor if own else torch, last)


class Link:
    """The candidate's way to the executor: one question at a time, whatever thread asks it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.call = 0  # the number of the call that runs; 0: none does
        self.tells_lines = False  # each question says which line of the launcher's asks
        self.released: list[int] = []  # handles that nobody holds any more
        self.programs: dict[bytes, int] = {}  # tile programs that the executor has
        self.begins: dict[str, int] = {}  # function that allocates -> first byte, in its storage, of what it makes
        self._views: list[dict[str, Any]] = []  # that the executor makes before it takes the next question
        self._numbered = 0
        self._asking = threading.RLock()

    def end(self, frame: dict[str, object], buffers: Any) -> None:
        """Send the frame that ends a call. What other threads ask from here on is late: it is told, and nobody answers."""
        with self._asking:
            self.call = 0
            self.channel.send(frame | self._pending_views(), buffers)

    def view(self, **fields: object) -> int:
        """The number of what an operator gives that is asked for beside the next question."""
        with self._asking:
            number = self.number()
            self._views.append({**fields, "as": number})
            return number

    def number(self) -> int:
        """One for a tensor that the executor is still to make."""
        with self._asking:
            self._numbered -= 1
            return self._numbered

    def _pending_views(self) -> dict[str, Any]:
        """What a frame says of views that were not told yet."""
        views, self._views = self._views, []
        return {"views": views} if views else {}

    def tell(self, what: str, buffers: object = (), **fields: object) -> None:
        """Ask for what has no answer. What it raises is raised out of the next question that has one."""
        with self._asking:
            self._send(what, buffers, {**fields, "told": True})

    def ask(self, what: str, buffers: object = (), **fields: object) -> tuple[dict[str, Any], list[bytearray]]:
        """The executor's answer. What it says was raised there is raised here: a fault of a launch, or torch's own exception."""
        with self._asking:
            self._send(what, buffers, fields)
            answer, answer_buffers = self.channel.receive()
        if "fault" in answer:
            raise EmulatedFault(*answer["fault"])
        if "raised" in answer:
            kind, said = answer["raised"]
            raise_for_the_launcher(EXCEPTION_TYPES.get(kind, RuntimeError)(said))
        return answer, answer_buffers

    def _send(self, what: str, buffers: Any, fields: Mapping[str, object]) -> None:
        if not self.call:
            self.channel.send({"ask": what, "call": 0, **{name: fields[name] for name in _LATE_FIELDS if name in fields}})
            raise_for_the_launcher(RuntimeError(f"{what}: the call of the launcher has returned"))
        header = {"ask": what, "call": self.call, **fields, **self._pending_views()}
        if self.tells_lines:
            header["at"] = launcher_line()
        if self.released:
            gone, self.released = self.released, []
            header["released"] = gone
        self.channel.send(header, buffers)


class Storage(torch.UntypedStorage):
    """What `untyped_storage()` gives of one that lies in the executor: its size and its address, and no bytes."""

    address: int

    @classmethod
    def at_address(cls, size: int, address: int) -> Storage:
        made: Storage = cls(size, device="meta")
        made.address = address
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    def data_ptr(self) -> int:
        return self.address


class Distant:
    """What a `CudaTensor` of the candidate's process wraps: a tensor of the executor's by its number."""

    layout, device, requires_grad = torch.strided, CPU, False

    def __init__(self, memory: RemoteMemory, said: dict[str, Any]) -> None:
        self.memory, self.number = memory, said["tensor"]
        self.update(said)

    def update(self, said: dict[str, Any]) -> None:
        """It is as `said` now."""
        self.dtype = DTYPES[said["dtype"]]
        self.shape, self.strides, self.offset = torch.Size(said["size"]), tuple(said["stride"]), said["offset"]
        self.marks = tuple(said.get("marks", (False, False)))
        self._placed: tuple[int, Storage] | None = (said["address"], self.memory.storage(*said["storage"]))

    @classmethod
    def like(cls, memory: RemoteMemory, number: int, lying: torch.Tensor) -> Distant:
        """The tensor of that number, which lies in its storage as `lying` (meta) does. Where its storage lies is not known yet."""
        made = cls.__new__(cls)
        made.memory, made.number, made._placed, made.dtype = memory, number, None, lying.dtype
        made.shape, made.strides, made.offset = lying.shape, lying.stride(), lying.storage_offset()
        made.marks = lying.is_neg(), lying.is_conj()
        return made

    @property
    def place(self) -> tuple[int, Storage]:
        """(address, storage), which the executor is asked for where it has not told them."""
        if self._placed is None:
            answer, _ = self.memory.link.ask("where", tensor=self.number)
            self.update(answer["result"])
        assert self._placed is not None
        return self._placed

    def meta(self) -> torch.Tensor:
        """One that lies as this does, and has no bytes."""
        reach = self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)) + 1
        made = torch.empty(max(reach, self.offset), dtype=self.dtype, device="meta").as_strided(
            self.shape, self.strides, self.offset
        )
        mark(made, *self.marks)
        return made

    def is_neg(self) -> bool:
        return self.marks[0]

    def is_conj(self) -> bool:
        return self.marks[1]

    def __del__(self) -> None:
        self.memory.link.released.append(self.number)

    def size(self) -> torch.Size:
        return self.shape

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def storage_offset(self) -> int:
        return self.offset

    def data_ptr(self) -> int:
        if self._placed is None and _is_specializing(sys._getframe(1).f_back):
            return ALLOCATION_ALIGNMENT + self.offset * self.dtype.itemsize  # Triton asks whether 16 divides the address
        return self.place[0]

    def untyped_storage(self) -> Storage:
        return self.place[1]

    def detach(self) -> Distant:
        return self

    # what brings its words here

    def to(self, *, dtype: torch.dtype, copy: bool, memory_format: torch.memory_format) -> torch.Tensor:
        return self.memory.read(self, "a copy to the host", dtype, memory_format)

    def tolist(self) -> Any:
        return self.memory.read(self, "tolist").tolist()

    def numpy(self, *, force: bool = False) -> Any:
        return self.memory.read(self, "numpy").numpy(force=force)

    def __repr__(self) -> str:
        return repr(self.memory.read(self, "print"))

    def __format__(self, spec: str) -> str:
        return format(self.memory.read(self, "print"), spec)

    def __reduce_ex__(self, protocol: object) -> tuple:
        return _same_tensor, (self.memory.read(self, "a copy to the host"),)


def _is_specializing(frame: FrameType | None) -> bool:
    """Whether Triton asks, in the function that it makes of a kernel's signature (`create_function_from_signature`)."""
    return frame is not None and frame.f_code.co_name == "dynamic_func" and "specialize_impl" in frame.f_globals


def tensor_layout(tensor: torch.Tensor) -> list[Any]:
    """How `tensor` lies in its storage, as both processes say it."""
    return [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]


def _same_tensor(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


class RemoteMemory:
    """`cuda_tensors.Elsewhere` for the executor at the other end of `link`."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.handed: dict[int, tuple[torch.UntypedStorage, CudaTensor]] = {}  # what lay here when the file was imported
        self.storages: weakref.WeakValueDictionary[tuple[int, int, int], Storage] = weakref.WeakValueDictionary()

    def storage(self, number: int, size: int, address: int) -> Storage:
        """The one storage of that number in the executor."""
        found = self.storages.get((number, size, address))
        if found is None:
            found = self.storages[number, size, address] = Storage.at_address(size, address)
        return found

    # -- both ways -------------------------------------------------------------------------------------------------------------
    def encoder(self, other: Any = None) -> Encoder:
        return Encoder(self._encode_tensor, other)

    def decoder(self, buffers: list[bytearray], other: Any = None) -> Decoder:
        return Decoder(buffers, self.tensor, other)

    def _encode_tensor(self, tensor: CudaTensor) -> dict[str, Any]:
        inner: Any = tensor.inner
        if type(inner) is not Distant:  # made before there was an executor: while the candidate's file was imported
            inner = tensor.inner = self._handed_over(inner)
        return {"tensor": inner.number} | ({"grad": True} if tensor.requires_grad else {})

    def _handed_over(self, tensor: torch.Tensor) -> Any:
        """A handle of `tensor` (CPU). Its whole storage goes over once, so that views of one storage still are."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.handed:
            whole = torch.empty(0, dtype=torch.uint8).set_(storage)
            self.handed[storage.data_ptr()] = storage, CudaTensor(self.place_tensor(whole))
        aten, (_, there) = torch.ops.aten, self.handed[storage.data_ptr()]
        typed = self.run(aten.view.dtype, (there, tensor.dtype), {}, [])
        place = (list(tensor.shape), list(tensor.stride()), tensor.storage_offset())
        return self.run(aten.as_strided.default, (typed, *place), {}, []).inner

    def tensor(self, said: Mapping[str, object]) -> CudaTensor:
        made = CudaTensor(Distant(self, said))  # type: ignore[arg-type]
        return made.requires_grad_() if said.get("grad") else made

    # -- cuda_tensors.Elsewhere ------------------------------------------------------------------------------------------------
    def run(self, function: object, args: tuple, kwargs: dict, written: list[tuple[int, str]]) -> Any:
        with FunctionModesOff():
            return self._run(function, args, kwargs, written)

    def _run(self, function: Any, args: tuple, kwargs: dict, written_places: list[tuple[int, str]]) -> Any:
        if (seen := self._view(function, args, kwargs)) is not None:
            return seen
        encoder, extra_fields, generator = self.encoder(), {}, None
        if torch.Tag.nondeterministic_seeded in function.tags:
            generator = kwargs.get("generator") or torch.default_generator
            kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
            extra_fields["random"] = encoder(generator.get_state())
        said = self._encode_arguments(encoder, args, kwargs)
        answer, buffers = self.link.ask("operate", encoder.buffers, operator=str(function), **said, **extra_fields)
        decode = self.decoder(buffers)
        if generator is not None and "random" in answer:
            generator.set_state(decode(answer["random"]))
        if not written_places:
            return decode(answer["result"])
        written_tensors = [args[place] if place < len(args) else kwargs[name] for place, name in written_places]
        for each, told in zip(written_tensors, answer["written"], strict=True):
            if type(each) is not CudaTensor:
                each.copy_(decode(told))  # of the CPU: a host read
            elif told is not None:
                each.inner.update(told)  # type: ignore[attr-defined]
        if torch.Tag.inplace_view in function.tags:  # the wrapper's own sizes and strides change too
            with DispatchOff():
                function(*args, **kwargs)
        return written_tensors[0] if len(written_tensors) == 1 else tuple(written_tensors)

    def _view(self, function: Any, args: tuple, kwargs: dict) -> CudaTensor | None:
        """What a view comes to, without a question; None of anything else, or of one that torch refuses."""
        base = args[0].inner if args and type(args[0]) is CudaTensor else None
        if type(base) is not Distant or not self.link.call or function.overloadpacket not in _VIEWS:
            return None
        try:
            lying = function(base.meta(), *args[1:], **kwargs)
            said = self._encode_arguments(self.encoder(), args, kwargs)
        except Exception:
            return None
        return CudaTensor(Distant.like(self, self.link.view(operator=str(function), **said), lying))  # type: ignore[arg-type]

    @staticmethod
    def _encode_arguments(encoder: Encoder, args: tuple, kwargs: dict) -> dict[str, Any]:
        try:
            return {"args": [encoder(each) for each in args], "kwargs": {name: encoder(each) for name, each in kwargs.items()}}
        except UnencodableValueError as error:
            raise_for_the_launcher(error)

    def construct_tensor(self, function: Any, args: tuple, kwargs: dict, gpu: bool) -> Any:
        arguments = {name: value for name, value in kwargs.items() if name not in ("device", "requires_grad", "pin_memory", "out")}
        out, name = kwargs.get("out"), _NAMES.get(function)
        if gpu and name is not None:
            with FunctionModesOff():
                encoder = self.encoder()
                said = self._encode_arguments(encoder, args, arguments)
                request = {"function": name, "default": str(torch.get_default_dtype()).removeprefix("torch.")} | said
                meta_tensor = None if encoder.buffers else self._known_layout(function, name, args, arguments)
                if meta_tensor is None:
                    answer, buffers = self.link.ask("construct", encoder.buffers, **request)
                    tensor = self.decoder(buffers)(answer["result"])
                    self.link.begins[name] = tensor.inner.offset * tensor.dtype.itemsize
                else:
                    number = self.link.number()
                    self.link.tell("construct", **request, **{"as": number}, lies=tensor_layout(meta_tensor))
                    tensor = CudaTensor(Distant.like(self, number, meta_tensor))  # type: ignore[arg-type]
        else:
            hosted = [
                self._like(value) if place == 0 and _is_like(function) else _to_host(value) for place, value in enumerate(args)
            ]
            arguments = {name: _to_host(value) for name, value in arguments.items()}
            computed = for_the_launcher(function, *hosted, **arguments, device=CPU)
            tensor = self.adopt_tensor(computed, function.__name__) if gpu else computed
        if kwargs.get("requires_grad"):
            tensor.requires_grad_()
        return tensor if out is None else out.resize_(tensor.shape).copy_(tensor)

    def _known_layout(self, function: Any, name: str, args: tuple, kwargs: dict) -> torch.Tensor | None:
        """One (meta) that lies as what `function` makes; None where that is not known, or where torch refuses it."""
        begins, like = self.link.begins.get(name), _is_like(function)
        if begins is None or name not in PLAIN_CONSTRUCTORS or any(True for _ in tensors_in((args[like:], kwargs))):
            return None
        try:
            if like and not (type(args[0].inner) is Distant and args[0].is_contiguous()):
                return None
            meta_tensor = function(*([args[0].inner.meta()] if like else []), *args[like:], **kwargs, device="meta")
            size, count = meta_tensor.dtype.itemsize, meta_tensor.numel()
            if not 0 < count * size <= LARGEST_KNOWN or not meta_tensor.is_contiguous() or begins % size:
                return None
        except Exception:
            return None
        return torch.empty(begins // size + count, dtype=meta_tensor.dtype, device="meta")[begins // size :].view(meta_tensor.shape)

    def _like(self, value: object) -> Any:
        """A tensor of the CPU of the sizes and the type of `value`, where that lies in the executor."""
        if type(value) is not CudaTensor:
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)

    def place_tensor(self, tensor: torch.Tensor, by: str = "to") -> Any:
        with FunctionModesOff():
            encoder = self.encoder()
            said = encoder.strided_host(tensor.detach())
            answer, _ = self.link.ask("place", encoder.buffers, host=said, by=by)
        return Distant(self, answer["result"])

    def adopt_tensor(self, computed: torch.Tensor, by: str) -> CudaTensor:
        """`computed` (CPU), which the function `by` made here, as a tensor that lies in the executor."""
        return CudaTensor(self.place_tensor(computed, by))

    def copy_storage(self, handle: Any) -> Any:
        answer, _ = self.link.ask("copy", tensor=handle.number)
        return Distant(self, answer["result"])

    def read(
        self,
        handle: Distant,
        reader: str,
        dtype: torch.dtype | None = None,
        memory_format: torch.memory_format = torch.preserve_format,
    ) -> torch.Tensor:
        """The elements of `handle` as a CPU tensor; `what` brings them here."""
        said = {"dtype": self.encoder()(dtype or handle.dtype), "format": self.encoder()(memory_format)}
        with FunctionModesOff():
            answer, buffers = self.link.ask("read", tensor=handle.number, by=reader, **said)
            found: torch.Tensor = self.decoder(buffers)(answer["result"])
        return found


_VIEWS = {getattr(torch.ops.aten, name) for name in VIEWS}
_NAMES = {function_called(name): name for name in CONSTRUCTORS}


def _is_like(function: object) -> bool:
    name = getattr(function, "__name__", "")
    return name.endswith("_like") or name.startswith("new_")


def _to_host(value: Any) -> Any:
    """`value` with tensors of the GPU brought to the host, as a function that computes there reads them."""
    if type(value) is CudaTensor:
        return value.cpu()
    if type(value) in (list, tuple):
        return type(value)(map(_to_host, value))
    return value


__all__ = ["CONSTRUCTORS", "EXCEPTION_TYPES", "MOST_PROGRAMS", "Distant", "Link", "RemoteMemory", "function_called"]
# One file because handles, views and the link that frees them share one numbering of tensors.
