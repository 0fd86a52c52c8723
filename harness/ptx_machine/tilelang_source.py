"""Kernels of TileLang on the emulated GPU: `bv.tilelang_kernel(matmul, M=256, block_M=128)(a, b, c)`.

TileLang lowers one to CUDA C++ for the chip that is emulated, and to a host function that makes its tensor maps and launches it;
nvcc compiles the text (`cuda_source`). No GPU is needed (``pip install tilelang``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from bitverdict.harness.emulator.faults import BadArgument, EmulatedFault
from bitverdict.harness.ptx_machine.cuda_source import cuda_kernel
from bitverdict.harness.ptx_machine.launch import active_device

if TYPE_CHECKING:
    from tilelang.jit import JITImpl
    from torch import Tensor
    from tvm.tirx import Call, PrimExpr, PrimFunc

SWIZZLES = (0, 32, 64, 128)  # bytes, by CUtensorMapSwizzle
TILED_MAP, IM2COL_MAP = "__tvm_tensormap_create_tiled", "__tvm_tensormap_create_im2col"


@dataclass(frozen=True, eq=False)
class TilelangKernel:
    """A kernel of TileLang, launched with one tensor for each of its buffers, in its order, those of results too."""

    function: PrimFunc
    configuration: Mapping[str, object]  # of TileLang's passes

    def __call__(self, *tensors: Tensor) -> None:
        text, options, calls, launch_shapes = lower(self, active_device().architecture.name)
        values = _values_by_name(self.function, tensors)
        for call in calls:
            name, *arguments = (_value(each, values) for each in call.args)
            if name == IM2COL_MAP:
                raise EmulatedFault("not modelled", f"{self.function.attrs['global_symbol']}: a tensor map of im2col by TileLang")
            if name == TILED_MAP:
                values[call.args[1].name] = _tensor_map(*cast("tuple[int, int, Tensor]", arguments[1:]))
            elif shape := launch_shapes.get(cast(str, name)):
                sizes = dict(zip(shape, arguments[-len(shape) :], strict=True))
                grid, block = ([cast(int, sizes.get(f"{kind}.{axis}", 1)) for axis in "xyz"] for kind in ("blockIdx", "threadIdx"))
                shared = cast(int, sizes.get("tirx.use_dyn_shared_memory", 0))
                cuda_kernel(text, cast(str, name), shared_bytes=shared, options=options)[grid, block](*arguments[: -len(shape)])


def tilelang_kernel(kernel: JITImpl | PrimFunc, **constants: object) -> TilelangKernel:
    """The kernel that TileLang makes of `kernel`: what ``tilelang.jit`` gave, for these `constants`, or a ``prim_func``."""
    if hasattr(kernel, "get_tir"):
        return TilelangKernel(kernel.get_tir(**constants), dict(kernel.pass_configs or {}))
    return TilelangKernel(kernel, {})


@lru_cache(maxsize=64)
def lower(kernel: TilelangKernel, arch: str) -> tuple[str, tuple[str, ...], tuple[Call, ...], dict[str, list[str]]]:
    """The CUDA C++ of a kernel, options that nvcc needs for it, the calls of its host function and what each launch of them says
    behind its arguments, by the kernel's name."""
    try:
        import tilelang
    except ImportError as error:
        raise EmulatedFault("not modelled", "a kernel of TileLang needs it: `pip install tilelang`") from error
    from tvm import target, tirx, transform

    chip = target.Target({"kind": "cuda", "arch": arch + ("a" if int(arch[3:]) >= 90 else "")})
    with transform.PassContext(opt_level=3, config=dict(kernel.configuration)), chip:
        artifact = tilelang.lower(kernel.function, target=chip)
    calls: list[Call] = []

    def note(node: object) -> None:
        if isinstance(node, tirx.Call) and node.op.same_as(tirx.op.Op.get("tirx.tvm_call_packed")):
            calls.append(node)

    for function in artifact.host_mod.functions.values():
        tirx.stmt_functor.post_order_visit(function.body, note)
    kernels = [function.attrs for function in artifact.device_mod.functions.values()]
    shapes = {str(each["global_symbol"]): list(map(str, each["tirx.kernel_launch_params"])) for each in kernels}
    options = (f"-I{tilelang.env.TILELANG_TEMPLATE_PATH}", f"-I{tilelang.env.CUTLASS_INCLUDE_DIR}", "-DENABLE_BF16")
    return artifact.kernel_source, options, tuple(calls), shapes


def _values_by_name(function: PrimFunc, tensors: Sequence[Tensor]) -> dict[str, object]:
    """The tensor of each buffer, and what sizes that a launch alone knows are here. BadArgument for a tensor of another shape."""
    if len(tensors) != len(function.params):
        raise BadArgument(f"the kernel has {len(function.params)} buffers, {len(tensors)} tensors were given")
    values: dict[str, object] = {}
    for parameter, tensor in zip(function.params, tensors, strict=True):
        buffer = function.buffer_map[parameter]
        values[buffer.data.name] = tensor
        values |= {size.name: n for size, n in zip(buffer.shape, tensor.shape, strict=False) if hasattr(size, "name")}
        shape = tuple(_value(size, values) for size in buffer.shape)
        bits = 8 * tensor.element_size()
        if shape != tuple(tensor.shape) or buffer.dtype.bits not in (bits, 4) or not tensor.is_contiguous():
            order = "" if tensor.is_contiguous() else ", and not contiguous"
            raise BadArgument(f"{buffer.name} is {buffer.dtype} {shape}: a tensor is {tensor.dtype} {tuple(tensor.shape)}{order}")
    return values


def _value(expression: PrimExpr, values: Mapping[str, object]) -> object:
    """A number, a text or what has the name."""
    from tvm import arith, tirx

    if isinstance(expression, tirx.Var):
        return values.get(expression.name)
    if not hasattr(expression, "value"):
        numbers = {}

        def note(node: object) -> None:
            if isinstance(node, tirx.Var):
                numbers[node] = tirx.const(values[node.name], node.dtype)

        tirx.stmt_functor.post_order_visit(expression, note)
        expression = arith.Analyzer().simplify(tirx.stmt_functor.substitute(expression, numbers))
    return expression.value


def _tensor_map(_: object, rank: int, base: Tensor, *numbers: int) -> SimpleNamespace:
    """The descriptor of a tensor map by the arguments of cuTensorMapEncodeTiled, which go from the innermost axis outward."""
    shape, strides, box = (numbers[place * rank : (place + 1) * rank][::-1] for place in range(3))
    _, swizzle, _, fill = numbers[4 * rank :]
    return SimpleNamespace(
        base=base,
        shape=shape,
        strides=[stride // base.element_size() for stride in strides],
        block_shape=box,
        layout=SimpleNamespace(swizzle_byte_width=SWIZZLES[swizzle]),
        padding="nan" if fill else "zero",
    )


__all__ = ["TilelangKernel", "lower", "tilelang_kernel"]
