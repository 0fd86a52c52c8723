"""The candidate's process on a real GPU: it is given bytes, uploads them, calls the candidate, and gives bytes back.

It holds no contract. An object that the candidate constructs, as a `ModelNew`, stays here and goes by its number: its weights are
read as bytes and set by bytes. Its device memory is guarded and poisoned as an unsealed worker's is. What it says of guards,
launches and operators is the word of a process that has imported the candidate. The verdict says so: provenance is not observed.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bitverdict.harness.emulator.autotuner_choices import apply_tuning
from bitverdict.harness.emulator.cuda_tensors import tensors_in
from bitverdict.harness.judge.guarded_buffers import Guard, Poison, guarded_allocations
from bitverdict.harness.judge.launched_instructions import remember, watch_launches
from bitverdict.harness.model.torch_internals import COUNT_ATTRIBUTE_TENSORS, TorchDispatchMode, method_of, schema_of
from bitverdict.harness.sealed.candidate.arrays import LIMITS, receive, send
from bitverdict.harness.sealed.candidate.candidate import LoadedCandidate
from bitverdict.harness.sealed.candidate.description import describe_launcher
from bitverdict.harness.sealed.candidate.tensors_as_bytes import ValueDecoder, ValueEncoder, words_of
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import ChannelClosed

MOVES = frozenset(
    "aten::empty aten::empty_like aten::empty_strided aten::zeros aten::zeros_like aten::ones aten::full aten::fill_ aten::zero_ "
    "aten::copy_ aten::_to_copy aten::clone aten::view aten::_unsafe_view aten::reshape aten::as_strided aten::t aten::transpose "
    "aten::permute aten::expand aten::slice aten::select aten::squeeze aten::unsqueeze aten::detach aten::alias aten::contiguous "
    "aten::new_empty aten::new_zeros aten::lift_fresh aten::set_".split()
)
"""Operators that move words, or fill with one: all others compute some."""


class OperatorCounter(TorchDispatchMode):
    """Counts the operators of torch that compute words, while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.counted: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        if (name := schema_of(func).name) not in MOVES:
            self.counted[name] += 1
        return func(*args, **(kwargs or {}))


METHODS = ("to", "eval", "named_parameters", "named_buffers", COUNT_ATTRIBUTE_TENSORS)
"""What may be called of an object that a candidate constructed, beside itself."""
EnterDevice = Callable[[torch.device], AbstractContextManager[Any]]


def serve(
    connection: socket.socket,
    device: str = "cuda:0",
    entering: EnterDevice = torch.cuda.device,
    candidate: LoadedCandidate | None = None,
) -> None:
    """Answer the executor's requests until it closes its end. `device`: where the candidate's tensors lie. `entering` makes it the
    one that launches run on."""
    channel, state = Channel(connection, LIMITS), _GpuState(torch.device(device), entering, candidate or LoadedCandidate())
    remember()
    while True:
        try:
            request, arrays = receive(channel)
        except ChannelClosed:
            return
        back: dict[str, Any] = {}
        try:
            answer = state.answer(request, arrays, back)
        except BaseException as error:
            answer, back = {"raised": state.candidate.describe_error(error)}, {}
        send(channel, answer, back)


class _GpuState:
    """What the process keeps between requests: objects that the candidate constructed, the guards of a launch, and graphs of
    autograd."""

    def __init__(self, device: torch.device, entering: EnterDevice, candidate: LoadedCandidate) -> None:
        self.device, self.entering, self.candidate = device, entering, candidate
        self.objects: dict[int, Any] = {}
        self.graphs: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}  # call -> (given, returned) with gradients
        self.launch, self.guard, self.seed = -1, Guard(Poison.of_seed(0)), None

    def answer(self, request: dict[str, Any], arrays: dict[str, Any], answer_arrays: dict[str, object]) -> dict[str, Any]:
        for number in request.get("forgotten", ()):
            self.objects.pop(number, None)
        launcher = self.candidate.load(request["address"], False, request["folders"])
        if request["do"] == "load":
            return _describe_gpu_launcher(launcher)
        if request["launch"] != self.launch:
            self.launch, self.guard = request["launch"], Guard(Poison(*request["poison"]))
            self.graphs.clear()
        storages = [torch.from_numpy(arrays[f"storage {place}"].copy()).to(self.device) for place in range(request["storages"])]
        given = ValueDecoder(storages, arrays, self.device, self.objects.__getitem__)
        if request["do"] == "gradients":
            return self._run_watched(request, storages, answer_arrays, lambda: self._gradients(request, given))
        return self._run_watched(request, storages, answer_arrays, lambda: self._call(launcher, request, arrays, given))

    def _call(self, launcher: Any, request: dict[str, Any], arrays: dict[str, Any], decoder: ValueDecoder) -> Any:
        """What the launcher returns, or a method of an object that it returned before."""
        function = launcher if request["object"] is None else self.objects[request["object"]]
        if (method := request["method"]) in METHODS:
            function = method_of(function, method)
        args, kwargs = decoder(request["args"]), decoder(request["kwargs"])
        if state := decoder(request["state"]):
            held = {**dict(function.named_parameters()), **dict(function.named_buffers())}
            for name, tensor in state.items():
                held[name].data.copy_(tensor)
        if request["seed"] != self.seed:
            self.seed = request["seed"]
            torch.manual_seed(self.seed)
        torch.set_rng_state(torch.from_numpy(arrays["random"].copy()))
        with torch.set_grad_enabled(request["gradients"]):
            made = function(*args, **kwargs)
        if decoder.moving:
            self.graphs[request["call"]] = decoder.moving, [each for each in tensors_in([made]) if each.requires_grad]
        return dict(made) if method.startswith("named_") else made

    def _gradients(self, request: dict[str, Any], given: ValueDecoder) -> Any:
        wanted, returned = self.graphs[request["of"]]
        pairs = [(one, other) for one, other in zip(returned, given(request["args"]), strict=True) if other is not None]
        returned, upstream = [list(each) for each in zip(*pairs, strict=True)]
        return list(torch.autograd.grad(returned, wanted, upstream, allow_unused=True, retain_graph=True))

    def _object_number(self, value: object) -> int | None:
        """The number of an object that stays here. A type of Python's own is none: nobody calls it."""
        if not callable(value):
            return None
        number = next((number for number, each in self.objects.items() if each is value), len(self.objects) + 1)
        while self.objects.setdefault(number, value) is not value:
            number += 1
        return number

    def _run_watched(
        self, request: dict[str, Any], storages: list[torch.Tensor], answer_arrays: dict[str, Any], action: Callable[[], object]
    ) -> dict[str, Any]:
        """What comes back of `request`, with the given storages as they are afterwards, the words of what was made, and what was
        launched meanwhile."""
        operators = OperatorCounter()
        choosing: Any = apply_tuning(request["tuning"]) if request["tuning"] else nullcontext([])
        with (
            guarded_allocations(self.guard),
            self.entering(self.device) as entered_device,
            choosing as tuned_choices,
            watch_launches() as launch_instructions,
            operators,
        ):
            returned_value = action()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        outside = self.guard.out_of_bounds()
        sent = ValueEncoder(
            [entry.untyped_storage() for entry in storages], lambda tensor: words_of(tensor, answer_arrays), self._object_number
        )
        result = sent(returned_value)
        answer_arrays |= {f"storage {place}": storage.cpu().numpy() for place, storage in enumerate(storages)}
        answer_arrays["random"] = torch.get_rng_state().numpy()
        known = [entry for entry in launch_instructions if entry is not None]
        return {
            "result": result,
            "launches": len(launch_instructions) + len(getattr(entered_device, "launches", None) or ()),
            "instructions": sorted({one for entry in known for one in entry}) if len(known) == len(launch_instructions) else None,
            "tuned": [vars(entry) for entry in {choice.kernel: choice for choice in tuned_choices}.values()],
            "operators": sorted(operators.counted.items()),
            "outside": None if outside is None else [str(outside.outcome), outside.message],
        }


def _describe_gpu_launcher(launcher: Any) -> dict[str, Any]:
    """What the launcher says of itself, as `describe_launcher` tells it of one that is asked from afar."""

    class LauncherDescription:
        __name__ = getattr(launcher, "__name__", type(launcher).__name__)
        kind, callable = type(launcher).__name__, callable(launcher)
        claims, requires = getattr(launcher, "claims", None), getattr(launcher, "requires", None)

        def __init__(self) -> None:
            import inspect

            try:
                self.__signature__ = inspect.signature(launcher)
            except (TypeError, ValueError):
                pass

        def __call__(self) -> None: ...

    return describe_launcher(LauncherDescription())
