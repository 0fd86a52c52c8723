"""Contract under test: of what the candidate's process and the executor say only what a launch can come to is believed."""

from __future__ import annotations

import socket
from typing import Any

import numpy as np
import pytest
import torch

from bitverdict.harness.judge.classify import LaunchResult
from bitverdict.harness.model.verdict import Outcome
from bitverdict.harness.sealed.candidate.arrays import channel_of, receive, send
from bitverdict.harness.sealed.candidate.claims import read_claim
from bitverdict.harness.sealed.candidate.seen_as_bytes import RealValues, decode_result, encode_result
from bitverdict.harness.sealed.candidate.tensors_as_bytes import MOST_ELEMENTS, ValueDecoder
from bitverdict.harness.sealed.remote.errors import WireError

SEEN = LaunchResult(
    outputs={"c": np.arange(6, dtype=np.uint16).reshape(2, 3)},
    dtypes={"c": "torch.float16"},
    enclosures={"c": (np.zeros((2, 3), np.uint16), np.ones((2, 3), np.uint16))},
    real_values={"c": RealValues(np.ones((2, 3)), np.zeros((2, 3)))},
    hangs=(("exp", "k.py:3"),),
    launches=1,
    launch_record={"outputs": [["c", "fp16"]], "size": np.int64(3)},
    advice=("something",),
)


def test_what_a_launch_came_to_goes_over_and_back() -> None:
    one, other = map(channel_of, socket.socketpair())
    send(one, *encode_result(SEEN))
    back = decode_result(*receive(other))
    assert back.launch_record == {"outputs": [["c", "fp16"]], "size": 3}
    assert (back.dtypes, back.hangs, back.launches, back.advice) == (SEEN.dtypes, SEEN.hangs, 1, SEEN.advice)
    assert np.array_equal(back.outputs["c"], SEEN.outputs["c"]) and np.array_equal(back.enclosures["c"][1], SEEN.enclosures["c"][1])
    assert np.array_equal(back.real_values["c"].value, SEEN.real_values["c"].value)


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"outcome": "pass"}, {}),
        ({"outcome": "all is well"}, {}),
        ({"dtypes": {"c": "torch.float16", "d": "torch.float16"}}, {}),
        ({"dtypes": {"c": "torch.float32"}}, {}),
        ({"dtypes": {"c": "numpy.float16"}}, {}),
        ({"launches": "1"}, {}),
        ({"details": ["a list"]}, {}),
        ({"hangs": [["exp"]]}, {}),
        ({}, {"value c": np.ones((3, 2))}),
        ({}, {"low d": np.ones((2, 3), np.uint16)}),
        ({}, {"output c": np.ones((2, 3), np.float16)}),
        ({}, {"code c": np.ones((2, 3))}),
    ],
)
def test_what_no_launch_comes_to_is_refused(record: dict, arrays: dict) -> None:
    right, beside = encode_result(SEEN)
    with pytest.raises(WireError):
        decode_result(right | record, beside | arrays)


@pytest.mark.parametrize(
    "header",
    [
        {"record": {}, "arrays": [["a", "uint8", [3]]]},
        {"record": {}, "arrays": [["a", "object", [1]]]},
        {"record": {}, "arrays": [["a", "float64", [-1]]]},
        {"record": {}, "arrays": []},
        {"record": [], "arrays": [["a", "uint8", [8]]]},
    ],
)
def test_arrays_that_are_not_those_that_came_are_refused(header: dict[str, Any]) -> None:
    one, other = map(channel_of, socket.socketpair())
    one.send(header, [b"12345678"])
    with pytest.raises(WireError):
        receive(other)


@pytest.mark.parametrize(
    ("outcome", "layer", "comes_to"),
    [
        ("refused", "launcher", Outcome.REFUSED),
        ("refused", "ptxas", Outcome.REFUSED),
        ("launcher error", "launcher", Outcome.LAUNCHER_ERROR),
        ("out of resources", "capacity", Outcome.OUT_OF_RESOURCES),
        ("out of memory", "hardware", Outcome.OUT_OF_MEMORY),
        ("error", "machine", Outcome.LAUNCHER_ERROR),
        ("illegal instruction", "hardware", Outcome.LAUNCHER_ERROR),
        ("race", "emulator", Outcome.LAUNCHER_ERROR),
        ("pass", "", Outcome.LAUNCHER_ERROR),
        ("not run", "machine", Outcome.LAUNCHER_ERROR),
        (["refused"], {}, Outcome.LAUNCHER_ERROR),
    ],
)
def test_a_candidate_claims_what_a_launcher_may_come_to_and_no_more(outcome: Any, layer: Any, comes_to: Outcome) -> None:
    fields = {"outcome": outcome, "layer": layer, "message": "said", "details": {"raised": "E", "status": -9, "gone": 1}}
    seen = read_claim(fields)
    assert seen.outcome is comes_to and "said" in seen.message
    if outcome == "illegal instruction":
        assert read_claim(fields, on_a_gpu=True).outcome is Outcome.ILLEGAL_INSTRUCTION
    assert seen.details == {"raised": "E"}


@pytest.mark.parametrize(
    "said",
    [
        ["a list"],
        {"list": [], "tuple": []},
        {"list": [None] * (MOST_ELEMENTS + 1)},
        {"moved": [3]},
        {"_init__": [[], {}, None, None]},
        {"object": 7},
        {"dtype": "Tensor"},
        {"record": [["one", 1, 2]]},
        {"view": [1, "uint8", [1], [1], 0, False]},
        {"view": [0, "uint8", [9], [1], 0, False]},
        {"view": [0, "uint8", [1], [1], -4, False]},
        {"view": [0, "float32", [2, 2], [1, 1], 0, False]},
        {"view": [-1, "uint8", [1], [1], 0, False]},
        {"words": ["words 0", "float32", [1], False]},
        {"words": ["words 0", "uint8", [1 << 40], False]},
        {"words": ["storage 0", "uint8", [3], False]},
    ],
)
def test_a_value_that_a_call_on_a_gpu_cannot_give_is_refused(said: Any) -> None:
    came = ValueDecoder(
        [torch.zeros(8, dtype=torch.uint8)], {"words 0": np.zeros(3, np.uint8)}, torch.device("cpu"), {}.__getitem__
    )
    right = [{"view": [0, "float32", [2, 0], [1, 1], 2, False]}, {"view": [0, "float32", [1, 2], [9, 1], 0, False]}]
    assert [list(each.shape) for each in came({"tuple": right})] == [[2, 0], [1, 2]]
    assert came({"words": ["words 0", "uint8", [3], False]}).tolist() == [0, 0, 0]
    with pytest.raises(WireError):
        came(said)
