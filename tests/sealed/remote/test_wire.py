"""Contract under test: a value comes as it was sent, and nothing else is made of what comes."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bitverdict.harness.sealed.remote.errors import WireError
from bitverdict.harness.sealed.remote.wire import Decoder, Encoder, UnencodableValueError


def sent(value: Any) -> Any:
    encoder = Encoder(lambda tensor: pytest.fail("no tensor of the GPU"))
    said = json.loads(json.dumps(encoder(value)))
    return Decoder([bytearray(each) for each in encoder.buffers], lambda said: pytest.fail("no tensor of the GPU"))(said)


PLAIN = st.none() | st.booleans() | st.integers(-(1 << 127), 1 << 127) | st.floats(allow_nan=False) | st.text(max_size=20)
NESTED = st.recursive(
    PLAIN,
    lambda each: (
        st.lists(each, max_size=3) | st.lists(each, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), each, max_size=3)
    ),
    max_leaves=8,
)


@given(NESTED)
def test_plain_values_come_as_they_were_sent(value: Any) -> None:
    came = sent(value)
    assert came == value and repr(came) == repr(value)


def test_what_torch_takes_comes_as_it_was_sent() -> None:
    value = [torch.float8_e4m3fn, torch.device("cpu"), torch.strided, torch.channels_last, slice(1, None, 2), 1 + 2j]
    assert sent(value) == value
    assert math.isnan(sent(math.nan)) and sent(-math.inf) == -math.inf


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float8_e5m2, torch.bool, torch.int64, torch.complex64], ids=str
)
def test_a_tensor_of_the_cpu_comes_with_its_words_and_strides(dtype: torch.dtype) -> None:
    whole = torch.arange(24).reshape(2, 3, 4).to(dtype)
    for tensor, strides in (
        (whole, (12, 4, 1)),
        (whole.permute(2, 0, 1), (1, 12, 4)),
        (whole[:, ::2, 1:], (6, 3, 1)),  # with gaps, so its copy has those of rows
        (whole[0, 0, 0], ()),
        (whole[:, :, :0], (0, 0, 1)),
    ):
        came = sent(tensor)
        assert came.dtype == dtype and came.shape == tensor.shape
        assert not tensor.numel() or came.stride() == strides
        assert came.tolist() == tensor.tolist()


MALFORMED: dict[str, tuple[Any, list[bytes], str]] = {
    "a name": ({"import": "os"}, [], "unknown kind"),
    "a dtype that is none": ({"dtype": "load"}, [], "there is none"),
    "a device that is none": ({"device": "cuda:1"}, [], "there is none"),
    "a buffer that is none": ({"host": 1, "dtype": "float32", "size": [1]}, [bytes(4)], "no buffer 1"),
    "a buffer before the first": ({"host": -1, "dtype": "float32", "size": [1]}, [bytes(4)], "no buffer -1"),
    "too few bytes": ({"host": 0, "dtype": "float32", "size": [2]}, [bytes(4)], "in 4 bytes"),
    "sizes that wrap": ({"host": 0, "dtype": "int8", "size": [1 << 62, 4]}, [b""], "in 0 bytes"),
    "a negative size": ({"host": 0, "dtype": "int8", "size": [-1]}, [bytes(1)], "no whole number"),
    "strides past the end": ({"host": 0, "dtype": "int8", "size": [2], "stride": [2]}, [bytes(2)], "not dense"),
    "strides of other axes": ({"host": 0, "dtype": "int8", "size": [2], "stride": [1, 1]}, [bytes(2)], "other axes"),
    "strides that overlap": ({"host": 0, "dtype": "int8", "size": [2, 2], "stride": [1, 1]}, [bytes(4)], "not dense"),
    "a number of 129 bits": (1 << 128, [], "129 bits"),
    "lists 17 deep": (json.loads("[" * 17 + "]" * 17), [], "deep"),
    "a slice of two": ({"slice": [1, 2]}, [], "three parts"),
    "a key that is a list": ({"dict": [[[1], 2]]}, [], "no hash"),
    "a complex of texts": ({"complex": ["1", "2"]}, [], "two floats"),
    "a descriptor of no tensor": ({"descriptor": {"base": 1, "shape": [1], "strides": [1], "block_shape": [1]}}, [], "no tensor"),
    "a descriptor with a field more": (
        {"descriptor": {"base": 1, "shape": 1, "strides": 1, "block_shape": 1, "f": 1}},
        [],
        "fields",
    ),
    "a reinterpreted number": ({"reinterpret": 1, "as": "fp32"}, [], "no tensor"),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_what_no_encoder_makes_is_refused(what: str) -> None:
    said, buffers, why = MALFORMED[what]
    with pytest.raises(WireError, match=why):
        Decoder([bytearray(each) for each in buffers], lambda said: pytest.fail("no tensor of the GPU"))(said)


def test_what_is_not_listed_is_not_sent() -> None:
    for value in (object(), len, json, torch.nn.Linear(1, 1), torch.empty(1, device="meta")):
        with pytest.raises(UnencodableValueError, match="cannot be handed"):
            sent(value)
