"""The executor's side of a sealed launch: memory, launches and faults stay here, the launcher runs in the candidate's process.

    candidate = Candidate(Channel(connected))
    launcher = candidate.launcher("their_file.py:matmul")      # imported over there
    with emulated("sm_90") as device:
        c = launcher(device.place(a), device.place(b))          # what it asks of torch and of Triton is done here

Raised out of a call: the first fault of the device, whether the launcher caught it or not; `CandidateRaised` for what its code
raised; `CandidateGone` where its process died, or sent what no honest one does.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from triton import knobs

from bitverdict.harness.emulator.autotuner_choices import TuningChoice
from bitverdict.harness.emulator.cuda_runtime import entered_device
from bitverdict.harness.emulator.cuda_tensors import CudaTensor, tensors_in
from bitverdict.harness.emulator.device import Device
from bitverdict.harness.model.torch_internals import COUNT_ATTRIBUTE_TENSORS
from bitverdict.harness.sealed.remote.candidate import PLAIN_TYPES
from bitverdict.harness.sealed.remote.candidate_service import CandidateService
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import CLAIMABLE, CandidateGone, CandidateRaised, ChannelClosed, WireError
from bitverdict.harness.sealed.remote.wire import Decoder, Encoder, UnencodableValueError, listing, text, whole_number

METHODS = (
    "to", "eval", "train", "cuda", "requires_grad_", "named_parameters", "named_buffers", "parameters", "buffers",
    COUNT_ATTRIBUTE_TENSORS,
)  # fmt: skip
"""What may be called of an object of the candidate's, beside itself."""
MOST_CHOICES = 4096


class Candidate:
    """One candidate's process, at the other end of `channel`."""

    def __init__(self, channel: Channel) -> None:
        self.channel, self.served = channel, CandidateService(channel)
        self._calls = 0
        self._forgotten: list[int] = []
        self._launchers: dict[tuple[str, tuple[str, ...]], RemoteLauncher] = {}

    def launcher(self, address: str, *, reimport: bool = False, folders: Sequence[str] = (), arch: str = "sm_90") -> RemoteLauncher:
        """What stands for the object at `address`, which the candidate's process imports now, where `arch` answers for its GPU.
        That process imports a file once, so what it said of the object then is not asked again, unless it is wanted `afresh`.

        `CandidateRaised` with what the import raised."""
        key = address, tuple(folders)
        if reimport or key not in self._launchers:
            said = self.ask("load", address=address, afresh=reimport, folders=list(folders), arch=arch)
            self._launchers[key] = RemoteLauncher(self, said)
        return self._launchers[key]

    def ask(self, do: str, buffers: Sequence[Any] = (), **fields: Any) -> dict[str, Any]:
        """The frame that ends what was asked; what the candidate asks for in between is served."""
        gone, self._forgotten = self._forgotten, []
        with self._honest():
            self.channel.send({"do": do, **fields} | ({"forgotten": gone} if gone else {}), buffers)
            answer, held = self.served.until_done(do)
        self._buffers = held
        if "raised" in answer:
            with self._honest():
                raise CandidateRaised(claimed_fields(answer["raised"]))
        return answer

    def call(self, number: int, method: str, args: tuple, kwargs: dict, signature: Any = None) -> Any:
        """What the object `number`, or its `method`, returns."""
        self._calls += 1
        call, device, encoder = self._calls, entered_device(), Encoder(self.served.encode_tensor, _own)
        random = encoder(torch.default_generator.get_state())
        said: dict[str, Any] = {"args": encoder(tuple(args)), "kwargs": encoder(dict(kwargs))}
        with self.served.serve_call(call, device):
            answer = self.ask(
                "call", encoder.buffers, object=number, method=method, call=call, random=random,
                gradients=torch.is_grad_enabled(), device=_about(device), **said,
            )  # fmt: skip
            with self._honest():
                made = self._decoder()(answer.get("result"))
                device.tuned.extend(_tuned_choices(answer.get("tuned")))
                self._go_on(answer.get("random"))
                _tell_compilations(answer.get("compiled"))
        wanted = [each for each in tensors_in([args, kwargs]) if each.requires_grad]
        return differentiable(self, call, wanted, made, self.served.moving) if wanted and self.served.moving else made

    def gradients(self, call: int, upstream: Sequence[CudaTensor | None], count: int) -> list[Any]:
        """The gradients of `count` arguments of the call numbered `call`, from those of what it returned (None: none)."""
        self._calls += 1
        device, encoder = entered_device(), Encoder(self.served.encode_tensor)
        for gradient in upstream:
            if device.origins is not None and gradient is not None:
                device.origins.operand(gradient.inner)  # drawn here, by whoever judges
        said = encoder(upstream)
        with self.served.serve_call(self._calls, device):
            answer = self.ask(
                "gradients", encoder.buffers, of=call, upstream=said, retain=True, call=self._calls, device=_about(device)
            )
            with self._honest():
                found = listing(self._decoder()(answer.get("result")))
                device.tuned.extend(_tuned_choices(answer.get("tuned")))
                if len(found) != count or not all(gradient is None or type(gradient) is CudaTensor for gradient in found):
                    raise WireError(f"gradients of {len(found)} arguments, must be {count} tensors or None")
        return found

    def _decoder(self) -> Decoder:
        self.served.moving = []
        return Decoder(self._buffers, self.served.returned_tensor, self._object)

    def _object(self, said: Mapping[str, object]) -> Any:
        if "object" not in said:
            raise WireError(f"a value of an unknown kind: {sorted(said)!s:.100}")
        kind = type(text(said.get("kind"), 200), (RemoteObject,), {})
        return kind(self, whole_number(said["object"]))

    def _go_on(self, said: object) -> None:
        """Torch's random numbers here go on from where the launcher left them."""
        state = Decoder(self._buffers, self.served.returned_tensor)(said)
        now = torch.default_generator.get_state()
        if not isinstance(state, torch.Tensor) or state.dtype is not torch.uint8 or state.shape != now.shape:
            raise WireError("no state of a generator")
        torch.default_generator.set_state(state)

    @contextmanager
    def _honest(self) -> Iterator[None]:
        """What no honest process sends ends the call, against the candidate."""
        try:
            yield
        except ChannelClosed as error:
            self.channel.broken = str(error)
            raise CandidateGone(str(error), died=True) from error
        except WireError as error:
            self.channel.broken = str(error)
            raise CandidateGone(f"the candidate's process sent what cannot be: {error}", died=False) from error

    def after_return(self) -> str:
        """What the candidate's process asked for since its last call returned: operators and launches by name; empty for nothing.
        None of it was done."""
        with self._honest():
            return self.served.after_return()

    def forget(self, number: int) -> None:
        self._forgotten.append(number)


class RemoteObject:
    """An object of the candidate's process: it is called there, and so is what `METHODS` names."""

    def __init__(self, candidate: Candidate, number: int) -> None:
        self._candidate, self._number = candidate, number

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._candidate.call(self._number, "", args, kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in METHODS:
            raise AttributeError(f"an object of the candidate's process: {name!r} is not asked of it")

        def method(*args: object, **kwargs: object) -> Any:
            made = self._candidate.call(self._number, name, args, kwargs)
            return self if isinstance(made, RemoteObject) and name not in ("parameters", "buffers") else made

        return method

    def __del__(self) -> None:
        self._candidate.forget(self._number)


class RemoteLauncher(RemoteObject):
    """What stands for an imported launcher where a contract launches one.

    `__name__`, `__signature__` (absent where nobody knows it), `claims` and `requires` are as the launcher says them; `kind` is the
    name of its type.
    """

    def __init__(self, candidate: Candidate, description: Mapping[str, object]) -> None:
        with candidate._honest():
            super().__init__(candidate, whole_number(description.get("object")))
            self.kind, self.__name__ = text(description.get("type"), 200), text(description.get("name"), 200)
            self.callable = description.get("callable") is True
            self.claims = _claims(description.get("claims"))
            self.requires = None if description.get("requires") is None else RemoteRequires(self, description["requires"])
            signature = _signature(description.get("signature"))
        if signature is not None:
            self.__signature__ = signature

    def after_return(self) -> str:
        """`Candidate.after_return`."""
        return self._candidate.after_return()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return super().__getattr__(name)


class RemoteRequires:
    """A launcher's predicate `requires`, asked in its own process."""

    def __init__(self, launcher: RemoteLauncher, said: object) -> None:
        if type(said) is not dict:
            raise WireError("requires is no object")
        self.launcher, self.said = launcher, text(said.get("said"))
        signature = _signature(said.get("signature"))
        if signature is not None:
            self.__signature__ = signature

    def __repr__(self) -> str:
        return self.said

    def __call__(self, **fields: Any) -> bool:
        """RuntimeError with what the predicate raised."""
        answer = self.ask([fields])[0]
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer

    def ask(self, records: Sequence[Mapping[str, object]]) -> list[bool | str]:
        """For each of `records` (name -> value) what the predicate says: a truth, or a text of what it raised."""
        candidate, encoder = self.launcher._candidate, Encoder(_no_tensor)
        said = candidate.ask("ask_requires", object=self.launcher._number, fields=[encoder(dict(each)) for each in records])
        with candidate._honest():
            answers = listing(said.get("answers"))
            if len(answers) != len(records) or not all(type(each) in (bool, str) for each in answers):
                raise WireError("answers of requires that are none")
        return answers


class _Call(torch.autograd.Function):
    """A call as autograd sees it here: gradients are asked of the candidate's process."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        candidate: Differentiates,
        call: int,
        moving: list[torch.Tensor],
        *wanted: torch.Tensor,
    ) -> tuple:
        ctx.candidate, ctx.call, ctx.count = candidate, call, len(wanted)
        return tuple(moving)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *upstream: object) -> tuple:
        return None, None, None, *ctx.candidate.gradients(ctx.call, list(upstream), ctx.count)


class Differentiates(Protocol):
    """What asks a candidate's process for gradients."""

    def gradients(self, call: int, upstream: Sequence[CudaTensor | None], count: int) -> list[Any]: ...


def differentiable(candidate: Differentiates, call: int, wanted: list, returned_value: Any, moving: list) -> Any:
    """`returned_value`, whose tensors `moving` have the gradients that the candidate's process computes."""
    found = iter(_Call.apply(candidate, call, moving, *wanted))
    replaced = {id(tensor): next(found) for tensor in moving}

    def outward(value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return replaced.get(id(value), value)
        if isinstance(value, dict):
            return {name: outward(each) for name, each in value.items()}
        return type(value)(map(outward, value)) if isinstance(value, list | tuple) else value

    return outward(returned_value)


def _about(device: Device) -> dict[str, Any]:
    """What the candidate's emulated GPU must answer as."""
    return {
        "arch": device.arch,
        "schedule": device.schedule_text,
        "tuning": device.tuning,
        "takes_cpu_tensors": device.options.takes_cpu_tensors,
        "tells_lines": device.origins is not None,
    }


def _own(value: object) -> Any:
    """An object of the candidate's among the arguments of a call."""
    if isinstance(value, RemoteObject):
        return {"object": value._number}
    raise UnencodableValueError(f"a {type(value).__name__} cannot be handed to the candidate's process")


def _no_tensor(value: object) -> Any:
    raise UnencodableValueError("requires is asked of sizes and names, not of tensors")


def claimed_fields(claim: object) -> dict[str, Any]:
    """The fields of a `LaunchResult` that the candidate's process claims for itself. It claims no fault of a device and no pass."""
    if type(claim) is not dict:
        raise WireError("what the candidate raised is no object")
    outcome = text(claim.get("outcome"), 100)
    fields = {name: text(claim.get(name) or "", 4000) for name in ("layer", "message", "location")}
    details = claim.get("details") or {}
    if type(details) is not dict:
        raise WireError("details are no object")
    if outcome not in CLAIMABLE:
        fields |= {"layer": "launcher", "message": f"the candidate's process claims {outcome!r}: {fields['message']}"}
        outcome = "launcher error"
    return {"outcome": outcome, **fields, "details": _shorten(details)}


def _shorten(value: object, depth: int = 0) -> Any:
    """JSON that a verdict may keep: no text over 4,000 characters, no list over 100, four levels."""
    if isinstance(value, dict) and depth < 4:
        return {name[:100]: _shorten(each, depth + 1) for name, each in list(value.items())[:100]}
    if isinstance(value, list) and depth < 4:
        return [_shorten(each, depth + 1) for each in value[:100]]
    return value[:4000] if isinstance(value, str) else value if type(value) in PLAIN_TYPES else "..."


def _tuned_choices(records: object) -> list[TuningChoice]:
    """What autotuners took, by the candidate's word."""
    return [
        TuningChoice(
            text(each.get("kernel"), 200),
            whole_number(each.get("of"), 0, MOST_CHOICES),
            whole_number(each.get("took"), 0, MOST_CHOICES),
            text(each.get("choice"), 4000),
            tuple(whole_number(place, 0, MOST_CHOICES) for place in listing(each.get("unfit"), MOST_CHOICES)),
        )
        for each in map(_record, listing(records, MOST_CHOICES))
    ]


def _tell_compilations(said: object) -> None:
    """Tell whoever listens to Triton's compilations of those over there, in microseconds."""
    for each in listing(said, MOST_CHOICES):
        if (listener := knobs.compilation.listener) is not None:
            listener(times=SimpleNamespace(total=whole_number(each)))


def _record(said: object) -> dict[str, Any]:
    if type(said) is not dict:
        raise WireError(f"no object: {said!r:.40}")
    return said


def _claims(said: object) -> Any:
    """As a launcher may say them; `launcher_limits` holds them to the known words."""
    if said is None or type(said) is str:
        return said
    return (
        [text(each, 200) if type(each) is str else each for each in listing(said, 100)] if type(said) is list else repr(said)[:200]
    )


class _PrintedDefault:
    """A default value that stays in the candidate's process; it prints as it does there."""

    def __init__(self, said: str) -> None:
        self.said = said

    def __repr__(self) -> str:
        return self.said


def _signature(said: object) -> inspect.Signature | None:
    if said is None:
        return None
    parameters = []
    for record in map(_record, listing(said, 1000)):
        kind, default = text(record.get("kind"), 40), listing(record.get("default"), 1)
        if kind not in inspect._ParameterKind.__members__:
            raise WireError(f"a parameter of kind {kind!r}")
        given: Any = inspect.Parameter.empty
        if default:
            given = _PrintedDefault(text(default[0].get("printed"), 200)) if type(default[0]) is dict else default[0]
        try:
            parameters.append(inspect.Parameter(text(record.get("name"), 200), inspect._ParameterKind[kind], default=given))
        except ValueError as error:
            raise WireError(f"a parameter that cannot be: {error}") from error
    try:
        return inspect.Signature(parameters)
    except ValueError as error:
        raise WireError(f"a signature that cannot be: {error}") from error


__all__ = ["Candidate", "Differentiates", "RemoteLauncher", "RemoteObject", "RemoteRequires", "claimed_fields", "differentiable"]
