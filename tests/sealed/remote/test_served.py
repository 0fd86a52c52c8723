"""Contract under test: what no honest process asks ends the call, against the candidate, and touches nothing here."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from bitverdict.harness.emulator import Device, EmulatedFault, LaunchOptions, emulated
from bitverdict.harness.sealed.remote import candidate_service
from bitverdict.harness.sealed.remote.channel import Channel
from bitverdict.harness.sealed.remote.errors import CandidateGone, CandidateRaised
from bitverdict.harness.sealed.remote.executor import RemoteLauncher
from bitverdict.harness.sealed.remote.operators import operator
from tests.support.forked_candidate import forked_candidate

Frame = dict[str, Any]
LOADED: Frame = {"done": "load", "object": 1, "type": "function", "name": "f", "callable": True, "signature": None}
DONE: Frame = {"done": "call", "result": {"tensor": 1}, "tuned": [], "compiled": []}


def scripted(loaded: Frame, *frames: tuple[Frame, list[bytes]]) -> Callable[[socket.socket], None]:
    """A candidate's process that answers the first request by `loaded`, and the call by `frames`, waiting for an answer after each
    question. A result that is "answer" stands for what the last answer says was raised."""

    def serve(connected: socket.socket) -> None:
        channel = Channel(connected)
        channel.receive()
        channel.send(loaded)
        request, buffers = channel.receive()
        answer: Frame = {}
        for said, held in frames:
            own, last = ("random" if "done" in said else "call"), {}
            if said.get("result") == "answer":
                last = {"result": answer.get("raised")}
            channel.send({own: request[own], **said, **last}, [*held, *buffers])
            if own == "call" and "told" not in said:
                answer, _ = channel.receive()

    return serve


@contextmanager
def called(loaded: Frame, *frames: tuple[Frame, list[bytes]]) -> Iterator[tuple[RemoteLauncher, torch.Tensor, Device]]:
    """The launcher, an operand of four floats on the device, which is tensor 1, and the device."""
    with forked_candidate(scripted(loaded, *frames)) as candidate, emulated("sm_90", options=LaunchOptions()) as device:
        launcher = candidate.launcher("anything.py:f")
        yield launcher, device.place(torch.arange(4.0)), device


def test_a_process_that_keeps_to_the_rules_is_served() -> None:
    """The twin of all below."""
    added = {"ask": "operate", "operator": "aten.add_.Tensor", "args": [{"tensor": 1}, 1], "kwargs": {}}
    with called(LOADED, (added, []), (DONE, [])) as (launcher, x, _):
        assert launcher(x) is x and x.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_memory_that_is_short_is_told_to_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no failure of the executor's, wherever the allocation was made; another error of our own code is one."""
    asked = {"ask": "construct", "function": "empty", "default": "float32", "args": [1], "kwargs": {}}
    for said, ends in (("DefaultCPUAllocator: can't allocate memory: 64 bytes", False), ("another", True)):

        def raises(*_: object, said: str = said) -> dict[str, Any]:
            raise RuntimeError(said)

        monkeypatch.setitem(candidate_service._QUESTIONS, "construct", raises)
        with called(LOADED, (asked, []), (DONE, [])) as (launcher, x, _):
            if ends:
                with pytest.raises(RuntimeError, match="another"):
                    launcher(x)
            else:
                assert launcher(x) is x


LAUNCH: Frame = {
    "ask": "launch", "program": 0, "sent": 0, "about": {"name": "f"}, "grid": [1, 1, 1], "names": [], "values": [], "constants": {},
}  # fmt: skip
OPERATE: Frame = {"ask": "operate", "operator": "aten.neg.default", "args": [{"tensor": 1}], "kwargs": {}}
ALLOCATION: Frame = {"ask": "construct", "function": "empty", "default": "float32", "args": [1], "kwargs": {}, "told": True}
VIEW: Frame = {"operator": "aten.t.default", "args": [{"tensor": 1}], "kwargs": {}, "as": -1}
DISHONEST: dict[str, tuple[Frame, str]] = {
    "another question": ({"ask": "eval", "text": "1"}, "there is none"),
    "a question that is no text": ({"ask": 7}, "no text"),
    "a tensor that is none": (OPERATE | {"args": [{"tensor": 9}]}, "no tensor 9"),
    "a tensor released twice": (OPERATE | {"released": [1, 1]}, "no tensor 1"),
    "arguments that are no list": (OPERATE | {"args": {"tensor": 1}}, "no list"),
    "keywords that are no object": (OPERATE | {"kwargs": []}, "no object"),
    "a function that allocates nothing": ({"ask": "construct", "function": "load", "default": "float32"}, "not one that allocates"),
    "a device of its own choice": (
        {"ask": "construct", "function": "empty", "default": "float32", "args": [1], "kwargs": {"device": "cpu"}}, "is given"),
    "an allocation that lies elsewhere": (ALLOCATION | {"as": -1, "lies": ["float32", [1], [1], 7]}, "lies otherwise"),
    "an allocation without a number": (ALLOCATION, "no whole number"),
    "another reason to read": ({"ask": "read", "tensor": 1, "by": "no one"}, "no such call"),
    "a fault of its own": ({"ask": "found", "outcome": "race", "message": "", "location": ""}, "cannot know"),
    "a program that was not sent": (LAUNCH | {"sent": None}, "no program 0"),
    "a program out of its turn": (LAUNCH | {"program": 3}, "program 3"),
    "names of no arguments": (LAUNCH | {"names": ["x"]}, "other arguments than names"),
    "a grid of two": (LAUNCH | {"grid": [1, 1]}, "no three numbers"),
    "metadata that are no identifiers": (LAUNCH | {"about": {"name": "f", "__class__": 1}}, "names that are none"),
    "views that are no list": (OPERATE | {"views": {}}, "no list"),
    "a view that is no object": (OPERATE | {"views": [7]}, "no object"),
    "a view by a number of the executor's": (OPERATE | {"views": [VIEW | {"as": 1}]}, "no whole number"),
    "two views of one number": (OPERATE | {"views": [VIEW, VIEW]}, "beside another"),
    "a view of a tensor that is none": (OPERATE | {"views": [VIEW | {"args": [{"tensor": -9}]}]}, "no tensor -9"),
    "a read without an answer": ({"ask": "read", "tensor": 1, "by": "numpy", "told": True}, "without an answer"),
    "the end of something else": ({"done": "load"}, "was not asked"),
    "a tensor of its own as the result": (DONE | {"result": {"tensor": 5}}, "no tensor 5"),
    "a choice of no autotuner": (DONE | {"tuned": [{"kernel": 1}]}, "no text"),
}  # fmt: skip


@pytest.mark.parametrize("what", DISHONEST)
def test_what_no_honest_process_sends_ends_the_call(what: str) -> None:
    said, why = DISHONEST[what]
    with called(LOADED, (said, [b"module"])) as (launcher, x, _), pytest.raises(CandidateGone, match=why) as raised:
        launcher(x)
    assert not raised.value.died and launcher._candidate.channel.broken
    assert x.cpu().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_a_grid_beyond_the_gpu_is_refused_and_launches_nothing() -> None:
    launch, done = LAUNCH | {"grid": [1, 70000, 1]}, DONE | {"result": "answer"}
    with called(LOADED, (launch, [b"module"]), (done, [])) as (launcher, x, device):
        assert "invalid argument: grid (1, 70000, 1)" in launcher(x)[1] and not device.launches


def test_what_a_process_claims_to_have_raised_is_believed_in_part() -> None:
    for outcome, believed in (
        ("pass", "launcher error"),
        ("stray write", "launcher error"),
        ("refused", "refused"),
        ("not run", "launcher error"),
    ):
        raised = {
            "done": "call",
            "raised": {"outcome": outcome, "message": "so it says", "layer": "launcher", "location": "", "details": {}},
        }
        with called(LOADED, (raised, [])) as (launcher, x, _), pytest.raises(CandidateRaised, match="so it says") as found:
            launcher(x)
        assert found.value.fields["outcome"] == believed


@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default",
        "aten.set_.source_Storage_storage_offset",
        "aten._index_put_impl_.default",
        "aten._unsafe_index_put.default",
        "aten._sparse_coo_tensor_unsafe.default",
        "aten.quantize_per_tensor.default",
        "aten.data.default",
        "aten.add",
        "aten.add.Tensor.x",
        "aten.__class__.default",
        "aten.overloads.default",
        "prim.device.default",
        "quantized.add.default",
    ],
)
def test_an_operator_that_trusts_its_arguments_is_refused_by_name(name: str) -> None:
    with pytest.raises(EmulatedFault, match="is not run"):
        operator(name)


@pytest.mark.parametrize(
    "name",
    ["aten.add.Tensor", "aten._to_copy.default", "aten.set_.source_Tensor", "aten.__lshift__.Scalar", "aten._foreach_add.Scalar"],
)
def test_an_operator_of_an_ordinary_launcher_is_run(name: str) -> None:
    assert str(operator(name)) == name
