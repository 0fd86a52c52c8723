"""The candidate's process: it imports the candidate's file when it is told to, and does what the other end of its channel asks.

    serve_candidate(Channel(connected), load=..., told=...)      # returns when the other end closes the channel

Requests, one at a time (`executor` sends them):

| do | what comes back |
| --- | --- |
| load | a number for the object at an address, and what it says of itself: type, name, signature, claims, `requires` |
| ask_requires | for each of many records of fields, what `requires` says: a truth, or a text of what it raised |
| call | what an object, or one of its methods, returned, or what it raised; in between, what it asked of the executor |
| gradients | those that autograd gives for tensors that an earlier call returned |

With any request come the numbers of objects that nobody needs any more: `forgotten`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from triton import knobs

from bitverdict.harness.emulator.cuda_tensors import FOREIGN_MEMORIES, tensors_in
from bitverdict.harness.emulator.device import LaunchOptions
from bitverdict.harness.emulator.triton_driver import driven, emulated
from bitverdict.harness.model.protocols import for_the_launcher
from bitverdict.harness.model.torch_internals import method_of
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.distant_device import DistantDevice
from bitverdict.harness.sealed.remote.errors import ChannelClosed
from bitverdict.harness.sealed.remote.memory import Link, RemoteMemory
from bitverdict.harness.sealed.remote.wire import UnencodableValueError

PLAIN_TYPES = (type(None), bool, int, float, str)
Load = Callable[[str, bool, list[str]], Any]
DescribeError = Callable[[BaseException], dict[str, Any]]


def serve_candidate(channel: Channel, load: Load, describe_error: DescribeError) -> None:
    """Do what is asked over `channel` until its other end is closed.

    `load(address, afresh, folders)` imports the object at an address, with `folders` looked in first. `describe_error(exception)`
    gives the plain fields of a `LaunchResult`: outcome, layer, message, location, details. Both come from whoever starts the
    process, because the emulator knows neither addresses nor outcomes.
    """
    candidate = _Candidate(channel, load, describe_error)
    FOREIGN_MEMORIES.append(candidate.memory)  # between calls too: what a thread then asks is told, and not done
    torch.backends.mkldnn.set_flags(False)  # its operators are the CPU's own: the executor runs those that a GPU has too
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # as in `judge.launch`
    while True:
        try:
            request, buffers = channel.receive()
        except ChannelClosed:
            return
        candidate.answer(request, buffers)


class _Candidate:
    """What one candidate's process keeps between requests."""

    def __init__(self, channel: Channel, load: Load, told: DescribeError) -> None:
        self.channel, self.load, self.told = channel, load, told
        self.memory = RemoteMemory(Link(channel))
        self.objects: dict[int, Any] = {}
        self.graphs: dict[int, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}  # call -> (given, returned) that have gradients
        self._objects = 0

    def answer(self, request: dict[str, Any], buffers: list[bytearray]) -> None:
        """One request, and the frame that ends it."""
        for number in request.get("forgotten", ()):
            self.objects.pop(number, None)
        encoder = self.memory.encoder(self._keep_object)
        try:
            made = getattr(self, f"_{request['do']}")(request, self.memory.decoder(buffers, self._object), encoder)
        except BaseException as error:
            made, encoder.buffers = {"raised": _json_value(self.told(error))}, []
        self.memory.link.end({"done": request["do"], **made}, encoder.buffers)

    # -- objects ---------------------------------------------------------------------------------------------------------------
    def _keep_object(self, value: object) -> dict[str, Any]:
        """What stands for an object of the candidate's at the other end."""
        self._objects += 1
        self.objects[self._objects] = value
        return {"object": self._objects, "kind": type(value).__name__, "module": isinstance(value, torch.nn.Module)}

    def _object(self, said: dict[str, Any]) -> Any:
        return self.objects[said["object"]]

    def _load(self, request: dict[str, Any], decode: object, encode: object) -> dict[str, Any]:
        FOREIGN_MEMORIES.remove(self.memory)  # what a file allocates at its top level lies here until a call hands it over
        try:
            with emulated(request["arch"]):
                found = self.load(request["address"], request["afresh"], request["folders"])
        finally:
            FOREIGN_MEMORIES.append(self.memory)
        return self._keep_object(found) | _describe_object(found)

    def _ask_requires(self, request: dict[str, Any], decode: Any, encode: object) -> dict[str, Any]:
        requires = self.objects[request["object"]].requires
        answers: list[bool | str] = []
        for fields in request["fields"]:
            try:
                answers.append(bool(requires(**decode(fields))))
            except Exception as error:
                answers.append(f"{type(error).__name__}: {error}")
        return {"answers": answers}

    # -- calls -----------------------------------------------------------------------------------------------------------------
    def _call(self, request: dict[str, Any], decode: Any, encode: Any) -> dict[str, Any]:
        function = self.objects[request["object"]]
        if request["method"]:
            function = method_of(function, request["method"])
        with self._enter_device(request) as device, _random(request, decode, encode) as random, _compilations() as compilations:
            args, kwargs = decode(request["args"]), decode(request["kwargs"])
            with torch.set_grad_enabled(request["gradients"]):
                returned_value = for_the_launcher(function, *args, **kwargs)
            if isinstance(returned_value, Iterator):
                returned_value = list(returned_value)
            try:
                result = encode(returned_value)
            except UnencodableValueError as error:
                raise TypeError(f"the launcher returned what cannot be handed over: {error}") from error
            self._with_graph(request["call"], [*args, *kwargs.values()], returned_value)
        return {"result": result, "tuned": [each.to_json() for each in device.tuned], "compiled": compilations, **random()}

    @contextmanager
    def _enter_device(self, request: dict[str, Any]) -> Iterator[DistantDevice]:
        """The emulated GPU of a call answers, and its launches go to the executor."""
        said, link = request["device"], self.memory.link
        link.call, link.tells_lines = request["call"], said["tells_lines"]
        options = LaunchOptions(takes_cpu_tensors=said["takes_cpu_tensors"], follows_pointers=False)
        with driven(DistantDevice(self.memory, said["arch"], said["schedule"], options), said["tuning"]) as device:
            yield device  # type: ignore[misc]

    def _with_graph(self, call: int, given: Sequence[object], made: object) -> None:
        """Keep what `_gradients` needs of this call, and of no earlier one."""
        wanted = [each for each in given if isinstance(each, torch.Tensor) and each.requires_grad]
        moving = [each for each in tensors_in(made) if each.requires_grad]
        self.graphs = {call: (wanted, moving)} if wanted and moving else {}

    def _gradients(self, request: dict[str, Any], decode: Any, encode: Any) -> dict[str, Any]:
        wanted, moving = self.graphs[request["of"]]
        with self._enter_device(request) as device:
            upstream = decode(request["upstream"])
            pairs = [(each, given) for each, given in zip(moving, upstream, strict=True) if given is not None]
            outputs, given = [each for each, _ in pairs], [each for _, each in pairs]
            found = torch.autograd.grad(outputs, wanted, given, allow_unused=True, retain_graph=request["retain"])
            result = encode(list(found))
        return {"result": result, "tuned": [each.to_json() for each in device.tuned]}


@contextmanager
def _random(request: dict[str, object], decode: Any, encode: Any) -> Iterator[Callable[[], dict[str, Any]]]:
    """Torch's random numbers go on from where those of the process that calls are."""
    torch.default_generator.set_state(decode(request["random"]))
    yield lambda: {"random": encode(torch.default_generator.get_state())}


@contextmanager
def _compilations() -> Iterator[list[int]]:
    """The microseconds of each compilation, by the compiler's own account."""
    found: list[int] = []
    knobs.compilation.listener = lambda **told: found.append(int(told["times"].total))
    try:
        yield found
    finally:
        knobs.compilation.listener = None


def _json_value(value: object) -> Any:
    """`value` as JSON has it; what JSON has not as a text."""
    if isinstance(value, dict):
        return {str(name): _json_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(each) for each in value]
    return value if type(value) in PLAIN_TYPES else str(value)


def _describe_object(launcher: object) -> dict[str, Any]:
    """What a launcher says of itself."""
    claims, requires = getattr(launcher, "claims", None), getattr(launcher, "requires", None)
    return {
        "type": type(launcher).__name__,
        "callable": callable(launcher),
        "name": str(getattr(launcher, "__name__", type(launcher).__name__)),
        "signature": _signature(launcher),
        "claims": _json_value(list(claims) if isinstance(claims, set | frozenset) else claims),
        "requires": None if requires is None else {"said": repr(requires)[:200], "signature": _signature(requires)},
    }


def _signature(found: Any) -> list[dict[str, Any]] | None:
    """The parameters of `found`, in their order; None where nobody knows them."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return None
    return [{"name": each.name, "kind": each.kind.name, "default": _default(each.default)} for each in parameters]


def _default(value: object) -> list[Any]:
    """[] for none, else the value, or how it prints."""
    if value is inspect.Parameter.empty:
        return []
    return [value] if type(value) in PLAIN_TYPES else [{"printed": repr(value)[:200]}]


__all__ = ["serve_candidate"]
