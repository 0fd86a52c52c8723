"""The executor's side of a sealed launch on a real GPU: it has no device. Operands lie in its memory, and go to the candidate's
process and back as bytes."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from bitverdict.harness.emulator.remote.errors import CandidateGone, CandidateRaised, ChannelClosed, WireError
from bitverdict.harness.judge.classify import Seen
from bitverdict.harness.judge.devices import entered
from bitverdict.harness.judge.guarded_buffers import Poison
from bitverdict.harness.judge.sealed.arrays import channel_of, receive, send
from bitverdict.harness.judge.sealed.claims import MOST_LINES
from bitverdict.harness.judge.sealed.description import SealedLauncher, signature_of
from bitverdict.harness.judge.sealed.tensors_as_bytes import Sent, received
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.targets import Target
from bitverdict.harness.model.verdict import Outcome

LAUNCHED, OPERATORS = "kernels that its process says were launched", "computing operators of torch"


@dataclass(frozen=True)
class ByBytes(Target):
    """The memory of this process, in the place of a GPU that another process has."""

    @property
    def emulated(self) -> bool:
        return True


@entered.register(ByBytes)
@contextmanager
def _entered(target: ByBytes, schedule: str = "eager", tuning: str = "", **options: Any) -> Iterator[None]:
    yield None


class CandidateOnAGpu:
    """Asks a process that serves `bitverdict.harness.judge.sealed.on_a_gpu`."""

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
            answer, back = receive(self.channel)
        except ChannelClosed as error:
            raise CandidateGone(str(error), died=True) from error
        except WireError as error:
            raise CandidateGone(f"the candidate's process sent what cannot be: {error}", died=False) from error
        if isinstance(raised := answer.get("raised"), dict):
            raise CandidateRaised({"outcome": "", "message": "", **raised})
        return answer, back


@dataclass
class GpuLauncher:
    """What stands for an imported launcher where a contract launches one: tensors of this process go over as bytes."""

    candidate: CandidateOnAGpu
    address: str
    folders: Sequence[str]
    said: dict[str, Any]
    poison: Poison = field(default_factory=lambda: Poison.of(0))
    tuning: str = ""
    seen: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        with _honest():
            known = SealedLauncher(self.said, lambda fields: [])
            self.__name__, self.kind, self.callable, self.claims = known.__name__, known.kind, known.is_callable, known.claims
            self.requires = known.requires
            if self.said["parameters"] is not None:
                self.__signature__ = signature_of(self.said["parameters"])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        sent = Sent()
        record = {
            "do": "call", "address": self.address, "folders": list(self.folders), "tuning": self.tuning,
            "poison": [self.poison.output, self.poison.around_inputs],
            "args": sent(tuple(args)), "kwargs": sent(tuple(kwargs.items())), "storages": len(sent.storages),
        }  # fmt: skip
        answer, back = self.candidate.ask(record, sent.arrays())
        with _honest():
            storages = [torch.empty(0, dtype=torch.uint8).set_(storage) for storage in sent.storages]
            for place, storage in enumerate(storages):
                came = back[f"storage {place}"]
                if came.nbytes != storage.numel():
                    raise WireError(f"{came.nbytes} bytes of a storage of {storage.numel()}")
                storage.copy_(torch.from_numpy(came.copy()))
            self.seen.append(answer)
            return received(answer.get("result"), storages, back, torch.device("cpu"))


@contextmanager
def _honest() -> Iterator[None]:
    try:
        yield
    except (WireError, KeyError, TypeError, ValueError) as error:
        raise CandidateGone(f"the candidate's process sent what cannot be: {type(error).__name__}: {error}", died=False) from error


def launched(case: Case, target: Target, launcher: GpuLauncher, launch: Callable[[Target], Seen]) -> Seen:
    """What `launch` comes to on this process's memory, with what the candidate's process says of its GPU."""
    launcher.poison, launcher.tuning = Poison.of(case.data_seed), case.tuning
    seen = launch(ByBytes(target.name, target.arch))
    with _honest():
        seen.launches = sum(int(each["launches"]) for each in launcher.seen)
        listed = [each["instructions"] for each in launcher.seen]
        if listed and all(each is not None for each in listed):
            seen.recorded["instructions"] = sorted({tuple(map(str, one)) for each in listed for one in each})
        counted = sorted({f"{name} ({count})" for each in launcher.seen for name, count in each["operators"]})[:MOST_LINES]
        seen.recorded |= {LAUNCHED: seen.launches, OPERATORS: counted}
        outside = next((each["outside"] for each in launcher.seen if each["outside"] is not None), None)
        if outside is not None and seen.outcome is None:
            found = Outcome(outside[0])
            seen.outcome = found if found in (Outcome.STRAY_WRITE, Outcome.INPUT_CHANGED) else Outcome.STRAY_WRITE
            seen.message = str(outside[1])[:400]
    return seen
