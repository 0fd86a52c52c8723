"""The judge's side of a sealed launch: it sends the case and its operands to an executor, and gets back what came of it.

The judge's process never imports the candidate's file (`bitverdict.harness.model.sealing`). What the executor says is checked
before it is compared with anything.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from bitverdict.harness.judge.classify import CANDIDATE_GONE, LaunchResult, of_status
from bitverdict.harness.judge.clock import Clock
from bitverdict.harness.judge.pending_launch import PendingLaunch
from bitverdict.harness.judge.remote_launcher import LaunchRequest, RemoteLauncher
from bitverdict.harness.model.case import Case
from bitverdict.harness.model.contract import Contract
from bitverdict.harness.model.usage import UsageError
from bitverdict.harness.model.verdict import PROCESS, ZYGOTE, Outcome
from bitverdict.harness.sealed.candidate.arrays import PREPARE, receive, send
from bitverdict.harness.sealed.candidate.description import SealedLauncher
from bitverdict.harness.sealed.candidate.seen_as_bytes import decode_result
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import ChannelClosed, WireError


@dataclass(frozen=True)
class End:
    """How a process ended. `status`: -N for signal N, else the exit status; None: it lived until it was killed for `why`.
    `with_zygote`: what it was forked from ended first."""

    status: int | None = None
    why: str = ""
    with_zygote: bool = False


class Executor(Protocol):
    """The process that launches, and those of the candidate, which the judge's worker starts. `channel` leads to the first."""

    channel: Channel

    def candidate(self, address: str, *, fresh_process: bool, gpu: bool) -> int:
        """The number of a process for the candidate at `address`, whose socket the executor has: the one that serves call after
        call, or one that has served none. `gpu`: one that has the worker's GPU, and is given bytes."""
        ...

    def drop(self, candidate: int, *, died: bool = False) -> End:
        """How the process of that number ended: it is killed, where it has not `died`. The next call has another."""
        ...

    def wait_end(self) -> End:
        """How the executor ended, once `channel` is closed on the other side."""
        ...

    def end(self) -> None:
        """End the executor, and with it the processes of the candidate: the next call has others."""
        ...


executor: Callable[[str], Executor] | None = None
"""Gives the executor of this process for the contract at an address; "" for none. A worker puts it in."""
why_none = ""  # why this worker of sealed cases could not put one in


class NoZygote(Exception):
    """A process could not be started, since there is nothing to fork it from. The text says why."""


class NoAnswer(Exception):
    """What stands in the place of an answer, as a `LaunchResult`."""

    def __init__(self, seen: LaunchResult) -> None:
        super().__init__(seen.message)
        self.seen = seen


def ask_executor(
    request: str,
    address: str,
    record: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    *,
    fresh_process: bool = False,
    gpu: bool = False,
) -> Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Ask the executor. What comes gives its answer: NoAnswer where it or the candidate's process ended, or it failed."""
    if executor is None and why_none:
        return partial(_raise_no_answer, partial(_of_a_zygote, why_none))
    if executor is None:
        raise UsageError(f"{address}: a sealed case is judged by a worker; leave --in-process out")
    address = _absolute(address)
    try:
        process = executor(record["case"]["contract"] if "case" in record else "")
        try:
            number = process.candidate(address, fresh_process=fresh_process, gpu=gpu)
        except OSError:  # the executor was gone, and could not be handed one
            return partial(_raise_no_answer, lambda: _of_the_executor(process.wait_end()))
    except NoZygote as error:
        return partial(_raise_no_answer, partial(_of_a_zygote, str(error)))
    failed: Exception | None = None
    try:
        send(process.channel, {"asks": request, "launcher": address, "candidate": number, **record}, arrays)
    except (WireError, TypeError, AttributeError) as error:
        failed = error
    return partial(_answer, process, number, fresh_process, failed)


def _raise_no_answer(seen: Callable[[], LaunchResult]) -> NoReturn:
    raise NoAnswer(seen())


def _absolute(address: str) -> str:
    """As the other processes find it, which have folders of their own."""
    place, _, name = address.rpartition(":")
    return f"{Path(place).resolve()}:{name}"


def _answer(
    process: Executor, number: int, fresh_process: bool, failure: Exception | None
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What the executor says of the candidate's process `number`; `failed`: why it was not asked."""
    candidate_gone, executor_done = fresh_process, False
    try:
        if failure is not None:
            raise failure
        answer, answer_arrays = receive(process.channel)
        executor_done, candidate_gone = answer.get("over") is True, fresh_process or answer.get("spent") is True
        if "failed" in answer:
            said = f"the executor failed: {answer['failed']}"
            raise NoAnswer(LaunchResult(Outcome.ERROR, "harness", said[:400], details=_mapping(answer.get("details"))))
        if "seen" in answer and CANDIDATE_GONE in _mapping(answer["seen"].get("details")):
            candidate_gone = False
            seen = decode_result(answer["seen"], {})
            raise NoAnswer(_of_the_candidate(seen, process.drop(number, died=seen.details.get("died") is True)))
        return answer, answer_arrays
    except ChannelClosed:
        candidate_gone = False  # all of them end with the executor
        raise NoAnswer(_of_the_executor(process.wait_end())) from None
    except (WireError, TypeError, AttributeError) as error:
        raise NoAnswer(_nonsense(error)) from error
    finally:
        if candidate_gone:
            process.drop(number)
        if executor_done:
            process.end()


@dataclass
class SealedCaseLauncher(RemoteLauncher):
    """The launcher of a sealed case, for the judge. `fresh_process`: a process of the candidate that has served no call."""

    fresh_process: bool = False
    _case_record: tuple[Case, dict[str, Any]] | None = None

    def prepare(self, case: Case, contract: Contract) -> None:
        """Have the executor begin with what it needs no operands for, while they are drawn here. There is no answer."""
        if executor is None:
            return
        with suppress(OSError, WireError, NoZygote):  # who asks it next is told that it has ended
            about = self._about(case, contract)
            other = executor(about["case"]["contract"])
            send(other.channel, {"asks": PREPARE, "launcher": _absolute(case.launcher), **about}, {})

    def _about(self, case: Case, contract: Contract) -> dict[str, Any]:
        """What an executor is told of a case."""
        if self._case_record is None or self._case_record[0] is not case:
            self._case_record = case, contract.to_launch(case).to_json()
        return {"case": self._case_record[1], "directory": os.getcwd()}

    def begin(self, request: LaunchRequest) -> PendingLaunch:
        """Launch the case in the executor, which goes on when this returns."""
        case, target, allocations = request.case, request.target, request.allocations
        record = {
            **self._about(case, request.contract),
            "target": {"name": target.name, "arch": target.arch, "index": target.index},
            "rounded_arguments": request.rounded_arguments,
            "followed": allocations.tracks_unwritten,
            "zeroed": allocations.zero_allocation,
            "poison": None if (poison := allocations.poison) is None else [poison.output, poison.around_inputs],
            "operands": [
                {"name": each.name, "format": each.format, "strides": each.strides, "offset": each.offset}
                for each in request.operands.values()
            ],
        }
        codes = {name: each.codes for name, each in request.operands.items()}
        answer = ask_executor("launch", case.launcher, record, codes, fresh_process=self.fresh_process, gpu=not target.emulated)
        return PendingLaunch(partial(_read_answer, answer, request.clock, request.contract))

    def stand_in(self, folders: Sequence[str], address: str) -> SealedLauncher:
        """What answers for the candidate at `address`, which is asked once in this process."""
        return _stand_in(tuple(folders), address)


@functools.cache
def _stand_in(folders: tuple[str, ...], address: str) -> SealedLauncher:
    return SealedLauncher(description(address, folders), lambda fields: ask_requires(address, folders, fields))


def _read_answer(
    answer: Callable[[], tuple[dict[str, Any], dict[str, np.ndarray]]], clock: Clock, contract: Contract
) -> LaunchResult:
    """What an executor's `answer` says of a launch."""
    try:
        said, arrays = answer()
        launch_result = decode_result(said["seen"], arrays)
        _add(clock, said["seconds"])
        contract.take(said["left"])
    except NoAnswer as end:
        return end.seen
    except (KeyError, TypeError, ValueError, AttributeError, WireError) as error:
        return _nonsense(error)
    return launch_result


def description(address: str, folders: Sequence[str]) -> dict[str, Any]:
    """What the candidate says of itself (`bitverdict.harness.sealed.candidate.description`). UsageError where it cannot."""
    return _ask_description(address, {"folders": list(folders)}, "describe")


def ask_requires(address: str, folders: Sequence[str], fields: Sequence[Mapping[str, object]]) -> list[bool | str]:
    """Of each of `fields` whether the candidate's `requires` takes it, or what that raised."""
    found = _ask_description(address, {"folders": list(folders), "fields": list(fields)}, "requires").get("taken")
    if not isinstance(found, list) or len(found) != len(fields) or not all(isinstance(each, bool | str) for each in found):
        raise UsageError(f"{address}: its process does not say what its requires takes")
    return found


def _ask_description(address: str, record: Mapping[str, object], what: str) -> dict[str, Any]:
    try:
        answer, _ = ask_executor(what, address, record, {})()
    except NoAnswer as end:
        raise UsageError(f"{address}: {end.seen.message}") from None
    if "seen" in answer:
        raise UsageError(decode_result(answer["seen"], {}).message)
    return answer


def _of_the_candidate(launch_result: LaunchResult, end: End) -> LaunchResult:
    """The launch `launch_result`, whose end was that of the candidate's process."""
    if end.with_zygote:
        return _of_a_zygote(end.why)
    details = {"status": end.status, PROCESS: "candidate"} | ({"why": end.why} if end.why else {})
    if end.status is None:
        said = f"the candidate's process is no longer asked: {end.why or launch_result.details[CANDIDATE_GONE]}"
        return replace(launch_result, message=said[:400], details=details)
    outcome, said = of_status(end.status, "the candidate's process")
    return replace(launch_result, outcome=outcome, message=said + (f": {end.why}" if end.why else ""), details=details)


def _of_the_executor(end: End) -> LaunchResult:
    if end.with_zygote:
        return _of_a_zygote(end.why)
    outcome, said = of_status(end.status, "the process that executes its tile programs")
    why = {"why": end.why} if end.why else {}
    return LaunchResult(outcome, "launcher", said, details={"status": end.status, PROCESS: "executor"} | why)


def _of_a_zygote(why: str) -> LaunchResult:
    """Nobody knows why it ended, so it counts against nobody. The next case has another (`PROCESS`: `ZYGOTE`)."""
    return LaunchResult(Outcome.ERROR, "machine", f"the jail ended: {why}"[:400], details={PROCESS: ZYGOTE})


def _nonsense(error: Exception) -> LaunchResult:
    return LaunchResult(Outcome.ERROR, "harness", f"the executor's answer is none: {type(error).__name__}: {error}"[:400])


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _add(clock: Clock, seconds: Mapping[str, Any]) -> None:
    """The executor's own account of its time. What lies between is that of the way there and back."""
    for bucket, spent in seconds.items():
        if bucket in ("launch", "compile", "transfer", "tuning"):
            clock.buckets[bucket] = clock.buckets.get(bucket, 0.0) + float(np.clip(float(spent), 0.0, 1e6))
