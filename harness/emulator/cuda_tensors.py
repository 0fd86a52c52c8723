"""Tensors that lie on an emulated GPU: bytes on the CPU, `device` cuda:0 wherever Python asks.

A `CudaTensor` wraps a CPU tensor. Torch runs each operation on the wrapped tensors, autograd's included, and wraps what comes; so
storage, strides and aliasing are a CPU tensor's own. Where device memory lies in another process (`Distant`), it wraps a handle,
and each operation runs there. `Placement` is the torch function mode that makes them: while it is entered,
`device="cuda"`, `.cuda()` and `.to("cuda")` place tensors on the emulated GPU. An operation on tensors of two devices fails with
torch's own words.
"""

from __future__ import annotations

import copy as copies
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from typing import Any, Protocol

import torch

from bitverdict.harness.emulator.faults import raise_for_the_launcher, unanswered_call_fault
from bitverdict.harness.emulator.gpu_only_operators import GPU_ONLY
from bitverdict.harness.emulator.tensor_types import KINDS, legacy_type
from bitverdict.harness.model import torch_internals
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import (
    DispatchOff,
    FunctionModesOff,
    Library,
    OpOverload,
    StorageWeakRef,
    innermost,
    is_transformed,
)

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
NUMPY = "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
MIXED_DEVICES_MESSAGE = "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


def on_gpu(device: torch.device | str | int | None) -> bool:
    """Whether `device`, as torch's functions take it, is the emulated GPU. RuntimeError, as torch has it, for a second one."""
    if isinstance(device, int) and not isinstance(device, bool):
        wanted_device: Any = torch.device("cuda", device)
    else:
        wanted_device = for_the_launcher(torch.device, device) if isinstance(device, str) else device
    if getattr(wanted_device, "type", "cpu") != "cuda":
        return False
    if wanted_device.index:
        said = f"CUDA error: invalid device ordinal: {wanted_device} (the emulated GPU is cuda:0, the only one)"
        raise_for_the_launcher(torch.AcceleratorError(said))
    return True


class Watches:
    """What follows tensors of the emulated GPU from operation to operation. Each is told as the CPU tensor that holds its bytes."""

    draws_numbers = False  # what torch allocates and draws on the device is drawn anew, and takes nothing of the CPU's numbers

    def on_placement(self, tensor: torch.Tensor) -> None:
        """`tensor` is one of the device now, or a view of one, whoever made it."""

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        """`function` of torch's has allocated `tensor` on the device, and filled it, by `args` and `kwargs`."""

    def on_upload(self, tensor: torch.Tensor, by: str) -> None:
        """`tensor` is a copy of one of the host's."""

    def on_host_read(self, tensor: torch.Tensor, what: str) -> None:
        """The host sees the words of `tensor`, by the call `what`."""

    def run(self, function: OpOverload, args: tuple, kwargs: dict, written: list[torch.Tensor], call: Callable[[], object]) -> Any:
        """`call()`, which is `function` on `args` and `kwargs`, of which it writes to `written`."""
        return call()


class WatchGroup(Watches):
    """Several that watch one device."""

    def __init__(self, watches: Sequence[Watches]) -> None:
        self.watches, self.draws_numbers = watches, any(each.draws_numbers for each in watches)

    def on_placement(self, tensor: torch.Tensor) -> None:
        for each in self.watches:
            each.on_placement(tensor)

    def on_allocation(self, tensor: torch.Tensor, function: str, args: tuple, kwargs: dict) -> None:
        for each in self.watches:
            each.on_allocation(tensor, function, args, kwargs)

    def on_upload(self, tensor: torch.Tensor, by: str) -> None:
        for each in self.watches:
            each.on_upload(tensor, by)

    def on_host_read(self, tensor: torch.Tensor, what: str) -> None:
        for each in self.watches:
            each.on_host_read(tensor, what)

    def run(self, function: OpOverload, args: tuple, kwargs: dict, written: list[torch.Tensor], call: Callable[[], object]) -> Any:
        for each in self.watches:
            call = partial(each.run, function, args, kwargs, written, call)
        return call()


ACTIVE_WATCHES: list[Watches] = []  # by the devices that are entered, the last one's last


class ForeignMemory(Protocol):
    """The memory of an emulated GPU that lies in another process: a tensor of it wraps a handle there, and no bytes."""

    def run(self, function: OpOverload, args: tuple, kwargs: dict, written: list[tuple[int, str]]) -> Any:
        """What the ATen operator gives; it writes the arguments at (place, name) of `written`."""

    def construct_tensor(self, function: OpOverload, args: tuple, kwargs: dict, gpu: bool) -> torch.Tensor:
        """What a function of torch that allocates makes: there, or with `gpu` False on the CPU, like a tensor from there."""

    def place_tensor(self, tensor: torch.Tensor) -> Any:
        """A handle of a copy of `tensor` (CPU)."""

    def copy_storage(self, handle: object) -> Any:
        """A handle of a copy of all that `handle` lies in."""


FOREIGN_MEMORIES: list[ForeignMemory] = []  # by the devices that are entered, the last one's last


class AllocatedBytes:
    """What is allocated on the emulated GPU, and the most that was since `restart`, in blocks of 512 bytes as torch's allocator."""

    def __init__(self) -> None:
        self.allocated = self.peak = 0
        self._holders: dict[int, list[int]] = {}  # by the identity of a storage: its bytes, and how many tensors hold it

    def hold(self, storage: torch.UntypedStorage) -> int:
        """Another tensor holds `storage`; its identity, for `release`."""
        held = self._holders.setdefault(identity := torch_internals.identity_of(storage), [-(-storage.nbytes() // 512) * 512, 0])
        held[1] += 1
        if held[1] == 1:
            self.allocated += held[0]
            self.peak = max(self.peak, self.allocated)
        return identity

    def release(self, identity: int) -> None:
        held = self._holders[identity]
        held[1] -= 1
        if not held[1]:
            self.allocated -= self._holders.pop(identity)[0]

    def restart(self) -> None:
        self.peak = self.allocated


MEMORY = AllocatedBytes()


class OperatorCount:
    """How many operators of torch have run on tensors of the emulated GPU."""

    count = 0


OPERATORS = OperatorCount()


class Allocation:
    """What one tensor of the emulated GPU keeps alive; a tensor itself may have no weak reference (`torch.utils.swap_tensors`)."""

    __slots__ = "__weakref__", "_identity", "storage"

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.storage = storage
        self._identity = MEMORY.hold(storage) if storage.device == CPU else None

    def __del__(self, release: Callable[[int], None] = MEMORY.release) -> None:  # bound now: a process may be at its end
        if self._identity is not None:
            release(self._identity)


_live: weakref.WeakSet[Allocation] = weakref.WeakSet()


def allocations() -> Iterator[torch.Tensor]:
    """What lies on the emulated GPU now: for each storage that a tensor of it holds, all its bytes as a CPU tensor (uint8)."""
    seen = set[int]()
    for held in list(_live):
        storage = held.storage
        if storage.nbytes() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            yield torch.empty(0, dtype=torch.uint8).set_(storage)


def storages_since(known_storages: dict[int, StorageWeakRef]) -> list[tuple[int, int]]:
    """First and last address of each storage that is not among `known_storages`, which then has all that live: a view's is its
    base's. A weak reference keeps a storage's identity from being another's."""
    live = {torch_internals.identity_of(held.storage): held.storage for held in list(_live)}
    new = [storage for identity, storage in live.items() if identity not in known_storages]
    for identity in known_storages.keys() - live.keys():
        del known_storages[identity]
    known_storages |= {torch_internals.identity_of(storage): StorageWeakRef(storage) for storage in new}
    return [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in new]


_library_functions: dict[str, list[tuple[weakref.ref[Library], Callable]]] = {}  # by operator, the last one's last
_composite_names = set[str]()  # names of those operators that torch's dispatcher does not hand to a tensor
_register = Library.impl


class _LibraryFactories(torch_internals.TorchDispatchMode):
    """While entered, what stands for an operator that allocates makes its tensor."""

    def __torch_dispatch__(self, func: OpOverload, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        if (own := library_function_of(func)) is None:
            return for_the_launcher(func, *args, **kwargs or {})
        named = {"device": CUDA} if any(argument.name == "device" for argument in torch_internals.schema_of(func).arguments) else {}
        return _run_own_operator(own, outside(args), (kwargs or {}) | named)


def implement_operator(library: Library, op_name: object, fn: Callable, dispatch_key: str = "", **options: object) -> None:
    """`Library.impl`, which keeps what is for a GPU as long as `library` is not destroyed: to torch's dispatcher a tensor of the
    emulated GPU is none of CUDA, and FlagGems' kernels, which stand in the place of ATen's so, would not be launched."""
    _register(library, op_name, fn, dispatch_key, **options)
    if (dispatch_key or library.dispatch_key) == "CUDA" and not options.get("with_keyset"):
        name = op_name.name() if isinstance(op_name, OpOverload) else str(op_name)
        name = name if "::" in name else f"{library.ns}::{name}"
        _library_functions.setdefault(name.removesuffix(".default"), []).append((weakref.ref(library), fn))
        if name.startswith("aten::") and torch_internals.is_taken_apart(name.removesuffix(".default")):
            _composite_names.add(name.removeprefix("aten::").partition(".")[0])


def library_function_of(operator: OpOverload) -> Callable | None:
    """What computes `operator` on the GPU; None where torch does."""
    for reference, function in reversed(_library_functions.get(operator.name(), ())):
        if (library := reference()) is not None and library.m is not None:
            return function
    return None


def _run_own_operator(own: Callable, args: tuple, kwargs: dict) -> Any:
    """What an operator of the launcher's own does, which launches its kernels with tensors of the GPU, and makes some."""
    return torch_internals.call_under(Placement(), own, *args, **kwargs)


def _compute(func: OpOverload, args: tuple, kwargs: dict) -> Any:
    """`func` of CPU tensors. A fault that names the operator where torch has it for GPUs alone."""
    try:
        return for_the_launcher(GPU_ONLY.get(func, func), *args, **kwargs)
    except NotImplementedError as error:
        if str(error).startswith("Could not run"):
            raise unanswered_call_fault(f"torch.ops.{func}") from None
        raise


class CudaTensor(torch.Tensor):
    """`inner`, a CPU tensor, as a tensor of the emulated GPU. The two share every byte."""

    inner: torch.Tensor
    allocation: Allocation
    has_bytes = True  # not of one that torch traces with (FakeTensor), or of the device "meta"
    __torch_function__ = torch_internals.no_torch_function

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> CudaTensor:
        with FunctionModesOff():  # what is asked of `inner` here no mode need see
            return CudaTensor._wrap(cls, inner)

    @staticmethod
    def _wrap(cls: type[CudaTensor], inner: torch.Tensor) -> CudaTensor:
        if inner.layout is not torch.strided:
            raise unanswered_call_fault(f"a {inner.layout} tensor on the GPU")
        if FOREIGN_MEMORIES and isinstance(inner, torch.Tensor):
            inner = FOREIGN_MEMORIES[-1].place_tensor(inner)
        kind = {"dtype": inner.dtype, "layout": inner.layout, "device": inner.device}
        offset = inner.storage_offset()
        wrapper = torch_internals.wrapper_of(cls, inner.size(), strides=inner.stride(), storage_offset=offset, **kind)
        wrapper.inner = inner.detach() if inner.requires_grad else inner
        torch_internals.mark(wrapper, inner.is_neg(), inner.is_conj())  # so that torch negates, and we see it
        if FOREIGN_MEMORIES:
            return wrapper
        wrapper.allocation = Allocation(wrapper.inner.untyped_storage())
        wrapper.has_bytes = wrapper.allocation.storage.device == CPU
        if wrapper.has_bytes:
            _live.add(wrapper.allocation)
            if ACTIVE_WATCHES:
                ACTIVE_WATCHES[-1].on_placement(wrapper.inner)
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, func: OpOverload, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        OPERATORS.count += 1
        if torch.is_inference_mode_enabled() and func.is_view and not args[0].is_inference():
            with torch.inference_mode(False):  # a view of an ordinary tensor is one too, and shares its version
                return cls.__torch_dispatch__(func, types, args, kwargs)
        written_places = written_arguments(func)
        if (own := torch_internals.custom_function_of(func) or library_function_of(func)) is not None:
            return _run_own_operator(own, args, kwargs)
        if _is_made_of_others(func):
            return torch_internals.call_composite(func, *args, **kwargs)
        if FOREIGN_MEMORIES:
            return FOREIGN_MEMORIES[-1].run(func, args, kwargs, written_places)
        if func in _COPIES and _is_negated(source := args[_COPIES[func]]):  # its bytes are those of the other sign
            args = tuple(
                torch.neg(torch_internals.negative_view(argument)) if argument is source else argument for argument in args
            )
        inputs, keywords = tuple(map(inside, args)), {name: inside(value) for name, value in kwargs.items()}
        if ACTIVE_WATCHES and not func.is_view and all(argument.has_bytes for argument in args if type(argument) is CudaTensor):
            into = [inputs[place] if place < len(inputs) else keywords[name] for place, name in written_places]
            made = ACTIVE_WATCHES[-1].run(func, inputs, keywords, into, lambda: _compute(func, inputs, keywords))
        else:
            made = _compute(func, inputs, keywords)
        if not written_places:
            return outside(made)
        if torch.Tag.inplace_view in func.tags:  # the wrapper's own sizes and strides change too
            with DispatchOff():
                func(*args, **kwargs)
        found = [args[place] if place < len(args) else kwargs[name] for place, name in written_places]
        for argument in found:
            _follow_size(argument)
        return found[0] if len(found) == 1 else tuple(found)

    # what it says of itself

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        return False

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()

    def is_pinned(self, device: torch.device | str | int | None = None) -> bool:
        return False

    def type(self, dtype: torch.dtype | str | None = None, non_blocking: bool = False, **_: object) -> Any:  # type: ignore[override]
        if dtype is None:
            return f"torch.cuda.{KINDS.get(self.dtype, self.dtype)}"
        if isinstance(dtype, torch.dtype):
            return self.to(dtype)
        found = legacy_type(dtype)
        if found is None:
            raise_for_the_launcher(ValueError(f"invalid type: {dtype!r}"))
        return move_tensor(self, found[1], dtype=found[0])

    def record_stream(self, stream: object) -> None:
        """Nothing: the emulated GPU has finished whatever was launched."""

    @property
    def __cuda_array_interface__(self) -> dict:
        size = self.element_size()
        strides = None if self.is_contiguous() else tuple(size * stride for stride in self.stride())
        kind = torch.empty(0, dtype=self.dtype).numpy().dtype.str
        return {"shape": tuple(self.shape), "typestr": kind, "data": (self.data_ptr(), False), "strides": strides, "version": 2}

    def __dlpack__(self, *_: object, **__: object) -> Any:
        raise unanswered_call_fault("Tensor.__dlpack__")

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"{repr(self.inner)[:-1]}, device='{CUDA}')"

    def __format__(self, spec: str) -> str:
        return self.inner.__format__(spec) if self.dim() == 0 else object.__format__(self, spec)

    # what leaves the GPU, or copies

    def cpu(self, memory_format: torch.memory_format = torch.preserve_format) -> torch.Tensor:
        return move_tensor(self, False, copy=True, memory_format=memory_format)

    def cuda(self, device: torch.device | str | int | None = None, *_: object, **__: object) -> torch.Tensor:
        if device is not None:
            on_gpu(device)
        return self

    def to(self, *args: object, **kwargs: object) -> torch.Tensor:  # type: ignore[override]
        return _tensor_to(self, args, kwargs)

    def tolist(self) -> Any:
        _notify_host_read(self, "tolist")
        return self.inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise_for_the_launcher(TypeError(NUMPY))
        _notify_host_read(self, "numpy")
        return self.inner.numpy(force=True)

    def __array__(self, *_: object, **__: object) -> Any:
        raise_for_the_launcher(TypeError(NUMPY))

    @property
    def data(self) -> torch.Tensor:  # type: ignore[override]
        return CudaTensor(self.inner)

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        _become(self, value)

    def __tensor_flatten__(self) -> tuple[list[str], None]:  # with this a module swaps its parameters for those on the GPU
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(tensors: dict, context: None, size: object, stride: object) -> CudaTensor:
        return CudaTensor(tensors["inner"])

    def __deepcopy__(self, memo: dict) -> CudaTensor:
        made = memo[id(self)] = CudaTensor(
            FOREIGN_MEMORIES[-1].copy_storage(self.inner) if FOREIGN_MEMORIES else copies.deepcopy(self.inner)
        )
        return made.requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: object) -> tuple:
        return CudaTensor, (self.inner,)


def _follow_size(tensor: torch.Tensor) -> None:
    """Give the wrapper the sizes of what it wraps: torch resizes an empty result that it is given (`out=`)."""
    if type(tensor) is CudaTensor and tensor.shape != tensor.inner.shape:
        with DispatchOff():
            torch.ops.aten.resize_.default(tensor, tensor.inner.shape)


_COPIES = {torch.ops.aten.clone.default: 0, torch.ops.aten.copy_.default: 1}
"""Operators that torch hands a tensor with the mark of `Tensor.is_neg`: its place. Torch negates it for the others."""


def _is_negated(value: object) -> bool:
    return type(value) is CudaTensor and value.is_neg()


def _notify_host_read(tensor: CudaTensor, what: str) -> None:
    """The host sees the words of `tensor`, by the call `what`."""
    if ACTIVE_WATCHES:
        with FunctionModesOff():
            ACTIVE_WATCHES[-1].on_host_read(tensor.inner, what)


def inside(value: Any) -> Any:
    """`value` with each tensor of the emulated GPU, in lists and tuples too, as the CPU tensor that holds its bytes."""
    kind = type(value)
    if kind is CudaTensor:
        return value.inner
    if kind is list or kind is tuple:
        return kind(map(inside, value))
    return value


def outside(value: object) -> Any:
    """`value` with each CPU tensor, in lists and tuples too, as one of the emulated GPU."""
    if isinstance(value, torch.Tensor):
        if isinstance(value, CudaTensor) or is_transformed(value) or value.device.type == "meta":  # a wrapper has no storage
            return value
        return CudaTensor(value).requires_grad_() if value.requires_grad else CudaTensor(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(outside, value))
    if isinstance(value, list | tuple):
        return type(value)(map(outside, value))
    return value


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """The tensors in `value`, in lists, tuples and dictionaries too."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


_writes: dict[Any, list[tuple[int, str]]] = {}


def written_arguments(func: OpOverload) -> list[tuple[int, str]]:
    """(place, name) of the arguments that `func` writes and returns, in the order of its results; empty where it makes new ones."""
    if func not in _writes:
        _writes[func] = [
            (place, argument.name)
            for alias in (result.alias_info for result in torch_internals.schema_of(func).returns)
            if alias is not None and alias.is_write
            for place, argument in enumerate(torch_internals.schema_of(func).arguments)
            if argument.alias_info is not None and argument.alias_info.before_set == alias.before_set
        ]
    return _writes[func]


@lru_cache(maxsize=4096)
def _is_made_of_others(func: OpOverload) -> bool:
    """Whether `func` is but calls of other operators, into which torch takes it apart, save in inference mode: `Tensor.to` may give
    its own argument, which whoever computes results anew must not see as a result."""
    return torch_internals.is_composite(func)


def move_tensor(
    tensor: torch.Tensor,
    gpu: bool,
    *,
    dtype: torch.dtype | None = None,
    copy: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """`tensor` on the emulated GPU or on the CPU, in `dtype`: where it was elsewhere a copy, through which gradients go."""
    own, dtype = isinstance(tensor, CudaTensor), dtype or tensor.dtype
    if own == gpu:
        return for_the_launcher(torch.Tensor.to, tensor, dtype=dtype, copy=copy, memory_format=memory_format)
    if tensor.requires_grad and torch.is_grad_enabled():
        return _DeviceTransfer.apply(tensor, gpu, dtype, memory_format)  # type: ignore[no-any-return]
    if own and not gpu:
        _notify_host_read(tensor, "a copy to the host")
    source = inside(tensor) if own else tensor.detach()
    destination = for_the_launcher(source.to, dtype=dtype, copy=True, memory_format=memory_format)
    if not gpu:
        return destination
    if ACTIVE_WATCHES:
        with FunctionModesOff():
            ACTIVE_WATCHES[-1].on_upload(destination, "to")
    return CudaTensor(destination)


class _DeviceTransfer(torch.autograd.Function):
    """`move_tensor` as autograd sees it: the gradient goes back to where the tensor was."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx, tensor: torch.Tensor, gpu: bool, dtype: torch.dtype, memory_format: object
    ) -> torch.Tensor:
        ctx.was = tensor.dtype, not gpu
        return move_tensor(tensor.detach(), gpu, dtype=dtype, memory_format=memory_format)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: torch.Tensor) -> tuple:
        dtype, gpu = ctx.was
        return move_tensor(gradients[0], gpu, dtype=dtype), None, None, None


def _tensor_to(tensor: torch.Tensor, args: tuple, kwargs: dict) -> torch.Tensor:
    """`Tensor.to` in each of its forms: (device, dtype, ...), (dtype, ...) and (other, ...)."""
    keywords, rest = dict(kwargs), list(args)
    device, like_tensor = keywords.pop("device", None), keywords.pop("other", None)
    keywords.pop("non_blocking", None)
    if rest and isinstance(rest[0], torch.Tensor):
        like_tensor = rest.pop(0)
    elif rest and not isinstance(rest[0], torch.dtype):
        device = rest.pop(0)
    if like_tensor is None and rest:
        keywords["dtype"] = rest.pop(0)
    for name, value in zip(("non_blocking", "copy"), rest, strict=False):
        keywords |= {} if name == "non_blocking" else {name: value}
    if like_tensor is not None:
        device, keywords["dtype"] = like_tensor.device, like_tensor.dtype
    gpu = isinstance(tensor, CudaTensor) if device is None else on_gpu(device)
    if not gpu and device is not None and torch.device(device).type != "cpu":
        return for_the_launcher(torch.Tensor.to, inside(tensor), device, **keywords)
    return move_tensor(tensor, gpu, **keywords)


_APPLY, _APPLY_BACKWARD = torch.autograd.Function.__dict__["apply"], torch_internals.BackwardCFunction.apply


def _apply_function(function: type, *args: object, **kwargs: object) -> object:
    """`function.apply`; its node remembers whether all results lie on the emulated GPU."""
    made = for_the_launcher(_APPLY.__get__(None, function), *args, **kwargs)
    results = [result for result in (made if isinstance(made, tuple) else (made,)) if isinstance(result, torch.Tensor)]
    for node in {result.grad_fn for result in results} - {None}:
        node.is_on_emulated_gpu = all(type(result) is CudaTensor for result in results)  # type: ignore[union-attr]
    return made


def _apply_backward(node: torch_internals.BackwardCFunction, *gradients: object) -> object:
    """The user's backward. Zeros, which torch makes for a result that nothing used, lie where the result does."""
    return for_the_launcher(
        _APPLY_BACKWARD, node, *(outside(gradients) if getattr(node, "is_on_emulated_gpu", False) else gradients)
    )


class Placement(torch_internals.TorchFunctionMode):
    """While entered, torch's functions know a device "cuda", which is the emulated GPU; those that a user's backward calls too."""

    def __enter__(self) -> Placement:
        self.engine = torch_internals.exchange(torch_internals.BACKWARD_ENGINE, self._run_backward)
        self.apply = torch.autograd.Function.__dict__["apply"], torch_internals.BackwardCFunction.apply
        torch.autograd.Function.apply = classmethod(_apply_function)  # type: ignore[assignment]
        torch_internals.BackwardCFunction.apply = _apply_backward  # type: ignore[assignment]
        return super().__enter__()

    def __exit__(self, *raised: object) -> None:
        torch_internals.exchange(torch_internals.BACKWARD_ENGINE, self.engine)
        torch.autograd.Function.apply, torch_internals.BackwardCFunction.apply = self.apply  # type: ignore[method-assign]
        super().__exit__(*raised)

    def _run_backward(self, *args: object, **kwargs: object) -> Any:
        """The engine, which torch starts from inside functions that leave this mode: it is entered again."""
        return torch_internals.call_under(self, self.engine, *args, **kwargs)

    def __torch_function__(self, func: Callable[..., object], types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch_internals.is_without_bytes():
            return for_the_launcher(func, *args, **kwargs)  # which makes tensors without bytes, on any device
        special = _SPECIAL.get(func)
        if special is not None:
            return special(self, func, args, kwargs)
        takes_ours = _holds(args) or (bool(kwargs) and _holds(tuple(kwargs.values())))
        if func in _LIKE or func in torch_internals.FACTORIES:
            return _construct(func, args, kwargs, takes_ours)
        if takes_ours and _composite_names and (name := getattr(func, "__name__", "")) in _composite_names:
            operator = torch_internals.operator_called(name, args, kwargs)
            if operator is not None and library_function_of(operator) is not None:
                return torch_internals.call_whole(operator, *args, **kwargs)
        if takes_ours and (composition := torch_internals.composition_of(func)) is not None:
            return torch_internals.call_under(self, _run_higher_order, func, composition, *args, **kwargs)
        if takes_ours and getattr(func, "__name__", "") in _AUTOCAST_TO_FP32 and torch.is_autocast_enabled("cuda"):
            args, kwargs = _in_fp32(args), {name: _in_fp32(value) for name, value in kwargs.items()}
        result = for_the_launcher(func, *args, **kwargs)
        transformed = torch_internals.are_transforms_active() and _holds(map(innermost, tensors_in([args, kwargs])))
        if not (takes_ours or transformed) or not (isinstance(result, torch.Tensor | list | tuple) or func in _COMPARISONS):
            return result
        if func not in _CROSS_DEVICE_FUNCTIONS and _has_cpu_tensor((*args, *kwargs.values())):
            raise_for_the_launcher(RuntimeError(MIXED_DEVICES_MESSAGE))
        return result if transformed or (args and result is args[0]) else outside(result)


def _run_higher_order(operator: object, composition: Callable[..., object], *args: Any, **kwargs: object) -> object:
    """What an operator that takes functions gives where nothing is compiled, as torch composes it of others. `flex_attention` has a
    gradient of its own; where `score_mod` uses a tensor that has one too, that of the composition."""
    gradient = torch_internals.flex_attention_gradient(operator)
    if gradient is None:
        return for_the_launcher(composition, *args, **kwargs)
    *inputs, score_mod, block_mask, scale, options = args[:7]
    if torch.is_autocast_enabled("cuda"):
        inputs = [each.to(torch.get_autocast_dtype("cuda")) for each in inputs]
    example = inputs[0].detach().new_zeros(()), *(inputs[0].new_zeros((), dtype=torch.int) for _ in range(4))
    differentiable = torch.is_grad_enabled() and any(each.requires_grad for each in inputs)
    if not differentiable or for_the_launcher(score_mod, *example).requires_grad:
        return for_the_launcher(composition, *inputs, score_mod, *args[4:], **kwargs)

    def score_gradient(score: torch.Tensor, *places: torch.Tensor) -> list:
        pull = torch.func.vjp(lambda score: score_mod(score, *places[:4]), score)[1]
        return [*pull(places[4]), None, None, None, None]

    return for_the_launcher(gradient.apply, *inputs, score_mod, score_gradient, block_mask, scale, options, ())


_AUTOCAST_TO_FP32 = frozenset(  # torch's documentation, "CUDA Ops that can autocast to float32"
    "__pow__ __rdiv__ __rpow__ __rtruediv__ acos asin binary_cross_entropy_with_logits cosh cosine_embedding_loss cdist "
    "cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 group_norm hinge_embedding_loss kl_div l1_loss "
    "layer_norm log log10 log_softmax log1p log2 margin_ranking_loss mse_loss multilabel_margin_loss multi_margin_loss nll_loss "
    "norm normalize pdist poisson_nll_loss pow prod reciprocal rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus "
    "sum renorm tan triplet_margin_loss".split()
)


def _in_fp32(value: Any) -> Any:
    """`value` with each tensor of fp16 or bf16, in lists and tuples too, in fp32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    return type(value)(map(_in_fp32, value)) if type(value) in (list, tuple) else value


_DRAWING = ("rand", "normal")


def _construct(func: Callable[..., object], args: tuple, kwargs: dict, has_gpu_argument: bool) -> Any:
    """What `func`, which allocates, makes: on the device that it is told, else that of the tensor it is like, else the default."""
    device = kwargs.get("device")
    if device is None and func in _LIKE:
        gpu = has_gpu_argument
    else:
        gpu = on_gpu(torch_internals.default_device() if device is None else device)
    is_pinned = bool(kwargs.get("pin_memory"))
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if gpu:
        kwargs["device"] = CPU
    if func in (torch.as_tensor, torch.asarray) and args and isinstance(args[0], CudaTensor):
        return move_tensor(args[0], gpu or device is None, dtype=kwargs.get("dtype"))
    if FOREIGN_MEMORIES and (gpu or has_gpu_argument):
        return FOREIGN_MEMORIES[-1].construct_tensor(func, args, kwargs, gpu)
    drawn_anew = gpu and bool(ACTIVE_WATCHES) and ACTIVE_WATCHES[-1].draws_numbers
    factories = _LibraryFactories() if gpu and _library_functions else nullcontext()
    with factories, torch.random.fork_rng(devices=[]) if drawn_anew and func.__name__.startswith(_DRAWING) else nullcontext():
        tensor = for_the_launcher(func, *inside(args), **{name: inside(value) for name, value in kwargs.items()})
    if type(tensor) is CudaTensor:
        return tensor
    if func in (torch.as_tensor, torch.asarray) and gpu:
        tensor = tensor.clone()  # what was read shares its bytes with nothing on a GPU
    out = kwargs.get("out")
    if ACTIVE_WATCHES and isinstance(tensor, torch.Tensor) and (gpu or isinstance(out, CudaTensor)):
        with FunctionModesOff():
            ACTIVE_WATCHES[-1].on_allocation(tensor, func.__name__, args, kwargs)
    if isinstance(out, torch.Tensor):
        return out
    if is_pinned and not gpu:
        return _pin(tensor)
    return outside(tensor) if gpu else tensor


_pins: dict[int, Any] = {}  # where the storage of a pinned tensor begins -> a weak reference to it


def _pin(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` (CPU), which a kernel may be given: the host's memory is the device's here."""
    for base in [base for base, storage in _pins.items() if storage.expired()]:
        del _pins[base]
    if tensor.numel():
        _pins[tensor.untyped_storage().data_ptr()] = StorageWeakRef(tensor.untyped_storage())
    return tensor


def is_pinned(tensor: torch.Tensor) -> bool:
    """Whether `tensor` lies in pinned memory of the host."""
    if type(tensor) is CudaTensor or tensor.device.type != "cpu":
        return False
    storage = _pins.get(tensor.untyped_storage().data_ptr())
    return storage is not None and not storage.expired()


def _pin_memory(mode: Placement, func: OpOverload, args: tuple, kwargs: dict) -> torch.Tensor:
    if isinstance(args[0], CudaTensor):
        raise_for_the_launcher(RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned"))
    return args[0] if is_pinned(args[0]) else _pin(args[0].clone())


def _holds(values: Any) -> bool:
    """Whether one of `values` lies on the emulated GPU, in a list or tuple of them too."""
    for value in values:
        kind = type(value)
        if kind is CudaTensor or ((kind is list or kind is tuple) and _holds(value)):
            return True
    return False


def _has_cpu_tensor(values: object) -> bool:
    """Whether one of `values` is a tensor of the CPU with an axis: torch takes those without beside any."""
    return any(type(inner) is not CudaTensor and inner.dim() > 0 for inner in map(innermost, tensors_in(values)))


def _become(tensor: torch.Tensor, value: torch.Tensor) -> None:
    """`tensor.data = value`, where one of them lies on the emulated GPU: `tensor` is then of the kind that `value` is."""
    if not isinstance(value, torch.Tensor):
        raise_for_the_launcher(TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}"))
    other = CudaTensor(inside(value)) if isinstance(value, CudaTensor) else value.detach()
    with torch.no_grad():
        torch.utils.swap_tensors(tensor, other.requires_grad_(tensor.requires_grad))


def _set_data(mode: Placement, func: OpOverload, args: tuple, kwargs: dict) -> None:
    _become(*args) if _holds(args) else for_the_launcher(func, *args)


def _dispatch_move(mode: Placement, func: OpOverload, args: tuple, kwargs: dict) -> torch.Tensor:
    return _tensor_to(args[0], args[1:], kwargs) if _names_device(args[1:], kwargs) else for_the_launcher(func, *args, **kwargs)


def _cuda(mode: Placement, func: OpOverload, args: tuple, kwargs: dict) -> torch.Tensor:
    device = kwargs.get("device", args[1] if len(args) > 1 else None)
    return move_tensor(args[0], True if device is None else on_gpu(device) or True)


def _type(mode: Placement, func: OpOverload, args: tuple, kwargs: dict) -> Any:
    found = legacy_type(args[1] if len(args) > 1 else kwargs.get("dtype"))
    return move_tensor(args[0], True, dtype=found[0]) if found is not None and found[1] else for_the_launcher(func, *args, **kwargs)


def _numbered_device(mode: Placement, func: type[torch.device], args: tuple, kwargs: dict) -> torch.device:
    """`torch.device` of a number is that of the accelerator."""
    if len(args) == 1 and type(args[0]) is int and not kwargs:
        return torch.device("cuda", args[0])
    return for_the_launcher(func, *args, **kwargs)  # type: ignore[no-any-return]


_SPECIAL: dict[Any, Callable[[Placement, Any, tuple, dict], Any]] = {
    torch.device: _numbered_device,
    torch.Tensor.to: _dispatch_move,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.type: _type,
    torch.Tensor.type_as: lambda mode, func, args, kwargs: _tensor_to(args[0], args[1:], {}),
    torch.Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.is_pinned: lambda mode, func, args, kwargs: is_pinned(args[0]),
}
_LIKE = {getattr(torch, f"{name}_like") for name in "empty zeros ones full rand randn randint".split()}
_LIKE |= {getattr(torch.Tensor, f"new_{name}") for name in "empty empty_strided zeros ones full tensor".split()}
_COMPARISONS = {torch.equal, torch.Tensor.equal, torch.allclose, torch.Tensor.allclose}
_CROSS_DEVICE_FUNCTIONS = {  # what torch does between two devices
    torch.Tensor.copy_,
    torch.Tensor.__getitem__,
    torch.Tensor.__setitem__,
    torch.Tensor.set_,
}


def _names_device(args: tuple, kwargs: dict) -> bool:
    """Whether `Tensor.to` is asked for a device, by itself or by that of another tensor."""
    if kwargs.get("device") is not None or kwargs.get("other") is not None:
        return True
    return bool(args) and isinstance(args[0], str | int | torch.device | torch.Tensor)


__all__ = [
    "CPU", "CUDA", "FOREIGN_MEMORIES", "CudaTensor", "ForeignMemory", "Placement", "inside", "is_pinned", "move_tensor", "on_gpu",
    "outside", "unanswered_call_fault",
]  # fmt: skip
# One file because torch dispatches each operator to the one class, whose methods share how storage is wrapped.
