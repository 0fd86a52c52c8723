"""The executor's side of a sealed launch on a real GPU: it has no device. Operands lie in its memory, and go to the candidate's
process and back as bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from bitverdict.harness.emulator.cuda_tensors import tensors_in
from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.judge.devices import target_device
from bitverdict.harness.judge.guarded_buffers import Poison
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.torch_internals import COUNT_ATTRIBUTE_TENSORS
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.sealed.candidate.arrays import channel_of, receive, send
from bitverdict.harness.sealed.candidate.claims import MOST_LINES
from bitverdict.harness.sealed.candidate.description import SealedLauncher, signature_of
from bitverdict.harness.sealed.candidate.tensors_as_bytes import ValueDecoder, ValueEncoder
from bitverdict.harness.sealed.remote.errors import CandidateGone, CandidateRaised, ChannelClosed, WireError
from bitverdict.harness.sealed.remote.executor import differentiable

LAUNCHED_KERNELS, OPERATORS = "kernels that its process says were launched", "computing operators of torch"


@dataclass(frozen=True)
class ByBytes(Target):
    """The memory of this process, in the place of a GPU that another process has."""

    @property
    def emulated(self) -> bool:
        return True


@target_device.register(ByBytes)
@contextmanager
def _enter_target(target: ByBytes, schedule: str = "eager", tuning: str = "", **options: object) -> Iterator[None]:
    yield None


class RaisedOnAGpu(CandidateRaised):
    """By a process that has the GPU: what it says of a fault there is believed."""


class CandidateOnAGpu:
    """Asks a process that serves `bitverdict.harness.sealed.candidate.on_a_gpu`."""

    def __init__(self, connected: socket.socket) -> None:
        self.channel = channel_of(connected)

    def launcher(self, address: str, *, folders: Sequence[str] = (), arch: str = "") -> GpuLauncher:
        """What stands for the object at `address`. A real GPU says itself what it is, whatever `arch`."""
        said, _ = self.ask({"do": "load", "address": address, "folders": list(folders)}, {})
        return GpuLauncher(self, address, folders, said)

    def ask(self, record: dict[str, Any], arrays: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """What it answers. CandidateRaised for what the candidate raised, CandidateGone where it gives no answer."""
        try:
            send(self.channel, record, arrays)
            answer, answer_arrays = receive(self.channel)
        except ChannelClosed as error:
            raise CandidateGone(str(error), died=True) from error
        except WireError as error:
            raise CandidateGone(f"the candidate's process sent what cannot be: {error}", died=False) from error
        if isinstance(raised := answer.get("raised"), dict):
            raise RaisedOnAGpu({"outcome": "", "message": "", **raised})
        return answer, answer_arrays


class GpuLauncher:
    """What stands for an imported launcher where a contract launches one: tensors of this process go over as bytes."""

    def __init__(self, candidate: CandidateOnAGpu, address: str, folders: Sequence[str], description: dict[str, Any]) -> None:
        self.candidate, self._asked = candidate, {"address": address, "folders": list(folders)}
        self.poison, self.tuning = Poison.of_seed(0), ""
        self.seen: list[dict[str, Any]] = []
        """What the process says of each call, since the launch began."""
        self.forgotten: list[int] = []
        self._objects = WeakValueDictionary[int, GpuObject]()
        self._calls, self._launches = 0, 0
        with _honest():
            known = SealedLauncher(description, lambda fields: [])
            self.__name__, self.kind, self.callable, self.claims = known.__name__, known.kind, known.is_callable, known.claims
            self.requires = known.requires
            if description["parameters"] is not None:
                self.__signature__ = signature_of(description["parameters"])

    def begin(self) -> None:
        """A launch begins: what its process keeps of an earlier one is another's."""
        self._launches += 1
        self.seen.clear()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(args, kwargs)

    def call(
        self, args: Sequence[object], kwargs: Mapping[str, object], number: int | None = None, method: str = "", state: Mapping = {}
    ) -> Any:
        """What the launcher returns; with a `number` the object of that number, or its `method`, with the weights `state`."""
        self._calls += 1
        call, sent = self._calls, ValueEncoder(numbered=_number)
        record = {
            "object": number, "method": method, "state": sent(dict(state)), "gradients": torch.is_grad_enabled(), "call": call,
            "seed": torch.initial_seed(), "args": sent(tuple(args)), "kwargs": sent(dict(kwargs)),
        }  # fmt: skip
        made, moving = self._ask("call", record, sent)
        wanted = [each for each in tensors_in([args, kwargs]) if each.requires_grad]
        return differentiable(self, call, wanted, made, moving) if wanted and moving else made

    def gradients(self, call: int, upstream: Sequence[object], count: int) -> list[Any]:
        """The gradients of `count` arguments of the call numbered `call`, from those of what it returned."""
        sent = ValueEncoder()
        found, _ = self._ask("gradients", {"of": call, "args": sent(upstream)}, sent)
        with _honest():
            if type(found) is not list or len(found) != count or not all(each is None or type(each) is Tensor for each in found):
                raise WireError(f"gradients of {count} arguments must be {count} tensors or None")
        return found

    def _ask(self, do: str, record: dict[str, object], value_encoder: ValueEncoder) -> tuple[Any, list[Tensor]]:
        """What comes back, and those of its tensors that have a gradient; the storages that went over are as they were left."""
        forgotten, self.forgotten = self.forgotten, []
        record |= self._asked | {
            "do": do, "launch": self._launches, "poison": [self.poison.output, self.poison.around_inputs], "tuning": self.tuning,
            "storages": len(value_encoder.storages), "forgotten": forgotten,
        }  # fmt: skip
        rng_state = torch.get_rng_state()
        answer, answer_arrays = self.candidate.ask(record, value_encoder.arrays() | {"random": rng_state.numpy()})
        with _honest():
            storages = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in value_encoder.storages]
            for place, storage in enumerate(storages):
                came = answer_arrays[f"storage {place}"]
                if came.nbytes != storage.numel():
                    raise WireError(f"{came.nbytes} bytes of a storage of {storage.numel()}")
                storage.copy_(torch.from_numpy(came.copy()))
            if (random := answer_arrays["random"]).dtype != np.uint8 or random.shape != rng_state.shape:
                raise WireError("no state of a generator")
            torch.set_rng_state(torch.from_numpy(random.copy()))
            self.seen.append(answer)
            made = ValueDecoder(storages, answer_arrays, torch.device("cpu"), self._object)
            return made(answer.get("result")), made.moving

    def _object(self, number: object) -> GpuObject:
        if type(number) is not int:
            raise WireError(f"an object of the number {number!r:.40}")
        return self._objects.get(number) or self._objects.setdefault(number, GpuObject(self, number))


class GpuObject:
    """An object that the candidate constructed in its process, as a `ModelNew`. Its weights lie here too, once they are asked for:
    what is written to them goes over with the next call."""

    def __init__(self, launcher: GpuLauncher, number: int) -> None:
        self._launcher, self._number = launcher, number
        self._state: dict[str, Tensor] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._launcher.call(args, kwargs, self._number, state=self._state)

    def to(self, device: object) -> GpuObject:
        self._launcher.call((device,), {}, self._number, "to")
        return self

    def eval(self) -> GpuObject:
        self._launcher.call((), {}, self._number, "eval")
        return self

    def count_attribute_tensors(self) -> int:
        count = self._launcher.call((), {}, self._number, COUNT_ATTRIBUTE_TENSORS)
        with _honest():
            if type(count) is not int:
                raise WireError(f"{COUNT_ATTRIBUTE_TENSORS} of no number")
        return count

    def named_parameters(self) -> Mapping[str, Tensor]:
        """By their names; likewise `named_buffers`."""
        return self._named_tensors("named_parameters")

    def named_buffers(self) -> Mapping[str, Tensor]:
        return self._named_tensors("named_buffers")

    def _named_tensors(self, method: str) -> Mapping[str, Tensor]:
        found = self._launcher.call((), {}, self._number, method)
        with _honest():
            if type(found) is not dict or not all(type(each) is Tensor for each in found.values()):
                raise WireError(f"{method} of no tensors by name")
        self._state |= (found := {name: each.detach() for name, each in found.items()})
        return found

    def __del__(self) -> None:
        self._launcher.forgotten.append(self._number)


def _number(value: object) -> int | None:
    return value._number if isinstance(value, GpuObject) else None


@contextmanager
def _honest() -> Iterator[None]:
    try:
        yield
    except (WireError, KeyError, TypeError, ValueError) as error:
        raise CandidateGone(f"the candidate's process sent what cannot be: {type(error).__name__}: {error}", died=False) from error


def launch_by_bytes(
    case: Case, target: Target, launcher: GpuLauncher, launch: Callable[[Target], LaunchResult], poison: Poison | None = None
) -> LaunchResult:
    """What `launch` comes to on this process's memory, with what the candidate's process says of its GPU. `poison`: None for that
    of the case's data seed."""
    launcher.poison, launcher.tuning = poison or Poison.of_seed(case.data_seed), case.tuning
    launch_result = LaunchResult()
    for _ in range(1 if case.tuning or case.config is not None else 2):  # as `judge.launch`: its autotuners time in the first one
        launcher.begin()
        launch_result = launch(ByBytes(target.name, target.arch))
        if launch_result.outcome is not None:
            break
    with _honest():
        launch_result.launches = sum(int(report["launches"]) for report in launcher.seen)
        listed = [report["instructions"] for report in launcher.seen]
        if listed and all(report is not None for report in listed):
            launch_result.launch_record["instructions"] = sorted({tuple(map(str, one)) for report in listed for one in report})
        counted = sorted({f"{name} ({count})" for report in launcher.seen for name, count in report["operators"]})[:MOST_LINES]
        launch_result.launch_record |= {LAUNCHED_KERNELS: launch_result.launches, OPERATORS: counted}
        outside = next((report["outside"] for report in launcher.seen if report["outside"] is not None), None)
        if outside is not None and launch_result.outcome is None:
            found = Outcome(outside[0])
            launch_result.outcome = found if found in (Outcome.STRAY_WRITE, Outcome.INPUT_CHANGED) else Outcome.STRAY_WRITE
            launch_result.message = str(outside[1])[:400]
    return launch_result
