"""`torch.cuda` as the emulated GPU answers it.

    with answering(device):
        torch.cuda.get_device_properties(0).multi_processor_count

Each public function of `torch.cuda` and `torch.accelerator` is either answered from the device's record, or harmless on a GPU that
has finished whatever was launched, or it raises a fault that names the call. All is as before when the block ends.

Meaningless by nature, and documented so (docs/emulator.md): times, which count launches.
"""

from __future__ import annotations

import inspect
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from triton._C import libtriton

from bitverdict.harness.emulator.cuda_graphs import CUDAGraph, GraphContext, is_capturing
from bitverdict.harness.emulator.cuda_tensors import (
    CPU,
    CUDA,
    MEMORY,
    CudaTensor,
    Placement,
    implement_operator,
    on_gpu,
)
from bitverdict.harness.emulator.faults import raise_for_the_launcher, unanswered_call_fault
from bitverdict.harness.emulator.gpu_only_operators import CublasLt
from bitverdict.harness.emulator.gpu_random import GENERATORS, GpuRandom, PhiloxState
from bitverdict.harness.emulator.tensor_types import CPU_TYPES, GPU_TYPES, legacy_type
from bitverdict.harness.model import torch_internals
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import FakeTensorMode, default_device, identity_of

if TYPE_CHECKING:
    from bitverdict.harness.emulator.device import Device
    from bitverdict.harness.emulator.memory.provenance import Provenance

CUDA_VERSION = torch.version.cuda or "12.8"  # what `torch.version.cuda` says: of a torch without CUDA, the first that knows sm_100
LAUNCH = 1000.0  # milliseconds that a launch takes by the events of the emulated GPU: long, so that benchmarks repeat little
_MODULES = (
    "torch.cuda",
    "torch.cuda.memory",
    "torch.cuda.random",
    "torch.cuda.streams",
    "torch.cuda.nvtx",
    "torch.cuda.graphs",
    "torch.cuda.profiler",
    "torch.accelerator",
    "torch.accelerator.memory",
)
_OF_ONE_BOARD = {"uuid", "pci_bus_id", "pci_device_id", "pci_domain_id"}  # properties that tell one GPU from others of its kind
_active: list[Device] = []  # the innermost is the one that answers
_default: list[torch.device] = []  # what a launcher's file made torch's default device, kept from block to block


def is_entered() -> bool:
    """Whether an emulated GPU answers for `torch.cuda` now."""
    return bool(_active)


def entered_device() -> Device:
    """The emulated GPU that is entered, the innermost. EmulatedFault where there is none."""
    return _device()


def followed_origins() -> Provenance | None:
    """The origins that the innermost emulated GPU follows; None where it follows none, or none is entered."""
    return _active[-1].origins if _active else None


def reach(*tensors: torch.Tensor) -> None:
    """Name tensors that pointers in memory may lead to (`Device.reach`); nothing where no emulated GPU is entered."""
    if _active:
        _active[-1].reach(*tensors)


def _device() -> Device:
    if not _active:
        raise unanswered_call_fault("a CUDA object that outlived its emulated GPU")
    return _active[-1]


def _check(device: object) -> None:
    """ValueError, as torch has it, for a device that is not the emulated GPU. What names none, a tuple too, is the current one."""
    if not isinstance(device, torch.device | str | int) or device == -1:
        return
    if not on_gpu(device):
        raise_for_the_launcher(ValueError(f"Expected a cuda device, but got: {device}"))


@dataclass(frozen=True)
class Properties:
    """What `torch.cuda.get_device_properties` tells, of the emulated GPU."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    regs_per_multiprocessor: int
    max_threads_per_multi_processor: int
    L2_cache_size: int
    clock_rate: int
    memory_clock_rate: int
    memory_bus_width: int
    shared_memory_per_block: int = 48 << 10
    max_threads_per_block: int = 1024
    warp_size: int = 32
    is_integrated: int = 0
    is_multi_gpu_board: int = 0

    @property
    def gcnArchName(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> Any:
        if name in _OF_ONE_BOARD:
            raise unanswered_call_fault(f"torch.cuda.get_device_properties().{name}")
        raise_for_the_launcher(AttributeError(f"'_CudaDeviceProperties' object has no attribute {name!r}"))


def properties(device: torch.device | str | int | None = None) -> Properties:
    _check(device)
    chip, multiprocessor = _device().chip, _device().chip.multiprocessors
    major, minor = divmod(_device().capability, 10)
    return Properties(
        name=chip.model,
        major=major,
        minor=minor,
        total_memory=chip.memory,
        multi_processor_count=_device().multiprocessors,
        shared_memory_per_block_optin=_device().architecture.shared_memory,
        shared_memory_per_multiprocessor=multiprocessor.shared,
        regs_per_multiprocessor=multiprocessor.registers,
        max_threads_per_multi_processor=multiprocessor.threads,
        L2_cache_size=chip.l2,
        clock_rate=chip.clock,
        memory_clock_rate=chip.memory_clock,
        memory_bus_width=chip.bus,
    )


class Stream:
    """A stream of the emulated GPU. Launches run where they are made, one after another, whatever their streams: what one stream
    must wait for is not checked."""

    _numbers = itertools.count(1)
    _entered_streams: list[Stream]

    def __init__(self, device: torch.device | str | int | None = None, priority: int = 0, **given: int) -> None:
        _check(device)
        number = given.get("stream_ptr", given.get("stream_id"))
        self.cuda_stream = self.stream_id = next(self._numbers) if number is None else number
        self.priority, self.device, self.device_index, self.device_type = priority, CUDA, 0, 1

    def query(self) -> bool:
        return True

    def synchronize(self) -> None: ...

    def wait_stream(self, stream: Stream) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def record_event(self, event: Event | None = None) -> Event:
        event = event if event is not None else Event()
        event.record(self)
        return event

    @property
    def native_handle(self) -> int:
        return self.cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def __enter__(self) -> Stream:
        _streams.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _streams.pop()


class ExternalStream(Stream):
    """A stream that another library made, by its pointer."""

    def __init__(self, stream_ptr: int, device: torch.device | str | int | None = None, **_: object) -> None:
        super().__init__(device, stream_ptr=stream_ptr)


class _StreamContext:
    """`torch.cuda.stream` and `torch.cuda.StreamContext`: None enters no stream."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self.stream.__enter__()

    def __exit__(self, *_: object) -> None:
        if self.stream is not None:
            self.stream.__exit__()


_streams: list[Stream] = []


def _current_stream(device: torch.device | str | int | None = None) -> Stream:
    _check(device)
    return _streams[-1] if _streams else Stream(stream_id=0)


def _default_stream(device: torch.device | str | int | None = None) -> Stream:
    _check(device)
    return Stream(stream_id=0)


def _set_stream(stream: Stream | None) -> None:
    if stream is not None:
        _streams[:] = [stream]


class Event:
    """An event. Time goes by launches: `LAUNCH` milliseconds each, so that a benchmark's number is positive and means nothing."""

    def __init__(self, device: torch.device | str | int | None = None, *, enable_timing: bool = False, **_: object) -> None:
        self.enable_timing, self.record_time = enable_timing or device is True, None

    record_time: float | None
    device = CUDA
    cuda_event = event_id = 0

    def record(self, stream: Stream | None = None) -> None:
        self.record_time = _device().tick()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds, by launches. ValueError, as torch has it, where one of the two was not recorded."""
        if self.record_time is None or end_event.record_time is None:
            raise_for_the_launcher(ValueError("Both events must be recorded before calculating elapsed time."))
        return end_event.record_time - self.record_time

    def query(self) -> bool:
        return True

    def wait(self, stream: Stream | None = None) -> None: ...

    def synchronize(self) -> None: ...


class _OnDevice:
    """`torch.cuda.device`, and what else selects a device: there is one."""

    def __init__(self, device: torch.device | str | int | None = None) -> None:
        device = device.device if isinstance(device, torch.Tensor) else device
        if isinstance(device, torch.device | str | int):  # torch takes anything else for the current one
            _check(device)
        self.idx = 0

    def __enter__(self) -> _OnDevice:
        return self

    def __exit__(self, *_: object) -> None: ...


class _DeviceOf(_OnDevice):
    """`torch.cuda.device_of`: a tensor of the CPU selects nothing."""

    def __init__(self, obj: object) -> None:
        super().__init__(obj if getattr(obj, "is_cuda", False) else None)


class _Generator(torch_internals.GeneratorBase):  # type: ignore[misc]
    """`torch.Generator(device="cuda")`: the CPU's, with a state of its own where the device draws as a GPU does."""

    def __new__(cls, device: torch.device | str | int | None = "cpu") -> _Generator:
        made = super().__new__(cls, device=CPU)  # type: ignore[call-arg]  # the stub lacks __new__
        GENERATORS.pop(identity_of(made), None)
        if on_gpu(device):
            GENERATORS[identity_of(made)] = PhiloxState(made.initial_seed())
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA if identity_of(self) in GENERATORS else CPU

    def manual_seed(self, seed: int) -> _Generator:
        for_the_launcher(super().manual_seed, seed)
        if (state := GENERATORS.get(identity_of(self))) is not None:
            state.start(seed)
        return self

    def initial_seed(self) -> int:
        state = GENERATORS.get(identity_of(self))
        return super().initial_seed() if state is None else state.seed

    def get_state(self) -> torch.Tensor:
        state = GENERATORS.get(identity_of(self))
        return super().get_state() if state is None else state.bytes()

    def set_state(self, given: torch.Tensor) -> _Generator:  # type: ignore[override]
        if (state := GENERATORS.get(identity_of(self))) is not None:
            state.restore(given)
        else:
            for_the_launcher(super().set_state, given)
        return self


def _default_generator() -> torch.Generator:
    """The device's own, whose state `torch.cuda.get_rng_state` gives too."""
    if (state := _philox()) is None:
        return torch.default_generator
    made = _Generator(CUDA)
    GENERATORS[identity_of(made)] = state
    return made


def _set_device(device: torch.device | str | int | None) -> None:
    _check(device)


def _philox() -> PhiloxState | None:
    """The state of the device's own numbers; None where the CPU's are taken."""
    return next((watch.state for watch in _device().options.watches if isinstance(watch, GpuRandom)), None)


def _seed(seed: int) -> None:
    if (state := _philox()) is not None:
        state.start(for_the_launcher(int, seed))
    else:
        torch.default_generator.manual_seed(for_the_launcher(int, seed))


def _rng_state(device: torch.device | str | int | None = None) -> torch.Tensor:
    state = _philox()
    return torch.default_generator.get_state() if state is None else state.bytes()


def _set_rng_state(given: torch.Tensor, device: torch.device | str | int | None = None) -> None:
    if (state := _philox()) is not None:
        state.restore(given)
    else:
        for_the_launcher(torch.default_generator.set_state, given)


def _allocated_bytes(device: torch.device | str | int | None = None) -> int:
    _check(device)
    return MEMORY.allocated


def _peak_bytes(device: torch.device | str | int | None = None) -> int:
    _check(device)
    return MEMORY.peak


def _memory_stats(device: torch.device | str | int | None = None) -> Counter[str]:
    _check(device)
    counts, kinds = {"current": MEMORY.allocated, "peak": MEMORY.peak}, ("allocated", "reserved", "active")
    return Counter({f"{kind}_bytes.all.{when}": count for kind in kinds for when, count in counts.items()})


def _memory_info(device: torch.device | str | int | None = None) -> tuple[int, int]:
    _check(device)
    return max(_device().chip.memory - MEMORY.allocated, 0), _device().chip.memory


_ranges: list[str] = []  # of NVTX, that are open


def _push_range(msg: str) -> int:
    _ranges.append(msg)
    return len(_ranges) - 1


def _pop_range() -> int:
    del _ranges[-1:]
    return len(_ranges)


@contextmanager
def _range(*_: object, **__: object) -> Iterator[None]:
    """`torch.cuda.nvtx.range` and `torch.cuda.profiler.profile`: a block's, or what a function is decorated with."""
    yield


def _capability(device: torch.device | str | int | None = None) -> tuple[int, int]:
    return properties(device).major, properties(device).minor


def _ignore_call(*_: object, **__: object) -> None:
    return None


def _answer(value: object) -> Callable[..., Any]:
    return lambda *_, **__: value


_CUDA: dict[str, Any] = {
    "is_available": _answer(True),
    "is_initialized": _answer(True),
    "_is_compiled": _answer(True),
    "_is_in_bad_fork": _answer(False),
    "init": _ignore_call,
    "_lazy_init": _ignore_call,
    "_lazy_call": lambda callable, **_: for_the_launcher(callable),
    **dict.fromkeys(("device_count", "_device_count_nvml", "_raw_device_count_nvml"), _answer(1)),  # NVML counts without a context
    "current_device": _answer(0),
    "set_device": _set_device,
    "device": _OnDevice,
    "device_of": _DeviceOf,
    "_DeviceGuard": _OnDevice,
    "_exchange_device": _answer(0),
    "_maybe_exchange_device": _answer(0),
    "get_device_name": lambda device=None: properties(device).name,
    "get_device_capability": _capability,
    "get_device_properties": properties,
    "_CudaDeviceProperties": Properties,
    "get_arch_list": lambda: [_device().arch],
    "get_gencode_flags": lambda: f"-gencode compute=compute_{_device().arch[3:]},code={_device().arch}",
    "is_bf16_supported": _answer(True),
    "is_tf32_supported": _answer(True),
    "can_device_access_peer": _answer(False),
    "synchronize": lambda device=None: _check(device),
    "Stream": Stream,
    "ExternalStream": ExternalStream,
    "get_stream_from_external": ExternalStream,
    "Event": Event,
    "stream": _StreamContext,
    "StreamContext": _StreamContext,
    "set_stream": _set_stream,
    "current_stream": _current_stream,
    "default_stream": _default_stream,
    "is_current_stream_capturing": is_capturing,
    "CUDAGraph": CUDAGraph,
    "graph": GraphContext,
    "graph_pool_handle": _answer((0, 0)),
    "get_sync_debug_mode": _answer(0),
    "set_sync_debug_mode": _ignore_call,
    "ipc_collect": _ignore_call,
    "default_generators": (torch.default_generator,),
    "manual_seed": _seed,
    "manual_seed_all": _seed,
    "seed": lambda: torch.default_generator.seed(),
    "seed_all": lambda: torch.default_generator.seed(),
    "initial_seed": lambda: getattr(_philox(), "seed", torch.default_generator.initial_seed()),
    "get_rng_state": _rng_state,
    "get_rng_state_all": lambda: [_rng_state()],
    "set_rng_state": _set_rng_state,
    "set_rng_state_all": lambda states: _set_rng_state(states[0]),
    "mem_get_info": _memory_info,
    "get_allocator_backend": _answer("native"),
    "memory_stats": _memory_stats,
    "memory_summary": lambda *_, **__: f"the emulated GPU: {MEMORY.allocated} bytes are allocated",
    "memory_snapshot": lambda *_, **__: [],
    "get_per_process_memory_fraction": _answer(1.0),
    **{
        f"{most}memory_{kind}": _peak_bytes if most else _allocated_bytes
        for most in ("", "max_")
        for kind in ("allocated", "reserved", "cached")
    },
    **dict.fromkeys(
        ("reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached"), lambda device=None: MEMORY.restart()
    ),
    "range_push": _push_range,
    "range_pop": _pop_range,
    "range_start": lambda msg: len(_ranges),
    "range": _range,
    "profile": _range,
    **dict.fromkeys(
        ("empty_cache", "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "range_end", "mark", "start", "stop"),
        _ignore_call,
    ),
    **GPU_TYPES,
}
_ACCELERATOR: dict[str, Any] = {
    "is_available": _answer(True),
    "device_count": _answer(1),
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": _answer(0),
    "current_device_idx": _answer(0),
    "set_device_index": _set_device,
    "set_device_idx": _set_device,
    "device_index": _OnDevice,
    "synchronize": lambda device=None: _check(device),
    "current_stream": _current_stream,
    "set_stream": _set_stream,
    "get_memory_info": _memory_info,
    **{
        name: _CUDA[name]
        for name in (
            "empty_cache",
            "memory_stats",
            "memory_allocated",
            "max_memory_allocated",
            "memory_reserved",
            "max_memory_reserved",
            "reset_peak_memory_stats",
            "reset_accumulated_memory_stats",
        )
    },
    "empty_host_cache": _ignore_call,
}
_UNANSWERED_CLASSES = {"GreenContext", "MemPool", "CUDAPluggableAllocator", "Graph"}
_PASSTHROUGH_NAMES = {"check_error", "_lazy_new", "_dummy_type", "classproperty", "_extract_arch_version"}  # what needs no GPU


def _compile(model: object = None, **_: object) -> Any:
    """`torch.compile` leaves a function as it is, as its own `disable=True` does: torch's operations run on the CPU here anyway."""
    return (lambda function: function) if model is None else model


_set_tensor_type = torch.set_default_tensor_type


def _default_tensor_type(kind: object) -> None:
    if (found := legacy_type(kind)) is not None and found[1]:
        raise unanswered_call_fault("torch.set_default_tensor_type of the GPU")
    _set_tensor_type(kind)


_set_autocast_enabled, _set_autocast_dtype = torch.set_autocast_enabled, torch.set_autocast_dtype


def _enable_autocast(*words: object) -> None:
    """`torch.set_autocast_enabled`: a tensor of the emulated GPU is one of the CPU to torch's dispatcher, so the CPU's rule is set
    with the GPU's. What a GPU computes in fp32 under it, `cuda_tensors` widens."""
    _set_autocast_enabled(*words)
    if len(words) == 1 or words[0] == "cuda":
        _set_autocast_enabled("cpu", words[-1])


def _choose_autocast_dtype(kind: str, dtype: torch.dtype) -> None:
    _set_autocast_dtype(kind, dtype)
    if kind == "cuda":
        _set_autocast_dtype("cpu", dtype if torch.is_autocast_enabled("cuda") else torch.bfloat16)


class _Profile(torch.profiler.profile):
    """`torch.profiler.profile` of the CPU; without `activities` it would ask for the GPU's too."""

    def __init__(self, *, activities: Any = None, **given: object) -> None:
        if activities is None or torch.profiler.ProfilerActivity.CUDA in activities:
            raise unanswered_call_fault("torch.profiler.profile of the GPU")
        super().__init__(activities=activities, **given)


def _empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """What allocates in each wrapper that `torch.compile` prints."""
    return torch.empty_strided(size, stride, dtype=dtype, device=CUDA)


_from_tensor = FakeTensorMode.from_tensor


def _fake(mode: FakeTensorMode, tensor: torch.Tensor, **named: object) -> torch.Tensor:
    """`FakeTensorMode.from_tensor`: what torch traces with in place of a tensor of the emulated GPU is on the GPU by name only."""
    if type(tensor) is not CudaTensor:
        return _from_tensor(mode, tensor, **named)
    found = _from_tensor(mode, tensor.inner, **named)
    found.fake_device = tensor.device
    return found


_OTHER_REPLACEMENTS: tuple[tuple[Any, str, Any], ...] = (
    (torch.version, "cuda", CUDA_VERSION),
    (torch.backends.cuda, "is_built", _answer(True)),
    (torch, "Generator", _Generator),
    (torch, "Stream", Stream),
    (torch_internals.Library, "impl", implement_operator),
    (torch, "compile", _compile),
    (torch, "set_autocast_enabled", _enable_autocast),
    (torch, "set_autocast_dtype", _choose_autocast_dtype),
    (torch, "set_default_tensor_type", _default_tensor_type),
    (torch.profiler, "profile", _Profile),
    *((torch, name, kind) for name, kind in CPU_TYPES.items()),
    (torch, "Event", Event),
    (torch, "get_device_module", lambda device=None: torch.cpu if getattr(device, "type", device) == "cpu" else torch.cuda),
    *((place, name, _answer(value)) for place, name, value in torch_internals.RUNTIME_CALLS),
    (FakeTensorMode, "from_tensor", _fake),
    (*torch_internals.STRIDED_ALLOCATION, _empty_strided),
    (*torch_internals.TRACING_START, _answer(None)),
    *((cublas, "CublasLt", CublasLt) for cublas in [getattr(getattr(libtriton, "nvidia", None), "cublas", None)] if cublas),
    (torch.backends.cudnn, "is_acceptable", _answer(False)),  # a CUDA build has it, and the operators of the host do without
)
"""What torch's own Python functions, and generated code, ask beside `torch.cuda`."""


def _replacements(module: ModuleType) -> dict[str, Any]:
    """Name -> what stands in `module` for it on the emulated GPU: the answer, or what raises the fault that names the call."""
    answers = _ACCELERATOR if module.__name__.startswith("torch.accelerator") else _CUDA
    replacements = {}
    for name, value in vars(module).items():
        if name in answers:
            replacements[name] = answers[name]
        elif inspect.isfunction(value) and not name.startswith("__") and value.__module__.startswith(("torch.cuda", "torch.accel")):
            if name not in _PASSTHROUGH_NAMES:
                replacements[name] = _refuse_call(f"{module.__name__}.{name}", value)
        elif name in _UNANSWERED_CLASSES:
            replacements[name] = _refusing_class(module.__name__, name)
    return replacements


def _refuse_call(call: str, function: object) -> Callable[..., Any]:
    def refuse(*_: object, **__: object) -> Any:
        raise unanswered_call_fault(call)

    refuse.__wrapped__ = function  # type: ignore[attr-defined]  # torch.compile asks some for what they wrap
    return refuse


def _refusing_class(module: str, name: str) -> type:
    """A class in place of `name`, for annotations and isinstance: no object is of it, because it refuses to make one."""

    def refuse(*_: object, **__: object) -> Any:
        raise unanswered_call_fault(f"{module}.{name}")

    return type(name, (), {"__new__": refuse, "__module__": module})


_replacements_by_module: list[tuple[ModuleType, dict[str, Any]]] = []  # made once a process


@contextmanager
def answer_torch_cuda(device: Device) -> Iterator[None]:
    """`device` answers `torch.cuda`, and tensors can be placed on it, until the block ends."""
    if not _replacements_by_module:
        _replacements_by_module.extend(
            (module, _replacements(module)) for name in _MODULES if (module := _import_module(name)) is not None
        )
    before = [(module, {name: vars(module)[name] for name in names}) for module, names in _replacements_by_module]
    no_attribute = object()
    saved_attributes = [(place, name, getattr(place, name, no_attribute)) for place, name, _ in _OTHER_REPLACEMENTS]
    _active.append(device)
    streams, _streams[:] = list(_streams), []
    outer = default_device()
    try:
        for module, names in _replacements_by_module:
            vars(module).update(names)
        torch.cuda.default_generators = (_default_generator(),)
        for place, name, value in _OTHER_REPLACEMENTS:
            setattr(place, name, value)
        if _default:
            torch.set_default_device(_default[0])
        with Placement(), device.watch_tensors():
            yield
    finally:
        _default[:] = [default_device()] if default_device() not in (None, outer) else []
        if default_device() != outer:
            torch.set_default_device(outer)
        for module, names in before:
            vars(module).update(names)
        for place, name, value in saved_attributes:
            delattr(place, name) if value is no_attribute else setattr(place, name, value)
        _streams[:] = streams
        _active.pop()


def _import_module(name: str) -> ModuleType | None:
    """The module called `name`, where this torch has one."""
    if name not in sys.modules:
        try:
            __import__(name)
        except ImportError:
            return None
    return sys.modules[name]


# One file because every public function of torch.cuda has one row in the table at its end.
