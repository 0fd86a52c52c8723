"""Ordinary lines of launchers around a kernel: what each gives here, it gives in another process (`tests/sealed`).

Each takes an operand of 100 floats, 0 to 99, on the GPU. Some raise, as torch does.
"""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.support.remote_launchers import Scaled, into, scaled, scaled_kernel

CACHE: dict[str, Any] = {}
TOP = torch.arange(4.0, device="cuda") if torch.cuda.is_available() else torch.arange(4.0)


@triton.jit
def doubled_box(source, target):
    target.store([0, 0], source.load([0, 0]) * 2)


@triton.jit
def behind_a_pointer(table, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(tl.load(table).to(tl.pointer_type(tl.float32)) + at, mask=at < n), mask=at < n)


@triton.jit
def copied_pair(pair, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(pair[1] + at, tl.load(pair[0] + at, mask=at < n), mask=at < n)


@triton.jit
def added_box(x, y, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [M, N], [N, 1], [M, N])
    target = tl.make_tensor_descriptor(y, [M, N], [N, 1], [M, N])
    target.store([0, 0], source.load([0, 0]) + 1)


@triton.jit
def summed(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0), 0))


def allocated(size: int, alignment: int, stream: Any) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.int8)


def idiom(name: str, x: torch.Tensor) -> Any:
    return IDIOMS[name](x)


IDIOMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "empty strided": lambda x: torch.empty_strided((10, 10), (1, 10), device="cuda").copy_(x.view(10, 10)),
    "empty devobj": lambda x: torch.empty(x.shape, device=x.device, dtype=x.dtype).copy_(x),
    "zeros kw": lambda x: torch.zeros(size=(3, 4), dtype=torch.int32, device="cuda:0"),
    "full": lambda x: torch.full((3,), 7.5, device="cuda"),
    "full int": lambda x: torch.full((3,), 7, device="cuda"),
    "arange": lambda x: torch.arange(5, device="cuda"),
    "arange2": lambda x: torch.arange(0, 5, 2, dtype=torch.float16, device="cuda"),
    "eye": lambda x: torch.eye(3, device="cuda"),
    "linspace": lambda x: torch.linspace(0, 1, 5, device="cuda"),
    "tensor": lambda x: torch.tensor([[1, 2], [3, 4]], device="cuda"),
    "tensor of": lambda x: torch.tensor(x.sum().item(), device="cuda"),
    "as tensor np": lambda x: torch.as_tensor(np.arange(3), device="cuda"),
    "from numpy cuda": lambda x: torch.from_numpy(np.arange(3.0)).cuda(),
    "seeded randn": lambda x: (torch.manual_seed(3), torch.randn(4, device="cuda"))[1],
    "seeded normal": lambda x: (torch.manual_seed(3), torch.empty(4, device="cuda").normal_())[1],
    "rand like": lambda x: (torch.manual_seed(3), torch.rand_like(x))[1],
    "dropout": lambda x: (torch.manual_seed(3), F.dropout(x, 0.5))[1],
    "generator": lambda x: torch.rand(4, device="cuda", generator=torch.Generator(device="cuda").manual_seed(5)),
    "generator in place": lambda x: torch.empty(4, device="cuda").uniform_(generator=torch.Generator(device="cuda").manual_seed(5)),
    "multinomial": lambda x: (torch.manual_seed(1), torch.multinomial(x + 1, 3))[1],
    "randperm": lambda x: (torch.manual_seed(1), torch.randperm(6, device="cuda"))[1],
    "new empty": lambda x: x.new_empty(3).fill_(2),
    "new zeros": lambda x: x.new_zeros((2, 3), dtype=torch.int8),
    "new tensor": lambda x: x.new_tensor([1.0, 2.0]),
    "new full": lambda x: x.new_full((2,), 3),
    "empty like mf": lambda x: torch.empty_like(x.view(1, 4, 5, 5), memory_format=torch.channels_last).zero_(),
    "zeros like t": lambda x: torch.zeros_like(x.view(10, 10).t()),
    "channels last": lambda x: x.view(1, 4, 5, 5).contiguous(memory_format=torch.channels_last),
    "to half": lambda x: x.half(),
    "to dtype copy": lambda x: x.to(torch.bfloat16, copy=True),
    "cpu back": lambda x: x.cpu().mul(2).cuda(),
    "cpu t": lambda x: x.view(10, 10).t().cpu(),
    "to cpu nb": lambda x: x.to("cpu", non_blocking=True),
    "item": lambda x: x.max().item(),
    "bool": lambda x: bool((x > 3).any()),
    "int": lambda x: int(x[5]),
    "float": lambda x: float(x[5]),
    "len": lambda x: len(x),
    "iter": lambda x: list(x[:3]),
    "tolist": lambda x: x.tolist(),
    "index put": lambda x: (y := x.clone(), y.__setitem__(torch.tensor([0, 1]), 9.0), y)[-1],
    "mask set": lambda x: (y := x.clone(), y.__setitem__(y > 5, 0), y)[-1],
    "range index": lambda x: x[torch.arange(3, device="cuda")],
    "none index": lambda x: x[None, :, None],
    "ellipsis": lambda x: x[..., 3:7:2],
    "neg": lambda x: x[-1],
    "list index": lambda x: x[[1, 2]],
    "split": lambda x: x.split(30),
    "chunk": lambda x: torch.chunk(x, 3),
    "unbind": lambda x: x.view(2, 50).unbind(0),
    "stack": lambda x: torch.stack([x, x], 1),
    "einsum": lambda x: torch.einsum("i,i->", x, x),
    "bmm": lambda x: torch.bmm(x.view(1, 10, 10), x.view(1, 10, 10)),
    "topk": lambda x: torch.topk(x, 3),
    "sort": lambda x: x.sort(descending=True),
    "unique": lambda x: x.unique(),
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: F.softmax(x.view(10, 10), -1),
    "layer norm": lambda x: F.layer_norm(x.view(10, 10), (10,)),
    "linear": lambda x: F.linear(x.view(10, 10), x.view(10, 10)),
    "conv": lambda x: F.conv2d(x.view(1, 1, 10, 10), x[:9].view(1, 1, 3, 3)),
    "pad": lambda x: F.pad(x, (1, 2)),
    "sdpa": lambda x: F.scaled_dot_product_attention(*[x.view(1, 1, 10, 10)] * 3),
    "batch norm": lambda x: F.batch_norm(
        x.view(10, 10), torch.zeros(10, device="cuda"), torch.ones(10, device="cuda"), training=True
    ),
    "gelu": lambda x: F.gelu(x),
    "silu": lambda x: F.silu(x),
    "ce": lambda x: F.cross_entropy(x.view(10, 10), torch.arange(10, device="cuda")),
    "maxpool": lambda x: F.max_pool2d(x.view(1, 1, 10, 10), 2),
    "avgpool": lambda x: F.adaptive_avg_pool2d(x.view(1, 1, 10, 10), 2),
    "interp": lambda x: F.interpolate(x.view(1, 1, 10, 10), scale_factor=2),
    "view dtype": lambda x: x.view(torch.int32),
    "view as c": lambda x: torch.view_as_complex(x.view(50, 2)),
    "complexes": lambda x: torch.view_as_complex(x.view(50, 2)) * (1 + 2j),
    "real": lambda x: torch.view_as_complex(x.view(50, 2)).conj().real,
    "conjphys": lambda x: torch.view_as_complex(x.view(50, 2)).conj().resolve_conj(),
    "as strided": lambda x: x.as_strided((3, 3), (1, 1)),
    "expand": lambda x: x[:1].expand(5).contiguous(),
    "roll": lambda x: x.roll(3),
    "flip": lambda x: x.flip(0),
    "tril": lambda x: x.view(10, 10).tril(),
    "addmm": lambda x: torch.addmm(x[:10], x.view(10, 10), x.view(10, 10), beta=0.5, alpha=2),
    "out": lambda x: torch.mm(x.view(10, 10), x.view(10, 10), out=torch.empty(10, 10, device="cuda")),
    "resize": lambda x: torch.empty(0, device="cuda").resize_(4).zero_(),
    "squeeze": lambda x: x.clone().view(1, 100).squeeze_(0),
    "t": lambda x: x.clone().view(10, 10).t_(),
    "transpose": lambda x: x.clone().view(10, 10).transpose_(0, 1),
    "set": lambda x: torch.empty(0, device="cuda").set_(x),
    "data": lambda x: x.data,
    "data set": lambda x: (y := torch.zeros(2, device="cuda"), setattr(y, "data", x[:3]), y)[-1],
    "detach": lambda x: x.detach(),
    "deepcopy": lambda x: copy.deepcopy(x),
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "copy cpu": lambda x: (y := torch.zeros(100), y.copy_(x), y)[-1],
    "copy from cpu": lambda x: x.clone().copy_(torch.ones(100)),
    "pinned": lambda x: torch.ones(3).pin_memory().cuda(),
    "pin empty": lambda x: torch.zeros(3, pin_memory=True).to("cuda", non_blocking=True),
    "repr": lambda x: repr(x[:3]),
    "format": lambda x: f"{x[2]:.3f}",
    "str": lambda x: str(x.sum()),
    "devices": lambda x: [
        str(x.device),
        x.is_cuda,
        x.get_device(),
        x.is_cpu,
        x.type(),
        x.is_contiguous(),
        x.element_size(),
        x.nbytes,
        x.numel(),
        x.dim(),
        x.stride(0),
        x.storage_offset(),
        x.is_floating_point(),
        x.layout,
    ],
    "align": lambda x: [
        x.data_ptr() % 16,
        x[1:].data_ptr() - x.data_ptr(),
        x[1:].untyped_storage().data_ptr() == x.untyped_storage().data_ptr(),
        x.untyped_storage().nbytes() >= 400,
    ],
    "cai": lambda x: [
        x.__cuda_array_interface__["shape"],
        x.__cuda_array_interface__["typestr"],
        x.view(10, 10).t().__cuda_array_interface__["strides"],
    ],
    "props": lambda x: [
        torch.cuda.get_device_properties(0).name,
        torch.cuda.get_device_capability(),
        torch.cuda.current_device(),
        torch.cuda.get_device_properties(x.device).multi_processor_count,
    ],
    "streams": lambda x: (s := torch.cuda.Stream(), s.__enter__(), y := scaled(x), s.__exit__(), torch.cuda.synchronize(), y)[-2],
    "events": lambda x: (
        a := torch.cuda.Event(enable_timing=True),
        b := torch.cuda.Event(enable_timing=True),
        a.record(),
        scaled(x),
        b.record(),
        a.elapsed_time(b) > 0,
    )[-1],
    "do bench": lambda x: triton.testing.do_bench(lambda: scaled(x), warmup=1, rep=1) > 0,
    "default device": lambda x: (torch.set_default_device("cuda"), torch.zeros(3), torch.set_default_device(None))[1],
    "inference": lambda x: torch.inference_mode()(lambda: scaled(x))(),
    "inference views": lambda x: torch.inference_mode()(lambda: scaled(x.view(10, 10)[1].unsqueeze(0).squeeze(0)))(),
    "negated view": lambda x: scaled(torch._neg_view(x).resolve_neg()),
    "empty result": lambda x: (out := torch.empty(0, device=x.device), torch.mm(x.view(10, 10), x.view(10, 10), out=out), out)[-1],
    "wrapped for tracing": lambda x: (
        y := torch.empty_like(x),
        torch.library.wrap_triton(scaled_kernel)[(1,)](x, y, x.numel(), 3.0, BLOCK=128),
        y,
    )[-1],
    "no grad": lambda x: torch.no_grad()(scaled)(x),
    "autocast": lambda x: torch.autocast("cuda", torch.float16)(lambda: x.view(10, 10) @ x.view(10, 10))(),
    "compile": lambda x: torch.compile(lambda z: z * 2)(x),
    "vmap": lambda x: torch.vmap(lambda r: r.sum())(x.view(10, 10)),
    "backward": lambda x: (z := x.detach().requires_grad_(), Scaled.apply(z, 3.0).sum().backward(), z.grad)[-1],
    "grad2": lambda x: (z := x.detach().requires_grad_(), torch.autograd.grad((z * z).sum(), z))[-1],
    "hook": lambda x: (z := x.detach().requires_grad_(), z.register_hook(lambda g: g * 2), (z * 1).sum().backward(), z.grad)[-1],
    "checkpoint": lambda x: (
        z := x.detach().requires_grad_(),
        torch.utils.checkpoint.checkpoint(lambda a: Scaled.apply(a, 2.0), z, use_reentrant=False).sum().backward(),
        z.grad,
    )[-1],
    "module": lambda x: torch.nn.Linear(100, 2).cuda()(x).shape,
    "module seq": lambda x: torch.nn.Sequential(torch.nn.Flatten(0), torch.nn.ReLU()).to("cuda")(x),
    "param": lambda x: torch.nn.Parameter(torch.ones(3, device="cuda")) * 2,
    "optim": lambda x: (
        p := torch.nn.Parameter(torch.ones(3, device="cuda")),
        o := torch.optim.SGD([p], lr=0.5),
        p.sum().backward(),
        o.step(),
        p.detach(),
    )[-1],
    "adam": lambda x: (
        p := torch.nn.Parameter(torch.ones(3, device="cuda")),
        o := torch.optim.Adam([p], lr=0.5),
        p.sum().backward(),
        o.step(),
        p.detach(),
    )[-1],
    "state dict": lambda x: torch.nn.Linear(2, 2).cuda().state_dict()["bias"].shape,
    "load state": lambda x: (
        m := torch.nn.Linear(2, 2).cuda(),
        m.load_state_dict({"weight": torch.ones(2, 2), "bias": torch.zeros(2)}),
        m(x[:2]),
    )[-1],
    "clip": lambda x: torch.nn.utils.clip_grad_norm_([(q := torch.nn.Parameter(x.clone()), q.sum().backward(), q)[-1]], 1.0),
    "foreach": lambda x: torch._foreach_add([x, x], 1.0),
    "cat": lambda x: torch.cat([x[:2], x[3:4]]),
    "where": lambda x: torch.where(x > 3, x, 0.0),
    "where3": lambda x: torch.where(x > 3),
    "nonzero": lambda x: x.nonzero(),
    "masked": lambda x: x[x > 97],
    "equal": lambda x: torch.equal(x, x.clone()),
    "allclose": lambda x: torch.allclose(x, x + 1e-9),
    "assert close": lambda x: torch.testing.assert_close(x, x.clone()),
    "bincount": lambda x: x.long().bincount(),
    "scatter": lambda x: torch.zeros(100, device="cuda").scatter_add_(0, x.long() % 3, x),
    "gather": lambda x: x.gather(0, x.long().flip(0)),
    "index select": lambda x: x.index_select(0, torch.tensor([3], device="cuda")),
    "cross mixed": lambda x: x + torch.ones(100),
    "cpu scalar": lambda x: x * torch.tensor(2.0),
    "np scalar": lambda x: x * np.float32(2),
    "numpy": lambda x: x.numpy(),
    "numpy cpu": lambda x: x.cpu().numpy().sum().item(),
    "np array": lambda x: np.asarray(x),
    "kernel": scaled,
    "kernel strided": lambda x: scaled(x.view(10, 10).t()),
    "kernel cpu": lambda x: into(torch.empty_like(x), x.cpu()),
    "kernel offset": lambda x: into(torch.empty(99, device="cuda"), x[1:]),
    "tuple arg": lambda x: (y := torch.empty_like(x), copied_pair[(1,)]((x, y), 100, BLOCK=128), y)[-1],
    "descriptor": lambda x: (
        y := torch.zeros(8, 16, device="cuda"),
        z := torch.ones(8, 16, device="cuda"),
        doubled_box[(1,)](TensorDescriptor.from_tensor(z, [8, 16]), TensorDescriptor.from_tensor(y, [8, 16])),
        y,
    )[-1],
    "dev desc": lambda x: (
        triton.set_allocator(allocated),
        y := torch.zeros(8, 16, device="cuda"),
        z := torch.ones(8, 16, device="cuda"),
        added_box[(1,)](z, y, 8, 16),
        y,
    )[-1],
    "atomic": lambda x: (s := torch.zeros(1, device="cuda"), summed[(2,)](x, s, 100, BLOCK=64), s)[-1],
    "warmup": lambda x: scaled_kernel.warmup(torch.float32, torch.float32, 100, 2.0, STRAY=0, BLOCK=64, grid=(1,)) is not None,
    "asm": lambda x: (y := torch.empty_like(x), "ptx" in scaled_kernel[(2,)](x, y, 100, 2.0, STRAY=0, BLOCK=64).asm)[-1],
    "regs": lambda x: (y := torch.empty_like(x), scaled_kernel[(2,)](x, y, 100, 2.0, STRAY=0, BLOCK=64).n_regs > 0)[-1],
    "compiled kernel": lambda x: (
        y := torch.empty_like(x),
        k := scaled_kernel.warmup(x, y, 100, 2.0, STRAY=0, BLOCK=64, grid=(2,)),
        k[(2, 1, 1)](x, y, 100, 2.0, 0, 64),
        y,
    )[-1],
    "reinterpret": lambda x: (
        y := torch.empty_like(x),
        scaled_kernel[(2,)](triton.reinterpret(x, tl.float32), triton.reinterpret(y, tl.float32), 100, 2.0, STRAY=0, BLOCK=64),
        y,
    )[-1],
    "grid fn": lambda x: (
        y := torch.empty_like(x),
        scaled_kernel[lambda m: (triton.cdiv(100, m["BLOCK"]),)](x, y, 100, 2.0, STRAY=0, BLOCK=64),
        y,
    )[-1],
    "pre hook": lambda x: (
        y := torch.empty_like(x),
        scaled_kernel.add_pre_run_hook(lambda *a, **k: CACHE.setdefault("hooked", 1)),
        scaled_kernel[(2,)](x, y, 100, 2.0, STRAY=0, BLOCK=64),
        scaled_kernel.pre_run_hooks.clear(),
        y,
    )[-1],
    "big grid": lambda x: (y := torch.empty_like(x), scaled_kernel[(1, 70000)](x, y, 100, 2.0, STRAY=0, BLOCK=64), y)[-1],
    "empty grid": lambda x: (y := torch.zeros_like(x), scaled_kernel[(0,)](x, y, 100, 2.0, STRAY=0, BLOCK=64), y)[-1],
    "top level": lambda x: TOP + x[:4],
    "cached": lambda x: CACHE.setdefault("t", torch.ones(100, device="cuda")) + x,
    "thread": lambda x: (r := [], t := threading.Thread(target=lambda: r.append(scaled(x))), t.start(), t.join(), r[0])[-1],
    "mem": lambda x: [torch.cuda.memory_allocated() >= x.nbytes, torch.cuda.mem_get_info()[0] > 0],
    "storage": lambda x: x.storage().nbytes() if hasattr(x.storage(), "nbytes") else 0,
    "is pinned": lambda x: x.is_pinned(),
    "shares": lambda x: x.untyped_storage()._cdata == x[1:].untyped_storage()._cdata,
    "sum dtype": lambda x: x.sum(dtype=torch.float64),
    "std": lambda x: x.std(),
    "var mean": lambda x: torch.var_mean(x),
    "clamp": lambda x: x.clamp(2, 5),
    "pow": lambda x: x**2,
    "rpow": lambda x: 2 ** x[:5],
    "inplace": lambda x: (y := x.clone(), y.add_(1).mul_(2), y)[-1],
    "iadd": lambda x: (lambda y: (y.__iadd__(1), y)[1])(x.clone()),
    "swapaxes": lambda x: x.view(10, 10).swapaxes(0, 1),
    "movedim": lambda x: x.view(2, 5, 10).movedim(0, 2),
    "unfold": lambda x: x.unfold(0, 3, 2),
    "T": lambda x: x.view(10, 10).T,
    "mT": lambda x: x.view(10, 10).mT,
    "bitcast": lambda x: x.half().view(torch.int16),
    "fp8": lambda x: x.to(torch.float8_e4m3fn),
    "fp8w": lambda x: x.to(torch.float8_e4m3fn).view(torch.uint8),
    "int4": lambda x: (x.to(torch.uint8) & 0xF) | (x.to(torch.uint8) << 4),
    "getattr grad": lambda x: x.grad,
    "named": lambda x: torch.max(x.view(10, 10), dim=1)._fields if hasattr(torch.max(x.view(10, 10), dim=1), "_fields") else "no",
    "raise index": lambda x: x[1000],
    "raise shape": lambda x: x.view(7, 7),
    "raise type": lambda x: torch.mm(x),
    "raise dtype": lambda x: torch.mm(x.view(10, 10), x.view(10, 10).half()),
    "scalar tensor": lambda x: torch.scalar_tensor(3.0, device="cuda"),
    "empty permuted": lambda x: torch.empty_permuted((2, 3, 4), (0, 2, 1), device="cuda").stride(),
    "default dtype": lambda x: (
        torch.set_default_dtype(torch.float64),
        torch.zeros(2, device="cuda"),
        torch.set_default_dtype(torch.float32),
    )[1],
    "float tensor": lambda x: torch.cuda.FloatTensor([1.0, 2.0]),
    "tensor to tensor": lambda x: torch.ones(3).to(x),
    "type as": lambda x: torch.ones(3).type_as(x),
    "from list stack": lambda x: torch.stack([torch.tensor(i, device="cuda") for i in range(3)]),
    "tensor of tensors": lambda x: torch.tensor([x[0], x[1]]),
    "tensor ptr table": lambda x: (
        t := torch.tensor([x.data_ptr()], device="cuda"),
        y := torch.empty_like(x),
        behind_a_pointer[(1,)](t, y, 100, BLOCK=128),
        y,
    )[-1],
    "nested": lambda x: {"a": x, "b": [x, (x, 1)]},
    "namedtuple": lambda x: torch.topk(x, 2),
    "broadcast": lambda x: torch.broadcast_tensors(x.view(10, 10), x[:10])[1],
    "meshgrid": lambda x: torch.meshgrid(x[:2], x[:3], indexing="ij")[0],
    "embedding": lambda x: F.embedding(torch.arange(3, device="cuda"), x.view(10, 10)),
    "one hot": lambda x: F.one_hot(x[:3].long(), 5),
    "rms norm": lambda x: F.rms_norm(x.view(10, 10), (10,)),
    "group norm": lambda x: F.group_norm(x.view(1, 10, 10), 2),
    "glu": lambda x: F.glu(x),
    "lstm": lambda x: torch.nn.LSTM(10, 3).cuda()(x.view(10, 1, 10))[0].shape,
    "mha": lambda x: (
        torch.nn.MultiheadAttention(10, 2).cuda().eval()(x.view(10, 1, 10), x.view(10, 1, 10), x.view(10, 1, 10))[0].shape
    ),
    "conv mod": lambda x: torch.nn.Conv2d(1, 2, 3).cuda().eval()(x.view(1, 1, 10, 10)).shape,
    "bn mod": lambda x: torch.nn.BatchNorm1d(10).cuda()(x.view(10, 10)),
    "quantile": lambda x: x.quantile(0.5),
    "histc": lambda x: x.histc(4),
    "fft": lambda x: torch.fft.rfft(x),
    "svd": lambda x: torch.linalg.svdvals(x.view(10, 10)),
    "searchsorted": lambda x: torch.searchsorted(x, x[:3]),
    "lerp": lambda x: x.lerp(x + 1, 0.5),
    "baddbmm": lambda x: torch.baddbmm(x.view(1, 10, 10), x.view(1, 10, 10), x.view(1, 10, 10)),
    "scaled mm": lambda x: torch._scaled_mm(
        x[:64].view(8, 8).repeat(2, 2).to(torch.float8_e4m3fn),
        x[:64].view(8, 8).repeat(2, 2).to(torch.float8_e4m3fn).t(),
        torch.ones((), device="cuda"),
        torch.ones((), device="cuda"),
        out_dtype=torch.bfloat16,
    ),
}
