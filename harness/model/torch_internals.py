"""What is used of torch beside its public functions, under one name each: where a release of torch moves something, this is the
place. `tests/model/test_torch_internals.py` refuses it anywhere else in the product."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, cast

import torch
from torch._C import Generator as GeneratorBase
from torch._decomp import core_aten_decompositions
from torch._library import triton as _wrapped_kernels
from torch._library.custom_ops import OPDEFS
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.library import Library
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode
from torch.utils import _device as _default_device
from torch.utils._python_dispatch import TorchDispatchMode

from bitverdict.harness.model.protocols import for_the_launcher

FunctionModesOff, DispatchOff = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch
no_torch_function = torch._C._disabled_torch_function_impl
wrapper_of, negative_view = torch.Tensor._make_wrapper_subclass, torch._neg_view
FACTORIES = frozenset(_default_device._device_constructors())  # they allocate where `device` says; found before one is replaced
identity_of = attrgetter("_cdata")  # of a storage or a generator
schema_of = attrgetter("_schema")  # of an operator: names, types and aliases of what it takes and gives

BACKWARD_ENGINE = (torch.autograd, "_engine_run_backward")
CUDA_START = (torch.cuda, "_lazy_init")
STRIDED_ALLOCATION = (torch._C._dynamo.guards, "_empty_strided_cuda")
TRACING_START = (fake_tensor, "init_gpu_context")  # before the first tensor that is traced with: allocates on the GPU
RUNTIME_CALLS: tuple[tuple[object, str, object], ...] = (
    *((torch._C, f"_cuda_{name}", 0) for name in ("getCurrentRawStream", "getDevice", "exchangeDevice")),
    *((torch._C, f"_cuda_{name}", None) for name in ("setDevice", "synchronize")),
    (torch._C, "_cuda_getDeviceCount", 1),
    (_wrapped_kernels, "is_wrap_triton_enabled", False),  # a kernel launches itself: nothing is traced here
)
"""What generated code asks below `torch.cuda`, and the answer of a machine with one GPU."""


def exchange(place: tuple[object, str], value: object) -> Any:
    """Put `value` to `place`, an object and a name of it. What stood there."""
    earlier = getattr(*place)
    setattr(*place, value)
    return earlier


def call_under(mode: TorchFunctionMode, function: Callable[..., object], /, *args: object, **kwargs: object) -> Any:
    """`function(*args, **kwargs)` where `mode` answers, without what its `__enter__` does."""
    _push_mode(mode)
    try:
        return for_the_launcher(function, *args, **kwargs)
    finally:
        _pop_mode()


def is_taken_apart(operator: str) -> bool:
    """Whether torch's dispatcher runs `operator`, as it names it, as other operators before any tensor sees it."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(operator, "CompositeImplicitAutograd"))


def operator_called(name: str, args: tuple[object, ...], kwargs: dict[str, object]) -> OpOverload | None:
    """The overload of ATen's `name` that takes these arguments."""
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except RuntimeError:  # none does as they stand
        return None
    return cast("OpOverload", getattr(getattr(torch.ops.aten, name), overload))


def call_whole(operator: OpOverload, *args: object, **kwargs: object) -> Any:
    """`operator` of its tensors, which is handed to them even where torch would take it apart for their gradients' sake."""
    with torch._C._AutoDispatchBelowAutograd():
        return for_the_launcher(operator, *args, **kwargs)


def is_without_bytes() -> bool:
    """Whether torch traces now: the tensors that it makes have no bytes."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


are_transforms_active = torch._C._are_functorch_transforms_active
is_transformed = torch._C._functorch.is_functorch_wrapped_tensor  # by `torch.vmap` and its like: a tensor without a storage


def innermost(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that `torch.vmap` and its like wrapped into `tensor`."""
    while is_transformed(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def mark(tensor: torch.Tensor, negative: bool, conjugate: bool) -> None:
    """Say whether the bytes of `tensor` are those of its negative, and of its conjugate."""
    torch._C._set_neg(tensor, negative)
    torch._C._set_conj(tensor, conjugate)


def default_device() -> Any:
    """What `torch.set_default_device` chose, or None."""
    return _default_device.CURRENT_DEVICE


def name_of(operator: OpOverload) -> str:
    """Without its namespace and its overload: "add_"."""
    return str(operator._schema.name).split("::")[-1]


def is_composite(operator: OpOverload) -> bool:
    """Whether `operator` is but calls of other operators, on CPU and GPU: for the gradients of silu and mish torch has kernels of
    their own there, which round once."""
    has_kernel = [
        torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key) for key in ("CompositeImplicitAutograd", "CPU")
    ]
    return has_kernel == [True, False]


def call_composite(operator: OpOverload, *args: object, **kwargs: object) -> Any:
    return for_the_launcher(operator._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def composition_of(operator: object) -> Callable[..., Any] | None:
    """What torch computes of `operator`, which takes functions, where nothing is compiled; None of one that does not."""
    kernels = operator.py_kernels if isinstance(operator, HigherOrderOperator) else {}
    return kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)


def flex_attention_gradient(operator: object) -> Any:
    """The function of autograd that torch makes of `flex_attention`; None of any other operator."""
    return (
        getattr(sys.modules[type(operator).__module__], "FlexAttentionAutogradOp", None)
        if str(operator) == "flex_attention"
        else None
    )


def custom_function_of(operator: OpOverload) -> Callable[..., Any] | None:
    """What an operator defined by `torch.library.custom_op` does on a GPU; None of any other."""
    functions = getattr(OPDEFS.get(operator._schema.name), "_backend_fns", {})  # by device; None for each
    return functions.get("cuda", functions.get(None))


def count_attribute_tensors(module: torch.nn.Module) -> int:
    """Tensors that `module` and those below it hold as attributes, or in collections there, beside parameters and buffers."""
    attributes = [item for each in module.modules() for item in vars(each).items()]
    return sum(_count_tensors(value) for name, value in attributes if name not in ("_parameters", "_buffers"))


def _count_tensors(value: object, depth: int = 4) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    return int(isinstance(value, torch.Tensor)) + (sum(_count_tensors(part, depth - 1) for part in parts) if depth else 0)


COUNT_ATTRIBUTE_TENSORS = count_attribute_tensors.__name__  # as it is asked of a module in another process


def method_of(module: object, name: str) -> Callable[..., Any]:
    """What answers `name` there, which another process asks of `module`."""
    return partial(count_attribute_tensors, module) if name == COUNT_ATTRIBUTE_TENSORS else getattr(module, name)


__all__ = [
    "BACKWARD_ENGINE", "COUNT_ATTRIBUTE_TENSORS", "CUDA_START", "FACTORIES", "RUNTIME_CALLS", "STRIDED_ALLOCATION",
    "TRACING_START", "BackwardCFunction", "DispatchOff", "FakeTensorMode", "FunctionModesOff", "GeneratorBase", "Library",
    "OpOverload", "OpOverloadPacket", "StorageWeakRef", "TorchDispatchMode", "TorchFunctionMode", "are_transforms_active",
    "call_composite", "call_under", "call_whole", "composition_of", "core_aten_decompositions", "count_attribute_tensors",
    "custom_function_of", "default_device", "exchange", "identity_of", "innermost", "is_composite", "is_taken_apart",
    "is_transformed", "is_without_bytes", "mark", "method_of", "name_of", "negative_view", "no_torch_function", "operator_called",
    "schema_of", "wrapper_of",
]  # fmt: skip
