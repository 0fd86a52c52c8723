"""Contract under test: a tensor of the emulated GPU is one in every respect that Python sees, and nothing outlives the block."""

# One file because every test asks one class for one more thing that a tensor of a GPU is.

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils import _device as torch_device

from bitverdict.harness.emulator import EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.emulator.cuda_tensors import CudaTensor, storages_since
from bitverdict.harness.emulator.gpu_operators import WideOperators


@triton.jit
def doubled(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def double(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    doubled[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return y


def test_tensors_of_the_cpu_and_of_the_gpu_are_launched_alike() -> None:
    with emulated("sm_90"):
        there = double(torch.arange(100.0, device="cuda"))
        here = double(torch.arange(100.0))
    assert there.is_cuda and not here.is_cuda
    assert torch.equal(there.cpu(), here) and torch.equal(here, 2 * torch.arange(100.0))


def test_a_device_that_takes_no_cpu_tensors_refuses_them_as_a_gpu_does() -> None:
    with (
        emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)),
        pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed"),
    ):
        double(torch.arange(100.0))


OPERATIONS = {
    "view": lambda x: x.view(3, 2),
    "transpose": lambda x: x.T,
    "step": lambda x: x[:, ::2],
    "mask": lambda x: x[x > 2],
    "row": lambda x: x[0],
    "rows by a tensor": lambda x: x[torch.tensor([1, 0])],
    "type": lambda x: x.to(torch.float16),
    "bits": lambda x: x.view(torch.int32),
    "sum": lambda x: x.sum(1),
    "matmul": lambda x: x @ x.T,
    "concatenation": lambda x: torch.cat([x, x]),
    "where": lambda x: torch.where(x > 1, x, torch.zeros_like(x)),
    "largest": lambda x: x.max(dim=1).values,
    "one hot": lambda x: torch.nn.functional.one_hot(x.long()),
    "written by parts": lambda x: (x.clone().index_fill_(1, torch.tensor([0]).to(x.device), 7.0), x)[0],
    "written through a view": lambda x: (y := x.clone(), y[0].fill_(9.0), y)[-1],
    "assigned": lambda x: (y := x.clone(), y.__setitem__((slice(None), 1), torch.ones(2)), y)[-1],
    "another shape": lambda x: (y := x.clone(), y.unsqueeze_(0), y)[-1],
    "result given": lambda x: torch.add(x, 1, out=torch.empty_like(x)),
    "expanded": lambda x: x[:, :1].expand(2, 4),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_gives_the_cpu_s_values_strides_and_stays_there(operation: str) -> None:
    x, run = torch.arange(6.0).reshape(2, 3), OPERATIONS[operation]
    with emulated("sm_90"):
        got = run(x.cuda())
    expected = run(x)
    assert got.device == torch.device("cuda", 0) and (got.shape, got.stride(), got.dtype) == (
        expected.shape,
        expected.stride(),
        expected.dtype,
    )
    assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_inference_mode_gives_the_same(operation: str) -> None:
    """A view of an ordinary tensor is an ordinary one, which shares its version."""
    x, run = torch.arange(6.0).reshape(2, 3), OPERATIONS[operation]
    with emulated("sm_90"):
        y = x.cuda()
        with torch.inference_mode():
            got = run(y)
    with torch.inference_mode():
        expected = run(x)
    assert got.device == torch.device("cuda", 0) and (expected.is_inference() or not got.is_inference())
    assert (got.shape, got.stride()) == (expected.shape, expected.stride()) and torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("move", [lambda x: x.to("cuda"), lambda x: x.contiguous(), lambda x: x.reshape(6)])
def test_what_torch_takes_apart_shares_its_bytes_in_inference_mode(move: Any) -> None:
    """A launcher that moves a cache to the device where it is writes into the cache, also where torch computes in fp32."""
    with emulated("sm_90", options=LaunchOptions(watches=(WideOperators(),))), torch.inference_mode():
        cache = torch.ones(2, 3, device="cuda", dtype=torch.float16)
        move(cache).zero_()
        assert not cache.any() and (cache + cache).dtype is torch.float16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_limits_and_steps_are_of_the_type_where_torch_computes_in_fp32(dtype: torch.dtype) -> None:
    with emulated("sm_90", options=LaunchOptions(watches=(WideOperators(),))):
        x = torch.tensor([torch.inf, -torch.inf, 1.0], device="cuda", dtype=dtype)
        found = torch.stack([x.nan_to_num(), torch.nextafter(x, torch.full_like(x, 9.0))]).tolist()
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.ones(1, device="cuda", dtype=torch.float16).masked_fill(torch.ones(1, device="cuda", dtype=torch.bool), -1e9)
    limits = torch.finfo(dtype)
    assert found == [[limits.max, limits.min, 1.0], [limits.max, limits.min, 1 + limits.eps]]


@pytest.mark.parametrize("name", ["silu", "mish", "gelu", "softplus", "elu"])
def test_gradients_of_activations_in_bf16_are_rounded_once(name: str) -> None:
    """Torch takes `silu_backward` and `mish_backward` apart on a device that it does not know, into steps that round."""
    x, gradient = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    results = []
    for rounded in (x, x.float()):
        with emulated("sm_90", options=LaunchOptions(watches=(WideOperators(),))):
            leaf = rounded.to("cuda").requires_grad_()
            getattr(torch.nn.functional, name)(leaf).backward(gradient.to(rounded.dtype).to("cuda"))
            results.append(leaf.grad.cpu())
    assert torch.equal(results[0], results[1].bfloat16())


LAZY = {
    "negated": lambda x: torch._neg_view(x),
    "imaginary part of a conjugate": lambda x: torch.complex(x, -x).conj().imag,
    "real part of a conjugate": lambda x: torch.complex(x, x).conj().real,
    "sum of a negated": lambda x: torch._neg_view(x) + 1,
    "copy of a negated": lambda x: torch.empty_like(x).copy_(torch._neg_view(x)),
    "written negated": lambda x: (y := x.clone(), torch._neg_view(y).add_(5), y)[-1],
    "conjugate product": lambda x: (torch.complex(x, x).conj() * 2).real,
}


@pytest.mark.parametrize("operation", LAZY)
def test_what_torch_negates_and_conjugates_lazily_has_its_values(operation: str) -> None:
    x, run = torch.arange(6.0).reshape(2, 3), LAZY[operation]
    with emulated("sm_90", options=LaunchOptions(real_values=frozenset())) as device:
        got = run(x.cuda())
        assert got.is_neg() == run(x).is_neg()
        resolved = got.resolve_neg().contiguous()
        launched = double(resolved)
        real = device.real_values(resolved)
    assert torch.equal(got.cpu(), run(x)) and torch.equal(launched.cpu(), 2 * run(x))
    assert real is None or torch.equal(torch.from_numpy(real.value), run(x).double())


def test_a_result_that_torch_resizes_has_the_new_sizes() -> None:
    x = torch.arange(6.0).reshape(2, 3)
    with emulated("sm_90"):
        out = torch.empty(0, device="cuda")
        torch.mm(x.cuda(), x.cuda().T, out=out)
        assert out.shape == (2, 2) and torch.equal(double(out.view(-1)).cpu().view(2, 2), 2 * (x @ x.T))


def test_a_kernel_takes_pinned_memory_of_the_host_and_no_other() -> None:
    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)):
        x = torch.arange(100.0)
        pinned, made = x.pin_memory(), torch.empty(100, pin_memory=True)
        assert pinned.is_pinned() and made.is_pinned() and not (x.is_pinned() or pinned.is_cuda or x.cuda().is_pinned())
        for each in (pinned, made.copy_(pinned)):
            y = torch.empty(100, device="cuda")
            doubled[(2,)](each, y, 100, BLOCK=64)
            assert torch.equal(y.cpu(), 2 * x)
        with pytest.raises(ValueError, match="cannot be accessed from Triton"):
            double(x)
        with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
            x.cuda().pin_memory()
        kept = pinned.data_ptr()
        del pinned
        assert not torch.frombuffer(bytearray(400), dtype=torch.float32).is_pinned() and kept


def test_tensors_without_bytes_are_torch_s_own() -> None:
    """Of the device "meta", and those that torch traces with."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with emulated("sm_90") as device:
        with FakeTensorMode():
            fake = torch.empty(4, 4, device="cuda")
            assert isinstance(fake @ fake, FakeTensor) and fake.device == torch.device("cuda", 0)
        x, y = torch.ones(4, device="cuda"), torch.ones(6, 4, device="cuda").t()[1:]
        for given, mode in ((x, FakeTensorMode()), (y, FakeTensorMode())):
            fake = mode.from_tensor(given)
            assert isinstance(fake, FakeTensor) and fake.device == given.device and fake is mode.from_tensor(given)
            assert (fake.shape, fake.stride(), fake.storage_offset()) == (given.shape, given.stride(), given.storage_offset())
            assert (fake + fake).device == given.device and FakeTensorMode().from_tensor(given.cpu()).device.type == "cpu"
        meta = torch.empty_like(x, device="meta")
        assert (meta + 1).is_meta and x.to("meta").is_meta and torch.equal(double(x).cpu(), torch.full((4,), 2.0))
        assert len(device.launches) == 1


def test_classes_of_torch_cuda_stay_classes_that_refuse_when_made() -> None:
    """Annotations and isinstance of them are evaluated while a library is imported."""
    with emulated("sm_90"):
        from torch.cuda.graphs import CUDAGraph

        newer = {"GreenContext"} & set(dir(torch.cuda))  # torch 2.10 brought it
        for name in ("CUDAGraph", "MemPool", "ExternalStream", "StreamContext", "CUDAPluggableAllocator", "graph", *newer):
            kind = getattr(torch.cuda, name)
            assert isinstance(kind, type) and (kind | None) and not isinstance(3, kind), name
            if name not in ("ExternalStream", "StreamContext", "CUDAGraph", "graph"):
                with pytest.raises(EmulatedFault, match=f"torch.cuda.*{name}: the emulated GPU does not answer this call"):
                    type("Own", (kind,), {})()
        assert CUDAGraph is torch.cuda.graphs.CUDAGraph
        stream = torch.cuda.ExternalStream(5)
        with torch.cuda.stream(stream), torch.cuda.StreamContext(None):
            assert isinstance(stream, torch.cuda.Stream) and torch.cuda.current_stream() == stream
        assert torch.cuda.current_stream().cuda_stream == 0


def test_what_generated_wrappers_allocate_lies_on_the_emulated_gpu() -> None:
    with emulated("sm_90"):
        y = torch._C._dynamo.guards._empty_strided_cuda((2, 3), (3, 1), torch.float32)
        torch._C._dynamo.guards.assert_size_stride(y, (2, 3), (3, 1))
        assert y.is_cuda and y.dtype == torch.float32


def test_a_kernel_wrapped_for_tracing_is_launched() -> None:
    """torch.library.wrap_triton, outside of a triton_op too."""
    wrapped = torch.library.wrap_triton(doubled)  # as a module does while it is imported
    with emulated("sm_90") as device:
        x, y = torch.arange(100.0, device="cuda"), torch.empty(100, device="cuda")
        for each in (wrapped, torch.library.wrap_triton(doubled)):
            each[(1,)](x, y, 100, BLOCK=128)
        assert torch.equal(y.cpu(), 2 * torch.arange(100.0)) and len(device.launches) == 2


def test_a_kernel_s_own_backward_runs_on_the_gpu() -> None:
    seen = []

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return double(x)

        @staticmethod
        def backward(ctx, *grads):
            seen.extend([grads[0].device.type, ctx.saved_tensors[0].device.type, torch.zeros(1, device="cuda").device.type])
            return double(grads[0].contiguous())

    with emulated("sm_90") as device:
        x = torch.ones(70, device="cuda", requires_grad=True)
        Doubled.apply(3 * x).sum().backward()
        (again,) = torch.autograd.grad(Doubled.apply(x).sum(), x)
    assert seen == ["cuda"] * 6 and len(device.launches) == 4
    assert x.grad is not None and x.grad.is_cuda and x.grad.tolist() == [6.0] * 70 and again.tolist() == [2.0] * 70


class TwoResults(torch.autograd.Function):
    """2 x and 4 x; where their gradients lay is kept."""

    devices: ClassVar[list[str]] = []

    @staticmethod
    def forward(ctx, x):
        return 2 * x, 4 * x

    @staticmethod
    def backward(ctx, *grads):
        TwoResults.devices = [grad.device.type for grad in grads]
        return 2 * grads[0] + 4 * grads[1]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize("used", [0, 1])
def test_the_gradient_of_a_result_that_nothing_used_lies_beside_it(device: str, used: int) -> None:
    with emulated("sm_90"):
        x = torch.ones(9, device=device, requires_grad=True)
        TwoResults.apply(x)[used].sum().backward()
    assert TwoResults.devices == [device] * 2
    assert x.grad is not None and x.grad.device.type == device and x.grad.tolist() == [2.0 * (used + 1)] * 9
    applied = TwoResults.apply, torch.autograd.function.BackwardCFunction.apply  # torch's own, once no emulated GPU is entered
    assert not any(str(each.__module__).startswith("bitverdict") for each in applied)


MIXES = {
    "sum": lambda x, y: x + y,
    "sum in place": lambda x, y: x.add_(y),
    "comparison": torch.equal,
    "concatenation": lambda x, y: torch.cat([x, y]),
}


@pytest.mark.parametrize("mix", MIXES)
def test_two_devices_in_one_operation_are_refused_in_torch_s_words(mix: str) -> None:
    with emulated("sm_90"), pytest.raises(RuntimeError, match="found at least two devices, cuda:0 and cpu!"):
        MIXES[mix](torch.ones(3, device="cuda"), torch.ones(3))


def test_what_torch_does_between_two_devices_is_done() -> None:
    with emulated("sm_90"):
        x, y = torch.zeros(3, device="cuda"), torch.arange(3.0)
        assert (x + torch.tensor(1.0)).is_cuda and x.copy_(y).tolist() == [0.0, 1.0, 2.0]
        assert not y.copy_(x + 1).is_cuda and y.tolist() == [1.0, 2.0, 3.0] and y.type_as(x).is_cuda
        x[1:] = torch.zeros(2)
        assert x.tolist() == [0.0, 0.0, 0.0] and x[torch.tensor([0])].is_cuda


def test_a_gradient_passes_from_the_gpu_to_the_cpu_and_back() -> None:
    with emulated("sm_90"):
        x = torch.ones(3, requires_grad=True)
        (x.cuda() * 2).cpu().sum().backward()
    assert x.grad is not None and not x.grad.is_cuda and x.grad.tolist() == [2.0] * 3


def test_data_may_be_moved_in_place() -> None:
    with emulated("sm_90"):
        x = torch.arange(3.0)
        x.data = x.data.cuda()
        moved = x + 1
        x.data = torch.zeros(2)
    assert moved.is_cuda and moved.tolist() == [1.0, 2.0, 3.0] and not x.is_cuda and x.tolist() == [0.0, 0.0]


def test_copies_of_python_s_own_stay_on_the_gpu() -> None:
    with emulated("sm_90"):
        x = torch.arange(3.0, device="cuda")
        for made in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
            assert made.is_cuda and made.tolist() == [0.0, 1.0, 2.0] and made.data_ptr() != x.data_ptr()


def test_what_is_read_from_the_host_shares_no_bytes_with_it() -> None:
    host = np.zeros(3, np.float32)
    with emulated("sm_90"):
        x = torch.as_tensor(host, device="cuda")
        x += 1
    assert host.tolist() == [0.0, 0.0, 0.0] and x.tolist() == [1.0, 1.0, 1.0]


def test_the_block_s_end_gives_everything_back() -> None:
    before = {name: vars(torch.cuda)[name] for name in ("is_available", "Stream", "Event", "get_device_properties", "synchronize")}
    outside = torch.version.cuda, torch.Generator, torch.backends.cuda.is_built, torch.autograd._engine_run_backward
    for leave in (None, RuntimeError):
        try:
            with emulated("sm_90"):
                assert torch.cuda.is_available() and torch.zeros(1, device="cuda").is_cuda
                with emulated("sm_80"):
                    assert torch.cuda.get_device_capability() == (8, 0)
                assert torch.cuda.get_device_capability() == (9, 0)
                torch.set_default_device("cuda")
                if leave:
                    raise leave
        except RuntimeError:
            pass
        assert {name: vars(torch.cuda)[name] for name in before} == before
        assert outside == (torch.version.cuda, torch.Generator, torch.backends.cuda.is_built, torch.autograd._engine_run_backward)
        assert not torch.zeros(1).is_cuda
        assert torch.version.cuda or not hasattr(torch._C, "_cuda_getCurrentRawStream")
        with emulated("sm_90"):
            assert torch.zeros(1).is_cuda, "a default device lasts from block to block, as it does on a GPU"
            torch.set_default_device(None)


def test_each_call_that_torch_cuda_has_is_answered_or_names_itself() -> None:
    """None falls through to torch, which would look for a real GPU."""
    with emulated("sm_90"):
        for name, call in vars(torch.cuda).items():
            if name.startswith("_") or getattr(call, "__module__", "") not in ("bitverdict.harness.emulator.cuda_runtime",):
                continue
            if getattr(call, "__name__", "") == "refuse":
                with pytest.raises(EmulatedFault, match=f"torch.cuda.{name}: the emulated GPU does not answer this call"):
                    call()
        left = [
            name
            for name, call in vars(torch.cuda).items()
            if callable(call)
            and not name.startswith("_")
            and str(getattr(call, "__module__", "")).startswith("torch.cuda")
            and not isinstance(call, type)
        ]
    assert set(left) <= {"classproperty", "check_error"}, left


def test_times_are_positive_and_grow_with_what_is_launched() -> None:
    with emulated("sm_90"):
        x, events = torch.ones(64, device="cuda"), [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        events[0].record()
        double(x)
        events[1].record()
        double(x), double(x)
        events[2].record()
        assert 0 < events[0].elapsed_time(events[1]) < events[1].elapsed_time(events[2])


def test_time_goes_on_between_two_calls_that_launch_nothing() -> None:
    with emulated("sm_90"):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        for event in events:
            event.record()
        assert 0 < events[0].elapsed_time(events[1]) < events[0].elapsed_time(events[2])


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_each_gpu_says_that_it_multiplies_bf16_and_tf32(arch: str) -> None:
    with emulated(arch):
        assert torch.cuda.is_bf16_supported() is True and torch.cuda.is_tf32_supported() is True


def test_a_factory_that_a_test_has_replaced_allocates_on_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    allocate, constructors = torch.empty, torch_device._device_constructors
    constructors.cache_clear()  # as in a process whose first tensor is made under the replacement
    monkeypatch.setattr(torch, "empty", lambda *sizes, **given: allocate(*sizes, **given).fill_(7.0))
    try:
        with emulated("sm_90"):
            made = torch.empty(2, device="cuda")
            assert made.is_cuda and made.tolist() == [7.0, 7.0] and not torch.empty(2).is_cuda
    finally:
        constructors.cache_clear()


VERSION = """
import torch
torch.version.cuda = "13.7"
from bitverdict.harness.emulator import emulated
with emulated("sm_90"):
    print(torch.version.cuda)
"""


def test_a_cuda_build_of_torch_keeps_its_version() -> None:
    done = subprocess.run([sys.executable, "-c", VERSION], capture_output=True, text=True)
    assert done.stdout.split() == ["13.7"], done.stderr


def test_a_device_of_a_number_is_the_gpu_of_that_number() -> None:
    with emulated("sm_90"):
        assert torch.device(0) == torch.device("cuda", 0) == torch.ones(1, device=torch.device(0)).device
        assert (torch.device("cpu"), torch.device("cuda", 1)) == (torch.zeros(1).device, torch.device(1))
        with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
            torch.ones(1, device=torch.device(1))
        with pytest.raises(TypeError):
            torch.device(0.5)


@pytest.mark.parametrize("count", ["device_count", "_device_count_nvml", "_raw_device_count_nvml"])
def test_there_is_one_gpu_by_the_driver_and_by_nvml(count: str) -> None:
    with emulated("sm_90"):
        assert getattr(torch.cuda, count)() == 1


@pytest.mark.parametrize("device", [None, -1, 0, "cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)], ids=str)
def test_the_gpu_has_each_of_the_names_that_torch_takes_for_it(device: Any) -> None:
    with emulated("sm_90"):
        torch.cuda.synchronize(device)
    for other in ("cuda:1", 1):
        with emulated("sm_90"), pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
            torch.cuda.synchronize(other)


def test_an_older_type_takes_sizes_or_one_sequence() -> None:
    with emulated("sm_90"):
        assert torch.cuda.FloatTensor(2, 3).shape == (2, 3) and torch.cuda.FloatTensor([2, 3]).tolist() == [2.0, 3.0]
        with pytest.raises(TypeError, match="takes sizes or one sequence of values, not 2 arguments"):
            torch.cuda.FloatTensor([2], [3])


def test_a_tensor_shares_every_byte_with_what_holds_it() -> None:
    with emulated("sm_90") as device:
        held = torch.zeros(4)
        x = device.place(held)
        x[1:3] = 5
    assert isinstance(x, CudaTensor) and held.tolist() == [0.0, 5.0, 5.0, 0.0] and x.data_ptr() == held.data_ptr()


def test_an_operator_of_the_launchers_own_gets_tensors_of_the_gpu() -> None:
    @torch.library.custom_op("bitverdict_tests::double", mutates_args=())
    def operator(x: torch.Tensor) -> torch.Tensor:
        assert x.is_cuda and torch.empty(3, device=x.device).is_cuda and torch.zeros(3, device="cuda").is_cuda
        return double(x)

    with emulated("sm_90", options=LaunchOptions(takes_cpu_tensors=False)) as device:
        x = torch.arange(100.0, device="cuda")
        y = torch.ops.bitverdict_tests.double(x)
        assert y.is_cuda and torch.equal(y.cpu(), 2 * torch.arange(100.0)) and len(device.launches) == 1


def test_triton_and_torch_have_one_number_of_the_gpu() -> None:
    with emulated("sm_90"):
        number = triton.runtime.driver.active.get_current_device()
        assert number == torch.cuda.current_device()
        assert torch.zeros(3, device=number).is_cuda and torch.zeros(3).to(number).is_cuda
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.zeros(3, device=7)


def test_compiled_kernels_are_kept_by_architecture_under_torchs_number() -> None:
    outside = doubled.device_caches
    for arch, capability in (("sm_90", 90), ("sm_100", 100), ("sm_90", 90)):
        with emulated(arch):
            doubled.device_caches.pop(0, None)
            double(torch.arange(100.0, device="cuda"))
            kernels, _, target, *_ = doubled.device_caches[torch.cuda.current_device()]
            assert target.arch == capability and len(kernels) == 1
    assert doubled.device_caches is outside and not outside


def test_enclosed_words_go_with_their_storage_and_stay_with_a_view() -> None:
    """A word at an address is enclosed as long as its storage lives; another storage there holds exact words, equal ones too."""
    with emulated("sm_90") as device:
        x = torch.ones(64, device="cuda")
        device._known_storages = {}
        storages_since(device._known_storages)  # as at the end of the launch that left enclosed words
        replacement = torch.ones(64, device="cuda")
        addresses = [tensor.data_ptr() + 4 * np.arange(64) for tensor in (x, replacement)]
        words = np.full(64, 5)
        for address in addresses:
            device.enclosed.store(address, words, words - 1, words + 1, 4)
        view = x[:16]
        del x
        double(view)
        assert np.isin(addresses[0], device.enclosed.words()["address"]).all()
        assert not np.isin(addresses[1], device.enclosed.words()["address"]).any()


def test_enclosed_words_that_another_device_left_stay() -> None:
    """A launch is repeated on a device of its own, which gets the enclosed words of the first."""
    with emulated("sm_90") as device:
        x = torch.ones(64, device="cuda")
        address, words = x.data_ptr() + 4 * np.arange(64), np.full(64, 5)
        device.enclosed.store(address, words, words - 1, words + 1, 4)
        double(x)
        assert np.isin(address, device.enclosed.words()["address"]).all()


def test_tensors_under_vmap_are_of_the_gpu() -> None:
    with emulated("sm_90"):
        x, y = torch.arange(12.0, device="cuda").view(3, 4), torch.ones(4, device="cuda")
        batched = torch.vmap(lambda row: torch.where(row > torch.full_like(row, 5.0), row + y, torch.zeros(4, device="cuda")))(x)
    assert batched.is_cuda and torch.equal(batched.cpu(), torch.where(x.cpu() > 5, x.cpu() + 1, 0))


def test_a_hessian_is_that_of_the_cpu() -> None:
    """Forward over reverse: where a tangent is zero torch asks the device "meta" for shapes; tensors there are not the GPU's."""

    def value(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() * x).sum() + (x.outer(x).tanh() * x.exp()).sum()

    with emulated("sm_90"):
        x = torch.linspace(-1, 1, 4, device="cuda", dtype=torch.float64)
        hessian = torch.func.hessian(value)(x)
    assert hessian.is_cuda and torch.equal(hessian.cpu(), torch.func.hessian(value)(x.cpu()))


@pytest.mark.parametrize("other", [torch.ones(4), torch.ones(3, 4)])
def test_a_cpu_tensor_beside_one_of_the_gpu_is_refused_under_transforms(other: torch.Tensor) -> None:
    with emulated("sm_90"), pytest.raises(RuntimeError, match="all tensors to be on the same device"):
        x = torch.ones(3, 4, device="cuda")
        torch.vmap(torch.add)(x, other) if other.dim() > 1 else torch.func.grad(lambda row: (row * other).sum())(x[0])


@pytest.mark.parametrize("scores", ["as they are", "modified", "with a gradient"])
def test_flex_attention_and_its_gradients_are_those_of_the_formula(scores: str) -> None:
    """Uncompiled, as torch composes it; a tensor that only `score_mod` uses gets its gradient too."""

    def words(device: str) -> list[torch.Tensor]:
        made = torch.randn(4, 1, 2, 24, 16, generator=torch.Generator().manual_seed(0)).to(device, torch.float64)
        (q, k, v), slopes = (each.requires_grad_() for each in made[:3]), made[3, 0, :, 0, 0].requires_grad_()
        shapes, own = (1, 2, 24, 24), scores == "with a gradient"

        def score_mod(score: torch.Tensor, b: torch.Tensor, h: torch.Tensor, m: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return score if scores == "as they are" else 3 * score * score + (slopes[h] if own else 0.25) * (m - n)

        def causal(b: torch.Tensor, h: torch.Tensor, m: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
            return m >= n

        if device == "cuda":
            result = flex_attention(q, k, v, score_mod, create_block_mask(causal, *shapes, device=device))
        else:
            places = torch.meshgrid(*map(torch.arange, shapes), indexing="ij")
            result = score_mod(q @ k.mT / 4, *places).masked_fill(~causal(*places), -torch.inf).softmax(-1) @ v
        result.backward(made[3])
        with torch.autocast("cuda", torch.bfloat16):
            assert device == "cpu" or flex_attention(q, k, v).dtype == torch.bfloat16
        return [result, *(each.grad for each in (q, k, v, slopes) if each.grad is not None)]

    with emulated("sm_90"):
        found = [each.cpu() for each in words("cuda")]
    assert len(found) == 4 + (scores == "with a gradient")
    torch.testing.assert_close(found, words("cpu"))
